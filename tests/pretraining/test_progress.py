"""The line of a pretraining run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.pretraining.progress import PretrainingProgress
from bert_keras.runs import progress
from bert_keras.training.train_step import Update


def update(loss: float, right: int, *, is_made: bool = True) -> Update:
    """Return an update on ten masked words."""
    return Update(
        sums={"masked_lm": tf.constant([10 * loss, right])},
        totals={"masked_lm": 10.0},
        is_made=is_made,
        tokens=tf.constant([100.0, 128.0, 10_000.0]),
        batches=[],
    )


def lines_of(
    updates: list[Update],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    **changes: Any,
) -> tuple[list[str], list[Any]]:
    """Return the printed lines, and the rows of the curves."""
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    given: dict[str, Any] = {
        "steps": len(updates),
        "start": 0,
        "row_every": 1,
        "learning_rate": lambda step: 1e-3,
        "skip": lambda step, loss: None,
    }
    bar = PretrainingProgress(lambda **counts: 1.0, **(given | changes))
    bar.resume()
    rows = [bar.add(each) for each in updates]
    return capsys.readouterr().err.splitlines(), rows


def test_the_line_has_the_means_of_the_last_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (monkeypatch, capsys)
    # The first step, which is traced, counts only until the second.
    lines, rows = lines_of([update(9, 0), update(4, 1), update(2, 5)], *given)
    assert [line.split("  ")[1] for line in lines] == [
        "loss 9.0000", "loss 4.0000", "loss 3.0000"
    ]  # fmt: skip
    assert "masked words 30.0% right" in lines[-1]
    assert [row["loss"] for row in rows] == [9, 4, 2]
    # A hundred steps count.
    lines, _ = lines_of([update(9, 0), *[update(3, 0)] * 100, update(103, 0)], *given)
    assert "loss 3.0000" in lines[-2] and "loss 4.0000" in lines[-1]


def test_skipped_steps_are_left_out_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped: list[int] = []
    lines, _ = lines_of(
        [update(9, 0), update(4, 1), update(np.nan, 0, is_made=False)],
        monkeypatch,
        capsys,
        row_every=100,
        skip=lambda step, loss: skipped.append(step),
    )
    assert "loss 4.0000" in lines[-1] and skipped == [3]
