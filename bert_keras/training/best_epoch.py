"""Which epoch is kept, and whether dev still improves: `DevCurve`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# A dev loss improves that falls by this share of the first epoch's.
_LEAST_FALL = 0.01


@dataclasses.dataclass
class BestEpoch:
    """The epoch with the highest score on dev; of equal ones that of the lowest loss.

    Where the losses are equal, too, the later epoch is the better one.

    Args:
        epoch: its number, from 1; 0 before there is one.
        value: its score, the one that the task names; NaN is below any number.
        loss: its mean loss on dev; NaN is above any number.
        scores: all its scores; `None` where another process has computed them.
        answers: what the scores were taken of; `None` likewise.
    """

    epoch: int = 0
    value: float = -math.inf
    loss: float = math.inf
    scores: dict[str, Any] | None = None
    answers: dict[str, np.ndarray] | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """What epochs, and runs, are compared by: the higher, the better."""
        return rank_of(self.value, self.loss)


def rank_of(value: float, loss: float) -> tuple[float, float]:
    """Return what a score and a loss on dev are compared by: the higher, the better."""
    return (
        -math.inf if math.isnan(value) else value,
        -math.inf if math.isnan(loss) else -loss,
    )


class DevCurve:
    """Follows score and loss on dev from epoch to epoch.

    Attributes:
        best: the best epoch so far.
        stalled: epochs since dev has last improved: since its score was the highest, or
            its loss was lower by a hundredth of the first epoch's.
    """

    def __init__(self) -> None:
        self.best = BestEpoch()
        self.stalled = 0
        self._lowest, self._least_fall = math.inf, 0.0

    def add(
        self,
        epoch: int,
        value: float,
        loss: float,
        scores: dict[str, Any] | None = None,
        answers: dict[str, np.ndarray] | None = None,
    ) -> bool:
        """Add an epoch, as `BestEpoch` has it; say whether it is the best so far."""
        found = BestEpoch(epoch, value, loss, scores, answers)
        is_higher = self.best.epoch == 0 or found.rank[0] > self.best.rank[0]
        if falls := loss < self._lowest - self._least_fall:
            self._lowest = loss
            self._least_fall = self._least_fall or _LEAST_FALL * abs(loss)
        self.stalled = 0 if falls or is_higher else self.stalled + 1
        if found.rank < self.best.rank:
            return False
        self.best = found
        return True

    def add_row(self, row: Mapping[str, Any], best_score: str) -> None:
        """Add an epoch of a run that goes on, from a row of its curves."""
        if f"dev_{best_score}" in row:
            loss = row.get("dev_loss", math.nan)
            self.add(int(row["epoch"]), row[f"dev_{best_score}"], loss)
