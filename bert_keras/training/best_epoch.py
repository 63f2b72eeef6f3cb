"""The best epoch of a run, by its scores on dev: `BestEpoch`, `DevCurve`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# The dev loss must fall by this share of the first epoch's loss to count as improved.
_LEAST_FALL = 0.01


@dataclasses.dataclass
class BestEpoch:
    """The epoch with the highest score on dev; among equal scores, the lowest loss.

    If the losses are also equal, the later epoch is better.
    """

    epoch: int = 0  # from 1; 0 before training
    value: float = -math.inf  # the task's best score; NaN is below any number
    loss: float = math.inf  # the mean on dev; NaN is above any number
    # `None` if another process computed them.
    scores: dict[str, Any] | None = None
    answers: dict[str, np.ndarray] | None = None
    weights: dict[str, np.ndarray] | None = None  # plain ones, by path

    @property
    def rank(self) -> tuple[float, float]:
        return rank_of(self.value, self.loss)


def rank_of(value: float, loss: float) -> tuple[float, float]:
    """Return the key that compares pairs of dev score and loss; higher is better."""
    return (
        -math.inf if math.isnan(value) else value,
        -math.inf if math.isnan(loss) else -loss,
    )


class DevCurve:
    """Tracks score and loss on dev from epoch to epoch.

    `stalled` is the number of epochs since dev last improved: since a new highest
    score, or a loss that was lower by a hundredth of the first epoch's.
    """

    def __init__(self) -> None:
        self.best = BestEpoch()
        self.stalled = 0
        self._is_empty = True
        self._lowest, self._least_fall = math.inf, 0.0

    def add(self, epoch: int, value: float, loss: float, *scored: Any) -> bool:
        """Add an epoch, as in `BestEpoch`; return whether it is the best so far.

        `scored` are its scores and answers, where they are known.
        """
        found = BestEpoch(epoch, value, loss, *scored)
        is_higher = self._is_empty or found.rank[0] > self.best.rank[0]
        self._is_empty = False
        if falls := loss < self._lowest - self._least_fall:
            self._lowest = loss
            self._least_fall = self._least_fall or _LEAST_FALL * abs(loss)
        self.stalled = 0 if falls or is_higher else self.stalled + 1
        if found.rank < self.best.rank:
            return False
        self.best = found
        return True

    def add_row(self, row: Mapping[str, Any], best_score: str) -> None:
        """Add an epoch of a resumed run, from a row of its curves."""
        if f"dev_{best_score}" in row:
            loss = row.get("dev_loss", math.nan)
            self.add(int(row["epoch"]), row[f"dev_{best_score}"], loss)
