"""Curves of a yes-or-no decision over its threshold, in NumPy float64; no TensorFlow.

Labels are 0 or 1, [N], scores float [N]: a row is predicted if its score reaches the
threshold. The values equal scikit-learn's. Other shapes or labels, and labels
without a 1, raise a BertKerasError.

Sources: Fawcett 2006, "An introduction to ROC analysis"; Davis and Goadrich 2006, "The
relationship between precision-recall and ROC curves".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError
from bert_keras.scoring.classification import rates

_Floats = npt.NDArray[np.float64]
_Counts = npt.NDArray[np.int64]
HALF = 0.5  # the threshold that is used if none was chosen
_MOST_POINTS = 200  # of a curve in a report


def roc_curve(labels: npt.ArrayLike, scores: npt.ArrayLike) -> tuple[_Floats, _Floats]:
    """Return the false and the true positive rate at each threshold, float64 [K].

    K - 1 is the number of different scores; the first point is (0, 0), the last (1, 1).
    The labels must have a 0 and a 1.

    Example:
        >>> x, y = roc_curve([0, 1, 1], [0.2, 0.1, 0.9])
        >>> x.tolist(), y.tolist()
        ([0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0])
    """
    true, levels = _check(labels, scores)
    hits, counts, _ = cuts(true, levels)
    positives = int(true.sum())
    if positives == len(true):
        raise BertKerasError("`labels` must have a 0; received ones only")
    false = np.append(0, counts - hits) / (len(true) - positives)
    return false, np.append(0, hits) / positives


def roc_auc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the area under the ROC curve."""
    x, y = roc_curve(labels, scores)
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


def precision_recall_curve(
    labels: npt.ArrayLike, scores: npt.ArrayLike
) -> tuple[_Floats, _Floats, _Floats]:
    """Return precision, recall and threshold, float64 [K], by descending threshold.

    K is the number of different scores.
    """
    true, levels = _check(labels, scores)
    hits, counts, thresholds = cuts(true, levels)
    return hits / counts, hits / true.sum(), thresholds


def average_precision(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the sum of precision times gain in recall over all thresholds."""
    precision, recall, _ = precision_recall_curve(labels, scores)
    return float((precision * np.diff(recall, prepend=0)).sum())


def best_threshold(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the threshold with the highest F1, for scores from 0 to 1.

    It lies half-way between two rows' scores; among equals the one nearest to 0.5 is
    taken. Labels without a 1 give 0.5.
    """
    true, levels = np.asarray(labels, bool), np.asarray(scores, np.float64)
    if not true.any():
        return HALF
    hits, counts, thresholds = cuts(true, levels)
    f1 = 2 * hits / (counts + true.sum())
    below = np.append(thresholds[1:], 0.0)  # the next score, which is not predicted
    best = np.flatnonzero(f1 >= f1.max() - 1e-12)
    # From just above `below` to `thresholds` each threshold predicts the same rows.
    middles = (thresholds[best] + below[best]) / 2
    return float(middles[np.abs(middles - HALF).argmin()])


def scores_at(
    labels: npt.ArrayLike, scores: npt.ArrayLike, threshold: float
) -> dict[str, float]:
    """Return `threshold`, `precision`, `recall` and `f1`; an undefined one is 0."""
    true, found = np.asarray(labels, bool), np.asarray(scores) >= threshold
    found_rates = rates((true & found).sum(), found.sum(), true.sum())
    named = {"threshold": threshold, **found_rates}
    return {name: float(value) for name, value in named.items()}


def decision_curves(
    labels: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    threshold: float | None = None,
    with_points: bool = True,
) -> dict[str, Any]:
    """Return the curves of a decision, with scores from 0 to 1, as JSON values.

    `roc_auc`, `average_precision`, `at` (`scores_at` of 0.5 and of the threshold, by
    default the best for these rows) and, with points, `roc` (false and true positive
    rate), `precision_recall` (recall and precision) and `by_threshold` (threshold,
    precision, recall, F1), at most 200 points each. Empty if all labels are equal.
    """
    true = np.asarray(labels, bool)
    if not true.any() or true.all():
        return {}
    chosen = best_threshold(true, scores) if threshold is None else threshold
    found: dict[str, Any] = {
        "roc_auc": roc_auc(true, scores),
        "average_precision": average_precision(true, scores),
        "at": [scores_at(true, scores, each) for each in (HALF, chosen)],
    }
    if with_points:
        precision, recall, thresholds = precision_recall_curve(true, scores)
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
        found["roc"] = _points(*roc_curve(true, scores))
        found["precision_recall"] = _points(recall, precision)
        found["by_threshold"] = _points(thresholds, precision, recall, f1)
    return found


def cuts(true: npt.NDArray[np.bool_], p: _Floats) -> tuple[_Counts, _Counts, _Floats]:
    """Return right and all predictions at each distinct level of p, descending."""
    order = np.argsort(-p, kind="stable")
    levels = p[order]
    ends = np.flatnonzero(np.append(levels[1:] < levels[:-1], True))
    hits: _Counts = np.cumsum(true[order], dtype=np.int64)[ends]
    counts: _Counts = ends + 1
    return hits, counts, levels[ends]


def _points(*columns: _Floats) -> list[list[float]]:
    """Return points of a curve, both ends included, rounded to five digits."""
    points = np.stack(columns, axis=1)
    if len(points) > _MOST_POINTS:
        chosen = np.linspace(0, len(points) - 1, _MOST_POINTS).round().astype(int)
        points = points[chosen]
    rounded: list[list[float]] = points.round(5).tolist()
    return rounded


def _check(
    labels: npt.ArrayLike, scores: npt.ArrayLike
) -> tuple[npt.NDArray[np.bool_], _Floats]:
    true, levels = np.asarray(labels), np.asarray(scores, np.float64)
    if true.shape != levels.shape or true.ndim != 1:
        raise BertKerasError(
            "`labels` and `scores` must have the same shape [N]; received "
            f"{list(true.shape)} and {list(levels.shape)}"
        )
    if not np.isin(true, (0, 1)).all() or not true.any():
        raise BertKerasError(
            "`labels` must be 0 or 1, and at least one 1; received "
            f"{np.unique(true)[:5].tolist()}"
        )
    if np.isnan(levels).any():
        raise BertKerasError("`scores` must be numbers; received NaN")
    return true.astype(bool), levels
