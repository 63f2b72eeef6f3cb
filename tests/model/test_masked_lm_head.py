"""`MaskedLMHead`: names, dtypes, config, and gradients into the tied table."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder, batch_inputs
from bert_keras.model.masked_lm_head import MaskedLMHead

X = np.random.default_rng(1).normal(size=(2, 5, 4)).astype("float32")
TABLE = np.random.default_rng(2).normal(size=(7, 4)).astype("float32")
NAMES = [
    "cls/predictions/transform/dense/kernel",
    "cls/predictions/transform/dense/bias",
    "cls/predictions/transform/LayerNorm/gamma",
    "cls/predictions/transform/LayerNorm/beta",
    "cls/predictions/output_bias",
]


def test_names_are_those_of_checkpoints() -> None:
    head = MaskedLMHead(hidden_size=4, vocab_size=7)
    head.build()
    assert sorted(weight.path for weight in head.weights) == sorted(NAMES)


def test_logits_by_hand() -> None:
    head = MaskedLMHead(hidden_size=4, vocab_size=7, hidden_act="relu")
    head.build()
    head.output_bias.assign(np.arange(7.0))
    y = np.maximum(X @ head.dense.kernel.numpy(), 0)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-12)
    expected = y @ TABLE.T + np.arange(7)
    np.testing.assert_allclose(head(X, TABLE), expected, atol=1e-5)
    some = head(X, TABLE, np.array([[4, 0, -1], [2, 2, -1]]))
    assert some.shape == (2, 3, 7)
    np.testing.assert_allclose(some[0, :2], expected[0, [4, 0]], atol=1e-5)
    np.testing.assert_allclose(some[1, :2], expected[1, [2, 2]], atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_logits_are_float32(dtype: str) -> None:
    head = MaskedLMHead(hidden_size=4, vocab_size=7, dtype=dtype)
    assert head(X, TABLE, np.array([[1], [2]])).dtype == tf.float32
    symbolic = head(
        keras.Input((None, 4)), keras.Input(batch_shape=(7, 4)), keras.Input((None,))
    )
    assert (symbolic.dtype, symbolic.shape) == ("float32", (None, None, 7))


def test_config_round_trip() -> None:
    head = MaskedLMHead(hidden_size=4, vocab_size=7, hidden_act="gelu_new", seed=3)
    stored = keras.saving.serialize_keras_object(head)
    again = keras.saving.deserialize_keras_object(stored)
    assert again.get_config() == head.get_config()


def test_the_table_is_tied_to_the_embeddings() -> None:
    config = BertConfig(
        vocab_size=7,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    encoder = BertEncoder(config, pooler=False, seed=1)
    inputs = batch_inputs()
    head = MaskedLMHead(hidden_size=4, vocab_size=7, seed=2)
    x = encoder(inputs)["sequence_output"]
    model = keras.Model(inputs, head(x, encoder.token_table(inputs)))
    tables = [w for w in model.weights if w.path.endswith("word_embeddings")]
    assert len(tables) == 1
    batch = {name: np.ones((1, 3), "int32") for name in list(inputs)[:3]}
    batch |= dict.fromkeys(list(inputs)[3:])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(batch)[:, :, 5])  # a token that the text lacks
    gradient = tf.convert_to_tensor(tape.gradient(loss, tables[0].value))
    assert np.abs(gradient[5]).sum() > 0  # through the product
    assert np.abs(gradient[1]).sum() > 0  # through the text
    assert np.abs(gradient[6]).sum() == 0
