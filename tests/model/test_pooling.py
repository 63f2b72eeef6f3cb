"""Layers to features: hand-computed values, and equality of the two layouts."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from conftest import refused

from bert_keras.model.pooling import LayerMix, TextPooling

X = np.array([[[1.0, -2], [3, -6], [5, 8]], [[-1, 1], [9, 9], [9, 9]]], "float32")
MASK = np.array([[1, 1, 1], [1, 0, 0]], "int32")
# The same two texts in one row, the second one first, padding behind.
PACKED = {
    "x": np.array([[[-1, 1], [1, -2], [3, -6], [5, 8], [9, 9]]], "float32"),
    "padding_mask": np.array([[1, 1, 1, 1, 0]], "int32"),
    "position_ids": np.array([[0, 0, 1, 2, 0]], "int32"),
    "cls_positions": np.array([1, 0], "int32"),
}
POOLED = {
    "mean": [[3, 0], [-1, 1]],
    "max": [[5, 8], [-1, 1]],
    "cls": [[1, -2], [-1, 1]],
}


@pytest.mark.parametrize("pooling", POOLED)
def test_pooling_of_both_layouts(pooling: str) -> None:
    layer = TextPooling(pooling, normalize=False)
    np.testing.assert_allclose(layer(X, MASK), POOLED[pooling])
    np.testing.assert_allclose(layer(**PACKED), POOLED[pooling])


@pytest.mark.parametrize(
    ("pooling", "first"),
    [
        *(("mean", [4, 1]), ("max", [5, 8]), ("cls", [3, -6]), ("lasttoken", [5, 8])),
        ("mean_sqrt_len_tokens", [8 / 2**0.5, 2 / 2**0.5]),
        ("weightedmean", [21 / 5, 12 / 5]),  # weights of the places in the whole text
    ],
)
def test_prompts_may_be_left_out(pooling: str, first: list[float]) -> None:
    layer = TextPooling(pooling, normalize=False)
    for given in ({"x": X, "padding_mask": MASK}, PACKED):
        found = layer(**given, prompt_lengths=np.array([1, 0], "int32"))
        np.testing.assert_allclose(found, [first, [-1, 1]], rtol=1e-6)


def test_normalized_vectors_have_length_1() -> None:
    found = TextPooling("max")(X, MASK)
    wanted = np.array([[5 / 89**0.5, 8 / 89**0.5], [-(0.5**0.5), 0.5**0.5]])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_array_equal(TextPooling("mean")(0 * X, MASK), np.zeros((2, 2)))


def test_half_precision_is_summed_in_float32() -> None:
    x = np.full((1, 4096, 1), 1.001, "float16")
    found = TextPooling("mean", normalize=False, dtype="mixed_float16")(
        x, np.ones((1, 4096), "int32")
    )
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(found, [[x[0, 0, 0]]], rtol=1e-4)


def test_layers_become_one() -> None:
    states = [X, 2 * X]
    np.testing.assert_allclose(LayerMix("sum")(states), 3 * X)
    np.testing.assert_allclose(
        LayerMix("concat")(states), np.concatenate([X, 2 * X], axis=-1)
    )
    mix = LayerMix("weighted")
    np.testing.assert_allclose(mix(states), 1.5 * X)
    mix.set_weights([np.log([1.0, 3.0])])
    np.testing.assert_allclose(mix(states), 1.75 * X, rtol=1e-6)


@pytest.mark.parametrize(
    "layer", [LayerMix("concat"), TextPooling("max", normalize=False)]
)
def test_a_layer_is_restored_from_its_config(layer: Any) -> None:
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


def test_unknown_choices_are_rejected() -> None:
    refused(lambda: LayerMix("product"), "`combine`", "'product'")
    refused(lambda: TextPooling("sum"), "`pooling`", "'sum'")
