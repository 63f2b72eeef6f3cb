"""Scores of a classifier on a data set, in NumPy float64; no TensorFlow.

Labels and predictions are integer [N] class numbers from 0, probabilities are float
[N, C]. The values equal those of scikit-learn; an undefined precision, recall, F1 or
correlation is 0 (`zero_division=0`).

Sources: Gorodkin 2004, "Comparing two K-category assignments by a K-category
correlation coefficient" (R_K, the multi-class Matthews correlation); Guo et al. 2017
(arXiv:1706.04599), section 2 (expected calibration error).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError

_SUM_TOLERANCE = 1e-2  # rows of a float16 softmax sum to 1 only roughly


def accuracy(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the share of predictions that equal the label.

    Args:
        labels: integer [N].
        predictions: integer [N].

    Raises:
        BertKerasError: the arrays are empty, not integers or not of one length.
    """
    true, predicted = _check_pair(labels, predictions)
    return float(np.mean(true == predicted))


def confusion_matrix(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, *, num_classes: int
) -> npt.NDArray[np.int64]:
    """Return int64 [C, C]: how often class i (row) was predicted as j (column).

    Args:
        labels: integer [N], from 0 to `num_classes` - 1.
        predictions: integer [N], in the same range.
        num_classes: C.

    Raises:
        BertKerasError: as for `accuracy`, or a class is out of range.

    Example:
        >>> confusion_matrix([0, 1, 1], [0, 1, 0], num_classes=2).tolist()
        [[1, 0], [1, 1]]
    """
    true, predicted = _check_pair(labels, predictions)
    _check_range("labels", true, num_classes)
    _check_range("predictions", predicted, num_classes)
    cells = np.bincount(true * num_classes + predicted, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes).astype(np.int64)


def precision_recall_f1(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, *, num_classes: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return precision, recall and F1 of each class, each float64 [C].

    Args and errors are those of `confusion_matrix`. A class that is never predicted
    has precision 0, one without examples recall 0, and either has F1 0.
    """
    return _class_scores(confusion_matrix(labels, predictions, num_classes=num_classes))


def macro_f1(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, *, num_classes: int
) -> float:
    """Return the plain mean of the F1 of the classes that occur.

    A class that is neither a label nor a prediction here is left out, as scikit-learn
    does: a small dev set is not punished for a class that it lacks.

    Args and errors are those of `confusion_matrix`.
    """
    return _macro_f1(confusion_matrix(labels, predictions, num_classes=num_classes))


def matthews_correlation(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the Matthews correlation for two or more classes, from -1 to 1.

    It is 0 where it is undefined: all labels or all predictions are of one class.

    Args:
        labels: integer [N] from 0.
        predictions: integer [N] from 0.

    Raises:
        BertKerasError: as for `accuracy`, or a class is negative.
    """
    true, predicted = _check_pair(labels, predictions)
    # The number of a class does not matter here, so that large ones take no room.
    _, codes = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    codes = codes.reshape(2, -1)
    return _matthews(
        confusion_matrix(codes[0], codes[1], num_classes=int(codes.max()) + 1)
    )


def cross_entropy(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    """Return the mean of -log p(label), in nats.

    A probability of 0, to which a float32 softmax can sink, counts as the smallest
    normal float32 (1.2e-38), so that the mean stays finite: at most 87.3 a row.

    Args:
        labels: integer [N], from 0 to C - 1.
        probabilities: float [N, C]; rows sum to 1.

    Raises:
        BertKerasError: shapes do not fit, or a row is not a distribution.
    """
    true, p = _check_probabilities(labels, probabilities)
    of_label = p[np.arange(len(true)), true]
    of_label = np.clip(of_label, np.finfo(np.float32).tiny, 1.0)
    return float(-np.log(of_label).mean()) + 0.0  # + 0.0 turns -0.0 into 0.0


def expected_calibration_error(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, *, num_bins: int = 15
) -> float:
    """Return the mean gap between confidence and accuracy, weighted by rows.

    Args and errors are those of `reliability`; as in Guo et al. 2017, equation 3.
    """
    bins = reliability(labels, probabilities, num_bins=num_bins)
    gaps = [abs(b["accuracy"] - b["confidence"]) * b["support"] for b in bins]
    return float(sum(gaps) / sum(b["support"] for b in bins))


def reliability(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, *, num_bins: int = 15
) -> list[dict[str, Any]]:
    """Return how often a model is right, by how sure it is.

    The confidence of a row is its largest probability; bins have equal width and hold
    their upper edge.

    Args:
        labels: integer [N], from 0 to C - 1.
        probabilities: float [N, C]; rows sum to 1.
        num_bins: number of bins from 0 to 1.

    Returns:
        A dict for each bin that holds rows: `confidence` and `accuracy`, the means of
        its rows, and `support`, their number.

    Raises:
        BertKerasError: as for `cross_entropy`, or `num_bins` is below 1.
    """
    true, p = _check_probabilities(labels, probabilities)
    if num_bins < 1:
        raise BertKerasError(f"`num_bins` must be at least 1; received {num_bins}")
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == true
    edges = np.linspace(0, 1, num_bins + 1)[1:-1]
    bins = np.digitize(confidence, edges, right=True)
    return [
        {
            "confidence": float(confidence[bins == number].mean()),
            "accuracy": float(correct[bins == number].mean()),
            "support": int((bins == number).sum()),
        }
        for number in np.unique(bins)
    ]


def classification_scores(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    class_names: Sequence[str],
    positive_class: str | None = None,
) -> dict[str, Any]:
    """Return every score of a classifier as one dict that `json.dump` takes.

    The prediction of a row is its most probable class, the first of equals.

    Args:
        labels: integer [N], from 0 to C - 1.
        probabilities: float [N, C]; rows sum to 1.
        class_names: C different names.
        positive_class: the class whose F1 is `f1`; by default the second of two.

    Returns:
        `num_examples`, `loss` (mean cross-entropy, nats), `accuracy`, `macro_f1`,
        `matthews_correlation`, `expected_calibration_error` (15 bins), `per_class`
        (name to `precision`, `recall`, `f1`, `support`), `confusion_matrix` (lists
        [C, C]; rows are labels) and `reliability`; with a positive class also
        `f1` and the name as `positive_class`.

    Raises:
        BertKerasError: shapes do not fit, a row is not a distribution, a label is out
            of range, or two classes have one name.
    """
    true, p = _check_probabilities(labels, probabilities)
    names = list(class_names)
    if len(names) != p.shape[1] or len(set(names)) != len(names):
        raise BertKerasError(
            "`class_names` must be one different name for each of the "
            f"{p.shape[1]} columns of `probabilities`; received {names}"
        )
    matrix = confusion_matrix(true, p.argmax(axis=1), num_classes=len(names))
    columns = (*_class_scores(matrix), matrix.sum(axis=1))
    keys = ("precision", "recall", "f1", "support")
    rows = zip(*(column.tolist() for column in columns), strict=True)
    per_class = {
        name: dict(zip(keys, row, strict=True))
        for name, row in zip(names, rows, strict=True)
    }
    if positive_class is None and len(names) == 2:
        positive_class = names[1]
    positive: dict[str, Any] = {}
    if positive_class is not None:
        f1 = per_class[positive_class]["f1"]
        positive = {"f1": f1, "positive_class": positive_class}
    return {
        "num_examples": len(true),
        "loss": cross_entropy(true, p),
        "accuracy": float(np.trace(matrix) / len(true)),
        **positive,
        "macro_f1": _macro_f1(matrix),
        "matthews_correlation": _matthews(matrix),
        "expected_calibration_error": expected_calibration_error(true, p),
        "per_class": per_class,
        "confusion_matrix": matrix.tolist(),
        "reliability": reliability(true, p),
    }


def _class_scores(
    matrix: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return precision, recall and F1, each float64 [C], of a confusion matrix."""
    hits = np.diagonal(matrix)
    predicted, true = matrix.sum(axis=0), matrix.sum(axis=1)
    return (
        hits / np.maximum(predicted, 1),  # hits are 0 wherever the divisor was 0
        hits / np.maximum(true, 1),
        2 * hits / np.maximum(predicted + true, 1),
    )


def _macro_f1(matrix: npt.NDArray[np.int64]) -> float:
    occurs = (matrix.sum(axis=0) + matrix.sum(axis=1)) > 0
    return float(_class_scores(matrix)[2][occurs].mean())


def _matthews(matrix: npt.NDArray[np.int64]) -> float:
    """Return R_K of a confusion matrix, in whole numbers up to the last division."""
    size = int(matrix.sum())
    predicted = [int(n) for n in matrix.sum(axis=0)]
    true = [int(n) for n in matrix.sum(axis=1)]
    both = sum(p * t for p, t in zip(predicted, true, strict=True))
    covariance = int(np.trace(matrix)) * size - both
    spread_predicted = size * size - sum(p * p for p in predicted)
    spread_true = size * size - sum(t * t for t in true)
    if not spread_predicted or not spread_true:
        return 0.0
    return covariance / math.sqrt(spread_predicted * spread_true)


def _check_pair(
    labels: npt.ArrayLike, predictions: npt.ArrayLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    true = _check_integers("labels", labels)
    predicted = _check_integers("predictions", predictions)
    if true.shape != predicted.shape:
        raise BertKerasError(
            "`labels` and `predictions` must be of one length; received "
            f"{len(true)} and {len(predicted)}"
        )
    return true, predicted


def _check_integers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise BertKerasError(
            f"`{name}` must be of shape [N]; received shape {list(array.shape)}"
        )
    if not array.size:
        raise BertKerasError(f"`{name}` must not be empty")
    if not np.issubdtype(array.dtype, np.integer):
        raise BertKerasError(f"`{name}` must be integers; received {array.dtype}")
    return array.astype(np.int64)


def _check_range(name: str, values: npt.NDArray[np.int64], num_classes: int) -> None:
    bad = np.flatnonzero((values < 0) | (values >= num_classes))
    if bad.size:
        raise BertKerasError(
            f"`{name}` must be from 0 to {num_classes - 1}; "
            f"received {values[bad[0]]} in row {bad[0]}"
        )


def _check_probabilities(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return int64 [N] and float64 [N, C] that fit each other."""
    true = _check_integers("labels", labels)
    array = np.asarray(probabilities)
    if array.ndim != 2 or len(array) != len(true) or not array.shape[1]:
        raise BertKerasError(
            f"`probabilities` must be of shape [{len(true)}, C], a row for each "
            f"label; received shape {list(array.shape)}"
        )
    if not np.issubdtype(array.dtype, np.number):
        raise BertKerasError(f"`probabilities` must be float; received {array.dtype}")
    p = array.astype(np.float64)
    fits = (p >= 0) & (p <= 1 + _SUM_TOLERANCE)  # false for NaN too
    bad = np.flatnonzero(~fits.all(axis=1) | (abs(p.sum(axis=1) - 1) > _SUM_TOLERANCE))
    if bad.size:
        raise BertKerasError(
            "each row of `probabilities` must be numbers from 0 to 1 that sum to 1; "
            f"received {p[bad[0]].tolist()[:5]} in row {bad[0]} ({bad.size} bad rows)"
        )
    _check_range("labels", true, p.shape[1])
    return true, p
