"""`BertDecoder`: what a token sees, steps with a cache, and the names of weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.errors import ConfigError
from bert_keras.model.decoder import BertDecoder
from bert_keras.model.encoder import BertEncoder

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=12,
    initializer_range=0.4,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
SOURCE_MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
TARGETS = np.array([[2, 5, 6], [2, 7, 8]])


@pytest.fixture(scope="module")
def decoder():
    return BertDecoder(CONFIG, memory_size=6, seed=1)


@pytest.fixture(scope="module")
def memory():
    return np.random.default_rng(0).normal(size=(2, 4, 6)).astype("float32")


def logits_of(decoder, memory, targets=TARGETS, mask=SOURCE_MASK):
    given = {
        "target_token_ids": targets,
        "target_padding_mask": np.ones_like(targets),
        "memory": memory,
        "padding_mask": mask,
    }
    return np.array(decoder(given))


def test_weights_have_the_names_of_transformers_after_decoder(decoder):
    paths = {weight.path: tuple(weight.shape) for weight in decoder.weights}
    cross = "decoder/bert/encoder/layer_1/crossattention"
    assert paths[f"{cross}/self/query/kernel"] == (8, 8)
    assert paths[f"{cross}/output/LayerNorm/gamma"] == (8,)
    assert paths["decoder/bert/embeddings/word_embeddings"] == (20, 8)
    assert paths["decoder/cls/predictions/output_bias"] == (20,)
    assert paths["enc_to_dec_proj/kernel"] == (6, 8)
    # 26 weights a block, 5 of embeddings, 5 of the output, 2 of the projection.
    assert len(paths) == 2 * 26 + 5 + 5 + 2


def test_a_token_sees_itself_those_before_it_and_its_source(decoder, memory):
    plain = logits_of(decoder, memory)
    assert plain.shape == (2, 3, 20)
    later = TARGETS.copy()
    later[:, 2] = 9
    changed = logits_of(decoder, memory, later)
    np.testing.assert_allclose(changed[:, :2], plain[:, :2], atol=1e-6)
    assert np.abs(changed[:, 2] - plain[:, 2]).max() > 0.01
    padded = memory.copy()
    padded[1, 2:] = 7.0
    np.testing.assert_allclose(logits_of(decoder, padded), plain, atol=1e-6)
    other = memory.copy()
    other[0] = other[0][::-1] + 1
    changed = logits_of(decoder, other)
    assert np.abs(changed[0] - plain[0]).max() > 0.01
    np.testing.assert_allclose(changed[1], plain[1], atol=1e-6)


def test_steps_with_a_cache_give_the_logits_of_the_whole_text(decoder, memory):
    wanted = logits_of(decoder, memory)
    started = decoder.start(memory, SOURCE_MASK)
    # Two rows read each source.
    past = decoder.no_past(4)
    for place in range(3):
        ids = np.repeat(TARGETS[:, place], 2)
        logits, past = decoder.step(ids, place, past, started)
        np.testing.assert_allclose(
            np.array(logits), np.repeat(wanted[:, place], 2, axis=0), atol=1e-5
        )
    assert past[1][0].shape == (4, 2, 4, 3) and past[1][1].shape == (4, 2, 3, 4)


def test_every_weight_has_a_gradient_also_where_blocks_run_twice(memory):
    config = CONFIG.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    found = []
    for rematerialize in (False, True):
        decoder = BertDecoder(
            config, memory_size=6, seed=1, rematerialize=rematerialize
        )
        given = {
            "target_token_ids": TARGETS,
            "target_padding_mask": np.ones_like(TARGETS),
            "memory": memory,
            "padding_mask": SOURCE_MASK,
        }
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(decoder(given, training=True)))
        weights = [weight.value for weight in decoder.trainable_weights]
        found.append([tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)])
    for once, twice in zip(*found, strict=True):
        np.testing.assert_allclose(once, twice, atol=1e-5)
    states = [
        tuple(np.asarray(keras.ops.convert_to_numpy(each)))
        for each in decoder.non_trainable_variables
    ]
    assert len(states) == len(set(states)) == 5


def test_a_config_gives_the_decoder_back(memory):
    decoder = BertDecoder(CONFIG, memory_size=6, seed=1, tied=False)
    again = BertDecoder.from_config(decoder.get_config())
    assert [w.path for w in again.weights] == [w.path for w in decoder.weights]
    np.testing.assert_allclose(
        logits_of(again, memory), logits_of(decoder, memory), atol=1e-6
    )
    table = next(w for w in decoder.weights if w.path.endswith("output_embeddings"))
    table.assign(table * 0.0)
    assert np.ptp(logits_of(decoder, memory)) == 0.0  # the bias is all 0


def test_a_shared_encoder_must_have_the_sizes_of_the_decoder():
    encoder = BertEncoder(CONFIG, pooler=False)
    with pytest.raises(ConfigError, match="`shared` must be an encoder"):
        BertDecoder(CONFIG.replace(vocab_size=21), shared=encoder)
