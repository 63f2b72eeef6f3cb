"""Progress messages during a run."""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from conftest import Clock

from bert_keras.runs import progress as shown_lines
from bert_keras.training.progress import Forecast, TrainingProgress
from bert_keras.training.train_step import Update


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show a line every five seconds and the whole seconds that are left."""
    monkeypatch.setattr(shown_lines, "_SECONDS_BETWEEN_LINES", 5.0)
    monkeypatch.setattr(shown_lines, "duration", lambda seconds: f"{seconds:.0f} s")


def progress(**changes: Any) -> TrainingProgress:
    """Return that of 2 epochs of 4 updates of 10 rows, with 30 rows of dev."""
    rows: Any = SimpleNamespace(
        steps_per_epoch=4, steps=8, epochs=2, batch_size=10, size=lambda step: 10
    )
    return TrainingProgress(rows, **{"dev_rows": 30, "final_rows": 60, **changes})


def update(loss: float = 0.5) -> Update:
    """Return an update with this loss on 10 real tokens."""
    sums, items = {"loss": tf.constant([loss, 0.0])}, {"loss": tf.constant(1.0)}
    return Update(sums, items, tf.constant(True), tf.constant([10, 10, 0]), [])


def seconds_left(line: str) -> str:
    found = re.search(r"  ((?:at most )?[0-9,]+ s) left( in all)?$", line)
    assert found is not None, line
    return found[1]


def test_time_left_counts_scoring(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = progress()
    for _ in range(4):
        clock.now += 6.0
        shown.add(update())
    lines = capsys.readouterr().err.splitlines()
    # The first update traces graphs, so that no time is known yet.
    assert "left" not in lines[0]
    # 6 updates of 6 s; 2 * 30 + 60 rows, each a third of 0.6 s.
    assert seconds_left(lines[1]) == "60 s"
    assert seconds_left(lines[-1]) == "48 s"
    seen = shown.scoring("dev", 30).add
    for _ in range(3):
        clock.now += 10.0
        seen(10)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("scoring dev: 10 of 30 rows  1.0 rows/s")
    assert "left" not in lines[0]
    # 10 rows at 1 s here, 24 s of updates, 30 rows of dev and 60 of test.
    assert seconds_left(lines[1]) == "124 s"
    assert seconds_left(lines[-1]) == "114 s"
    scores = {"dev_accuracy": 0.5, "dev_loss": 2.0, "dev_macro_f1": 0.25}
    scores["dev_brier"] = 0.75
    assert shown.end_epoch(scores) == {"epoch": 1, "step": 4, **scores}
    line = capsys.readouterr().err  # of the first two scores and the loss
    assert line == "epoch 1/2: dev accuracy 0.5000, macro F1 0.2500, loss 2.0000\n"
    shown.end_training()
    seen = shown.scoring("test", 60).add
    for _ in range(2):
        clock.now += 10.0
        seen(20)
    assert seconds_left(capsys.readouterr().err.splitlines()[-1]) == "10 s"


def test_each_job_of_a_forecast_tells_the_time_left_of_all(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a fold, 0 s were left before two more folds and the training of all rows."""
    work = Forecast(updates=8, examples=40, update_rows=10)

    def done(bar: Any, count: int, seconds: float) -> list[str]:
        for _ in range(4):
            clock.now += seconds
            bar.add(count)
        lines = capsys.readouterr().err.splitlines()
        return [line.rpartition("  ")[2] for line in lines]

    # 6 s an update; a third of it for 10 examples.
    found = done(work.updates("fold 1 of 2", 4), 1, 6.0)
    assert found[1:] == ["44 s left", "38 s left", "32 s left in all"]
    found = done(work.examples("vectors", 20), 5, 10.0)  # as measured: 2 s each
    assert found[1:] == ["84 s left", "74 s left", "64 s left in all"]
    work.leave_out(updates=4, examples=0)  # of an earlier process
    assert "left" not in done(work.examples("scoring test", 20), 5, 10.0)[-1]
    unknown = Forecast(examples=math.nan).examples("vectors", 20)
    assert "left" not in done(unknown, 5, 10.0)[-1]


def test_quick_scoring_is_not_reported(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = progress().scoring("dev", 20).add
    for _ in range(2):
        clock.now += 1.0
        seen(10)
    assert capsys.readouterr().err == ""


def test_a_run_that_may_end_early_reports_the_maximum(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = progress(may_end_early=True, dev_rows=0, final_rows=0)
    for _ in range(2):
        clock.now += 6.0
        shown.add(update())
    assert seconds_left(capsys.readouterr().err.splitlines()[-1]) == "at most 36 s"


def test_a_resumed_epoch_shows_the_mean_of_all_its_losses(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state goes through the JSON of a checkpoint."""
    before = progress()
    for loss in (9.0, 2.0):
        before.add(update(loss))
    state = json.loads(json.dumps(before.state()))
    resumed = progress(start=2)
    resumed.restore(state)
    capsys.readouterr()
    for loss in (1.0, 4.0, 3.0):  # the last one is of the next epoch
        clock.now += 6.0
        resumed.add(update(loss))
    shown = re.findall(r"loss ([0-9.]+)", capsys.readouterr().err)
    assert shown == ["4.0000", "4.0000", "3.0000"]
    del state["epoch_loss"]  # earlier versions
    progress(start=2).restore(state)


def test_another_worker_reports_nothing(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = progress(is_shown=False).scoring("dev", 20).add
    clock.now += 10.0
    seen(20)
    assert capsys.readouterr().err == ""
