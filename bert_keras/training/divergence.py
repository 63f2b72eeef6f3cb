"""Runs that have learned nothing: `Divergence`.

On small training sets some runs, especially of BERT-large, make no progress: the
gradients vanish early, and the model gives every text the same answer. Such a run is
detected by its training loss: the loss of its last epoch (of the second half if there
is only one epoch) is compared with the lowest loss of a constant output for all rows.
For classes this is the entropy of their shares, which is the loss of a predictor that
knows only the class frequencies; for numbers it is the variance. A run that is not
better by 0.3% has diverged, unless it made so few updates that a good run would not be
better either.

Sources: Devlin et al. 2018 (arXiv:1810.04805), section 4.1: fine-tuning BERT-large was
at times unstable on small sets, so it was restarted at random; Mosbach et al. 2021
(arXiv:2006.04884), section 3: failed runs are those no better than the majority.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.table import Columns
from bert_keras.tasks.regression import ScaledSquaredError
from bert_keras.tasks.task_model import TaskModel, is_one_vector

LEAST_UPDATES = 100  # with fewer, divergence cannot be distinguished from a slow start
_MARGIN = 0.003
_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")  # reductions
# Descent ends if the loss has not fallen by this share in this many steps.
_TOLERANCE, _PATIENCE, _MOST_STEPS = 1e-5, 20, 500


@dataclasses.dataclass(frozen=True)
class Divergence:
    """The end of a run that is not better than one answer for all rows."""

    loss: float  # the mean of training at the end
    constant_loss: float  # the lowest of a constant output
    updates: int = LEAST_UPDATES  # of the run

    @property
    def is_certain(self) -> bool:
        """Whether the run made enough updates to call it diverged."""
        return self.updates >= LEAST_UPDATES

    def __str__(self) -> str:
        found = (
            f"the training loss at the end, {self.loss:.4f}, is no better than that of "
            f"one answer for all rows, {self.constant_loss:.4f}"
        )
        if self.is_certain:
            return f"diverged: {found}"
        return (
            f"too few updates to tell whether the run diverges ({self.updates} of at "
            f"least {LEAST_UPDATES}): {found}; train for more epochs"
        )


def divergence(
    model: TaskModel, train: Columns, history: Sequence[Mapping[str, Any]]
) -> Divergence | None:
    """Return the divergence of a run, certain or possible; `None` if it is fine.

    Only tasks with one output vector per row, such as classes, and losses that are
    means are checked; other runs never count as diverged. `history` are the rows of the
    curves.
    """
    output = model.output
    if not is_one_vector(output):
        return None
    targets = model.task.encode_targets(tf.convert_to_tensor(model.task.targets(train)))
    rows = len(train)
    if tuple(targets.shape[:1]) != (rows,):
        return None
    loss = model.task.loss()
    if model.task.compares or loss.reduction not in _MEANS:
        return None
    weights = model.task.example_weights(train)
    constant = constant_loss(loss, targets, weights, output.shape[1])
    last = _last_loss(history)
    if not math.isfinite(constant) or last < (1 - _MARGIN) * constant:
        return None
    steps = max((row["step"] for row in history if "step" in row), default=0)
    return Divergence(last, constant, steps)


def _last_loss(history: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean loss of the last epoch; of a single one, its second half."""
    found = [row for row in history if "loss" in row]
    if not found:  # no update was made
        return math.inf
    last = found[-1]["epoch"]
    start = last - 1 if last > 1 else last / 2
    total, steps = 0.0, 0
    before = 0
    for row in found:
        if row["epoch"] > start + 1e-9:
            total += row["loss"] * (row["step"] - before)
            steps += row["step"] - before
        before = row["step"]
    return total / max(steps, 1)


def constant_loss(
    loss: keras.losses.Loss, targets: Any, weights: Any, units: int
) -> float:
    """Return the lowest loss of an output that is the same for all rows.

    Exact for cross-entropies (the entropy of the classes' weighted shares, or of each
    binary label) and squared errors (the variance); by descent for other losses.

    Args:
        loss: the loss of a task; a mean.
        targets: the targets of all rows, [N, …], as the loss takes them.
        weights: the weights of the rows, [N], or `None`.
        units: size of the output.
    """
    rows = len(targets)
    shares = np.ones(rows) if weights is None else np.asarray(weights, "float64")
    lowest = _exact(loss, np.asarray(targets), shares / shares.sum())
    if lowest is None:
        return _descended(loss, targets, weights, (rows, units))
    # The sum of the weights is not the number of rows, by which most losses divide.
    by_weights = loss.reduction == "mean_with_sample_weight"
    return lowest if by_weights else lowest * float(shares.mean())


def _exact(loss: Any, targets: np.ndarray, shares: np.ndarray) -> float | None:
    """Return the lowest weighted mean in closed form, `None` if no form is known."""
    kind, means = type(loss), keras.losses
    if getattr(loss, "label_smoothing", 0) or getattr(loss, "ignore_class", None):
        return None
    if kind is means.SparseCategoricalCrossentropy:
        classes = np.unique(targets, return_inverse=True)[1].reshape(-1)
        return _entropy(np.bincount(classes, shares))
    numbers = targets.astype("float64").reshape(len(targets), -1)
    mean = shares @ numbers
    if kind is means.CategoricalCrossentropy:
        return _entropy(mean)
    if kind is means.BinaryCrossentropy:
        return (_entropy(mean) + _entropy(1 - mean)) / len(mean)
    if kind in (means.MeanSquaredError, ScaledSquaredError):
        variance = float((shares @ (numbers - mean) ** 2).mean())
        return variance / getattr(loss, "std", 1.0) ** 2
    return None


def _entropy(shares: np.ndarray) -> float:
    """Return the sum of -p log p over shares p, in nats."""
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())


def _descended(loss: Any, targets: Any, weights: Any, shape: tuple[int, int]) -> float:
    """Return the minimum that gradient descent on the output finds; losses are convex.

    Barzilai and Borwein's step sizes (1988): each follows from the change of the
    gradient over the last step. A step to a loss above the last ten is shortened.
    """

    @tf.function(autograph=False)
    def look(value: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(value)
            found = tf.reduce_mean(
                loss(targets, tf.broadcast_to(value, shape), weights)
            )
        return found, tape.gradient(found, value)

    def at(value: np.ndarray) -> tuple[float, np.ndarray]:
        found, slope = look(tf.constant(value, tf.float32))
        return float(found), np.asarray(slope, "float64")

    value = min(_starts(np.asarray(targets), shape), key=lambda each: at(each)[0])
    found, slope = at(value)
    losses, rate = [found], 1.0
    while len(losses) < _MOST_STEPS and rate > 1e-12:
        found, new = at(value - rate * slope)
        if not found <= max(losses[-10:]):  # also if it is NaN
            rate /= 4
            continue
        step, change = -rate * slope, new - slope
        value, slope = value + step, new
        rate = float(step @ step) / max(float(step @ change), 1e-12)
        losses.append(found)
        before = losses[:-_PATIENCE]
        if before and min(before) - min(losses) <= _TOLERANCE * abs(min(before)):
            break
    return min(losses)


def _starts(targets: np.ndarray, shape: tuple[int, int]) -> list[np.ndarray]:
    """Return outputs [C] to start from: 0, and the minima of common losses."""
    rows, units = shape
    starts = [np.zeros(units)]
    if targets.ndim == 1 and targets.dtype.kind in "iu" and targets.max() < units:
        shares = np.bincount(targets, minlength=units) / rows
        starts += [np.log(np.maximum(shares, 0.1 / rows))]
    elif targets.size == rows * units:
        mean = targets.astype("float64").reshape(rows, units).mean(0)
        starts += [mean]
        if ((mean > 0) & (mean < 1)).all():
            starts += [np.log(mean / (1 - mean)), np.log(mean)]
    return starts
