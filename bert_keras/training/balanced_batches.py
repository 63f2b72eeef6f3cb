"""Batches in which the classes of rows are equally frequent: `balanced_batches`."""

from __future__ import annotations

import numpy as np

ROWS = 32  # of a batch
_LEAST, _MOST, _PASSES = 6, 128, 8  # updates, and how often a row is read at most


def updates_for(rows: int) -> int:
    """Return the number of updates for a number of training rows."""
    return int(min(max(-(-_PASSES * rows // ROWS), _LEAST), _MOST))


def balanced_batches(targets: np.ndarray, count: int, *, seed: int) -> list[list[int]]:
    """Return the rows of batches in which the classes are equally frequent.

    A batch has `ROWS` different rows, or all if there are fewer. Each class in turn
    gives two, which it gives again only after all of its others. Rows without a class,
    of `multi-label`, count as one more class.

    Args:
        targets: 0 or 1, [N, C].
        count: number of batches.
        seed: of the order.
    """
    random = np.random.default_rng(seed)
    members = [np.flatnonzero(column) for column in targets.T > 0]
    members.append(np.flatnonzero(~(targets > 0).any(axis=1)))
    members = [rows for rows in members if len(rows)]
    size = min(ROWS, len(targets))
    waiting: list[list[int]] = [[] for _ in members]
    order: list[int] = []
    batches = []
    for _ in range(count):
        batch: dict[int, None] = {}
        while len(batch) < size:
            order = order or random.permutation(len(members)).tolist()
            number = order.pop()
            for _ in range(2):
                if not waiting[number]:
                    waiting[number] = random.permutation(members[number]).tolist()
                batch[waiting[number].pop()] = None
        batches.append(list(batch)[:size])
    return batches
