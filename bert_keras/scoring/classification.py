"""Scores of a classifier on a data set, in NumPy float64; no TensorFlow.

Labels and predictions are integer [N] class numbers from 0, below `num_classes` where
it is given; probabilities are float [N, C]. The values equal scikit-learn's; an
undefined precision, recall, F1 or correlation is 0 (`zero_division=0`). Arrays that are
empty, not integers, of different lengths or out of range raise a BertKerasError.

Source: Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation
coefficient" (R_K, the multi-class Matthews correlation).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError
from bert_keras.scoring.calibration import (
    check_integers,
    check_probabilities,
    check_range,
    confidence_scores,
    cross_entropy,
)

_MOST_SQUARE = 1000  # classes of a confusion matrix


def accuracy(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the share of predictions that equal the label."""
    true, predicted = _check_pair(labels, predictions)
    return float(np.mean(true == predicted))


def confusion_matrix(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, *, num_classes: int
) -> npt.NDArray[np.int64]:
    """Return int64 [C, C]: how often class i (row) was predicted as j (column).

    Example:
        >>> confusion_matrix([0, 1, 1], [0, 1, 0], num_classes=2).tolist()
        [[1, 0], [1, 1]]
    """
    true, predicted = _check_pair(labels, predictions)
    check_range("labels", true, num_classes)
    check_range("predictions", predicted, num_classes)
    cells = np.bincount(true * num_classes + predicted, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes).astype(np.int64)


def matthews_correlation(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the Matthews correlation for two or more classes, from -1 to 1.

    It is 0 if undefined: all labels or all predictions are of one class.
    """
    true, predicted = _check_pair(labels, predictions)
    # The number of a class does not matter here, so large ones take no memory.
    _, codes = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    codes = codes.reshape(2, -1)
    size = int(codes.max()) + 1
    counts = [np.bincount(each, minlength=size) for each in codes]
    return _matthews(int(np.sum(true == predicted)), counts[0], counts[1])


def classification_scores(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    class_names: Sequence[str],
    positive_class: str | None = None,
) -> dict[str, Any]:
    """Return every score of a classifier as one dict that `json.dump` takes.

    The prediction of a row is its most probable class, the first of equal ones.

    Args:
        labels: integer [N], from 0 to C - 1.
        probabilities: float [N, C]; rows sum to 1.
        class_names: C different names.
        positive_class: the class whose F1 is `f1`; by default the second of two.

    Returns:
        `num_examples`, `loss` (mean cross-entropy, nats), `accuracy`, `macro_f1` (of
        the classes that occur), `matthews_correlation`, `expected_calibration_error`
        (15 bins), `per_class` (name to `precision`, `recall`, `f1`, `support`),
        `confusion_matrix` (lists [C, C]; rows are labels) and `reliability`; with a
        positive class also `f1` and the name as `positive_class`. Above 1,000 classes,
        `confusions` replace the matrix: `label`, `prediction` and `rows` of each pair
        of classes that is confused, the most frequent first.

    Raises:
        BertKerasError: shapes do not fit, a row is not a distribution, a label is out
            of range, or two classes share a name.
    """
    true, p = check_probabilities(labels, probabilities)
    names = list(class_names)
    if len(names) != p.shape[1] or len(set(names)) != len(names):
        raise BertKerasError(
            "`class_names` must be one different name for each of the "
            f"{p.shape[1]} columns of `probabilities`; received {names}"
        )
    best = p.argmax(axis=1)
    hits, predicted, support = (
        np.bincount(each, minlength=len(names))
        for each in (true[true == best], best, true)
    )
    columns = rates(hits, predicted, support) | {"support": support}
    # A class that is neither a label nor a prediction is left out, as scikit-learn
    # does, so that a small dev set is not penalized for classes it lacks.
    occurs = predicted + support > 0
    per_class = {
        name: {key: column[number].item() for key, column in columns.items()}
        for number, name in enumerate(names)
    }
    if positive_class is None and len(names) == 2:
        positive_class = names[1]
    positive: dict[str, Any] = {}
    if positive_class is not None:
        f1 = per_class[positive_class]["f1"]
        positive = {"f1": f1, "positive_class": positive_class}
    confidence = confidence_scores(p.max(axis=1), best == true)
    return {
        "num_examples": len(true),
        "loss": cross_entropy(true, p),
        "accuracy": float(hits.sum() / len(true)),
        **positive,
        "macro_f1": float(columns["f1"][occurs].mean()),
        "matthews_correlation": _matthews(int(hits.sum()), support, predicted),
        "expected_calibration_error": confidence["expected_calibration_error"],
        "per_class": per_class,
        **_confusions(true, best, names),
        "reliability": confidence["reliability"],
    }


def rates(hits: Any, predicted: Any, support: Any) -> dict[str, Any]:
    """Return precision, recall and F1 of counts, numbers or arrays; undefined: 0."""
    return {
        "precision": hits / np.maximum(predicted, 1),
        "recall": hits / np.maximum(support, 1),
        "f1": 2 * hits / np.maximum(predicted + support, 1),
    }


def _confusions(
    true: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], names: list[str]
) -> dict[str, Any]:
    """Return the confusion matrix or, of very many classes, the confused pairs.

    A matrix of 10,000 classes would take 800 MB, whatever the number of rows.
    """
    if len(names) <= _MOST_SQUARE:
        matrix = confusion_matrix(true, predicted, num_classes=len(names))
        return {"confusion_matrix": matrix.tolist()}
    wrong = true != predicted
    pairs, counts = np.unique(
        true[wrong] * len(names) + predicted[wrong], return_counts=True
    )
    order = np.argsort(-counts, kind="stable")
    found = zip(pairs[order].tolist(), counts[order].tolist(), strict=True)
    return {
        "confusions": [
            {
                "label": names[pair // len(names)],
                "prediction": names[pair % len(names)],
                "rows": count,
            }
            for pair, count in found
        ]
    }


def _matthews(hits: int, labels: Any, predictions: Any) -> float:
    """Return R_K of the number of right rows, and of the rows of each class.

    It is computed in whole numbers up to the last division.
    """
    true, predicted = labels.tolist(), predictions.tolist()
    size = sum(true)
    both = sum(p * t for p, t in zip(predicted, true, strict=True))
    covariance = hits * size - both
    spread_predicted = size * size - sum(p * p for p in predicted)
    spread_true = size * size - sum(t * t for t in true)
    if not spread_predicted or not spread_true:
        return 0.0
    return covariance / math.sqrt(spread_predicted * spread_true)


def _check_pair(
    labels: npt.ArrayLike, predictions: npt.ArrayLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    true = check_integers("labels", labels)
    predicted = check_integers("predictions", predictions)
    if true.shape != predicted.shape:
        raise BertKerasError(
            "`labels` and `predictions` must have the same length; received "
            f"{len(true)} and {len(predicted)}"
        )
    return true, predicted
