"""One update of the weights from the examples of one or several batches: `TrainStep`.

A loss is a sum over what it counts (masked tokens, pairs), divided by the count of the
whole update. So an update is the same however its examples are parted, and gradients
are clipped once all are added up. (Keras's own accumulation takes the mean of the
batches' means, which differs where batches differ in their counts.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from bert_keras.errors import ConfigError

Batch = tuple[dict[str, Any], dict[str, Any]]


class Objective(Protocol):
    """What is minimized: losses by name, each with its count."""

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return name to what a batch's loss counts, float32 []."""

    def sums(
        self, outputs: dict[str, Any], labels: dict[str, Any]
    ) -> dict[str, tuple[Any, Any]]:
        """Return name to loss and correct answers, summed over a batch, float32 []."""


class TrainStep:
    """Updates a model's weights, one call an update.

    Args:
        model: a Keras model of batch dicts, on TensorFlow.
        optimizer: built; clips, if it has `global_clipnorm`, and counts updates.
        objective: the losses.
        element_spec: of the dataset whose batches come.

    Call: batches `(inputs, labels)` of one update. Returns name to float32 [2], the
    sums of loss and of correct answers; and `counts`, name to float32 [].

    Raises:
        ConfigError: Keras runs on another backend.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        element_spec: Any,
    ) -> None:
        if keras.config.backend() != "tensorflow":
            raise ConfigError(
                "pretraining's own loop needs KERAS_BACKEND=tensorflow; received "
                f"{keras.config.backend()}: there, `fit` a BertPretrainer"
            )
        self.model = model
        self.optimizer = optimizer
        self.objective = objective
        totals = {
            name: tf.TensorSpec([], tf.float32)
            for name in objective.counts(_empty(element_spec[1]))
        }
        self._gradient_sums: list[tf.Variable] = []
        self._update = tf.function(
            self._update_from_one, input_signature=[*element_spec, totals]
        )
        self._add = tf.function(
            self._add_gradients, input_signature=[*element_spec, totals]
        )
        self._apply = tf.function(self._apply_sums, input_signature=[])
        self._count = tf.function(
            objective.counts, input_signature=[element_spec[1]], autograph=False
        )

    def __call__(self, batches: Sequence[Batch]) -> tuple[dict, dict]:
        counts = [self._count(labels) for _, labels in batches]
        totals = {name: sum(each[name] for each in counts) for name in counts[0]}
        if len(batches) == 1:
            return self._update(*batches[0], totals), totals
        if not self._gradient_sums:
            self._gradient_sums = [
                tf.Variable(tf.zeros(weight.shape, tf.float32), trainable=False)
                for weight in self.model.trainable_variables
            ]
        found: dict[str, Any] = {}
        for batch in batches:
            for name, sums in self._add(*batch, totals).items():
                found[name] = found.get(name, 0.0) + sums
        self._apply()
        return found, totals

    @tf.autograph.experimental.do_not_convert
    def _gradients(
        self, inputs: dict[str, Any], labels: dict[str, Any], totals: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        with tf.GradientTape() as tape:
            outputs = self.model(inputs, training=True)
            sums = self.objective.sums(outputs, labels)
            parts = [
                loss / tf.maximum(totals[name], 1.0) for name, (loss, _) in sums.items()
            ]
            scaled = self.optimizer.scale_loss(tf.add_n(parts))
        weights = [weight.value for weight in self.model.trainable_variables]
        gradients = tape.gradient(scaled, weights)
        return gradients, {name: tf.stack(pair) for name, pair in sums.items()}

    def _update_from_one(self, inputs: Any, labels: Any, totals: Any) -> Any:
        gradients, sums = self._gradients(inputs, labels, totals)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return sums

    def _add_gradients(self, inputs: Any, labels: Any, totals: Any) -> Any:
        gradients, sums = self._gradients(inputs, labels, totals)
        for total, gradient in zip(self._gradient_sums, gradients, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                total.scatter_add(gradient)
            else:
                total.assign_add(tf.cast(gradient, tf.float32))
        return sums

    def _apply_sums(self) -> None:
        gradients = [total.read_value() for total in self._gradient_sums]
        self.optimizer.apply(gradients, self.model.trainable_variables)
        for total in self._gradient_sums:
            total.assign(tf.zeros_like(total))


def _empty(spec: Any) -> Any:
    """Return tensors of no example, of a dataset's `element_spec`."""
    return tf.nest.map_structure(
        lambda each: tf.zeros([size or 0 for size in each.shape], each.dtype), spec
    )
