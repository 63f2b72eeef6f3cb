"""Keras's `fit` in the scope of a strategy, right on all replicas: `ReplicatedFit`.

`summed_update` tells what is wrong there with what Keras does. For `fit` each replica
sees the outputs and labels of all of them, so that any loss that is a mean is that of
the whole batch, in whatever way it counts; gradients flow back to the replica that an
output is from.
"""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import keras

from bert_keras.distribution.replicas import gathered, set_replica_seeds
from bert_keras.distribution.summed_update import apply_summed, check_optimizer, summed

# No model itself: Keras makes the bases of a functional model functional, once each.
_Model: Any = keras.Model if TYPE_CHECKING else object


class ReplicatedFit(_Model):
    """Lets `fit` train a model on several replicas as on one device; the first base.

    For models made and compiled in the scope of a `MirroredStrategy`; with one replica,
    or another backend than TensorFlow, all is Keras's own. Losses must be means. Keras
    parts each batch by its rows, so packed rows, whose tensors tell of one another's
    places, do not go.

    Example:
        >>> with tf.distribute.MirroredStrategy().scope():
        ...     model = BertPretrainer(BertEncoder(config))
        ...     model.compile(AdamW(1e-4), pretraining_loss())
        >>> model.fit(dataset)
    """

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        loss_weights: Any = None,
        metrics: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """Set what `fit` trains, as `keras.Model.compile` does.

        Args:
            optimizer, loss, metrics: those of Keras; `auto` is what the model's own
                training uses. `fit` of a model that is not compiled takes all three.
            loss_weights: as in Keras.
            **kwargs: further arguments of Keras.
        """
        if isinstance(optimizer, str) and optimizer == "auto":
            optimizer = self._own_optimizer()
        if isinstance(loss, str) and loss == "auto":
            loss = self._own_loss()
        if isinstance(metrics, str) and metrics == "auto":
            metrics = self._own_metrics()
        replicas = replica_count(self)
        if replicas > 1:
            loss = keras.tree.map_structure(lambda each: _share(each, replicas), loss)
        super().compile(optimizer, loss, loss_weights, metrics, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def _own_optimizer(self) -> Any:
        raise NotImplementedError

    def _own_loss(self) -> Any:
        raise NotImplementedError

    def _own_metrics(self) -> Any:
        raise NotImplementedError

    def _compile_if_not(self) -> None:
        """Compile with what the model's own training uses, unless that was done."""
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

    def train_step(self, *args: Any) -> Any:
        if replica_count(self) > 1:
            return self._train_together(*args)
        return super().train_step(*args)

    def _train_together(self, data: Any) -> Any:
        """Make the update of a replica, in a graph."""
        import tensorflow as tf

        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            # Keras divides the mean by the number of replicas; all have the same.
            loss = self.compute_loss(
                x, gathered(y), gathered(outputs), gathered(weights), training=True
            )
            scaled = self.optimizer.scale_loss(loss)
        variables = self.trainable_variables
        gradients = tape.gradient(scaled, [weight.value for weight in variables])
        apply_summed(self.optimizer, summed(gradients), variables)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        for metric in self.metrics:
            if metric.name == "loss":
                whole = loss * replica_count(self)
                metric.update_state(whole, sample_weight=tf.cast(rows, loss.dtype))
        return self.compute_metrics(x, y, outputs, sample_weight=weights)


def undivided(loss: Any) -> Any:
    """Return the loss that `compile` was given, of one that a strategy's model has."""
    return getattr(loss, "undivided", loss)


def _share(loss: Any, replicas: int) -> Any:
    """Return a loss that is a replica's share of that of all rows.

    Keras divides a mean that it takes by itself by the number of replicas, and neither
    sums nor what a loss gives as one number: these would count once a replica.
    """
    loss = undivided(loss)
    if loss is None or isinstance(loss, str | dict):
        return loss
    whole = loss.call if isinstance(loss, keras.losses.Loss) else loss
    is_sum = getattr(loss, "reduction", "mean") in ("sum", "none", None)

    @functools.wraps(whole)
    def share(y_true: Any, y_pred: Any) -> Any:
        values = whole(y_true, y_pred)
        return values / replicas if is_sum or not len(values.shape) else values

    found: Any = share
    if isinstance(loss, keras.losses.Loss):
        found = copy.copy(loss)
        found.call = share
    found.undivided = loss
    return found


def replica_count(model: keras.Model) -> int:
    """Return how many replicas of a model there are."""
    if keras.config.backend() != "tensorflow":
        return 1
    return int(model.distribute_strategy.num_replicas_in_sync)
