"""`Lstm` beside `keras.layers.LSTM` on each sequence alone: outputs and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.model.lstm import Lstm

WIDTH, UNITS = 5, 4
# Rows of several sequences, of one, with padding at the end, and padded all through.
IDS = np.array(
    [
        [1, 1, 1, 2, 2, 2, 3, 0, 0],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
        [1, 2, 3, 3, 3, 3, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
)


def sequences() -> Iterator[tuple[int, slice]]:
    """Yield row and place of each sequence."""
    for row, ids in enumerate(IDS):
        for number in sorted(set(ids) - {0}):
            (places,) = np.nonzero(ids == number)
            yield row, slice(places[0], places[-1] + 1)


def pair(backward: bool) -> tuple[Lstm, keras.layers.LSTM]:
    """Return a layer and that of Keras with the same weights."""
    layer = Lstm(UNITS, backward=backward, seed=3)
    layer.build((None, None, WIDTH))
    for number, weight in enumerate(layer.weights):
        drawn = np.random.default_rng(number).normal(size=weight.shape)
        weight.assign(drawn)
    theirs = keras.layers.LSTM(
        UNITS, return_sequences=True, go_backwards=backward, use_cudnn=False
    )
    theirs.build((None, None, WIDTH))
    theirs.set_weights(layer.get_weights())
    return layer, theirs


def inputs() -> tuple[tf.Tensor, np.ndarray]:
    """Return random inputs [B, T, D], and what flows back from the outputs."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(*IDS.shape, WIDTH)).astype("float32")
    upstream = generator.normal(size=(*IDS.shape, UNITS)).astype("float32")
    return tf.constant(x), upstream * (IDS > 0)[..., None]


def ours(layer: Lstm, x: Any) -> tf.Tensor:
    return tf.transpose(layer(tf.transpose(x, (1, 0, 2)), IDS.T), (1, 0, 2))


def test_the_weights_are_those_of_keras() -> None:
    layer = Lstm(UNITS, seed=3)
    layer.build((None, None, WIDTH))
    theirs = keras.layers.LSTM(
        UNITS,
        kernel_initializer=keras.initializers.GlorotUniform(3),
        recurrent_initializer=keras.initializers.Orthogonal(seed=3),
    )
    theirs.build((None, None, WIDTH))
    for found, wanted in zip(layer.weights, theirs.weights, strict=True):
        assert found.name == wanted.name
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_outputs_and_gradients_are_those_of_each_sequence_alone(
    backward: bool, traced: bool
) -> None:
    layer, theirs = pair(backward)
    x, upstream = inputs()

    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = ours(layer, x)
            loss = tf.reduce_sum(outputs * upstream)
        return outputs, tape.gradient(loss, [x, *layer.trainable_variables])

    if traced:  # of any size: neither rows nor their length are known
        run = tf.function(run, [tf.TensorSpec([None, None, WIDTH])])
    outputs, found = run(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = 0.0
        for row, places in sequences():
            alone = theirs(x[row : row + 1, places])[0]
            alone = alone[::-1] if backward else alone
            np.testing.assert_allclose(outputs[row, places], alone, atol=1e-6)
            loss += tf.reduce_sum(alone * upstream[row, places])
    wanted = tape.gradient(loss, [x, *theirs.trainable_variables])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_states_are_float32_under_any_policy(policy: str) -> None:
    layer, _ = pair(backward=False)
    x, upstream = inputs()
    wanted = ours(layer, x)
    half = Lstm(UNITS, dtype=policy)
    half.build((None, None, WIDTH))
    half.set_weights(layer.get_weights())
    with tf.GradientTape() as tape:
        found = ours(half, x)
        loss = tf.reduce_sum(tf.cast(found, tf.float32) * upstream)
    assert found.dtype == policy.removeprefix("mixed_")
    atol = 2e-3 if policy == "mixed_float16" else 2e-2
    np.testing.assert_allclose(
        tf.cast(found, tf.float32) * (IDS > 0)[..., None],
        wanted * (IDS > 0)[..., None],
        atol=atol,
    )
    for gradient in tape.gradient(loss, half.trainable_variables):
        assert gradient.dtype == "float32" and np.isfinite(gradient).all()


def test_config_round_trip() -> None:
    layer = Lstm(UNITS, backward=True, seed=4)
    config = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == layer.get_config()
