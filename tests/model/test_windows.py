"""Vectors of windows by hand, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.model.windows import WindowCombination

VECTORS = np.array([[1.0, 4.0], [3.0, 2.0], [5.0, 4.0], [7.0, -1.0]], "float32")
STARTS = np.array([1, 0, 0, 1], "int32")
OWN = [7.0, -1.0]  # a text of one window


@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        ("mean", [3.0, 10 / 3]),
        ("max", [5.0, 4.0]),
        ("first", [1.0, 4.0]),
        ("attention", [3.0, 10 / 3]),  # all equal at the start
    ],
)
def test_by_hand(combine: str, expected: list[float]) -> None:
    layer = WindowCombination(combine)
    found = layer(VECTORS, STARTS).numpy()
    np.testing.assert_allclose(found, [expected, OWN], rtol=1e-6)
    shares = layer.shares(VECTORS, STARTS).numpy()
    np.testing.assert_allclose(shares[:3].sum(axis=0), expected, rtol=1e-6)
    np.testing.assert_array_equal(layer(VECTORS), VECTORS)  # each row is a text
    again = WindowCombination.from_config(layer.get_config())
    np.testing.assert_allclose(again(VECTORS, STARTS), found)


def test_attention_is_a_softmax_over_the_windows_of_a_text() -> None:
    layer = WindowCombination("attention")
    layer(VECTORS, STARTS)
    layer.query.assign([100.0, 0.5])  # exp of the scores alone would overflow
    scores = VECTORS[:3] @ np.array([100.0, 0.5])
    weights = np.exp(scores - scores.max())
    expected = weights @ VECTORS[:3] / weights.sum()
    with tf.GradientTape() as tape:
        found = layer(VECTORS, STARTS)
    np.testing.assert_allclose(found, [expected, OWN], rtol=1e-6)
    assert np.isfinite(tape.gradient(found, layer.query)).all()


def test_another_word_is_rejected() -> None:
    refused(lambda: WindowCombination("sum"), "`combine`", "'sum'")
