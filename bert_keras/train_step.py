"""One update of the weights from the examples of one or several batches: `TrainStep`.

A loss is a sum over what it counts (masked tokens, pairs), divided by the count of the
whole update. So an update is the same however its examples are parted, one after the
other or among the replicas of a strategy, and gradients are clipped once all are added
up. `summed_update` says where Keras's own ways go wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from bert_keras.errors import ConfigError
from bert_keras.replicas import added_up, set_replica_seeds, summed_function
from bert_keras.summed_update import apply_summed, check_optimizer

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

    A model that was made in a strategy's scope is trained on all its replicas.

    Args:
        model: a Keras model of batch dicts, on TensorFlow.
        optimizer: built; clips, if it has `global_clipnorm`, and counts updates.
        objective: the losses.
        element_spec: of the dataset whose batches come; under a strategy that of
            `replica_input.distributed`.

    Call: batches `(inputs, labels)` of one update. Returns name to float32 [2], the
    sums of loss and of correct answers; and `counts`, name to float32 []; both are
    those of all replicas.

    Raises:
        ConfigError: Keras runs on another backend; the optimizer clips or accumulates
            in a way that is wrong on several replicas.
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
        self._strategy = model.distribute_strategy
        if self._strategy.num_replicas_in_sync > 1:
            check_optimizer(optimizer)
            set_replica_seeds(model, self._strategy)
        self._count = summed_function(
            self._strategy, objective.counts, [element_spec[1]]
        )
        shapes = self._count.get_concrete_function().structured_outputs
        totals = {name: tf.TensorSpec([], tf.float32) for name in shapes}
        self._gradient_sums: list[tf.Variable] = []
        self._update = tf.function(
            self._update_from_one, input_signature=[*element_spec, totals]
        )
        self._add = tf.function(
            self._add_gradients, input_signature=[*element_spec, totals]
        )
        self._apply = tf.function(self._apply_sums, input_signature=[])

    def __call__(self, batches: Sequence[Batch]) -> tuple[dict, dict]:
        counts = [self._count(labels) for _, labels in batches]
        totals = {name: sum(each[name] for each in counts) for name in counts[0]}
        if len(batches) == 1:
            return self._update(*batches[0], totals), totals
        if not self._gradient_sums:
            # Without aggregation each replica has sums of its own.
            with self._strategy.scope():
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

    @tf.autograph.experimental.do_not_convert
    def _update_from_one(self, inputs: Any, labels: Any, totals: Any) -> Any:
        def update(inputs: Any, labels: Any) -> Any:
            gradients, sums = self._gradients(inputs, labels, totals)
            apply_summed(self.optimizer, gradients, self.model.trainable_variables)
            return sums

        return added_up(self._strategy, update, inputs, labels)

    @tf.autograph.experimental.do_not_convert
    def _add_gradients(self, inputs: Any, labels: Any, totals: Any) -> Any:
        def add(inputs: Any, labels: Any) -> Any:
            gradients, sums = self._gradients(inputs, labels, totals)
            for total, gradient in zip(self._gradient_sums, gradients, strict=True):
                if isinstance(gradient, tf.IndexedSlices):
                    total.scatter_add(gradient)
                else:
                    total.assign_add(tf.cast(gradient, tf.float32))
            return sums

        return added_up(self._strategy, add, inputs, labels)

    @tf.autograph.experimental.do_not_convert
    def _apply_sums(self) -> None:
        def apply() -> None:
            gradients = [total.read_value() for total in self._gradient_sums]
            apply_summed(self.optimizer, gradients, self.model.trainable_variables)
            for total in self._gradient_sums:
                total.assign(tf.zeros_like(total))

        self._strategy.run(apply)
