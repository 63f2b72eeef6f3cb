"""Decoding against a plain Python search, hypothesis by hypothesis; sampling."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from conftest import thorough

from bert_keras.config import BertConfig
from bert_keras.errors import ConfigError
from bert_keras.generation.search import largest, write
from bert_keras.generation.settings import Decoding
from bert_keras.model.decoder import BertDecoder

FIRST, LAST, VOCAB = 2, 3, 11
CONFIG = BertConfig(
    vocab_size=VOCAB + 2,  # the table has rows that no token has
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
    initializer_range=0.6,
)
LIMITS = [9, 4, 12]


@pytest.fixture(scope="module")
def decoder():
    return BertDecoder(CONFIG, seed=3)


@pytest.fixture(scope="module")
def sources():
    """Return an encoder's output for three sources, and its mask."""
    memory = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    mask = np.ones((3, 5), "int32")
    mask[1, 3:] = 0
    return memory, mask


def in_graph(decoder, sources, settings, rows=slice(None)):
    """Return the hypotheses of each source as lists, and their scores."""
    memory, mask = sources

    @tf.function(autograph=False)
    def run(memory, mask, limits, texts):
        return write(
            decoder,
            memory,
            mask,
            settings,
            first_id=FIRST,
            last_id=LAST,
            limits=limits,
            sources=texts,
            vocab_size=VOCAB,
        )

    limits, texts = tf.constant(LIMITS)[rows], tf.constant(["a", "b", "c"])[rows]
    found = run(tf.constant(memory[rows]), tf.constant(mask[rows]), limits, texts)
    ids = [
        [until_last(row[:limit]) for row in beams]
        for beams, limit in zip(found.ids.numpy().tolist(), limits, strict=True)
    ]
    return ids, found.scores.numpy()


def until_last(ids):
    return ids[: ids.index(LAST) + 1] if LAST in ids else ids


def log_probabilities(decoder, memory, mask, text):
    """Return those of the next token, from the whole text at once."""
    ids = np.array([[FIRST, *text]])
    given = {
        "target_token_ids": ids,
        "target_padding_mask": np.ones_like(ids),
        "memory": memory[None],
        "padding_mask": mask[None],
    }
    logits = decoder(given).numpy()[0, -1, :VOCAB].astype("float64")
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def repeats(text, size):
    """Return whether the last n-gram of a text, with [CLS] before it, is an old one."""
    text = [FIRST, *text]
    grams = [tuple(text[i : i + size]) for i in range(len(text) - size + 1)]
    return bool(grams) and grams[-1] in grams[:-1]


def plain_search(decoder, memory, mask, settings, limit):
    """Search as the module says, one hypothesis after the other."""
    running, ended = [(0.0, [])], []
    beams, power = settings.beams, settings.length_penalty
    kept = 2 * beams if beams > 1 else 1
    for length in range(1, limit + 1):
        candidates = []
        for score, text in running:
            values = log_probabilities(decoder, memory, mask, text)
            for token, value in enumerate(values):
                longer = [*text, token]
                size = settings.no_repeat_ngram
                if not size or not repeats(longer, size):
                    candidates.append((score + value, longer))
        candidates.sort(key=lambda each: -each[0])
        candidates = candidates[:kept]
        ends = [text[-1] == LAST or length == limit for _, text in candidates]
        ended += [
            (score / length**power, text)
            for (score, text), is_end in list(zip(candidates, ends, strict=True))[
                :beams
            ]
            if is_end
        ]
        ended = sorted(ended, key=lambda each: -each[0])[:beams]
        pairs = zip(candidates, ends, strict=True)
        running = [each for each, is_end in pairs if not is_end][:beams]
        if not running:
            break
        if len(ended) == beams and running[0][0] / length**power <= ended[-1][0]:
            break
    return ended


@pytest.mark.parametrize(
    "changes",
    [
        {"beams": 1},
        {"beams": 4, "length_penalty": 0.0, "no_repeat_ngram": 2},
        thorough({"beams": 3}),
        thorough({"beams": 2, "length_penalty": 2.5, "no_repeat_ngram": 1}),
    ],
    ids=["greedy", "no-repeats", "beams", "long"],
)
def test_the_graph_finds_the_hypotheses_of_a_plain_search(decoder, sources, changes):
    settings = Decoding(**changes)
    ids, scores = in_graph(decoder, sources, settings)
    for row, limit in enumerate(LIMITS):
        wanted = plain_search(
            decoder, sources[0][row], sources[1][row], settings, limit
        )
        assert ids[row] == [text for _, text in wanted]
        np.testing.assert_allclose(
            scores[row], [score for score, _ in wanted], atol=1e-4
        )


@pytest.mark.parametrize("width", [640, 1001], ids=["whole-blocks", "padded"])
def test_the_largest_are_those_of_top_k(width):
    """With many equal values, of which the first come first."""
    draw = np.random.default_rng(4)
    values = tf.constant(draw.integers(0, 9, (20, width)), tf.float32)
    values = tf.concat([values, -values, tf.zeros([1, width])], 0)
    wanted = tf.math.top_k(values, 8)
    found, places = largest(values, 8)
    np.testing.assert_array_equal(found, wanted.values)
    np.testing.assert_array_equal(places, wanted.indices)


@pytest.mark.parametrize(
    "changes",
    [
        {"beams": 2},
        thorough({"beams": 3, "sample": True}),
    ],
    ids=["beams", "samples"],
)
def test_sources_that_have_ended_leave_the_batch(
    decoder, sources, changes, monkeypatch
):
    """A source with a limit of one token adds one row of each of its hypotheses."""
    beams, steps = changes["beams"], tf.Variable(0)
    step = BertDecoder.step

    def counting(self, token_ids, *others):
        steps.assign_add(tf.size(token_ids))
        return step(self, token_ids, *others)

    monkeypatch.setattr(BertDecoder, "step", counting)
    memory, mask = (np.repeat(part[:1], 8, axis=0) for part in sources)
    limits = [1, 1, 1, 1, 6, 1, 1, 1]
    found = write(
        decoder,
        tf.constant(memory),
        tf.constant(mask),
        Decoding(**changes),
        first_id=FIRST,
        last_id=VOCAB,  # no text ends before its limit
        limits=tf.constant(limits),
        sources=tf.fill([8], "a"),
        vocab_size=VOCAB,
    )
    assert int(steps) == beams * sum(limits)
    texts = found.ids.numpy()[:, :, : max(limits)].tolist()
    assert all(text[1:] == [VOCAB] * 5 for text in texts[3])
    assert all(VOCAB not in text for text in texts[4])


@pytest.mark.slow
def test_samples_follow_the_seed_and_the_source_and_not_the_batch(decoder, sources):
    settings = Decoding(beams=3, sample=True, seed=5)
    ids, scores = in_graph(decoder, sources, settings)
    again, _ = in_graph(decoder, sources, settings, rows=slice(1, 2))
    assert again[0] == ids[1]
    other, _ = in_graph(decoder, sources, dataclasses.replace(settings, seed=6))
    assert other != ids
    assert len({tuple(text) for texts in ids for text in texts}) > 6
    assert (np.diff(scores, axis=1) <= 0).all()
    total, length = 0.0, len(ids[0][0])
    for place in range(length):
        values = log_probabilities(
            decoder, sources[0][0], sources[1][0], ids[0][0][:place]
        )
        total += values[ids[0][0][place]]
    assert scores[0][0] == pytest.approx(total / length, abs=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"sample_top_k": 1},
        thorough({"sample_top_p": 1e-6}),
        thorough({"temperature": 1e-4}),
    ],
    ids=["top-k", "top-p", "cold"],
)
def test_sampling_from_one_token_is_greedy(decoder, sources, changes):
    greedy, _ = in_graph(decoder, sources, Decoding(beams=1))
    found, _ = in_graph(decoder, sources, Decoding(beams=1, sample=True, **changes))
    assert found == greedy


@pytest.mark.thorough
def test_samples_are_drawn_by_their_probability(decoder, sources):
    """The first token of 2,048 samples of one source."""
    memory, mask = sources[0][:1], sources[1][:1]
    found = [
        write(
            decoder,
            tf.constant(memory),
            tf.constant(mask),
            Decoding(beams=64, sample=True, seed=seed, sample_top_k=4),
            first_id=FIRST,
            last_id=LAST,
            limits=tf.constant([1]),
            sources=tf.constant(["a"]),
            vocab_size=VOCAB,
        ).ids.numpy()
        for seed in range(32)
    ]
    values = np.exp(log_probabilities(decoder, memory[0], mask[0], []))
    best = np.argsort(-values)[:4]
    shares = np.bincount(np.ravel(found), minlength=VOCAB) / np.size(found)
    np.testing.assert_allclose(
        shares[best], values[best] / values[best].sum(), atol=0.05
    )
    assert shares[best].sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beams": 0}, "`beams` must be a whole number from 1 to 64; received 0"),
        (
            {"temperature": 0.0},
            "`temperature` must be a number above 0 and at most 100; received 0.0",
        ),
        ({"sample": 1}, "`sample` must be true or false; received 1"),
    ],
    ids=["beams", "temperature", "sample"],
)
def test_a_setting_out_of_its_range_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        Decoding(**changes)
