"""Pretraining with a budget of time: its clock, choices, end and resuming."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import refused

from bert_keras.pretraining import budget, loop
from bert_keras.pretraining.clock import Clock
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.pretraining.pretrain import plan_pretraining, pretrain
from bert_keras.pretraining.progress import PretrainingProgress
from bert_keras.training.choices import GIVEN
from pretraining.test_pretrain import SIZES, place

__all__ = ["place"]  # a fixture


class Time:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(Clock, "now", lambda _: self.now)


def test_a_clock_counts_the_training_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Time(monkeypatch)
    own = Clock(120)
    world.now += 20  # of measuring
    assert (own.share, own.spent, own.left) == (0, 20, 100)
    own.start()
    world.now += 25
    own.start()
    assert (own.share, own.trained, own.left) == (0.25, 25, 75)
    own.checkpoint()(tmp_path)
    world.now += 1000  # another process, later
    again = Clock(120)
    again.restore(tmp_path)
    world.now += 25
    assert (again.share, again.left) == (0.5, 50)
    world.now += 60
    assert (again.share, again.left) == (1, 0)
    (tmp_path / "budget.json").write_text("{}")
    refused(lambda: again.restore(tmp_path), "budget.json: broken or missing")


def test_bad_budgets(place: Path, tmp_path: Path) -> None:
    for bad, part in (
        ({"minutes": 0.5}, "`minutes` must be a budget of at least one minute"),
        ({"hours": 0.01}, "`hours` must be a budget of at least one minute"),
        ({"hours": 1, "minutes": 2}, "`minutes` must be left out with `hours`"),
        ({"minutes": 9, "phase_shares": (1.0,)}, "`phase_shares` must be left out"),
        ({"hours": 1, "steps": 5}, "`steps` must be left out with `hours`"),
    ):
        refused(lambda bad=bad: PretrainConfig(**bad), part)
    two = [place / "dynamic", place / "long"]
    config = PretrainConfig(minutes=1)
    refused(
        lambda: pretrain(
            SIZES, two, tmp_path / "run", vocab=place / "vocab", config=config
        ),
        "`data` must be one folder with a budget",
    )
    refused(
        lambda: pretrain(None, two[0], tmp_path / "run", config=config),
        "`encoder` must be given",
    )


def test_initial_weights_of_a_budget_fit_the_width() -> None:
    for config, given, wanted in (
        (PretrainConfig(minutes=5), {}, 0.125),
        (PretrainConfig(minutes=5), {"initializer_range": 0.02}, 0.02),
        (PretrainConfig(), {}, 0.02),
    ):
        sizes = config.new_sizes("2/64/2", 100, **given)
        assert sizes.initializer_range == wanted and sizes.vocab_size == 100
    given = {"vocab_size": 128}  # a padded table
    assert PretrainConfig().new_sizes("2/64/2", 100, **given).vocab_size == 128


def table(plan: Any) -> dict[str, tuple[str, ...]]:
    return {row["name"]: (row["value"], row["reason"]) for row in plan.table()}


def test_the_size_and_the_batch_follow_the_measured_speed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if updates took this long: twice the batch, a third more time, up to 64.
    speeds = {16: 1.0, 32: 1.3, 64: 1.7, 128: 3.3}

    def updates(model: Any, source: Any, *_: Any, **__: Any) -> Any:
        size = source.plan.config.batch_size
        return iter([SimpleNamespace(real_tokens=20 * size, seconds=speeds[size])])

    monkeypatch.setattr(budget, "updates", updates)
    monkeypatch.setattr(budget, "update_seconds", lambda made, _: next(made).seconds)
    monkeypatch.setattr(budget, "_LEAST_UPDATES", 1)
    monkeypatch.setattr(budget, "_MEASURING", (3600.0, 0.5))
    monkeypatch.setattr(budget, "PRESETS", {"1/16/2": 0, "2/16/2": 0, "24/1024/16": 0})
    plan = plan_pretraining(
        None,
        place / "dynamic",
        tmp_path / "run",
        vocab=place / "vocab",
        config=PretrainConfig(hours=2),
    )
    found = table(plan)
    assert found["batch size"] == (
        "64",
        "the smallest with nine tenths of the best measured speed",
    )
    value, reason = found["model"]
    assert value == "2/16/2"
    assert "per weight of its blocks; a larger one would have to read 20" in reason
    assert found["budget"] == ("2.0 h", GIVEN)
    assert found["initial weights"][0] == "standard deviation 0.25"  # of width 16
    assert found["steps"][0] == f"about {plan.steps:,}"
    assert plan.steps == pytest.approx(7200 / 1.7, rel=0.1)
    assert found["learning rate"][0] == "0.002" and found["dropout"][0] == "0"
    assert plan.estimate.seconds == pytest.approx(7200, rel=0.1)
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(budget, "PRESETS", {"2/128/2": 0, "24/1024/16": 0})
    short = PretrainConfig(minutes=1)
    given: dict[str, Any] = {"vocab": place / "vocab", "config": short}
    found = table(plan_pretraining(None, place / "dynamic", **given))
    value, reason = found["model"]
    assert value == "2/128/2 (tiny)"
    assert reason.startswith("the smallest size: in this time, it reads ")


@pytest.mark.slow
def test_a_run_ends_by_the_clock_and_goes_on_with_the_time_left(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = Time(monkeypatch)
    add = PretrainingProgress.add

    def slow(self: PretrainingProgress, *args: Any) -> Any:
        world.now += 5
        return add(self, *args)

    monkeypatch.setattr(PretrainingProgress, "add", slow)
    monkeypatch.setattr(loop, "_ROWS", 10**9)  # a row for each update
    config = PretrainConfig(
        minutes=1, batch_size=8, checkpoint_every=4, keep=9, warmup_ratio=0.2
    )

    def run(output: Path) -> Any:
        place_of = {"vocab": place / "vocab", "config": config}
        return pretrain(SIZES, place / "dynamic", output, **place_of)

    result = run(tmp_path / "run")
    told = capsys.readouterr().err
    (line,) = (each for each in told.splitlines() if each.startswith("pretraining: "))
    assert line.startswith("pretraining: 12 of 12 steps")  # where "2 of 2" was first
    assert result.model.encoder.config == SIZES  # with its own dropout
    rows = [row for row in result.history if "loss" in row]
    # The first update takes no time of training, which it starts.
    assert rows[-1]["step"] == 12
    rates = [row["learning_rate"] for row in rows]
    assert rates[:2] == [0, 0] and max(rates) == pytest.approx(2e-3, rel=0.15)
    assert rates[-1] == pytest.approx(0.0002, rel=0.5)
    names = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names == {f"step-{n:09d}" for n in (4, 8, 12)}
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-000000012")
    shutil.rmtree(tmp_path / "run" / "model")
    world.now += 9999
    measured = []
    monkeypatch.setattr(budget, "_Measuring", measured.append)
    again = run(tmp_path / "run")
    assert not measured  # it keeps the choices
    assert [row["step"] for row in again.history if "loss" in row][-1] == 12
    state = json.loads(
        (tmp_path / "run/checkpoints/step-000000012/budget.json").read_text()
    )
    assert state["seconds"] == 60
    done = run(tmp_path / "run")  # a finished run is not repeated
    assert done.history == again.history
    refused(
        lambda: pretrain(
            SIZES,
            place / "dynamic",
            tmp_path / "run",
            vocab=place / "vocab",
            config=dataclasses.replace(config, minutes=2),
        ),
        "another `minutes`: 1.0",
    )
