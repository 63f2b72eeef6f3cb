"""`Block` against numpy and by hand, in 16 bits, and recomputed for gradients."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.errors import ConfigError
from bert_keras.model.block import Block, activation, dropout

SETTINGS = {"hidden_size": 8, "num_heads": 2, "intermediate_size": 12, "seed": 1}
NO_DROPOUT = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
MASKED = -1e9


def built(**changes):
    """Return a tiny block whose weights, biases too, are random and not small."""
    block = Block(**{**SETTINGS, **changes}, name="layer_0")
    block.build()
    rng = np.random.default_rng(0)
    for weight in block.weights:
        if "seed_generator" not in weight.path:
            weight.assign(rng.normal(0.0, 0.4, weight.shape))
    return block


def inputs(rows=3, length=5, hidden=8, seed=2):
    """Return `x` and a bias that hides the last two tokens of row 0."""
    x = np.random.default_rng(seed).normal(size=(rows, length, hidden))
    bias = np.zeros((rows, 1, 1, length))
    bias[0, ..., -2:] = MASKED
    return x.astype("float32"), bias.astype("float32")


def numpy_block(weights, x, bias, heads, act, eps):
    """Compute the block one row and one head at a time, in float64."""
    w = {name: value.astype("float64") for name, value in weights.items()}
    out, probabilities = np.zeros(x.shape), []
    for row in range(len(x)):
        q, k, v = (
            x[row] @ w[f"attention/self/{part}/kernel"]
            + w[f"attention/self/{part}/bias"]
            for part in ("query", "key", "value")
        )
        width = q.shape[-1] // heads
        contexts = []
        for head in range(heads):
            cut = slice(head * width, (head + 1) * width)
            scores = q[:, cut] @ k[:, cut].T / math.sqrt(width) + bias[row, 0]
            e = np.exp(scores - scores.max(-1, keepdims=True))
            probabilities.append(e / e.sum(-1, keepdims=True))
            contexts.append(probabilities[-1] @ v[:, cut])
        y = numpy_dense(w, "attention/output/dense", np.concatenate(contexts, -1))
        z = numpy_norm(w, "attention/output/LayerNorm", x[row] + y, eps)
        y = numpy_dense(w, "output/dense", act(numpy_dense(w, "intermediate/dense", z)))
        out[row] = numpy_norm(w, "output/LayerNorm", z + y, eps)
    return out, np.stack(probabilities).reshape(len(x), heads, *scores.shape)


def numpy_dense(w, scope, x):
    return x @ w[f"{scope}/kernel"] + w[f"{scope}/bias"]


def numpy_norm(w, scope, x, eps):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return scaled * w[f"{scope}/gamma"] + w[f"{scope}/beta"]


def numpy_gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def numpy_gelu_new(x):
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


NUMPY_ACTIVATIONS = {
    "gelu": numpy_gelu,
    "gelu_new": numpy_gelu_new,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def floats(x):
    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))


def numpy_weights(block):
    return {w.path.removeprefix("layer_0/"): w.numpy() for w in block.weights}


@pytest.mark.parametrize("act", NUMPY_ACTIVATIONS)
@pytest.mark.parametrize("eps", [1e-12, 1e-2])
def test_equal_to_numpy(act, eps):
    block = built(hidden_act=act, layer_norm_eps=eps)
    x, bias = inputs()
    y, probabilities = block(x, bias)
    expected = numpy_block(
        numpy_weights(block), x, bias, 2, NUMPY_ACTIVATIONS[act], eps
    )
    np.testing.assert_allclose(y, expected[0], atol=2e-6)
    np.testing.assert_allclose(probabilities, expected[1], atol=1e-6)


def test_attention_probabilities_by_hand():
    # One head of width 2, q = k = x. Row 0 scores (ln 3, 0), row 1 scores (0, ln 7).
    block = built(hidden_size=2, num_heads=1)
    weights = {w.path.removeprefix("layer_0/"): w for w in block.weights}
    for part in ("query", "key"):
        weights[f"attention/self/{part}/kernel"].assign(np.eye(2))
        weights[f"attention/self/{part}/bias"].assign(np.zeros(2))
    x = np.zeros((1, 2, 2), "float32")
    x[0, 0, 0] = math.sqrt(math.sqrt(2) * math.log(3))
    x[0, 1, 1] = math.sqrt(math.sqrt(2) * math.log(7))
    _, probabilities = block(x, np.zeros((1, 1, 1, 2), "float32"))
    np.testing.assert_allclose(
        probabilities[0, 0], [[3 / 4, 1 / 4], [1 / 8, 7 / 8]], atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "at_one", "at_minus_one"),
    [
        ("gelu", 0.8413447, -0.1586553),
        ("gelu_new", 0.8411920, -0.1588080),
        ("relu", 1.0, 0.0),
        ("silu", 0.7310586, -0.2689414),
        ("tanh", 0.7615942, -0.7615942),
    ],
)
def test_activations_by_hand(name, at_one, at_minus_one):
    values = activation(name)(np.array([1.0, -1.0, 0.0], "float32"))
    np.testing.assert_allclose(values, [at_one, at_minus_one, 0.0], atol=1e-6)


@pytest.mark.parametrize("name", NUMPY_ACTIVATIONS)
@pytest.mark.parametrize("rematerialize", [False, True])
def test_gradients_equal_finite_differences(name, rematerialize):
    # Without dropout: the training path, which has its own gradient for GELU.
    block = built(hidden_act=name, rematerialize=rematerialize, **NO_DROPOUT)
    x, bias = inputs(rows=1, length=3)
    weights = numpy_weights(block)
    act, upstream = NUMPY_ACTIVATIONS[name], np.sin(np.arange(24)).reshape(1, 3, 8)
    with tf.GradientTape() as tape:
        y, _ = block(x, bias, training=True)
        loss = tf.reduce_sum(y * upstream.astype("float32"))
    kernel, path = block.intermediate.kernel, "intermediate/dense/kernel"
    found = tape.gradient(loss, kernel.value)

    def numpy_loss(change):
        changed = {**weights, path: weights[path].astype("float64") + change}
        y, _ = numpy_block(changed, x, bias, 2, act, 1e-12)
        return np.sum(y * upstream)

    expected = np.zeros(kernel.shape)
    for place in np.ndindex(*kernel.shape):
        change = np.zeros(kernel.shape)
        change[place] = 1e-5
        expected[place] = (numpy_loss(change) - numpy_loss(-change)) / 2e-5
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_weights_have_googles_names():
    names = {weight.path: tuple(weight.shape) for weight in built().trainable_weights}
    assert names == {
        "layer_0/attention/self/query/kernel": (8, 8),
        "layer_0/attention/self/query/bias": (8,),
        "layer_0/attention/self/key/kernel": (8, 8),
        "layer_0/attention/self/key/bias": (8,),
        "layer_0/attention/self/value/kernel": (8, 8),
        "layer_0/attention/self/value/bias": (8,),
        "layer_0/attention/output/dense/kernel": (8, 8),
        "layer_0/attention/output/dense/bias": (8,),
        "layer_0/attention/output/LayerNorm/gamma": (8,),
        "layer_0/attention/output/LayerNorm/beta": (8,),
        "layer_0/intermediate/dense/kernel": (8, 12),
        "layer_0/intermediate/dense/bias": (12,),
        "layer_0/output/dense/kernel": (12, 8),
        "layer_0/output/dense/bias": (8,),
        "layer_0/output/LayerNorm/gamma": (8,),
        "layer_0/output/LayerNorm/beta": (8,),
    }


def test_initial_weights_are_those_of_the_paper():
    block = Block(hidden_size=64, num_heads=2, intermediate_size=256, seed=3)
    block.build()
    for weight in block.trainable_weights:
        values = weight.numpy()
        if weight.name == "kernel":
            assert np.abs(values).max() <= 2 * 0.02  # cut at two deviations
            assert values.std() == pytest.approx(0.02, rel=0.15)
        else:
            assert np.unique(values).tolist() == [float(weight.name == "gamma")]


def test_no_two_kernels_are_the_same():
    block = Block(**SETTINGS)
    block.build()
    kernels = [w.numpy() for w in block.weights if w.shape == (8, 8)]
    distinct = {kernel.tobytes() for kernel in kernels}
    assert len(distinct) == len(kernels) == 4


def test_a_hidden_token_does_not_change_the_others():
    block = built()
    x, bias = inputs()
    changed = x.copy()
    changed[0, -2:] += 3.0
    before, after = block(x, bias)[0], block(changed, bias)[0]
    np.testing.assert_array_equal(before[0, :-2], after[0, :-2])
    np.testing.assert_array_equal(before[1:], after[1:])


def test_hidden_tokens_have_probability_zero():
    x, bias = inputs()
    _, probabilities = built()(x, bias)
    assert np.max(probabilities[0, ..., -2:]) == 0.0
    np.testing.assert_allclose(np.sum(probabilities, -1), 1.0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_sixteen_bits_follow_float32(dtype):
    x, bias = inputs()
    expected, _ = built()(x, bias)
    y, probabilities = built(dtype=dtype)(x, bias)
    assert keras.backend.standardize_dtype(y.dtype) == dtype.removeprefix("mixed_")
    assert y.dtype == probabilities.dtype
    # Eight bits of mantissa in bfloat16, eleven in float16.
    atol = 0.08 if dtype == "mixed_bfloat16" else 0.01
    np.testing.assert_allclose(floats(y), expected, atol=atol)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_a_row_of_padding_is_finite(dtype):
    x, bias = inputs()
    bias[:] = MASKED
    y, probabilities = built(dtype=dtype)(x, bias)
    assert np.isfinite(floats(y)).all()
    np.testing.assert_allclose(floats(probabilities), 1 / 5, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "training", "has_instructions"),
    [
        ("mixed_float16", True, True),
        ("mixed_float16", False, True),
        ("mixed_bfloat16", True, True),
        ("mixed_bfloat16", False, False),
    ],
)
def test_softmax_is_float32(dtype, training, has_instructions, monkeypatch):
    seen, softmax = [], keras.ops.softmax
    monkeypatch.setattr(
        "bert_keras.model.block.computes_bfloat16", lambda: has_instructions
    )
    monkeypatch.setattr(
        "bert_keras.model.block.ops.softmax",
        lambda x, axis: seen.append(x.dtype) or softmax(x, axis=axis),
    )
    built(dtype=dtype)(*inputs(), training=training)
    assert seen == [tf.float32]


@pytest.mark.parametrize("has_instructions", [True, False])
def test_scores_in_bfloat16_change_little_without_training(
    has_instructions, monkeypatch
):
    monkeypatch.setattr(
        "bert_keras.model.block.computes_bfloat16", lambda: has_instructions
    )
    block = built(dtype="mixed_bfloat16", dropout_rate=0, attention_dropout_rate=0)
    x, bias = inputs(rows=2, length=300)
    bias[1, :, :, 200:] = MASKED
    (y, some), (wanted, exact) = (block(x, bias, training=t) for t in (False, True))
    # Without the instructions, softmax in bfloat16 is rounded at each step.
    rtol, atol, total = (0.05, 2e-4, 0.02) if has_instructions else (0, 0, 5e-3)
    np.testing.assert_allclose(floats(y), floats(wanted), atol=0.04)
    np.testing.assert_allclose(floats(some), floats(exact), rtol=rtol, atol=atol)
    assert not floats(some)[1, ..., 200:].any()
    np.testing.assert_allclose(floats(some).sum(-1), 1, atol=total)


def test_layer_norm_is_float32_under_float16():
    # The squares of 4000 do not fit into float16, whose largest number is 65504.
    block = built(dtype="mixed_float16")
    for weight in block.trainable_weights:
        weight.assign(np.full(weight.shape, float(weight.name == "gamma")))
    x = np.full((1, 2, 8), 4000.0, "float32")
    x[..., ::2] = -4000.0
    y, _ = block(x, np.zeros((1, 1, 1, 2), "float32"))
    np.testing.assert_allclose(floats(y), x / 4000.0, atol=1e-3)


def test_no_dropout_in_inference():
    block = built(dropout_rate=0.5, attention_dropout_rate=0.5)
    x, bias = inputs()
    expected, _ = built(**NO_DROPOUT)(x, bias)
    np.testing.assert_array_equal(block(x, bias, training=False)[0], expected)
    np.testing.assert_array_equal(block(x, bias)[0], expected)


def test_training_without_dropout_is_inference():
    block = built(**NO_DROPOUT)
    x, bias = inputs()
    y, _ = block(x, bias, training=True)
    np.testing.assert_array_equal(y, block(x, bias, training=False)[0])


@pytest.mark.parametrize("rate", ["dropout_rate", "attention_dropout_rate"])
def test_dropout_is_redrawn_at_each_call(rate):
    block = built(**NO_DROPOUT | {rate: 0.5})
    x, bias = inputs()
    first, second = (block(x, bias, training=True)[0] for _ in range(2))
    assert np.max(np.abs(first - second)) > 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(rate, dtype):
    x = tf.ones((301, 333), dtype)  # an odd number of units
    y = floats(dropout(x, rate, tf.constant([1, 2], tf.uint32)))
    deviation = np.sqrt(rate * (1 - rate) / y.size)
    assert np.mean(y == 0) == pytest.approx(rate, abs=5 * deviation)
    scale = np.unique(y[y != 0])
    assert len(scale) == 1
    digits = {"float32": 1e-4, "float16": 1e-3, "bfloat16": 8e-3}
    assert scale[0] == pytest.approx(1 / (1 - rate), rel=digits[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rate", [1e-320, 1e-9, 1 - 2**-16, 0.999_999, 1 - 2**-53])
def test_dropout_is_finite_at_the_ends_of_its_range(rate, dtype):
    y = floats(dropout(tf.ones((301, 333), dtype), rate, tf.constant([1, 2])))
    assert np.all(np.isfinite(y))
    assert np.mean(y == 0) == pytest.approx(rate, abs=1e-3)


@pytest.mark.parametrize("rate", [1, 1.0, -0.1, math.nan, math.inf, True, "0.1", None])
@pytest.mark.parametrize("name", ["dropout_rate", "attention_dropout_rate"])
def test_a_block_rejects_rates_out_of_the_range_of_the_config(name, rate):
    told = rf"`{name}` must be in \[0, 1\); received {rate!r}"
    with pytest.raises(ConfigError, match=told):
        Block(**{**SETTINGS, name: rate})
    BertConfig(hidden_dropout_prob=1 - 2**-53)
    Block(**{**SETTINGS, name: 1 - 2**-53})


@pytest.mark.parametrize(
    "value, rule",
    [
        ("fused", "`attention` must be 'written' on TensorFlow"),
        ("flash", "`attention` must be one of written, fused; received 'flash'"),
    ],
)
def test_a_block_refuses_attention_that_it_cannot_compute(value, rule):
    with pytest.raises(ConfigError, match=rule):
        built(attention=value)


def test_dropout_drops_units_on_their_own():
    y = floats(dropout(tf.ones((512, 512)), 0.5, tf.constant([1, 2], tf.uint32)))
    dropped = (y == 0) - 0.5
    for axis in (0, 1):
        neighbours = dropped * np.roll(dropped, 1, axis)
        assert abs(neighbours.mean()) < 5 * 0.25 / 512


def test_the_same_seed_drops_the_same():
    x, bias = inputs()
    first, second = (
        built(dropout_rate=0.5)(x, bias, training=True)[0] for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    other, _ = built(dropout_rate=0.5, seed=9)(x, bias, training=True)
    assert np.max(np.abs(first - other)) > 0.1


def gradients(rematerialize, steps=2):
    """Return losses and gradients of calls with dropout, in a TensorFlow graph."""
    block = built(
        rematerialize=rematerialize, dropout_rate=0.3, attention_dropout_rate=0.3
    )
    x, bias = inputs()

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, _ = block(x, bias, training=True)
            loss = tf.reduce_sum(y * tf.constant(np.sin(np.arange(8)), y.dtype))
        weights = [weight.value for weight in block.trainable_weights]
        return loss, tape.gradient(loss, [x, *weights])

    return [step(tf.constant(x)) for _ in range(steps)]


def test_rematerialize_draws_the_same_dropout():
    for kept, again in zip(gradients(False), gradients(True), strict=True):
        np.testing.assert_allclose(again[0], kept[0], rtol=1e-6)
        for expected, gradient in zip(kept[1], again[1], strict=True):
            np.testing.assert_allclose(gradient, expected, atol=1e-5)


@pytest.mark.parametrize("rematerialize", [False, True])
def test_rematerialize_computes_the_block_twice(rematerialize, monkeypatch):
    count, softmax = [], keras.ops.softmax
    monkeypatch.setattr(
        "bert_keras.model.block.ops.softmax",
        lambda x, axis: count.append(1) or softmax(x, axis=axis),
    )
    gradients(rematerialize, steps=1)
    assert len(count) == 1 + rematerialize


def test_rematerialize_still_redraws_dropout_at_each_step():
    first, second = gradients(True)
    assert abs(float(first[0] - second[0])) > 1e-3


def test_config_round_trip():
    block = built(
        hidden_act="relu",
        dropout_rate=0.2,
        attention_dropout_rate=0.3,
        layer_norm_eps=1e-5,
        initializer_range=0.1,
        rematerialize=True,
        dtype="mixed_bfloat16",
    )
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(block)
    )
    assert again.get_config() == block.get_config()
    assert again.dtype_policy.name == "mixed_bfloat16"


def test_lengths_may_be_unknown():
    x = keras.Input((None, 8))
    bias = keras.Input((1, 1, None))
    block = built()
    model = keras.Model([x, bias], block(x, bias))
    assert model.outputs[0].shape == (None, None, 8)
    assert model.outputs[1].shape == (None, 2, None, None)
    values, hidden = inputs()
    y, _ = model([values, hidden])
    np.testing.assert_allclose(y, block(values, hidden)[0], atol=1e-6)
