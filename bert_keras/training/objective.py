"""Losses as sums over the items that they count: `LossSum`, `TaskObjective`.

`TrainStep` divides each sum by the count of the whole update, so that the loss does not
depend on how its examples are split. The losses are Keras's, as `compile` takes them:
fine-tuning, pretraining, held-out data and `fit` compute the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from bert_keras.distribution.replicas import (
    copied,
    divided,
    gathered,
    is_sum,
    undivided,
)
from bert_keras.tasks.protocols import compares_rows


class Objective(Protocol):
    """The training objective: losses by name, each with its count.

    Attributes:
        compares: whether it compares the rows of a batch, so that the losses of its
            parts do not add up to its own.
    """

    compares: bool

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return the number of items that each loss of a batch counts, float32 []."""

    def sums(
        self, outputs: dict[str, Any], labels: dict[str, Any]
    ) -> dict[str, tuple[Any, Any]]:
        """Return sums of each loss and its correct answers over a batch, float32 []."""


_SCALE = 2.0**20  # the sum of weights may be below 1; such counts become 1


class LossSum:
    """A loss of Keras as a sum over a batch, with the number of items in its mean.

    If the `call` of a custom loss returns one number, a mean over something other than
    the examples, a method `counted(y_true)` returns their count, float32 []. It is
    needed if a batch comes in parts; replicas without it gather their rows.

    Args:
        loss: the loss.
        rank: axes of the targets that the loss does not reduce.
        compares: whether it compares the rows of a batch.
    """

    def __init__(
        self, loss: keras.losses.Loss, *, rank: int = 1, compares: bool = False
    ) -> None:
        self.loss = loss
        self._rank = max(rank, 1)
        self._compares = compares
        self._counted = getattr(loss, "counted", None)
        self._is_sum = self._counted is None and is_sum(loss)  # not divided

    def count(self, targets: Any, weights: Any = None) -> Any:
        """Return the number of items in the mean of a batch's loss, float32 []."""
        if self._counted is not None:
            return tf.cast(self._counted(targets), tf.float32)
        if self._is_sum:
            return tf.zeros([])
        first = tf.convert_to_tensor(tf.nest.flatten(targets)[0])
        values = tf.ones(tf.shape(first)[: min(self._rank, first.shape.rank)])
        ignored = getattr(self.loss, "ignore_class", None)
        if ignored is not None:
            mask = tf.reshape(targets, tf.shape(values)) != ignored
            values = tf.cast(mask, tf.float32)
        if weights is not None and self.loss.reduction == "mean_with_sample_weight":
            weights = tf.cast(weights, tf.float32)
            if ignored is not None:
                weights = tf.reshape(weights, tf.shape(values)) * values
            return _SCALE * tf.reduce_sum(weights)
        return tf.reduce_sum(values)

    def sum(
        self, targets: Any, outputs: Any, weights: Any = None, *, added: Any = ()
    ) -> Any:
        """Return the loss, plus what layers `added`, times its count, float32 [].

        In a replica function it is the sum of its rows; if the loss compares rows, the
        replica's share of the loss over all replicas' rows.
        """
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        share = 1.0
        if replicas > 1 and self._is_of_whole_batch(targets, outputs, weights):
            targets, outputs = gathered(targets), gathered(outputs)
            weights, share = gathered(weights), 1 / replicas
        loss = divided(self.loss, replicas)

        def mean() -> Any:
            found = replicas * tf.reduce_sum(loss(targets, outputs, weights))
            return found + tf.add_n([tf.zeros([]), *added])

        if self._is_sum:
            return share * mean()
        count = self.count(targets, weights)
        # A replica without rows counts nothing, since the mean of no values may be NaN.
        found = tf.cond(count > 0, mean, lambda: tf.zeros([]))
        return share * found * tf.maximum(count, 1.0)

    def _is_of_whole_batch(self, targets: Any, outputs: Any, weights: Any) -> bool:
        """Return whether the losses of parts of a batch do not add up to its own."""
        if self._compares or self._counted is not None or self._is_sum:
            return self._compares
        plain = copied(self.loss)
        plain.reduction = None
        return plain(targets, outputs, weights).shape.rank == 0


class TaskObjective:
    """The loss of a task, or the compiled loss of its model, and training metrics.

    A batch's labels are a dict: `targets`, as the loss takes them, and optionally
    `weights`.

    The losses that the model's layers add are included. `metrics`, created in the scope
    of the model's strategy, are updated with each batch; the caller reads and resets
    them.
    """

    def __init__(
        self, model: keras.Model, *, metrics: Sequence[keras.metrics.Metric] = ()
    ) -> None:
        self.model = model
        self.loss = _loss_of(model)
        self.metrics = metrics
        outputs = model.output
        # Losses remove the last axis of the outputs; the other axes are the targets'.
        rank = len(outputs.shape) - 1 if keras.utils.is_keras_tensor(outputs) else 1
        self.compares = compares_rows(model.task)
        self._sum = LossSum(self.loss, rank=rank, compares=self.compares)

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return the number of items in the mean of a batch's loss, float32 []."""
        return {"loss": self._sum.count(labels["targets"], labels.get("weights"))}

    def sums(self, outputs: Any, labels: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the sum of the loss, and 0 (metrics count correct answers)."""
        targets, weights = labels["targets"], labels.get("weights")
        for metric in self.metrics:
            metric.update_state(
                targets, tf.nest.map_structure(tf.stop_gradient, outputs)
            )
        total = self._sum.sum(targets, outputs, weights, added=self.model.losses)
        return {"loss": (total, tf.zeros([]))}


def _loss_of(model: keras.Model) -> keras.losses.Loss:
    """Return the compiled loss of a model, or its task's loss."""
    if not getattr(model, "compiled", False):
        return model.task.loss()
    loss = keras.losses.get(undivided(model.loss))
    return loss if isinstance(loss, keras.losses.Loss) else _Mean(loss)


class _Mean(keras.losses.Loss):
    """The mean of a function's values as a loss of Keras."""

    def __init__(self, function: Any) -> None:
        super().__init__(name="mean")
        self.call = function
