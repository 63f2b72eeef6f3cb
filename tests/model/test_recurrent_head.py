"""`RecurrentHead`: the layers it reads, texts of a row, names, and what is frozen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from conftest import refused
from task_cases.token_classification import CLASSES

from bert_keras.model.recurrent_head import FEATURES, RecurrentHead
from bert_keras.tasks.tagging.feature_tagging import FeatureTagging

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
    return np.asarray(seen[-1]).transpose(1, 0, 2)  # its time comes first


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


def test_texts_of_one_row_do_not_meet() -> None:
    given = states()
    head = RecurrentHead(3, features="last", units=5, seed=1)
    mask = np.array([[1, 1, 1, 1, 1, 0]])
    ids = np.array([[1, 1, 2, 2, 2, 0]])
    found = np.asarray(head([state[:1] for state in given], mask, ids))[0]
    for start, end in ((0, 2), (2, 5)):
        alone = [state[:1, start:end] for state in given]
        wanted = head(alone, mask[:, start:end])[0]
        np.testing.assert_allclose(found[start:end], wanted, atol=1e-6)


def test_too_few_layers_are_refused() -> None:
    head = RecurrentHead(3, features="concat_last_four", units=2)
    refused(
        lambda: head(states(3), np.ones((2, 6))),
        "`concat_last_four` needs an encoder of at least 4 layers; received 3",
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
