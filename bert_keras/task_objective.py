"""A task's Keras loss as sums and counts, for `TrainStep`: `TaskObjective`.

A Keras loss is the mean over what it counts: examples, tagged words, ends of answers.
The mean times the count is the sum that can be added up over parts of a batch. Of one
part alone sum over count is the loss itself, so an update is that of `fit`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_keras.replicas import gathered

_SUMS = ("sum", "none", None)  # reductions
_SCALE = 2.0**20  # weights may add up to less than 1; counts below 1 count as 1


class TaskObjective:
    """The loss of a task, and its metrics of what was trained on.

    A batch's labels are a dict: `targets`, as the loss takes them, and perhaps
    `weights`. A user's own loss whose `call` gives one number, the mean over anything
    but the examples, says in a method `counted(y_true)` over how many, float32 []; it
    matters where a batch comes in parts or is shared by replicas.

    Args:
        model: its task has the loss; what its layers add to a loss counts too.
        metrics: updated with each batch; made in the scope of the model's strategy.
            Their states are read, and set back, by whoever gave them.
    """

    def __init__(
        self, model: keras.Model, *, metrics: Sequence[keras.metrics.Metric] = ()
    ) -> None:
        self.model = model
        self.loss = model.task.loss()
        self.metrics = metrics
        self._counted = getattr(self.loss, "counted", None)
        # A sum is divided by nothing.
        self._is_sum = self._counted is None and self.loss.reduction in _SUMS

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return what the mean of a batch's loss is taken over, float32 []."""
        targets, weights = labels["targets"], labels.get("weights")
        return {"loss": self._count(targets, weights)}

    def sums(self, outputs: Any, labels: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the loss times its count, and 0 (metrics tell what is right).

        In a replica's function those of its share; where the loss compares rows, its
        share of that of all replicas' rows.
        """
        targets, weights = labels["targets"], labels.get("weights")
        for metric in self.metrics:
            metric.update_state(targets, tf.nest.map_structure(_still, outputs))
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        share = 1.0
        if replicas > 1 and self.model.task.compares:
            targets, outputs = gathered(targets), gathered(outputs)
            weights, share = gathered(weights), 1 / replicas

        def loss() -> Any:
            found = self._mean(targets, outputs, weights, replicas)
            return found + tf.add_n([tf.zeros([]), *self.model.losses])

        if self._is_sum:
            return {"loss": (share * loss(), tf.zeros([]))}
        count = self._count(targets, weights)
        # Nothing is counted where a replica has no row: means of nothing may be NaN.
        found = tf.cond(count > 0, loss, lambda: tf.zeros([]))
        return {"loss": (share * found * tf.maximum(count, 1.0), tf.zeros([]))}

    def _mean(self, targets: Any, outputs: Any, weights: Any, replicas: int) -> Any:
        """Return the loss of a batch, float32 []."""
        loss = tf.reduce_sum(self.loss(targets, outputs, weights))
        if replicas == 1 or self.loss.reduction in _SUMS:
            return loss
        # Keras divides by the number of replicas where it takes the mean by itself,
        # and not where a loss gives one number.
        plain = copy.copy(self.loss)
        plain.reduction = None
        is_number = plain(targets, outputs, weights).shape.rank == 0
        return loss if is_number else loss * replicas

    def _count(self, targets: Any, weights: Any) -> Any:
        if self._counted is not None:
            return tf.cast(self._counted(targets), tf.float32)
        if self._is_sum:
            return tf.zeros([])
        values = self._values(targets)
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

    def _values(self, targets: Any) -> Any:
        """Return ones in the form of the losses before they are reduced.

        Losses take the last axis of the outputs away; the others are those of the
        targets.
        """
        first = tf.convert_to_tensor(tf.nest.flatten(targets)[0])
        outputs = self.model.output
        rank = len(outputs.shape) - 1 if keras.utils.is_keras_tensor(outputs) else 1
        return tf.ones(tf.shape(first)[: min(max(rank, 1), first.shape.rank)])


def _still(output: Any) -> Any:
    return tf.stop_gradient(output)
