"""Probabilities: cross-entropy, calibration error, temperature scaling, abstention.

Probabilities are float [N, C] whose rows sum to 1, labels integer [N] from 0 to C - 1,
confidences float [N] from 0 to 1, `correct` bool [N]; NumPy float64, no TensorFlow.
Values fitted on dev rows become settings of the task, applied in its graph.

Sources: Guo et al. 2017 (arXiv:1706.04599), sections 2 (expected calibration error) and
4.2 (temperature scaling); Geifman and El-Yaniv 2017 (arXiv:1705.08500) for thresholds
that reach an accuracy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError

_SUM_TOLERANCE = 1e-2  # rows of a float16 softmax sum to 1 only roughly


def log_of(probabilities: npt.ArrayLike) -> np.ndarray:
    """Return the logarithm of probabilities, which float32 may have rounded to 0."""
    return np.log(np.maximum(np.asarray(probabilities, np.float64), 1e-37))


def logit_of(probabilities: npt.ArrayLike) -> np.ndarray:
    """Return the logits of probabilities of yes, which float32 may have rounded."""
    p = np.asarray(probabilities, np.float64)
    return log_of(p) - np.log(np.maximum(1 - p, 2.0**-25))


def cross_entropy(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    """Return the mean of -log p(label), in nats.

    A probability of 0, to which a float32 softmax can sink, counts as the smallest
    normal float32 (1.2e-38), so that the mean stays finite: at most 87.3 a row.

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

    The confidence is the largest probability; as in Guo et al. 2017, equation 3. See
    `confidence_scores` for the bins.

    Raises:
        BertKerasError: as for `cross_entropy`, or `num_bins` is below 1.
    """
    true, p = check_probabilities(labels, probabilities)
    correct = p.argmax(axis=1) == true
    found = confidence_scores(p.max(axis=1), correct, num_bins=num_bins)
    return float(found["expected_calibration_error"])


def confidence_scores(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, num_bins: int = 15
) -> dict[str, Any]:
    """Return calibration error and reliability diagram for answers of any kind.

    The keys are `expected_calibration_error` and `reliability`, as for classes; none if
    there are no answers. The `num_bins` bins from 0 to 1 have equal width and hold
    their upper edge. Each that holds rows has `confidence` and `accuracy`, the means of
    its rows, and `support`, their number.

    Raises:
        BertKerasError: `num_bins` is below 1.

    Example:
        >>> found = confidence_scores([0.9, 0.8], [True, False])
        >>> round(found["expected_calibration_error"], 3)  # gaps of 0.1 and 0.8
        0.45
    """
    if num_bins < 1:
        raise BertKerasError(f"`num_bins` must be at least 1; received {num_bins}")
    sure, right = np.asarray(confidence, np.float64), np.asarray(correct, bool)
    if not sure.size:
        return {}
    edges = np.linspace(0, 1, num_bins + 1)[1:-1]
    places = np.digitize(sure, edges, right=True)
    bins = [
        {
            "confidence": float(sure[places == place].mean()),
            "accuracy": float(right[places == place].mean()),
            "support": int((places == place).sum()),
        }
        for place in np.unique(places)
    ]
    gaps = [abs(b["accuracy"] - b["confidence"]) * b["support"] for b in bins]
    error = float(sum(gaps) / sum(b["support"] for b in bins))
    return {"expected_calibration_error": error, "reliability": bins}


def check_integers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return an argument of whole numbers as int64 [N], at least one."""
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
    """Return checked labels and probabilities as int64 [N] and float64 [N, C].

    Raises:
        BertKerasError: their shapes do not fit, or a row is not a distribution.
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


def yes_or_no(probabilities: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return probabilities of yes, [N], as distributions of no and yes, [N, 2].

    They are clipped to what float32 resolves: 1 - p would be 0 if p rounds to 1.
    """
    p = np.clip(np.asarray(probabilities, np.float64), 2.0**-24, 1 - 2.0**-24)
    return np.stack([1 - p, p], axis=1)


# A few dev rows, all correct, would give a temperature of 0.
LEAST, MOST = 0.1, 10.0
# Temperatures tried for answers other than classes, as multiples of the current one:
# 12% apart, 1 in the middle.
FACTORS = tuple(np.geomspace(LEAST, MOST, 41).tolist())
_NEARLY = 1e-6  # at a probability of 0 or 1 one wrong answer would dominate
_TINY = float(np.finfo(np.float32).tiny)  # a float32 softmax can sink to 0
_NEVER = -1e9  # logit of an impossible class, at any temperature


def fit_temperature(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    absent: npt.ArrayLike | None = None,
) -> float:
    """Return the temperature with the least cross-entropy.

    It divides the logits; above 1 it makes a model less confident. The loss is convex
    in its inverse, so bisection of the slope finds the minimum. Clipped to 0.1 to 10.
    The probabilities come from a softmax, whose logarithms are its logits; `absent`
    bool [N, C] marks the padding of rows with fewer classes.

    Example:
        >>> round(fit_temperature([0, 0, 0, 1], [[0.9, 0.1]] * 4), 3)  # right: 0.75
        2.0
    """
    true, logits = np.asarray(labels), _logits(probabilities, absent)
    of_label = logits[np.arange(len(true)), true].mean()

    def slope(inverse: float) -> float:
        expected = (_softmax(logits * inverse) * logits).sum(axis=1)
        return float(expected.mean() - of_label)

    low, high = math.log(1 / MOST), math.log(1 / LEAST)
    for _ in range(60):  # to the last digits of a double
        middle = (low + high) / 2
        low, high = (low, middle) if slope(math.exp(middle)) > 0 else (middle, high)
    return math.exp(-(low + high) / 2)


def best_factor(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> int:
    """Return the index of the temperature, of K, at which answers are calibrated best.

    That is the lowest mean -log p of right and wrong, of the confidences [N, K] at each
    of them; the middle if there are no answers.
    """
    p = np.asarray(confidence, np.float64).clip(_NEARLY, 1 - _NEARLY)
    if not len(p):
        return p.shape[1] // 2
    of_case = np.where(np.asarray(correct)[:, np.newaxis], p, 1 - p)
    return int(np.log(of_case).mean(axis=0).argmax())


def scaled(
    probabilities: npt.ArrayLike,
    temperature: float,
    *,
    absent: npt.ArrayLike | None = None,
) -> npt.NDArray[np.float64]:
    """Return the probabilities [N, C] of logits divided by a temperature."""
    return _softmax(_logits(probabilities, absent) / temperature)


def uncalibrated_scores(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    temperature: float,
    *,
    absent: npt.ArrayLike | None = None,
) -> dict[str, Any]:
    """Return loss and calibration error without the temperature."""
    if temperature == 1:
        return {}
    before = scaled(probabilities, 1 / temperature, absent=absent)
    error = expected_calibration_error(labels, before)
    return {
        "uncalibrated_loss": cross_entropy(labels, before),
        "uncalibrated_calibration_error": error,
    }


def abstention_threshold(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, accuracy: float
) -> float:
    """Return the lowest confidence above which answers reach an accuracy.

    It is a threshold between two rows: 0 if all may be answered, and 1 if no threshold
    reaches the accuracy, so that only full certainty is answered.
    """
    scores = np.asarray(confidence, np.float64)
    order = np.argsort(-scores, kind="stable")
    scores, right = scores[order], np.asarray(correct, np.float64)[order]
    shares = np.cumsum(right) / np.arange(1, len(right) + 1)
    # Rows of equal score are either all answered or none.
    ends = np.append(scores[1:] < scores[:-1], True)
    kept = np.flatnonzero(ends & (shares >= accuracy))
    if not kept.size:
        return 1.0
    last = kept[-1]
    if last == len(scores) - 1:
        return 0.0
    return float((scores[last] + scores[last + 1]) / 2)


def abstention_scores(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, below: float
) -> dict[str, Any]:
    """Return the share of rows that are answered, and how many of them are right."""
    if not below:
        return {}
    answered = np.asarray(confidence) >= below
    right = np.asarray(correct)[answered]
    scores = {"coverage": float(answered.mean()) if answered.size else 0.0}
    if right.size:
        scores["answered_accuracy"] = float(right.mean())
    return scores


def _logits(
    probabilities: npt.ArrayLike, absent: npt.ArrayLike | None
) -> npt.NDArray[np.float64]:
    logits = np.log(np.maximum(np.asarray(probabilities, np.float64), _TINY))
    return logits if absent is None else np.where(absent, _NEVER, logits)


def _softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
