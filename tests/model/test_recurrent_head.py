"""`RecurrentHead`: the layers it reads, texts of a row, names, and what is frozen.

`Lstm` beside `keras.layers.LSTM` on each sequence alone: outputs and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import refused
from task_cases.token_classification import CLASSES

from bert_keras.model.recurrent_head import FEATURES, Lstm, RecurrentHead
from bert_keras.tasks.tagging.task import FeatureTagging

WIDTH = 4


def states(layers: int = 5) -> list[np.ndarray]:
    """Return hidden states that differ from layer to layer."""
    generator = np.random.default_rng(0)
    return [
        generator.normal(size=(2, 6, WIDTH)).astype("float32")
        for _ in range(layers + 1)
    ]


def features_read(head: RecurrentHead, given: list[np.ndarray]) -> np.ndarray:
    """Return what reaches the first LSTM."""
    seen: list[Any] = []
    first = head.recurrent[0][0]
    call = first.call

    def spy(x: Any, ids: Any) -> Any:
        seen.append(x)
        return call(x, ids)

    first.call = spy
    head(given, np.ones((2, 6), "int32"))
    return np.asarray(seen[-1]).transpose(1, 0, 2)  # its time axis is first


@pytest.mark.parametrize("features", FEATURES)
def test_the_layers_of_the_paper(features: str) -> None:
    given = states()
    head = RecurrentHead(3, features=features, units=2, dropout_rate=0.0)
    wanted = {
        "embeddings": given[0],
        "second_to_last": given[-2],
        "last": given[-1],
        "weighted_sum_last_four": np.mean(given[-4:], axis=0),
        "concat_last_four": np.concatenate(given[-4:], axis=-1),
        "weighted_sum_all": np.mean(given[1:], axis=0),
    }[features]
    np.testing.assert_allclose(features_read(head, given), wanted, atol=1e-6)


def test_weights_of_a_sum_sum_to_one_times_the_scale() -> None:
    given = states()
    head = RecurrentHead(3, features="weighted_sum_last_four", units=2)
    head(given, np.ones((2, 6), "int32"))
    head.mix.assign(np.log([1.0, 2.0, 3.0, 4.0]))
    head.scale.assign([5.0])
    wanted = sum(0.1 * k * 5 * state for k, state in enumerate(given[-4:], 1))
    np.testing.assert_allclose(features_read(head, given), wanted, atol=1e-5)


def test_padding_changes_nothing() -> None:
    given = states()
    head = RecurrentHead(3, features="last", units=5, seed=1)
    mask = np.array([[1, 1, 1, 1, 0, 0], [1] * 6])
    found = np.asarray(head(given, mask))[0, :4]
    short = [state[:1, :4] for state in given]
    np.testing.assert_allclose(found, head(short, mask[:1, :4])[0], atol=1e-6)


def test_texts_of_one_row_do_not_interact() -> None:
    given = states()
    head = RecurrentHead(3, features="last", units=5, seed=1)
    mask = np.array([[1, 1, 1, 1, 1, 0]])
    ids = np.array([[1, 1, 2, 2, 2, 0]])
    found = np.asarray(head([state[:1] for state in given], mask, ids))[0]
    for start, end in ((0, 2), (2, 5)):
        alone = [state[:1, start:end] for state in given]
        wanted = head(alone, mask[:, start:end])[0]
        np.testing.assert_allclose(found[start:end], wanted, atol=1e-6)


def test_too_few_layers_are_rejected() -> None:
    head = RecurrentHead(3, features="concat_last_four", units=2)
    refused(
        lambda: head(states(3), np.ones((2, 6))),
        "the layers `concat_last_four` need an encoder of at least 4 layers",
        "received 3",
    )


def test_config_round_trip() -> None:
    head = RecurrentHead(3, features="last", units=2, seed=4)
    config = keras.saving.serialize_keras_object(head)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == head.get_config()


def test_the_units_are_the_hidden_size_of_the_encoder(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(FeatureTagging(CLASSES, layers="last"))
    head = model.get_layer("classifier")
    assert head.units == model.backbone.config.hidden_size


@pytest.mark.slow
def test_the_encoder_is_frozen_and_without_dropout(
    make_model: Callable[..., Any],
) -> None:
    task = FeatureTagging(CLASSES, layers="last", units=3)
    model = make_model(task)
    trained = {weight.path for weight in model.trainable_weights}
    assert trained and all(path.startswith("classifier/") for path in trained)
    assert len(trained) == 2 * 2 * 3 + 2
    before = [weight.numpy() for weight in model.backbone.weights]
    model.compile(keras.optimizers.Adam(0.1), loss=task.loss())
    words = np.array([["see", "you"], ["win", "now"]])
    model.fit(words, np.array([[0, 0], [1, 2]]), epochs=2, verbose=0)
    for old, weight in zip(before, model.backbone.weights, strict=True):
        np.testing.assert_array_equal(old, weight.numpy())


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"layers": "first"}, "`layers` must be one of embeddings, "),
        ({"units": 0}, "`units` must be a whole number from 1 to 4096; received 0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], part: str) -> None:
    refused(lambda: FeatureTagging(CLASSES, **settings), part)


LSTM_WIDTH, UNITS = 5, 4
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
    layer.build((None, None, LSTM_WIDTH))
    for number, weight in enumerate(layer.weights):
        drawn = np.random.default_rng(number).normal(size=weight.shape)
        weight.assign(drawn)
    theirs = keras.layers.LSTM(
        UNITS, return_sequences=True, go_backwards=backward, use_cudnn=False
    )
    theirs.build((None, None, LSTM_WIDTH))
    theirs.set_weights(layer.get_weights())
    return layer, theirs


def inputs() -> tuple[tf.Tensor, np.ndarray]:
    """Return random inputs [B, T, D], and what flows back from the outputs."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(*IDS.shape, LSTM_WIDTH)).astype("float32")
    upstream = generator.normal(size=(*IDS.shape, UNITS)).astype("float32")
    return tf.constant(x), upstream * (IDS > 0)[..., None]


def ours(layer: Lstm, x: Any) -> tf.Tensor:
    return tf.transpose(layer(tf.transpose(x, (1, 0, 2)), IDS.T), (1, 0, 2))


def test_the_weights_are_those_of_keras() -> None:
    layer = Lstm(UNITS, seed=3)
    layer.build((None, None, LSTM_WIDTH))
    theirs = keras.layers.LSTM(
        UNITS,
        kernel_initializer=keras.initializers.GlorotUniform(3),
        recurrent_initializer=keras.initializers.Orthogonal(seed=3),
    )
    theirs.build((None, None, LSTM_WIDTH))
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
        run = tf.function(run, [tf.TensorSpec([None, None, LSTM_WIDTH])])
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
    half.build((None, None, LSTM_WIDTH))
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


def test_lstm_config_round_trip() -> None:
    layer = Lstm(UNITS, backward=True, seed=4)
    config = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == layer.get_config()
