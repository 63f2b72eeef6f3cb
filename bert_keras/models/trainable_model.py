"""A base of models that Keras's `fit` trains as their task says: `TrainableModel`."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from bert_keras.distribution.replicas import (
    all_reduced,
    apply_summed,
    check_optimizer,
    replica_count,
    set_replica_seeds,
    summed,
)
from bert_keras.errors import ConfigError
from bert_keras.model.encoder import BatchModel
from bert_keras.models.objective import TaskObjective


class TrainableModel(BatchModel):
    """A model with a `task`, whose loss and metrics `compile` takes; the first base.

    With one replica, or a backend other than TensorFlow, the steps are Keras's. On the
    replicas of a strategy in whose scope the model was created, it computes losses,
    gradients and update as `TrainStep` does, so `fit` and `evaluate` are the same as on
    one device, and metrics and callbacks are Keras's. Keras splits each batch by its
    rows, so packed rows, whose tensors refer to one another's positions, are not
    supported.

    Example:
        >>> with tf.distribute.MirroredStrategy().scope():
        ...     model = BertPretrainer(BertEncoder(config))
        ...     model.compile(BertAdamW(1e-4), pretraining_loss())
        >>> model.fit(dataset)
    """

    loss_weights: Any = None  # of `compile`

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        loss_weights: Any = None,
        metrics: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """Set what `fit` trains, as `keras.Model.compile` does.

        `auto` takes optimizer, loss and metrics of the model's own training, as `fit`
        of a model that is not compiled does; with a `CategoricalCrossentropy`, the
        accuracy reads one-hot labels, too. Where a layer computes in float16, the loss
        is scaled unless `auto_scale_loss` is False.
        """
        if isinstance(optimizer, str) and optimizer == "auto":
            optimizer = self._own_optimizer()
        if isinstance(loss, str) and loss == "auto":
            loss = self.task.loss()
            if loss_weights is None:
                loss_weights = getattr(self.task, "loss_weights", None)
        if isinstance(metrics, str) and metrics == "auto":
            metrics = self.task.metrics()
            if isinstance(loss, keras.losses.CategoricalCrossentropy):
                metrics = [keras.metrics.CategoricalAccuracy(name="accuracy")]
        self.loss_weights = loss_weights
        # Keras reads the policy of the model, which is not that of its encoder.
        layers = self._flatten_layers()
        is_float16 = any(layer.compute_dtype == "float16" for layer in layers)
        scales = optimizer is not None and kwargs.get("auto_scale_loss", True)
        if scales and is_float16:
            optimizer = keras.optimizers.get(optimizer)
            if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
                optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        super().compile(optimizer, loss, loss_weights, metrics, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.task.loss(), self.task.metrics()  # imports classes that a file names
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def _own_optimizer(self) -> Any:
        raise NotImplementedError

    def _compile_if_not(self) -> None:
        """Compile with the settings of the model's own training, unless compiled."""
        if self.compiled:
            return
        if keras.config.backend() != "tensorflow":
            self.compile()
            return
        with self.distribute_strategy.scope():
            self.compile()

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        self._compile_if_not()
        return super().evaluate(*args, **kwargs)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        self._compile_if_not()
        if replica_count(self) > 1:
            check_optimizer(self.optimizer)
            set_replica_seeds(self, self.distribute_strategy)
        return super().fit(*args, **kwargs)

    def _maybe_symbolic_build(
        self, iterator: Any = None, data_batch: Any = None
    ) -> Any:
        """Build the metrics on the first replica's part of a batch.

        Keras builds them on the mean of the parts, which fails if these have unequal
        numbers of rows, as where the first batch is also the last.
        """
        if iterator is not None and replica_count(self) > 1:
            _, _, batches = next(iter(iterator))
            part = self.distribute_strategy.experimental_local_results
            data_batch = tf.nest.map_structure(lambda x: part(x)[0], next(batches))
            iterator = None
        super()._maybe_symbolic_build(iterator, data_batch)

    def train_step(self, *args: Any) -> Any:
        if replica_count(self) > 1:
            return self._step_together(*args, training=True)
        return super().train_step(*args)

    def test_step(self, *args: Any) -> Any:
        if replica_count(self) > 1:
            return self._step_together(*args, training=False)
        return super().test_step(*args)

    def _step_together(self, data: Any, *, training: bool) -> Any:
        """Perform the part of a replica in an update, or in scoring; in a graph."""
        if type(self).compute_loss is not keras.Model.compute_loss:
            raise ConfigError(
                "`compute_loss` must be Keras's on several replicas; received another: "
                "give `compile` the loss"
            )
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        objective = TaskObjective(self)
        labels = objective.labels(y, weights)
        totals = all_reduced(objective.counts(labels))
        if training:
            gradients, sums, outputs = objective.gradients(
                self.optimizer, x, labels, totals
            )
            apply_summed(self.optimizer, summed(gradients), self.trainable_variables)
        else:
            outputs = self(x, training=False)
            sums = objective.sums(outputs, labels)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        self._track(objective, all_reduced(sums), totals, rows)
        return self.compute_metrics(x, y, outputs, sample_weight=weights)

    def _track(
        self, objective: TaskObjective, sums: Any, totals: Any, rows: Any
    ) -> None:
        """Update Keras's means of the loss and, of several, of each."""
        means = {"loss": objective.loss(sums, totals)}
        for name, (total, *_) in sums.items():
            if name != "loss":
                means[f"{name}_loss"] = total / tf.maximum(totals[name], 1.0)
        for metric in self.metrics:
            if metric.name in means:
                # As Keras does: each update counts its rows in the loss, but once in
                # the others.
                each = tf.cast(rows, tf.float32) if metric.name == "loss" else None
                metric.update_state(means[metric.name], sample_weight=each)
