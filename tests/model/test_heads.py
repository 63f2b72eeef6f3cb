"""`PooledHead`: values by hand, dropout, dtypes; alone and in a saved task model.

`MaskedLMHead`: names, dtypes, config, and gradients into the tied table.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder, batch_inputs
from bert_keras.model.heads import MaskedLMHead, PooledHead, SmoothedCrossentropy
from bert_keras.model.optimizers import BertAdamW
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.classification import Classification
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "win", "now", "see", "you"]
TEXTS = ["win now", "see you now", "see", "win win win you"]


def task_model(**settings):
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    preprocessor = Preprocessor(
        WordPieceTokenizer(WORDS), max_length=8, layout="packed"
    )
    task = Classification(("ham", "spam"))
    return TaskModel(
        BertEncoder(config, seed=1, **settings), task, preprocessor, seed=2
    )


def test_logits_by_hand():
    head = PooledHead(3)
    head.build((None, 2))
    head.kernel.assign([[1.0, 0.0, 2.0], [-1.0, 1.0, 0.5]])
    head.bias.assign([0.0, 10.0, -1.0])
    logits = head(np.array([[2.0, 4.0], [0.0, 0.0]], "float32"))
    np.testing.assert_allclose(logits, [[-2, 14, 5], [0, 10, -1]], atol=1e-6)


def test_names_are_those_of_checkpoints():
    head = PooledHead(3)
    head.build((None, 2))
    names = [weight.path for weight in head.trainable_weights]
    assert names == ["classifier/kernel", "classifier/bias"]


def test_dropout_in_training_only():
    head = PooledHead(1, dropout_rate=0.5, seed=1)
    head.build((None, 512))
    head.kernel.assign(np.ones((512, 1)))
    x = np.ones((1, 512), "float32")
    assert float(head(x)[0, 0]) == 512
    drawn = [float(head(x, training=True)[0, 0]) for _ in range(2)]
    assert drawn[0] != drawn[1]
    np.testing.assert_allclose(drawn, 512, rtol=0.2)


def test_initial_weights():
    # Google's truncated normal would have 0.88 of the deviation.
    head = PooledHead(256, initializer_range=0.02, seed=1)
    head.build((None, 64))
    kernel = head.kernel.numpy()
    assert kernel.std() == pytest.approx(0.02, rel=0.02)
    assert np.mean(np.abs(kernel) > 2 * 0.02) == pytest.approx(0.0455, abs=0.005)
    assert not head.bias.numpy().any()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_logits_are_float32(dtype):
    head = PooledHead(3, dtype=dtype)
    assert head(np.ones((2, 4), "float32")).dtype == tf.float32
    symbolic = head(keras.Input((4,)))
    assert (symbolic.dtype, symbolic.shape) == ("float32", (None, 3))


def test_config_round_trip():
    head = PooledHead(
        3, dropout_rate=0.3, initializer_range=0.1, seed=2, dtype="mixed_bfloat16"
    )
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(head)
    )
    assert again.get_config() == head.get_config()
    assert (again.dropout_rate, again.seed, again.units) == (0.3, 2, 3)


def test_keras_file_of_a_task_model(tmp_path):
    model = task_model(dtype="mixed_bfloat16")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is TaskModel
    assert again.task == model.task
    assert again.backbone.get_config() == model.backbone.get_config()
    assert again.preprocessor.get_config() == model.preprocessor.get_config()
    expected = model(model.preprocessor(tf.constant(TEXTS)))
    found = again(again.preprocessor(tf.constant(TEXTS)))
    assert found.shape == (4, 2)
    np.testing.assert_array_equal(found, expected)


def test_keras_file_of_a_compiled_task_model(tmp_path):
    model = task_model()
    model.compile(BertAdamW(0.01), loss=model.task.loss())
    model.optimizer.build(model.trainable_weights)
    for number, variable in enumerate(model.optimizer.variables[2:]):
        variable.assign(np.full(variable.shape, number))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is BertAdamW
    for a, b in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_logits_do_not_depend_on_the_other_texts():
    model = task_model()
    expected = model(model.preprocessor(tf.constant(TEXTS)))
    one_by_one = [model(model.preprocessor(tf.constant([text])))[0] for text in TEXTS]
    np.testing.assert_allclose(one_by_one, expected, atol=1e-6)


X = np.random.default_rng(1).normal(size=(2, 5, 4)).astype("float32")
TABLE = np.random.default_rng(2).normal(size=(7, 4)).astype("float32")
NAMES = [
    "cls/predictions/transform/dense/kernel",
    "cls/predictions/transform/dense/bias",
    "cls/predictions/transform/LayerNorm/gamma",
    "cls/predictions/transform/LayerNorm/beta",
    "cls/predictions/output_bias",
]


def test_masked_lm_names_are_those_of_checkpoints() -> None:
    head = MaskedLMHead(hidden_size=4, vocab_size=7)
    head.build()
    assert sorted(weight.path for weight in head.weights) == sorted(NAMES)


def test_masked_lm_logits_by_hand() -> None:
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


def test_a_new_head_finds_the_token_of_a_vector():
    table = np.random.default_rng(0).normal(size=(50, 64)).astype("float32")
    head = MaskedLMHead(hidden_size=64, vocab_size=50)
    head.build()
    head.start_with_tokens(table, rarity=2.0)
    logits = keras.ops.convert_to_numpy(head(table[None], table))[0]
    assert (logits.argmax(axis=1) == np.arange(50)).all()
    assert (logits.max(axis=1) > 0).all()
    assert (logits > 0).mean() < 0.1


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_masked_lm_logits_are_float32(dtype: str) -> None:
    head = MaskedLMHead(hidden_size=4, vocab_size=7, dtype=dtype)
    assert head(X, TABLE, np.array([[1], [2]])).dtype == tf.float32
    symbolic = head(
        keras.Input((None, 4)), keras.Input(batch_shape=(7, 4)), keras.Input((None,))
    )
    assert (symbolic.dtype, symbolic.shape) == ("float32", (None, None, 7))


def test_masked_lm_config_round_trip() -> None:
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


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothed_crossentropy_is_that_of_smoothed_labels(smoothing):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 5)).astype("float32")
    labels = np.array([[1, 4, -1], [0, -1, -1]], "int32")
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = []
    for row, column in np.argwhere(labels >= 0):
        target = np.full(5, smoothing / 5)
        target[labels[row, column]] += 1 - smoothing
        wanted.append(-(target * logs[row, column]).sum())
    loss = SmoothedCrossentropy(smoothing)
    assert float(loss(labels, logits)) == pytest.approx(np.mean(wanted), rel=1e-5)
    assert float(loss.counted(labels)) == 3
    again = SmoothedCrossentropy.from_config(loss.get_config())
    assert again.label_smoothing == smoothing
    assert float(loss(labels[1:, 1:], logits[1:, 1:])) == 0.0
    # The gradient of each logit: its probability less its share of the target.
    with tf.GradientTape() as tape:
        tape.watch(logits := tf.constant(logits))
        found = loss(labels, logits)
    wanted = np.zeros_like(logits)
    for row, column in np.argwhere(labels >= 0):
        target = np.full(5, smoothing / 5)
        target[labels[row, column]] += 1 - smoothing
        wanted[row, column] = (np.exp(logs[row, column]) - target) / 3
    np.testing.assert_allclose(tape.gradient(found, logits), wanted, atol=1e-6)
