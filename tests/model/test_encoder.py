"""`BertEncoder`: names, counts, invariances, outputs, dtypes, round trips, errors."""

import itertools
import random
import warnings

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.checkpoints import (
    MismatchError,
    assign,
    read_checkpoint,
    write_huggingface,
)
from bert_keras.checkpoints.matching import encoder_shapes
from bert_keras.config import PRESETS, BertConfig
from bert_keras.errors import ConfigError
from bert_keras.model.encoder import BertEncoder, batch_inputs, complete
from bert_keras.model.optimizers import BertAdamW
from bert_keras.text.packing import pack_rows, pad_rows

CONFIG = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
)
# Without segments, as in DistilBERT, and with narrow embeddings, as in ELECTRA.
OTHERS = (
    CONFIG.replace(model_type="distilbert", type_vocab_size=0),
    CONFIG.replace(model_type="electra", embedding_size=4),
)
TEXTS = [[2, 7, 8, 9, 3], [2, 5, 3], [2, 11, 12, 13, 14, 15, 16, 3], [2, 28, 29, 3]]
SEGMENTS = [[0, 0, 0, 1, 1], [0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0]]


def tiny(config=CONFIG, **settings):
    """Return an encoder whose weights, biases too, are random and not small."""
    encoder = BertEncoder(config, **{"seed": 1, **settings})
    rng = np.random.default_rng(0)
    for weight in encoder.trainable_weights:
        mean = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(rng.normal(mean, 0.3, weight.shape))
    return encoder


def padded(texts=TEXTS, segments=SEGMENTS, multiple=1):
    batch = pad_rows(
        tf.ragged.constant(texts, dtype=tf.int32),
        tf.ragged.constant(segments, dtype=tf.int32),
        multiple=multiple,
    )
    return {name: value.numpy() for name, value in batch.items()}


def packed(texts=TEXTS, segments=SEGMENTS, row_tokens=12):
    batch = pack_rows(
        tf.ragged.constant(texts, dtype=tf.int32),
        tf.ragged.constant(segments, dtype=tf.int32),
        row_tokens=row_tokens,
    )
    return {name: value.numpy() for name, value in batch.items()}


def floats(x):
    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))


def slots(batch):
    """Return row and first column of each text in a packed batch."""
    length = batch["token_ids"].shape[1]
    return [divmod(int(start), length) for start in batch["cls_positions"]]


# Counts and names.


@pytest.mark.parametrize("name", ["tiny", "mini"])
def test_count_of_weights_is_that_of_the_release(name):
    config = BertConfig.from_preset(name)
    assert trainable(BertEncoder(config)) == config.parameter_count()


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_count_is_that_of_the_model(name):
    # Vocabulary and positions cut: the wide presets would cost memory and seconds.
    config = BertConfig.from_preset(
        name, vocab_size=7, max_position_embeddings=3, num_hidden_layers=1
    )
    assert trainable(BertEncoder(config)) == config.parameter_count()
    without = BertEncoder(config, pooler=False)
    assert trainable(without) == config.parameter_count(pooler=False)


def trainable(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


@pytest.mark.parametrize("config", [CONFIG, *OTHERS])
def test_all_weights_are_those_of_checkpoints(config):
    # Whatever else `weights` held would be saved, and be missing in checkpoints.
    encoder = BertEncoder(config)
    assert encoder.count_params() == config.parameter_count()
    assert len(encoder.weights) == len(encoder.trainable_weights)


@pytest.mark.parametrize("config", [CONFIG, *OTHERS])
def test_the_shapes_that_checkpoints_must_have_are_those_of_the_model(config):
    weights = BertEncoder(config).weights
    assert encoder_shapes(config) == {w.path: tuple(w.shape) for w in weights}


def test_weights_have_googles_names():
    norm, dense = ("gamma", "beta"), ("kernel", "bias")
    names = [
        "bert/embeddings/word_embeddings",
        "bert/embeddings/position_embeddings",
        "bert/embeddings/token_type_embeddings",
        *(f"bert/embeddings/LayerNorm/{part}" for part in norm),
    ]
    for layer in ("bert/encoder/layer_0", "bert/encoder/layer_1"):
        for scope, parts in (
            ("attention/self/query", dense),
            ("attention/self/key", dense),
            ("attention/self/value", dense),
            ("attention/output/dense", dense),
            ("attention/output/LayerNorm", norm),
            ("intermediate/dense", dense),
            ("output/dense", dense),
            ("output/LayerNorm", norm),
        ):
            names += [f"{layer}/{scope}/{part}" for part in parts]
    names += ["bert/pooler/dense/kernel", "bert/pooler/dense/bias"]
    assert sorted(weight.path for weight in BertEncoder(CONFIG).weights) == sorted(
        names
    )


def test_names_do_not_depend_on_the_model_or_on_others():
    first = BertEncoder(CONFIG, name="my_encoder")
    second = BertEncoder(CONFIG)
    assert [w.path for w in first.weights] == [w.path for w in second.weights]


def test_the_same_seed_gives_the_same_weights():
    first, second, other = (BertEncoder(CONFIG, seed=seed) for seed in (1, 1, 2))
    for a, b in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    kernels = [w.path for w in first.weights if w.name in ("kernel", "word_embeddings")]
    differ = {
        a.path
        for a, b in zip(first.weights, other.weights, strict=True)
        if not np.array_equal(a, b)
    }
    assert set(kernels) <= differ


@pytest.mark.parametrize(("config", "count"), [(CONFIG, 13), (OTHERS[1], 14)])
def test_no_two_kernels_of_one_seed_are_the_same(config, count):
    encoder = BertEncoder(config.replace(intermediate_size=8), seed=1)
    kernels = [w.numpy().tobytes() for w in encoder.weights if w.name == "kernel"]
    assert len(set(kernels)) == len(kernels) == count


# Invariances.


@pytest.mark.parametrize("multiple", [1, 5, 16])
def test_padding_changes_nothing(multiple):
    encoder = tiny()
    outputs = encoder(padded(multiple=multiple))
    for row, (text, segment) in enumerate(zip(TEXTS, SEGMENTS, strict=True)):
        alone = encoder(padded([text], [segment]))
        found = outputs["sequence_output"][row, : len(text)]
        np.testing.assert_allclose(found, alone["sequence_output"][0], atol=1e-5)
        found = outputs["pooled_output"][row]
        np.testing.assert_allclose(found, alone["pooled_output"][0], atol=1e-5)


def test_the_contents_of_padding_change_nothing():
    encoder = tiny()
    batch = padded()
    noisy = {name: value.copy() for name, value in batch.items()}
    hidden = batch["padding_mask"] == 0
    noisy["token_ids"][hidden], noisy["segment_ids"][hidden] = 17, 1
    expected, found = encoder(batch), encoder(noisy)
    for name in ("sequence_output", "pooled_output"):
        a, b = expected[name].numpy(), found[name].numpy()
        if name == "sequence_output":
            a, b = a[~hidden], b[~hidden]
        np.testing.assert_array_equal(a, b)


def test_batch_order_changes_nothing():
    encoder = tiny()
    batch, order = padded(), [2, 0, 3, 1]
    shuffled = {name: value[order] for name, value in batch.items()}
    expected, found = encoder(batch), encoder(shuffled)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(
            found[name], expected[name].numpy()[order], atol=1e-6
        )


def test_packing_changes_nothing():
    encoder = tiny()
    batch = packed()
    assert len(batch["token_ids"]) < len(TEXTS)  # there are rows of several texts
    outputs = encoder(batch)
    assert outputs["pooled_output"].shape[0] == len(TEXTS)
    for number, (row, column) in enumerate(slots(batch)):
        text, segment = TEXTS[number], SEGMENTS[number]
        alone = encoder(padded([text], [segment]))
        found = outputs["sequence_output"][row, column : column + len(text)]
        np.testing.assert_allclose(found, alone["sequence_output"][0], atol=1e-5)
        found = outputs["pooled_output"][number]
        np.testing.assert_allclose(found, alone["pooled_output"][0], atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [padded, packed])
def test_pool_is_the_pooled_output(rows, causal):
    encoder = tiny(CONFIG.replace(is_decoder=causal))
    batch = rows()
    pooled = encoder.pool(batch)
    np.testing.assert_allclose(pooled, encoder(batch)["pooled_output"], atol=1e-6)
    del batch["segment_ids"]
    with pytest.raises(ConfigError, match="without `segment_ids`, received"):
        encoder.pool(batch)


@pytest.mark.parametrize("call", ["__call__", "pool", "predict"])
def test_an_error_names_the_inputs_that_are_left_out(call):
    encoder, ids = tiny(), padded()["token_ids"]
    with pytest.raises(ConfigError) as caught:
        getattr(encoder, call)({"token_ids": ids, "attention_mask": ids})
    assert str(caught.value) == (
        "a batch must hold `token_ids`, `segment_ids`, `padding_mask`; without "
        "`segment_ids`, `padding_mask`, received `token_ids`, `attention_mask`"
    )


# Columns of some tokens of each row, as a masked-LM head needs them; -1 is read as 0.
def columns_of(batch):
    rows, length = batch["token_ids"].shape
    return np.stack([[1, 0, -1, row % length, length - 1] for row in range(rows)])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [padded, packed])
def test_some_tokens_alone_are_as_among_all(rows, causal):
    encoder = tiny(CONFIG.replace(is_decoder=causal))
    batch = rows()
    columns = columns_of(batch)
    found, whole = encoder.read_at(batch, columns), encoder(batch)
    every = np.asarray(whole["sequence_output"])
    wanted = np.take_along_axis(every, np.maximum(columns, 0)[..., None], axis=1)
    np.testing.assert_allclose(found["sequence_output"], wanted, atol=1e-6)
    pooled = whole["pooled_output"]
    np.testing.assert_allclose(found["pooled_output"], pooled, atol=1e-6)


def test_some_tokens_of_an_encoder_without_pooler():
    batch = padded()
    found = tiny(pooler=False).read_at(batch, columns_of(batch))
    assert list(found) == ["sequence_output"]


@pytest.mark.parametrize("rematerialize", [False, True])
@pytest.mark.parametrize("output", ["pooled_output", "sequence_output"])
def test_fewer_tokens_have_the_gradients_of_all(output, rematerialize):
    still = CONFIG.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    encoder = tiny(still, rematerialize=rematerialize)
    inputs, columns = batch_inputs(), columns_of(packed())
    places = keras.Input((None,), dtype="int32")
    found = {
        "pooled_output": encoder.pool(inputs),
        "sequence_output": encoder.read_at(inputs, places)["sequence_output"],
    }
    short = keras.Model((inputs, places), found[output])
    weights = [weight.value for weight in encoder.trainable_weights]

    def of_all(batch, **options):
        values = encoder(batch, **options)[output]
        if output == "pooled_output":
            return values
        return tf.gather(values, np.maximum(columns, 0), batch_dims=1)

    def gradients(run):
        with tf.GradientTape() as tape:
            values = run(packed(), training=True)
            scales = tf.sin(tf.range(tf.cast(tf.size(values), tf.float32)))
            loss = tf.reduce_sum(tf.reshape(scales, tf.shape(values)) * values)
        unused = tf.UnconnectedGradients.ZERO
        found = tape.gradient(loss, weights, unconnected_gradients=unused)
        return [tf.convert_to_tensor(gradient) for gradient in found]

    def of_some(batch, **options):
        return short((complete(batch, inputs), columns), **options)

    for expected, seen in zip(gradients(of_all), gradients(of_some), strict=True):
        np.testing.assert_allclose(seen, expected, atol=2e-5)


def test_pool_needs_a_pooler():
    with pytest.raises(ConfigError, match="`pooler` must be True"):
        tiny(pooler=False).pool(padded())


def test_packing_changes_no_gradient():
    encoder = tiny()

    def gradients(batch):
        weights = [weight.value for weight in encoder.trainable_weights]
        with tf.GradientTape() as tape:
            pooled = encoder(batch)["pooled_output"]
            scales = np.sin(np.arange(32)).reshape(4, 8).astype("float32")
            loss = tf.reduce_sum(scales * pooled)
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)]

    pairs = zip(gradients(padded()), gradients(packed()), strict=True)
    for weight, (expected, found) in zip(encoder.trainable_weights, pairs, strict=True):
        np.testing.assert_allclose(
            found, expected, atol=1e-5, rtol=1e-5, err_msg=weight.path
        )


def test_packing_changes_nothing_in_a_causal_model():
    encoder = tiny(CONFIG.replace(is_decoder=True))
    batch = packed()
    outputs = encoder(batch)["sequence_output"]
    for number, (row, column) in enumerate(slots(batch)):
        text = TEXTS[number]
        alone = encoder(padded([text], [SEGMENTS[number]]))["sequence_output"][0]
        found = outputs[row, column : column + len(text)]
        np.testing.assert_allclose(found, alone, atol=1e-5)


def test_a_causal_token_does_not_see_later_ones():
    config = CONFIG.replace(is_decoder=True)
    causal, both_ways = tiny(config), tiny()
    batch = padded([[2, 7, 8, 9, 3]], [[0] * 5])
    other = {**batch, "token_ids": np.array([[2, 7, 8, 20, 21]], "int32")}
    a, b = (causal(x)["sequence_output"].numpy()[0] for x in (batch, other))
    np.testing.assert_array_equal(a[:3], b[:3])
    assert np.max(np.abs(a[3:] - b[3:])) > 0.1
    a, b = (both_ways(x)["sequence_output"].numpy()[0] for x in (batch, other))
    assert np.max(np.abs(a[:3] - b[:3])) > 0.01


def test_segments_and_positions_matter():
    encoder = tiny()
    batch = padded([[2, 7, 7, 3]], [[0, 0, 0, 0]])
    base = encoder(batch)["sequence_output"].numpy()[0]
    assert np.max(np.abs(base[1] - base[2])) > 0.1  # one token, two places
    other = encoder({**batch, "segment_ids": np.array([[0, 0, 1, 1]])})
    assert np.max(np.abs(base - other["sequence_output"].numpy()[0])) > 0.1


def test_without_segments_their_ids_are_not_read():
    encoder = tiny(OTHERS[0])
    batch = padded([[2, 7, 7, 3]], [[0, 0, 0, 0]])
    other = encoder({**batch, "segment_ids": np.array([[0, 0, 1, 1]])})
    np.testing.assert_array_equal(
        encoder(batch)["sequence_output"], other["sequence_output"]
    )


def test_position_ids_of_one_text():
    encoder = tiny()
    batch = padded()
    places = np.tile(np.arange(8, dtype="int32"), (4, 1))
    same = encoder({**batch, "position_ids": places})["sequence_output"]
    np.testing.assert_array_equal(same, encoder(batch)["sequence_output"])
    shifted = encoder({**batch, "position_ids": places + 3})["sequence_output"]
    assert np.max(np.abs(shifted - same)) > 0.1


def test_the_longest_length():
    ids = np.full((1, CONFIG.max_position_embeddings), 5, "int32")
    batch = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids * 0 + 1}
    assert tiny()(batch)["sequence_output"].shape == (1, 16, 8)


# Outputs.


def test_outputs():
    outputs = tiny()(padded())
    assert {name: tuple(value.shape) for name, value in outputs.items()} == {
        "sequence_output": (4, 8, 8),
        "pooled_output": (4, 8),
    }


def test_without_pooler():
    encoder = tiny(pooler=False)
    assert list(encoder(padded())) == ["sequence_output"]
    assert not any("pooler" in weight.path for weight in encoder.weights)


def test_pooled_output_is_of_the_first_token():
    encoder = tiny()
    outputs = encoder(padded())
    weights = {weight.path: weight.numpy() for weight in encoder.weights}
    first = outputs["sequence_output"].numpy()[:, 0]
    expected = np.tanh(
        first @ weights["bert/pooler/dense/kernel"] + weights["bert/pooler/dense/bias"]
    )
    np.testing.assert_allclose(outputs["pooled_output"], expected, atol=1e-6)


def test_hidden_states_and_attentions():
    encoder = tiny(outputs=("hidden_states", "attentions"))
    batch = padded()
    outputs = encoder(batch)
    states, attentions = outputs["hidden_states"], outputs["attentions"]
    assert [tuple(x.shape) for x in states] == [(4, 8, 8)] * 3
    assert [tuple(x.shape) for x in attentions] == [(4, 2, 8, 8)] * 2
    np.testing.assert_array_equal(states[-1], outputs["sequence_output"])
    first = encoder.embeddings(batch["token_ids"], batch["segment_ids"])
    np.testing.assert_allclose(states[0], first, atol=1e-6)
    for probabilities in attentions:
        np.testing.assert_allclose(np.sum(probabilities, -1), 1.0, atol=1e-6)
        hidden = np.broadcast_to(
            batch["padding_mask"][:, None, None] == 0, probabilities.shape
        )
        assert np.max(probabilities.numpy()[hidden]) == 0.0


def test_attention_never_crosses_texts_of_a_row():
    batch = packed()
    attentions = tiny(outputs=("attentions",))(batch)["attentions"]
    texts = batch["sequence_ids"]
    crossing = (texts[:, None, :, None] != texts[:, None, None, :]) & (
        texts[:, None, :, None] > 0
    )
    for probabilities in attentions:
        values = probabilities.numpy()[np.broadcast_to(crossing, probabilities.shape)]
        assert values.size > 0
        assert values.max() == 0.0


# Dropout, memory and dtypes.


def test_no_dropout_in_inference():
    config = CONFIG.replace(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    encoder, without = tiny(config), tiny(without_dropout(CONFIG))
    batch = padded()
    expected = without(batch)["sequence_output"]
    np.testing.assert_array_equal(encoder(batch)["sequence_output"], expected)
    found = encoder(batch, training=False)["sequence_output"]
    np.testing.assert_array_equal(found, expected)
    drawn = [encoder(batch, training=True)["sequence_output"] for _ in range(2)]
    assert np.max(np.abs(drawn[0] - drawn[1])) > 0.1


def without_dropout(config):
    return config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def test_the_same_seed_drops_the_same():
    first, second = (tiny()(padded(), training=True) for _ in range(2))
    np.testing.assert_array_equal(first["sequence_output"], second["sequence_output"])


def test_rematerialize_gives_the_same_loss_and_gradients():
    # Recomputation must not draw other dropout masks.
    found = []
    for rematerialize in (False, True):
        config = CONFIG.replace(
            num_hidden_layers=1,
            hidden_dropout_prob=0.3,
            attention_probs_dropout_prob=0.3,
        )
        encoder = tiny(config, rematerialize=rematerialize)
        weights = [weight.value for weight in encoder.trainable_weights]

        @tf.function
        def step(batch, encoder=encoder, weights=weights):
            with tf.GradientTape() as tape:
                pooled = encoder(batch, training=True)["pooled_output"]
                loss = tf.reduce_sum(pooled**2)
            return loss, tape.gradient(loss, weights)

        found.append([step(packed()) for _ in range(2)])
    for kept, again in zip(*found, strict=True):
        np.testing.assert_allclose(kept[0], again[0], rtol=1e-6)
        for expected, gradient in zip(kept[1], again[1], strict=True):
            expected, gradient = map(tf.convert_to_tensor, (expected, gradient))
            np.testing.assert_allclose(gradient, expected, atol=1e-5)
    (first, _), (second, _) = found[1]
    assert abs(float(first - second)) > 1e-3  # and each step draws new masks


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("layout", [padded, packed])
def test_sixteen_bits_follow_float32(dtype, layout):
    batch = layout()
    expected, found = tiny()(batch), tiny(dtype=dtype)(batch)
    real = batch["padding_mask"] == 1
    atol = 0.15 if dtype == "mixed_bfloat16" else 0.02
    for name in expected:
        a, b = floats(expected[name]), floats(found[name])
        if name == "sequence_output":
            a, b = a[real], b[real]
        np.testing.assert_allclose(b, a, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("training", [False, True])
def test_a_row_of_padding_is_finite(dtype, training):
    batch = padded()
    batch["padding_mask"][:] = 0
    outputs = tiny(dtype=dtype, outputs=("hidden_states", "attentions"))(
        batch, training=training
    )
    for value in tf.nest.flatten(outputs):
        assert np.isfinite(floats(value)).all()


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_gradients_in_sixteen_bits_are_finite(dtype):
    encoder = tiny(dtype=dtype)
    weights = [weight.value for weight in encoder.trainable_weights]
    with tf.GradientTape() as tape:
        pooled = encoder(packed(), training=True)["pooled_output"]
        loss = tf.reduce_mean(tf.cast(pooled, tf.float32) ** 2)
    for gradient in tape.gradient(loss, weights):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


def test_weights_are_float32_under_mixed_policies():
    encoder = tiny(dtype="mixed_bfloat16")
    assert {weight.dtype for weight in encoder.weights} == {"float32"}


def test_the_global_policy_is_the_default():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        outputs = BertEncoder(CONFIG)(padded())
    finally:
        keras.config.set_dtype_policy("float32")
    assert outputs["pooled_output"].dtype == tf.bfloat16


def test_a_config_of_another_type():
    with pytest.raises(ConfigError, match="`config` must be a BertConfig; received 't"):
        BertEncoder("tiny")


# Round trips.


def test_config_round_trip():
    encoder = BertEncoder(
        CONFIG.replace(is_decoder=True, hidden_act="relu"),
        pooler=False,
        outputs=("attentions",),
        rematerialize=True,
        seed=5,
        dtype="mixed_bfloat16",
        name="mine",
    )
    again = BertEncoder.from_config(encoder.get_config())
    assert again.get_config() == encoder.get_config()
    assert again.config == encoder.config
    assert again.name == "mine"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pooler": False, "outputs": ("hidden_states", "attentions")},
        {"dtype": "mixed_bfloat16", "rematerialize": True},
        {"config": OTHERS[0]},
        {"config": OTHERS[1]},
    ],
)
def test_keras_file_round_trip(tmp_path, settings):
    encoder = tiny(**settings)
    encoder.save(tmp_path / "encoder.keras")
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    assert type(again) is BertEncoder
    for layout in (padded, packed):
        expected, found = encoder(layout()), again(layout())
        for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True):
            np.testing.assert_array_equal(floats(a), floats(b))


def test_checkpoint_round_trip(tmp_path):
    encoder = tiny()
    write(encoder, tmp_path)
    again = BertEncoder.from_pretrained(tmp_path)
    for a, b in zip(encoder.weights, again.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_without_a_pooler_gives_an_encoder_without_one(tmp_path):
    write(tiny(pooler=False), tmp_path)
    assert "pooled_output" not in BertEncoder.from_pretrained(tmp_path)(padded())


def write(encoder, folder):
    arrays = {weight.path: weight.numpy() for weight in encoder.weights}
    config = {"architectures": ["BertModel"], **encoder.config.to_dict()}
    write_huggingface(folder, arrays, config)


# A user's own functional model.


def required_inputs():
    return {
        name: keras.Input((None,), dtype="int32", name=name)
        for name in ("token_ids", "segment_ids", "padding_mask")
    }


def test_a_functional_model_with_the_required_inputs_alone():
    encoder, inputs = tiny(), required_inputs()
    outputs = encoder(inputs)
    model = keras.Model(inputs, outputs)
    batch = padded()
    expected, found = encoder(batch), model(batch)
    for name in outputs:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


@pytest.mark.slow
def test_fit_a_functional_model_on_two_lengths():
    keras.utils.set_random_seed(1)
    config = without_dropout(CONFIG).replace(num_hidden_layers=1)
    encoder, inputs = tiny(config), required_inputs()
    logits = keras.layers.Dense(2, name="mine")(encoder(inputs)["pooled_output"])
    model = keras.Model(inputs, logits)
    model.compile(
        BertAdamW(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    batches = [(padded(multiple=multiple), [0, 1, 1, 0]) for multiple in (1, 16)]
    spec = tf.TensorSpec((4, None), tf.int32)
    data = tf.data.Dataset.from_generator(
        lambda: iter(batches),
        output_signature=(dict.fromkeys(inputs, spec), tf.TensorSpec(4, tf.int32)),
    )
    table = encoder.embeddings.word_embeddings
    before = table.numpy()
    history = model.fit(
        data.repeat(15), epochs=3, steps_per_epoch=10, shuffle=False, verbose=0
    )
    losses = history.history["loss"]
    assert losses[-1] < losses[0] / 2
    changed = np.abs(table.numpy() - before).max(axis=1) > 1e-3
    used = np.unique(np.concatenate(TEXTS))
    assert changed[used].all()


def test_a_frozen_encoder_has_no_trainable_weights():
    encoder = tiny()
    encoder.trainable = False
    assert encoder.trainable_weights == []
    assert len(encoder.non_trainable_weights) == len(encoder.weights)


# Errors.


def test_mismatch_names_all(tmp_path):
    encoder = tiny()
    arrays = {weight.path: weight.numpy() for weight in encoder.weights}
    del arrays["bert/encoder/layer_1/output/dense/bias"]
    arrays["bert/encoder/layer_2/output/dense/bias"] = np.ones(8, "float32")
    arrays["bert/pooler/dense/bias"] = np.ones(9, "float32")
    config = {"architectures": ["BertModel"], **CONFIG.to_dict()}
    write_huggingface(tmp_path, arrays, config)
    before = [weight.numpy() for weight in encoder.weights]
    with pytest.raises(MismatchError) as caught:
        assign(encoder, read_checkpoint(tmp_path))
    error = caught.value
    assert error.missing == ("bert/encoder/layer_1/output/dense/bias",)
    assert error.unexpected == ("bert/encoder/layer_2/output/dense/bias",)
    assert error.misshapen == {"bert/pooler/dense/bias": ((8,), (9,))}
    for name in (*error.missing, *error.unexpected, *error.misshapen, str(tmp_path)):
        assert name in str(error)
    for weight, values in zip(encoder.weights, before, strict=True):
        np.testing.assert_array_equal(weight, values)  # nothing was set


def test_a_new_pooler_only_on_request(tmp_path):
    write(tiny(pooler=False), tmp_path)
    encoder = BertEncoder.from_pretrained(tmp_path, pooler=True)
    assert encoder(padded())["pooled_output"].shape == (4, 8)
    np.testing.assert_array_equal(encoder.weights[0], tiny().weights[0])


@pytest.mark.parametrize("half", ["kernel", "bias"])
def test_half_a_pooler_is_an_error(half, tmp_path):
    arrays = {weight.path: weight.numpy() for weight in tiny().weights}
    del arrays[f"bert/pooler/dense/{half}"]
    config = {"architectures": ["BertModel"], **CONFIG.to_dict()}
    write_huggingface(tmp_path, arrays, config)
    for settings in ({}, {"pooler": True}):
        with pytest.raises(MismatchError, match=f"1 missing .bert/pooler/dense/{half}"):
            BertEncoder.from_pretrained(tmp_path, **settings)


def test_a_pooler_may_be_left_out(tmp_path):
    write(tiny(), tmp_path)
    encoder = BertEncoder.from_pretrained(tmp_path, pooler=False)
    assert list(encoder(padded())) == ["sequence_output"]


def test_an_unknown_output():
    with pytest.raises(ConfigError, match="`outputs`.*logits"):
        BertEncoder(CONFIG, outputs=("logits",))


def test_loading_only_draws_weights_that_a_checkpoint_lacks(tmp_path, monkeypatch):
    write(tiny(pooler=False), tmp_path)
    drawn = []
    draw = keras.initializers.TruncatedNormal.__call__

    def counted(self, shape, dtype=None):
        drawn.append(tuple(shape))
        return draw(self, shape, dtype)

    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", counted)
    after = []
    for new in (
        lambda: BertEncoder(CONFIG),
        lambda: BertEncoder.from_pretrained(tmp_path, pooler=True),
    ):
        drawn.clear()
        keras.utils.set_random_seed(3)
        encoder = new()
        after.append(random.random())  # from which Keras derives later seeds
    assert drawn == [tuple(encoder.pooler.dense.kernel.shape)]
    assert np.any(np.asarray(encoder.pooler.dense.kernel))
    assert after[0] == after[1]
    tiny()
    assert len(drawn) > 2  # and afterwards all is as before


# Own models.


def own_model(encoder, key, way):
    """Return a model with a head of its own upon an encoder, in a way of Keras's."""
    if way == "on its outputs":  # KerasHub's idiom
        inputs, outputs = encoder.input, encoder.output
    else:
        names = ("token_ids", "segment_ids", "padding_mask")
        inputs = {n: keras.Input((None,), dtype="int32", name=n) for n in names}
        outputs = encoder(inputs)
    x = outputs[key]
    if key == "sequence_output":
        x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, keras.layers.Dense(2)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss)
    return model


def backbone():
    return keras_hub.models.BertBackbone(
        vocabulary_size=30,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        dropout=0.0,
        max_sequence_length=16,
    )


def own_models():
    """Return the ways to an own model: each once in `make test`, the rest thorough."""
    quick = [
        (tiny, "on its outputs", "pooled_output"),
        (backbone, "of a call", "sequence_output"),
    ]
    keys = ("pooled_output", "sequence_output")
    every = itertools.product((tiny, backbone), ("on its outputs", "of a call"), keys)
    return [
        pytest.param(*each, marks=() if each in quick else pytest.mark.thorough)
        for each in every
    ]


@pytest.mark.parametrize(("make", "way", "key"), own_models())
@pytest.mark.slow
def test_own_model_as_with_keras_hub(tmp_path, make, way, key):
    encoder = make()
    assert set(encoder.input) == {"token_ids", "segment_ids", "padding_mask"}
    model, batch = own_model(encoder, key, way), padded()
    with warnings.catch_warnings():
        if make is backbone:  # trains a pooler that the model does not read
            warnings.simplefilter("ignore")
        model.fit(batch, np.array([0, 1, 1, 0]), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    expected = model.predict(batch, verbose=0)
    np.testing.assert_array_equal(again.predict(batch, verbose=0), expected)
    if make is tiny:
        is_trained = any("pooler" in w.path for w in model.trainable_weights)
        assert is_trained == (key == "pooled_output")


def test_two_encoders_in_a_model():
    names = ("query", "document")
    inputs, vectors = {}, []
    for name in names:
        own = {
            n: keras.Input((None,), dtype="int32", name=f"{name}_{n}")
            for n in ("token_ids", "segment_ids", "padding_mask")
        }
        batch = {n.name.removeprefix(f"{name}_"): n for n in own.values()}
        vectors.append(tiny(name=name)(batch)["pooled_output"])
        inputs |= {n.name: n for n in own.values()}
    model = keras.Model(inputs, keras.layers.Dot(1)(vectors))
    assert len(model.trainable_weights) == 2 * len(tiny().trainable_weights)
