"""One update from the sum of all replicas' gradients: `summed`, `apply_summed`.

Why not what Keras 3 does by itself under a `tf.distribute` strategy (measured on Keras
3.15, TensorFlow 2.21), and what is done here instead:

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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_keras.distribution.replicas import all_reduced
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
