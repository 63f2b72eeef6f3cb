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
(arXiv:2006.04884), section 3: failed runs are no better than the majority.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.columns import Columns
from bert_keras.models.task_model import TaskModel, is_one_vector
from bert_keras.training.linear_head import row_weights

LEAST_UPDATES = 100  # with fewer, divergence cannot be distinguished from a slow start
_MARGIN = 0.003
_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")  # reductions


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
        little = "hardly" if self.loss < self.constant_loss else "no"
        found = (
            f"the final training loss, {self.loss:.4f}, is {little} better than the "
            f"loss of the same answer for all rows, {self.constant_loss:.4f}"
        )
        if self.is_certain:
            return (
                f"diverged: {found}; a smaller --learning-rate or another seed may help"
            )
        return (
            f"too few updates to tell whether the run diverges ({self.updates} of at "
            f"least {LEAST_UPDATES}): {found}; train for more epochs"
        )


def divergence(
    model: TaskModel, train: Columns, history: Sequence[Mapping[str, Any]]
) -> Divergence | None:
    """Return the divergence of a run, certain or possible; `None` if it is fine.

    Only tasks with one output vector per row, such as classes, and losses of which
    `constant_loss` knows the lowest mean are checked; other runs never count as
    diverged. `history` are the rows of the curves.
    """
    task, loss = model.task, model.task.loss()
    if not is_one_vector(model.output) or task.compares or loss.reduction not in _MEANS:
        return None
    targets = task.encode_targets(tf.convert_to_tensor(task.targets(train)))
    if tuple(targets.shape[:1]) != (len(train),):
        return None
    constant = constant_loss(loss, targets, task.example_weights(train))
    last = _last_loss(history)
    if constant is None or not math.isfinite(constant):
        return None
    if last < (1 - _MARGIN) * constant:
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


def constant_loss(loss: keras.losses.Loss, targets: Any, weights: Any) -> float | None:
    """Return the lowest loss of an output that is the same for all rows.

    For cross-entropies this is the entropy of the classes' weighted shares, or of each
    binary label; for squared errors, the variance. `None` for other losses.

    Args:
        loss: the loss of a task; a mean.
        targets: the targets of all rows, [N, …], as the loss takes them.
        weights: the weights of the rows, [N], or `None`.
    """
    shares = row_weights(weights, len(targets))
    lowest = _lowest_mean(loss, np.asarray(targets), shares / shares.sum())
    # The sum of the weights is not the number of rows, by which most losses divide.
    if lowest is None or loss.reduction == "mean_with_sample_weight":
        return lowest
    return lowest * float(shares.mean())


def _lowest_mean(loss: Any, targets: np.ndarray, shares: np.ndarray) -> float | None:
    """Return the lowest weighted mean; `None` if no closed form is known.

    A loss of a task says it by a method `lowest_constant`.
    """
    if hasattr(loss, "lowest_constant"):
        return float(loss.lowest_constant(targets, shares))
    found = _LOWEST.get(type(loss))
    return None if found is None else found(loss, targets, shares)


def _of_classes(loss: Any, targets: np.ndarray, shares: np.ndarray) -> float | None:
    if loss.ignore_class is not None:
        return None
    classes = np.unique(targets, return_inverse=True)[1].reshape(-1)
    return _entropy(np.bincount(classes, shares))


def _of_distributions(loss: Any, targets: np.ndarray, shares: np.ndarray) -> float:
    mean = shares @ _numbers(targets)
    smoothing = loss.label_smoothing
    return _entropy((1 - smoothing) * mean + smoothing / len(mean))


def _of_decisions(loss: Any, targets: np.ndarray, shares: np.ndarray) -> float:
    mean = shares @ _numbers(targets)
    mean = (1 - loss.label_smoothing) * mean + loss.label_smoothing / 2
    return (_entropy(mean) + _entropy(1 - mean)) / len(mean)


def _of_numbers(loss: Any, targets: np.ndarray, shares: np.ndarray) -> float:
    numbers = _numbers(targets)
    return float((shares @ (numbers - shares @ numbers) ** 2).mean())


def _numbers(targets: np.ndarray) -> np.ndarray:
    """Return targets as float64 [N, C]."""
    return targets.astype("float64").reshape(len(targets), -1)


_LOWEST: dict[type, Callable[[Any, np.ndarray, np.ndarray], float | None]] = {
    keras.losses.SparseCategoricalCrossentropy: _of_classes,
    keras.losses.CategoricalCrossentropy: _of_distributions,
    keras.losses.BinaryCrossentropy: _of_decisions,
    keras.losses.MeanSquaredError: _of_numbers,
}


def _entropy(shares: np.ndarray) -> float:
    """Return the sum of -p log p over shares p, in nats."""
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())
