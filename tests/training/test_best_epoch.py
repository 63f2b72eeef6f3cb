"""The epoch that is kept, and when dev no longer improves."""

from __future__ import annotations

import math

import pytest

from bert_keras.training.best_epoch import DevCurve, rank_of

NAN = math.nan


def curve(*epochs: tuple[float, float]) -> DevCurve:
    """Return the curve of epochs, score and loss each."""
    found = DevCurve()
    for number, (value, loss) in enumerate(epochs, 1):
        found.add(number, value, loss)
    return found


@pytest.mark.parametrize(
    ("epochs", "best"),
    [
        ([(0.7, 0.5), (0.8, 0.9), (0.7, 0.1)], 2),  # the score takes precedence
        ([(0.75, 0.9), (0.75, 0.4), (0.75, 0.5)], 2),  # then the loss
        ([(0.75, 0.4), (0.75, 0.4), (0.5, 0.1)], 2),  # then the later epoch
        ([(NAN, 0.4), (0.1, 0.9)], 2),
        ([(0.1, 0.4), (NAN, 0.1)], 1),
        ([(0.5, NAN), (0.5, 0.9), (0.5, NAN)], 2),
        ([(NAN, NAN), (NAN, NAN)], 2),
    ],
)
def test_the_best_epoch(epochs: list[tuple[float, float]], best: int) -> None:
    found = curve(*epochs)
    assert found.best.epoch == best
    assert rank_of(found.best.value, found.best.loss) == max(
        rank_of(*each) for each in epochs
    )


@pytest.mark.parametrize(
    ("epochs", "stalled"),
    [
        ([(0.5, 1.0)], 0),
        ([(0.5, 1.0), (0.5, 0.9)], 0),  # the loss falls
        ([(0.5, 1.0), (0.6, 1.5)], 0),  # the score rises
        ([(0.5, 1.0), (0.5, 0.995), (0.5, 0.985)], 0),  # slowly, but it falls
        ([(0.5, 1.0), (0.5, 0.995), (0.5, 0.993)], 2),  # by less than a hundredth
        ([(0.5, 1.0), (0.4, 1.1), (0.4, 1.05)], 2),  # both are worse than before
        ([(0.5, NAN), (0.5, NAN)], 1),
        ([(0.5, NAN), (0.5, 0.9)], 0),
    ],
)
def test_epochs_since_dev_has_improved(
    epochs: list[tuple[float, float]], stalled: int
) -> None:
    assert curve(*epochs).stalled == stalled


def test_a_curve_is_read_from_the_rows_of_a_run() -> None:
    found = DevCurve()
    for row in (
        {"epoch": 0.5, "step": 1, "loss": 0.1},
        {"epoch": 1, "step": 2, "dev_f1": 0.5, "dev_loss": 0.9},
        {"epoch": 2, "step": 4, "dev_f1": 0.5, "dev_loss": 0.95},
    ):
        found.add_row(row, "f1")
    assert (found.best.epoch, found.best.loss, found.stalled) == (1, 0.9, 1)
