"""The bricks around the blocks: embeddings, attention bias, first tokens, pooler."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.model.layers import (
    AttentionBias,
    Embeddings,
    FirstTokens,
    Pooler,
    shape_of,
    word_vectors,
)

SIZES = {
    "vocab_size": 11,
    "hidden_size": 4,
    "max_position_embeddings": 6,
    "type_vocab_size": 3,
}
IDS = np.array([[2, 7, 10, 0], [5, 5, 0, 1]], "int32")
SEGMENTS = np.array([[0, 0, 1, 2], [0, 1, 1, 0]], "int32")


def floats(x):
    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))


def built_embeddings(**changes):
    layer = Embeddings(**{**SIZES, "seed": 1, **changes}, name="embeddings")
    layer.build()
    rng = np.random.default_rng(0)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    return layer


def numpy_embeddings(layer, positions, eps=1e-12):
    word, position, segment, gamma, beta = (
        weight.numpy().astype("float64") for weight in layer.trainable_weights
    )
    x = word[IDS] + segment[SEGMENTS] + position[positions]
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return scaled * gamma + beta


def test_attention_bias_hides_padding():
    bias = AttentionBias()(np.array([[1, 1, 0], [1, 0, 0]]))
    assert bias.dtype == tf.float32
    expected = [[[[0, 0, -1e9]]], [[[0, -1e9, -1e9]]]]
    np.testing.assert_array_equal(bias, np.array(expected, "float32"))


def test_attention_bias_keeps_texts_of_a_row_apart():
    bias = AttentionBias()(np.array([[1, 1, 1, 0]]), np.array([[1, 1, 2, 0]]))
    allowed = np.array(bias)[0, 0] == 0
    expected = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(allowed, np.array(expected, bool))


def test_causal_attention_bias():
    bias = AttentionBias(causal=True)(np.array([[1, 1, 1], [1, 1, 0]]))
    allowed = np.array(bias)[:, 0] == 0
    expected = [[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 0, 0], [1, 1, 0], [1, 1, 0]]]
    np.testing.assert_array_equal(allowed, np.array(expected, bool))


def test_causal_attention_bias_of_packed_rows():
    mask, texts = np.array([[1, 1, 1, 0]]), np.array([[1, 1, 2, 0]])
    allowed = np.array(AttentionBias(causal=True)(mask, texts))[0, 0] == 0
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(allowed, np.array(expected, bool))


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_attention_bias_is_float32_and_finite_in_sixteen_bits(dtype):
    bias = AttentionBias(dtype=dtype)(np.array([[1, 0]]))
    assert bias.dtype == tf.float32
    assert np.isfinite(bias).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_attention_bias_returns_its_shape(causal, packed):
    layer = AttentionBias(causal=causal)
    mask = keras.Input((None,), dtype="int32")
    arguments = [mask] + [keras.Input((None,), dtype="int32")] * packed
    queries = None if causal or packed else 1
    assert layer(*arguments).shape == (None, 1, queries, None)
    values = layer(*[np.ones((2, 3), "int32")] * len(arguments))
    assert values.shape == (2, 1, 3 if causal or packed else 1, 3)


def test_embeddings_equal_numpy():
    layer = built_embeddings()
    expected = numpy_embeddings(layer, np.arange(4))
    np.testing.assert_allclose(layer(IDS, SEGMENTS), expected, atol=2e-6)


def test_embeddings_use_the_epsilon():
    layer = built_embeddings(layer_norm_eps=0.5)
    expected = numpy_embeddings(layer, np.arange(4), eps=0.5)
    np.testing.assert_allclose(layer(IDS, SEGMENTS), expected, atol=2e-6)


def test_position_ids():
    layer = built_embeddings()
    positions = np.array([[0, 1, 0, 1], [5, 4, 3, 2]], "int32")
    expected = numpy_embeddings(layer, positions)
    np.testing.assert_allclose(layer(IDS, SEGMENTS, positions), expected, atol=2e-6)


def test_positions_count_from_zero():
    layer = built_embeddings()
    positions = np.tile(np.arange(4, dtype="int32"), (2, 1))
    np.testing.assert_array_equal(layer(IDS, SEGMENTS), layer(IDS, SEGMENTS, positions))


def test_embedding_tables_have_googles_names():
    names = {weight.path: weight.shape for weight in built_embeddings().weights[:5]}
    assert names == {
        "embeddings/word_embeddings": (11, 4),
        "embeddings/position_embeddings": (6, 4),
        "embeddings/token_type_embeddings": (3, 4),
        "embeddings/LayerNorm/gamma": (4,),
        "embeddings/LayerNorm/beta": (4,),
    }


def test_embedding_gradients_are_slices():
    # A dense gradient of the word table would cost a pass over 30,522 rows.
    layer = built_embeddings()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(IDS, SEGMENTS) ** 3)
    gradient = tape.gradient(loss, layer.word_embeddings.value)
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.values.shape == (8, 4)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_embeddings_are_summed_and_normalized_in_float32(dtype):
    layer = built_embeddings(dtype=dtype)
    y = layer(IDS, SEGMENTS)
    assert keras.backend.standardize_dtype(y.dtype) == dtype.removeprefix("mixed_")
    expected = numpy_embeddings(layer, np.arange(4))
    atol = 0.05 if dtype == "mixed_bfloat16" else 0.005
    np.testing.assert_allclose(floats(y), expected, atol=atol)


def test_embedding_dropout_in_training_only():
    layer = built_embeddings(dropout_rate=0.5)
    expected = numpy_embeddings(layer, np.arange(4))
    y = floats(layer(IDS, SEGMENTS, training=True))
    assert np.count_nonzero(y == 0) > 0
    np.testing.assert_allclose(y[y != 0], 2 * expected[y != 0], atol=5e-6)
    np.testing.assert_allclose(layer(IDS, SEGMENTS), expected, atol=2e-6)


def test_first_tokens_of_rows():
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    np.testing.assert_array_equal(FirstTokens()(x), x[:, 0])


def test_first_tokens_of_packed_rows():
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    first = FirstTokens()(x, np.array([0, 5, 3, 2], "int32"))
    np.testing.assert_array_equal(first, [x[0, 0], x[1, 2], x[1, 0], x[0, 2]])


def test_pooler_by_hand():
    pooler = Pooler(hidden_size=2, name="pooler")
    pooler.build()
    assert [weight.path for weight in pooler.weights] == [
        "pooler/dense/kernel",
        "pooler/dense/bias",
    ]
    pooler.weights[0].assign([[1.0, 2.0], [0.0, -1.0]])
    pooler.weights[1].assign([0.5, 0.0])
    y = pooler(np.array([[0.5, 1.0]], "float32"))
    np.testing.assert_allclose(y, [[np.tanh(1.0), np.tanh(0.0)]], atol=1e-6)


@pytest.mark.parametrize(
    "layer",
    [
        AttentionBias(causal=True, name="mask"),
        Embeddings(
            **SIZES,
            dropout_rate=0.2,
            layer_norm_eps=1e-5,
            initializer_range=0.1,
            seed=3,
            dtype="mixed_bfloat16",
        ),
        FirstTokens(name="first"),
        Pooler(hidden_size=4, initializer_range=0.1, seed=2, dtype="mixed_float16"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_config_round_trip(layer):
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()


def test_the_same_seed_gives_the_same_tables():
    first, second, other = (
        Embeddings(**SIZES, seed=seed, name="embeddings") for seed in (1, 1, 2)
    )
    for layer in (first, second, other):
        layer.build()
    for a, b, c in zip(
        first.weights[:3], second.weights[:3], other.weights[:3], strict=True
    ):
        np.testing.assert_array_equal(a, b)
        assert np.max(np.abs(a.numpy() - c.numpy())) > 1e-3


def test_word_vectors_are_changed_inside_only():
    layer = built_embeddings()
    other = np.array([[3, 3, 3, 3], [1, 2, 3, 4]], "int32")
    wanted, before = layer(other, SEGMENTS), layer(IDS, SEGMENTS)
    seen = []

    def change(x):
        seen.append(x)
        return keras.ops.take(layer.word_embeddings, other, axis=0)

    with word_vectors(change):
        changed = layer(IDS, SEGMENTS)
        table = layer(IDS, SEGMENTS, table_only=True)
    np.testing.assert_array_equal(floats(changed), floats(wanted))
    np.testing.assert_array_equal(floats(layer(IDS, SEGMENTS)), floats(before))
    np.testing.assert_array_equal(floats(table), layer.word_embeddings.numpy())
    (found,) = seen
    np.testing.assert_array_equal(floats(found), layer.word_embeddings.numpy()[IDS])


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="has static shapes")
def test_a_dynamic_shape_is_read_once():
    @tf.function(input_signature=[tf.TensorSpec([None, None, 3])], autograph=False)
    def shape(x):
        found = shape_of(x)
        assert found[2] == 3
        return found

    ops = shape.get_concrete_function().graph.get_operations()
    assert [op.type for op in ops].count("Shape") == 1
    assert [int(size) for size in shape(tf.zeros([2, 5, 3]))] == [2, 5, 3]
