"""One update on several replicas, right as on one device: in Keras's `fit`, and alone.

`ReplicatedFit` is a base of models for `fit` in the scope of a strategy; `summed` and
`apply_summed` are what it and `TrainStep` make an update of.

Why not what Keras 3 does by itself under a `tf.distribute` strategy (measured on Keras
3.15, TensorFlow 2.21), and what is done here:

- **Losses.** Keras's are means over what a replica has, and the mean of these is not
  that of the batch where replicas differ in their masked tokens or examples. Ours are
  sums, divided by the count of the whole update: all replicas, all parts.
- **Clipping.** Keras clips each replica's gradients before it adds them up. Here they
  are added up and clipped first, and Keras gets a replica's even share of that.
- **Accumulation** in Keras's optimizers fails under a strategy, and takes the mean of
  the parts' means. `TrainStep` adds up sums, replica by replica, and applies once.
- **Loss scaling.** Keras checks each replica's own gradients, and one that is not
  finite on another replica than the first gets into the weights. Here all replicas
  check the same sum, and so halve or double the scale together.
- **Dropout.** Keras gives all replicas the same seeds, so the same units drop.
  `replicas.set_replica_seeds` gives each its own.
- **Several workers.** Keras's `fit` fails on batches that are dicts there; the loop
  over `TrainStep` does not.

Weight decay and the trust ratios of LAMB follow from weights and summed gradients, so
they are the same on all replicas.

For `fit` each replica sees the outputs and labels of all of them, so that any loss that
is a mean is that of the whole batch, in whatever way it counts; gradients flow back to
the replica that an output is from.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from bert_keras.distribution.replicas import all_reduced, gathered, set_replica_seeds
from bert_keras.errors import ConfigError

# What Keras does to each replica's gradients, or fails at, under a strategy.
_NOT_OVER_REPLICAS = (
    "clipnorm",
    "clipvalue",
    "gradient_accumulation_steps",
    "ema_overwrite_frequency",
)


def check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Raise ConfigError where an optimizer does what is wrong on several replicas."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    for name in _NOT_OVER_REPLICAS:
        if getattr(inner, name, None):
            raise ConfigError(
                f"`{name}` of the optimizer must be None on several replicas; received "
                f"{getattr(inner, name)}: `global_clipnorm` and the accumulation of "
                "`TrainStep` are right there"
            )


def summed(gradients: Sequence[Any]) -> list[Any]:
    """Return gradients added up over the replicas; in a replica's function.

    Args:
        gradients: of the replica's share of the loss, or `None`.
    """
    if tf.distribute.get_replica_context().num_replicas_in_sync == 1:
        return list(gradients)
    # Dense: replicas differ in the rows of the tables that their tokens name, and the
    # rows that several name count once in the norm.
    found = {
        place: tf.convert_to_tensor(gradient)
        for place, gradient in enumerate(gradients)
        if gradient is not None
    }
    sums = all_reduced(found)
    return [sums.get(place) for place in range(len(gradients))]


def apply_summed(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[Any],
    variables: Sequence[Any],
) -> None:
    """Clip the gradients of all replicas and update the weights once.

    For a replica's own function, in a graph; of one replica it is `optimizer.apply`.

    Args:
        optimizer: built; `global_clipnorm` and a loss scale are heeded.
        gradients: what `summed` gave, or `None`, one a variable.
        variables: what is updated.
    """
    replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    if replicas == 1:
        optimizer.apply(gradients, variables)
        return
    both = zip(gradients, variables, strict=True)
    pairs = [
        (gradient, variable) for gradient, variable in both if gradient is not None
    ]
    sums = [gradient for gradient, _ in pairs]
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner.global_clipnorm:
        longest = optimizer.scale_loss(tf.constant(inner.global_clipnorm, tf.float32))
        sums, _ = tf.clip_by_global_norm(sums, longest)
    # Keras adds them up once more, which no public setting keeps it from.
    shares = [gradient / replicas for gradient in sums]
    optimizer.apply(shares, [variable for _, variable in pairs])


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
