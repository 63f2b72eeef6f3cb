"""A task's Keras loss as sums and counts, for `TrainStep`: `TaskObjective`.

A Keras loss is the mean over what it counts: examples, tagged words, ends of answers.
The mean times the count is the sum that can be added up over parts of a batch. Of one
part alone sum over count is the loss itself, so an update is that of `fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

_SCALE = 2.0**20  # weights may add up to less than 1; counts below 1 count as 1


class TaskObjective:
    """The loss of a task, and its metrics of what was trained on.

    A batch's labels are a dict: `targets`, as the loss takes them, and perhaps
    `weights`. A user's own loss whose `call` gives one number, the mean over anything
    but the examples, says in a method `counted(y_true)` over how many, float32 []; it
    matters where a batch comes in parts.

    Args:
        model: its task has the loss; what its layers add to a loss counts too.
        metrics: updated with each batch on one device; their states are read, and set
            back, by whoever gave them.
    """

    def __init__(
        self, model: keras.Model, *, metrics: Sequence[keras.metrics.Metric] = ()
    ) -> None:
        self.model = model
        self.loss = model.task.loss()
        self.metrics = metrics

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return what the mean of a batch's loss is taken over, float32 []."""
        targets, weights = labels["targets"], labels.get("weights")
        return {"loss": self._count(targets, weights)}

    def sums(self, outputs: Any, labels: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the loss times its count, and 0 (metrics tell what is right)."""
        targets, weights = labels["targets"], labels.get("weights")
        loss = tf.reduce_sum(self.loss(targets, outputs, weights))
        if self.model.losses:
            loss += tf.add_n(self.model.losses)
        if not tf.distribute.has_strategy():
            for metric in self.metrics:
                metric.update_state(targets, tf.nest.map_structure(_still, outputs))
        count = tf.maximum(self._count(targets, weights), 1.0)
        return {"loss": (loss * count, tf.zeros([]))}

    def _count(self, targets: Any, weights: Any) -> Any:
        counted = getattr(self.loss, "counted", None)
        if counted is not None:
            return tf.cast(counted(targets), tf.float32)
        reduction = self.loss.reduction
        if reduction in ("sum", "none", None):
            return tf.zeros([])  # a sum is divided by nothing
        values = self._values(targets)
        ignored = getattr(self.loss, "ignore_class", None)
        if ignored is not None:
            mask = tf.reshape(targets, tf.shape(values)) != ignored
            values = tf.cast(mask, tf.float32)
        if weights is not None and reduction == "mean_with_sample_weight":
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
