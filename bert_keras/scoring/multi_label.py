"""Scores of multi-label classification, in NumPy float64; no TensorFlow.

Targets are 0 or 1, probabilities float, both [N, C]. The values equal the values of
scikit-learn with `zero_division=0`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError
from bert_keras.scoring.calibration import cross_entropy, yes_or_no
from bert_keras.scoring.classification import rates
from bert_keras.scoring.curves import average_precision, best_threshold

_Floats = npt.NDArray[np.float64]


def multi_label_scores(
    targets: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    thresholds: npt.ArrayLike,
    class_names: Sequence[str],
) -> dict[str, Any]:
    """Return every score as one dict that `json.dump` takes.

    Args:
        targets: 0 or 1, [N, C].
        probabilities: float [N, C], each from 0 to 1.
        thresholds: [C]; a class is predicted at or above its threshold.
        class_names: C names.

    Returns:
        `micro_f1`, `macro_f1` (of all classes), `exact_match` (share of the rows with
        all classes right), `label_ranking_average_precision`,
        `mean_average_precision` (of the classes that occur), `loss` (mean binary
        cross-entropy, nats), `num_examples` and `per_class`: name to `precision`,
        `recall`, `f1`, `average_precision`, `threshold`, `support`.

    Raises:
        BertKerasError: shapes do not fit, or a value is out of its range.
    """
    true, p = _check(targets, probabilities)
    limits = np.asarray(thresholds, np.float64)
    if not len(class_names) == len(limits) == p.shape[1]:
        raise BertKerasError(
            f"`thresholds` and `class_names` must have {p.shape[1]} entries; "
            f"received {len(limits)} and {len(class_names)}"
        )
    found = p >= limits
    hits, support = (found & true).sum(axis=0), true.sum(axis=0)
    predicted = found.sum(axis=0)
    columns = {
        **rates(hits, predicted, support),
        "average_precision": _average_precisions(true, p),
        "threshold": limits,
        "support": support,
    }
    occurs = support > 0
    precisions = columns["average_precision"][occurs]
    return {
        "micro_f1": float(rates(hits.sum(), predicted.sum(), support.sum())["f1"]),
        "macro_f1": float(columns["f1"].mean()),
        "exact_match": float((found == true).all(axis=1).mean()),
        "label_ranking_average_precision": _ranking(true, p),
        "mean_average_precision": float(precisions.mean()) if occurs.any() else 0.0,
        "loss": cross_entropy(true.ravel().astype(int), yes_or_no(p.ravel())),
        "num_examples": len(true),
        "per_class": {
            name: {key: values[i].item() for key, values in columns.items()}
            for i, name in enumerate(class_names)
        },
    }


def best_thresholds(
    targets: npt.ArrayLike, probabilities: npt.ArrayLike
) -> list[float]:
    """Return the threshold of each class with the highest F1.

    See `curves.best_threshold`; for arguments and errors see `multi_label_scores`.
    """
    true, p = _check(targets, probabilities)
    return [best_threshold(true[:, i], p[:, i]) for i in range(p.shape[1])]


def _average_precisions(true: npt.NDArray[np.bool_], p: _Floats) -> _Floats:
    """Return the sum of precision times gain in recall, by class; else 0."""
    found = np.zeros(p.shape[1])
    for i in np.flatnonzero(true.any(axis=0)):
        found[i] = average_precision(true[:, i], p[:, i])
    return found


def _ranking(true: npt.NDArray[np.bool_], p: _Floats) -> float:
    """Return the label ranking average precision.

    For each class of a row: the share of right ones among those ranked at least as
    high. A row with no class, or with all, counts as 1.
    """
    total = 0.0
    for row, scores in zip(true, p, strict=True):
        if row.all() or not row.any():
            total += 1.0
            continue
        own, every = np.sort(scores[row]), np.sort(scores)
        no_lower = len(own) - np.searchsorted(own, own)
        ranks = len(every) - np.searchsorted(every, own)
        total += float((no_lower / ranks).mean())
    return total / len(true)


def _check(
    targets: npt.ArrayLike, probabilities: npt.ArrayLike
) -> tuple[npt.NDArray[np.bool_], _Floats]:
    true, p = np.asarray(targets), np.asarray(probabilities, np.float64)
    if true.shape != p.shape or p.ndim != 2 or not p.size:
        raise BertKerasError(
            "`targets` and `probabilities` must have the same shape [N, C]; "
            f"received {list(true.shape)} and {list(p.shape)}"
        )
    if (wrong := true[~np.isin(true, (0, 1))]).size:
        raise BertKerasError(f"`targets` must be 0 or 1; received {wrong[0]}")
    if (wrong := p[~((p >= 0) & (p <= 1))]).size:  # also NaN
        raise BertKerasError(
            f"`probabilities` must be numbers from 0 to 1; received {wrong[0]}"
        )
    return true.astype(bool), p
