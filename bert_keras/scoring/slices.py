"""Scores of slices, parts of a data set such as its short texts, with their intervals.

The interval of a share of the rows, such as accuracy, is Wilson's. The interval of any
other score follows from the delete-a-group jackknife, which computes ten scores
whatever the score is.

Source: Kott 2001, "The delete-a-group jackknife", Journal of Official Statistics 17.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError
from bert_keras.scoring.intervals import wilson_interval

SHARES = ("accuracy", "exact_match")  # scores that are a share of the rows
# Scores from 0 to 1, and to 100; the intervals of others, such as a loss, have no ends.
_PERCENTAGES = frozenset(("bleu", "best_f1"))
_FROM_ZERO = _PERCENTAGES | frozenset(
    ("f1", "micro_f1", "macro_f1", "mean_average_precision", "mrr", "ndcg_at_10")
    + ("rouge1", "rouge2", "rougeL", "rougeLsum")
)
_CORRELATIONS = frozenset(("spearman", "pearson", "matthews_correlation"))
_GROUPS = 10
_QUANTILE = 2.262  # of Student's t with 9 degrees of freedom, for 95%
_MOST_SLICES = 20
OTHERS = "others"
_Score = Callable[[npt.NDArray[np.int64]], float]
_Ends = tuple[float | None, float | None]


def length_slices(
    lengths: Sequence[int], edge: int = 0
) -> dict[str, npt.NDArray[np.int64]]:
    """Return the rows of each third of the lengths, by the range of the third.

    Fewer than three if many lengths are equal. No slice has lengths on both sides of an
    edge: those up to `edge`, what is read at once, and those above.

    Example:
        >>> [*length_slices([3, 9, 4, 8, 20, 30])]
        ['3 to 4', '8 to 9', '20 to 30']
    """
    sizes = np.asarray(lengths)
    edges = np.quantile(sizes, (1 / 3, 2 / 3), method="lower")
    edges = np.unique(np.append(edges, edge))
    places = np.searchsorted(edges, sizes)  # an edge belongs to the third below it
    found = {}
    for place in np.unique(places):
        rows = np.flatnonzero(places == place)
        low, high = int(sizes[rows].min()), int(sizes[rows].max())
        found[f"{low:,} to {high:,}" if low < high else f"{low:,}"] = rows
    return found


def value_slices(values: Sequence[Any]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the rows of each value of a column, the most frequent first.

    Above 20 values, the rarest share one slice, `others`.
    """
    rows: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        rows.setdefault(str(value), []).append(row)
    order = sorted(rows, key=lambda value: -len(rows[value]))
    kept = order if len(order) <= _MOST_SLICES else order[: _MOST_SLICES - 1]
    found = {value: np.array(rows[value]) for value in kept}
    rest = [row for value in order[len(kept) :] for row in rows[value]]
    if rest:
        found[OTHERS] = np.array(sorted(rest))
    return found


def slice_scores(
    slices: Mapping[str, npt.NDArray[np.int64]],
    score: _Score,
    *,
    name: str,
    most: float | None = None,
    seconds: float = math.inf,
) -> list[dict[str, Any]]:
    """Return the score of each slice and its 95% interval.

    Args:
        slices: name to rows.
        score: returns the score of rows; NaN or a `BertKerasError` counts as none.
        name: name of the score; one of `SHARES` gets Wilson's interval.
        most: the largest value of the score; by default it follows from the name.
        seconds: time for intervals; any that would take longer are left out.

    Returns:
        `slice`, `rows`, the score by its name, `low` and `high`, for each slice; `None`
        for what is not known.
    """
    found = []
    for title, rows in slices.items():
        start = time.perf_counter()
        value = _finite(score, rows)
        took = time.perf_counter() - start
        ends: _Ends = (None, None)
        if value is not None and name in SHARES:
            ends = wilson_interval(value, len(rows))
        elif value is not None and took * _GROUPS <= seconds:
            ends = _limited(jackknife_interval(score, rows, value), name, value, most)
            seconds -= time.perf_counter() - start
        low, high = ends
        found.append(
            {"slice": title, "rows": len(rows), name: value, "low": low, "high": high}
        )
    return found


def jackknife_interval(
    score: _Score, rows: npt.NDArray[np.int64], value: float
) -> _Ends:
    """Return the 95% interval of a value, the score of rows; `None` below ten rows."""
    if len(rows) < _GROUPS:
        return None, None
    # Neighbouring rows may belong together, so that each group gets every tenth.
    groups = np.arange(len(rows)) % _GROUPS
    without = [_finite(score, rows[groups != group]) for group in range(_GROUPS)]
    if any(each is None for each in without):
        return None, None
    changes = np.array(without, np.float64) - value
    deviation = math.sqrt((_GROUPS - 1) / _GROUPS * float((changes**2).sum()))
    half = _QUANTILE * deviation
    return value - half, value + half


def _limited(ends: _Ends, name: str, value: float, most: float | None) -> _Ends:
    """Return an interval without what lies outside the range of the score."""
    low, high = ends
    if low is None or high is None or name not in _FROM_ZERO | _CORRELATIONS:
        return ends
    least = -1.0 if name in _CORRELATIONS else 0.0
    if most is None:
        most = 100.0 if value > 1 or name in _PERCENTAGES else 1.0
    return max(low, least), min(high, most)


def _finite(score: _Score, rows: npt.NDArray[np.int64]) -> float | None:
    try:
        value = float(score(rows))
    except BertKerasError:
        return None
    return value if math.isfinite(value) else None
