"""Scores of predicted probabilities, in NumPy float64: cross-entropy, calibration.

Labels are integer [N] class numbers from 0, probabilities float [N, C].

Source: Guo et al. 2017 (arXiv:1706.04599), section 2 (expected calibration error).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError

_SUM_TOLERANCE = 1e-2  # rows of a float16 softmax sum to 1 only roughly


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
    true, p = check_probabilities(labels, probabilities)
    of_label = p[np.arange(len(true)), true]
    of_label = np.clip(of_label, np.finfo(np.float32).tiny, 1.0)
    return float(-np.log(of_label).mean()) + 0.0  # + 0.0 turns -0.0 into 0.0


def expected_calibration_error(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, *, num_bins: int = 15
) -> float:
    """Return the mean gap between confidence and accuracy, weighted by rows.

    Args and errors are those of `reliability`; as in Guo et al. 2017, equation 3.
    """
    return _mean_gap(reliability(labels, probabilities, num_bins=num_bins))


def reliability(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, *, num_bins: int = 15
) -> list[dict[str, Any]]:
    """Return the reliability diagram: accuracy by confidence.

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
    true, p = check_probabilities(labels, probabilities)
    if num_bins < 1:
        raise BertKerasError(f"`num_bins` must be at least 1; received {num_bins}")
    return _bins(p.max(axis=1), p.argmax(axis=1) == true, num_bins)


def confidence_scores(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, num_bins: int = 15
) -> dict[str, Any]:
    """Return calibration error and reliability diagram of answers of any kind.

    Args:
        confidence: float [N], from 0 to 1, one an answer.
        correct: bool [N], whether the answer is right.
        num_bins: number of bins from 0 to 1.

    Returns:
        `expected_calibration_error` and `reliability`, as for classes; nothing where
        there is no answer.

    Example:
        >>> found = confidence_scores([0.9, 0.8], [True, False])
        >>> round(found["expected_calibration_error"], 3)  # 0.1 and 0.8 beside it
        0.45
    """
    sure = np.asarray(confidence, np.float64)
    if not sure.size:
        return {}
    bins = _bins(sure, np.asarray(correct, bool), num_bins)
    return {"expected_calibration_error": _mean_gap(bins), "reliability": bins}


def _bins(
    confidence: npt.NDArray[np.float64], correct: npt.NDArray[np.bool_], num_bins: int
) -> list[dict[str, Any]]:
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


def _mean_gap(bins: list[dict[str, Any]]) -> float:
    gaps = [abs(b["accuracy"] - b["confidence"]) * b["support"] for b in bins]
    return float(sum(gaps) / sum(b["support"] for b in bins))


def check_integers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return an argument of whole numbers as int64 [N].

    Raises:
        BertKerasError: it is empty, of another shape or type; names the argument.
    """
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


def check_range(name: str, values: npt.NDArray[np.int64], num_classes: int) -> None:
    """Raise a BertKerasError unless all class numbers are in their range."""
    bad = np.flatnonzero((values < 0) | (values >= num_classes))
    if bad.size:
        raise BertKerasError(
            f"`{name}` must be from 0 to {num_classes - 1}; "
            f"received {values[bad[0]]} in row {bad[0]}"
        )


def check_probabilities(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Check labels and probabilities; return int64 [N] and float64 [N, C].

    Raises:
        BertKerasError: they do not, or a row is not a distribution.
    """
    true = check_integers("labels", labels)
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
    check_range("labels", true, p.shape[1])
    return true, p
