"""Calibration of confidence: temperature scaling and abstention.

Probabilities are float [N, C], labels integer [N]; NumPy float64, no TensorFlow. Values
fitted on dev rows become settings of the task, applied in its graph.

Sources: Guo et al. 2017 (arXiv:1706.04599), section 4.2 (temperature scaling); Geifman
and El-Yaniv 2017 (arXiv:1705.08500) for a threshold that keeps an accuracy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.scoring.probabilities import cross_entropy, expected_calibration_error
from bert_keras.settings import check_choice, check_number

CALIBRATIONS = ("none", "temperature")
# A few dev rows, all correct, would lead to a temperature of 0.
LEAST, MOST = 0.1, 10.0
# Allowed in a task: logits divided by it stay finite and distinct in float32.
_COLDEST, _HOTTEST = 1e-3, 1e3
# Temperatures tried where answers are more than classes, as multiples of the one there
# is: 12% apart, 1 in the middle.
FACTORS = tuple(np.geomspace(LEAST, MOST, 41).tolist())
_NEARLY = 1e-6  # at a probability of 0 or 1 one wrong answer would dominate
_TINY = float(np.finfo(np.float32).tiny)  # a float32 softmax can sink to 0
_NEVER = -1e9  # logit of the impossible, at any temperature


def check_calibration(calibration: str, temperature: float) -> None:
    """Raise a ConfigError unless these settings of a task are in their range."""
    check_choice("calibration", calibration, CALIBRATIONS)
    check_number("temperature", temperature, least=_COLDEST, most=_HOTTEST)


def in_range(temperature: float) -> float:
    """Clip a temperature to the range that a task allows."""
    return min(max(temperature, _COLDEST), _HOTTEST)


def fit_temperature(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    absent: npt.ArrayLike | None = None,
) -> float:
    """Return the temperature with the least cross-entropy.

    It divides the logits; above 1 it makes a model less sure. The loss is convex in its
    inverse, so bisection of the slope finds the minimum. Kept from 0.1 to 10.

    Args:
        labels: integer [N], from 0 to C - 1.
        probabilities: float [N, C] of a softmax; their logarithms are its logits.
        absent: bool [N, C], which of them fill up a row that has fewer.

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
    """Return at which of K temperatures the scores of answers fit best.

    Args:
        confidence: float [N, K], the score of each answer at each of them.
        correct: bool [N].

    Returns:
        The place of the least mean -log p of right and wrong; of no answers the middle.
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
    """Return the lowest confidence from which answers are right often enough.

    Args:
        confidence: float [N], 0 to 1.
        correct: bool [N].
        accuracy: wanted share of right answers among those that are given.

    Returns:
        A threshold between two rows: 0 where all may be answered, and 1 where no
        threshold reaches the accuracy, so that only full certainty is answered.
    """
    scores = np.asarray(confidence, np.float64)
    order = np.argsort(-scores, kind="stable")
    scores, right = scores[order], np.asarray(correct, np.float64)[order]
    shares = np.cumsum(right) / np.arange(1, len(right) + 1)
    # Rows of one score are answered together, or none of them.
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
    """Return the share of rows that are answered, and how many of those are right."""
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
