"""Runs that have learned nothing: `Divergence`.

On a small set of training rows some runs, of BERT-large above all, end where they
began: the gradients vanish early, and the model gives every text the same answer. Such
a run is known by its training loss: that of its last epoch (of one epoch alone, of its
second half) is compared with the lowest loss that one and the same output for all rows
can reach. For classes that is the entropy of their shares, which is the loss of a
predictor that knows the majority and how large it is; for numbers the variance. A run
that is not better by three parts in a thousand has diverged.

Sources: Devlin et al. 2018 (arXiv:1810.04805), section 4.1: fine-tuning BERT-large was
at times unstable on small sets, so it was restarted at random; Mosbach et al. 2021
(arXiv:2006.04884), section 3: failed runs are those no better than the majority.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.data.table import Columns
from bert_keras.tasks.task_model import TaskModel, is_one_vector

_MARGIN = 0.003
_STEPS, _RATE, _MOMENTUM = 300, 0.1, 0.9


@dataclasses.dataclass(frozen=True)
class Divergence:
    """What a run that has diverged is known by.

    Args:
        loss: mean training loss at the end.
        constant_loss: the lowest of one output for all rows.
    """

    loss: float
    constant_loss: float

    def __str__(self) -> str:
        return (
            f"diverged: the training loss at the end, {self.loss:.4f}, is no better "
            f"than that of one answer for all rows, {self.constant_loss:.4f}"
        )


def divergence(
    model: TaskModel, train: Columns, history: Sequence[Mapping[str, Any]]
) -> Divergence | None:
    """Return how a run has diverged; `None` if it has not.

    Only tasks of one output vector a row, such as classes, are looked at; others never
    count as diverged.

    Args:
        model: trained.
        train: all rows that it was trained on.
        history: the rows of its curves.
    """
    output = model.output
    if not is_one_vector(output):
        return None
    targets = model.task.encode_targets(tf.convert_to_tensor(model.task.targets(train)))
    rows = len(train)
    if tuple(targets.shape[:1]) != (rows,):
        return None
    if model.task.compares:
        return None
    weights = model.task.example_weights(train)
    constant = _constant_loss(
        model.task.loss(), targets, weights, (rows, output.shape[1])
    )
    loss = _last_loss(history)
    if not math.isfinite(constant) or loss < (1 - _MARGIN) * constant:
        return None
    return Divergence(loss, constant)


def _last_loss(history: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean loss of the last epoch; of the only one its second half."""
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


def _constant_loss(
    loss: Any, targets: Any, weights: Any, shape: tuple[int, int]
) -> float:
    """Return the lowest loss of an output that is the same for all rows.

    Gradient descent with momentum on that output; losses are convex in it.
    """

    def step(count: Any, value: Any, speed: Any, lowest: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(value)
            found = tf.reduce_mean(
                loss(targets, tf.broadcast_to(value, shape), weights)
            )
        speed = _MOMENTUM * speed - _RATE * tape.gradient(found, value)
        return count + 1, value + speed, speed, tf.minimum(lowest, found)

    @tf.function(autograph=False)
    def descend() -> Any:
        start = (0, tf.ones(shape[1:]), tf.zeros(shape[1:]), tf.constant(math.inf))
        return tf.while_loop(lambda count, *_: count < _STEPS, step, start)[-1]

    return float(descend())
