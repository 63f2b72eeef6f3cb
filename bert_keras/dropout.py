"""Dropout of a seed that was drawn before, of few random bits on TensorFlow."""

from __future__ import annotations

from typing import Any

import keras


def dropout(x: Any, rate: float, seed: Any) -> Any:
    """Return `x` with dropout; unchanged where no seed was drawn.

    Args:
        x: floating-point values of any shape.
        rate: the share that becomes 0.
        seed: uint32 [2], drawn by a `keras.random.SeedGenerator`, or `None`.

    On TensorFlow a unit takes 16 random bits, half of what Keras draws: random numbers
    are a fifth of the time of a training step on a CPU. The rate is rounded to
    1/65,536, and the scale is that of the rounded rate.
    """
    if seed is None or rate == 0:
        return x
    if keras.config.backend() != "tensorflow":
        return keras.random.dropout(x, rate, seed=_DrawnSeed(seed))
    import tensorflow as tf

    dropped = max(round(rate * 65_536), 1)
    count = tf.size(x)
    bits = tf.random.stateless_uniform(
        [(count + 1) // 2],
        tf.cast(seed, tf.int64),
        minval=None,
        maxval=None,
        dtype=tf.int32,
    )
    units = tf.reshape(tf.bitcast(bits, tf.int16), [-1])[:count]
    kept = tf.reshape(units >= tf.constant(dropped - 32_768, tf.int16), tf.shape(x))
    return x * (tf.cast(kept, x.dtype) * (65_536 / (65_536 - dropped)))


class _DrawnSeed(keras.random.SeedGenerator):
    """A seed that was drawn already, in the form that `keras.random` asks for."""

    _initial_seed = 0  # torch's dropout would ignore a generator without this

    def __init__(self, value: Any) -> None:
        self._value = value

    def next(self, ordered: bool = True) -> Any:
        return self._value
