"""Pairs of texts: what is in them, how often, how they are cut, and their rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from conftest import refused

from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.pretraining.pairs import Pairs, Tokens, make_pairs, make_rows, tokens_of

CLS, SEP, PAD = 2, 3, 0


def documents(sizes: list[list[int]]) -> Tokens:
    """Return documents of sentences of these lengths, each token with its own id."""
    flat = np.array([size for document in sizes for size in document])
    ids = np.arange(10, 10 + flat.sum(), dtype="int32")
    return tokens_of(ids, flat, [len(document) for document in sizes])


def pairs_of(tokens: Tokens, *, seed: int = 0, **settings: Any) -> Pairs:
    config = PretrainingDataConfig(**settings)
    inside = np.zeros(len(tokens.ids), bool)
    return make_pairs(tokens, config, np.random.default_rng(seed), inside)


def document_of(tokens: Tokens, places: np.ndarray) -> np.ndarray:
    """Return the document that each place in the tokens is in."""
    edges = tokens.sentences[tokens.documents]
    return np.searchsorted(edges, places, side="right") - 1


def some_documents(seed: int, count: int = 60, longest: int = 60) -> Tokens:
    random = np.random.default_rng(seed)
    return documents(
        [
            random.integers(1, 30, random.integers(1, longest)).tolist()
            for _ in range(count)
        ]
    )


def test_empty_sentences_and_documents_are_left_out() -> None:
    tokens = tokens_of(np.arange(6), np.array([0, 2, 0, 0, 1, 0, 3]), [2, 2, 0, 3])
    assert tokens.sentences.tolist() == [0, 2, 3, 6]
    assert tokens.documents.tolist() == [0, 1, 3]
    nothing = tokens_of(np.zeros(0, "int32"), np.zeros(0, "int64"), [])
    assert nothing.documents.tolist() == [0]


@pytest.mark.parametrize("seed", range(5))
def test_b_follows_a_or_is_of_another_document(seed: int) -> None:
    tokens = some_documents(seed)
    # So long that nothing is cut: sentences have 29 tokens at most.
    pairs = pairs_of(tokens, seed=seed, max_length=64, short_sequence_probability=0.5)
    own, other = (document_of(tokens, text[:, 0]) for text in pairs[:2])
    for text, document in ((pairs.first, own), (pairs.second, other)):
        assert (text[:, 1] > text[:, 0]).all()
        assert (document_of(tokens, text[:, 1] - 1) == document).all()
    is_next = pairs.labels == 0
    assert (own == other)[is_next].all()
    assert (own != other)[~is_next].all()
    sizes = np.diff(pairs.first) + np.diff(pairs.second)
    assert sizes.max() <= 61
    whole = sizes[:, 0] < 61  # not truncated, except those of 61 by chance
    assert (pairs.second[:, 0] == pairs.first[:, 1])[is_next & whole].all()


def test_every_token_is_seen_once_besides_the_random_texts() -> None:
    # Sentences of one token: every goal is met exactly, and nothing is cut.
    tokens = documents([[1] * n for n in (1, 2, 3, 400, 77, 61, 62, 1000)])
    pairs = pairs_of(tokens, max_length=64, short_sequence_probability=0.4)
    is_next = pairs.labels == 0
    ranges = [*pairs.first, *pairs.second[is_next]]
    seen = Counter(i for start, end in ranges for i in range(start, end))
    assert seen == Counter(range(len(tokens.ids)))


def test_half_of_the_texts_b_are_next() -> None:
    tokens = documents([[1] * 20_000] * 4)
    labels = pairs_of(tokens, max_length=16, short_sequence_probability=0.0).labels
    assert len(labels) > 6000
    assert labels.mean() == pytest.approx(0.5, abs=0.025)


def test_a_sentence_alone_has_a_random_text_b() -> None:
    tokens = documents([[200]] * 30)
    pairs = pairs_of(tokens, max_length=64, short_sequence_probability=0.0)
    assert pairs.labels.tolist() == [1] * 30
    # Every other document as likely, never its own.
    found = [
        pairs_of(tokens, seed=seed, max_length=64).second[0, 0] for seed in range(600)
    ]
    counts = Counter(document_of(tokens, np.array(found)).tolist())
    assert sorted(counts) == list(range(1, 30))
    assert max(counts.values()) < 50


def test_short_rows() -> None:
    tokens = documents([[1] * 61] * 4000)
    found = pairs_of(tokens, max_length=64, next_sentence="order")
    sizes = (np.diff(found.first) + np.diff(found.second))[:, 0]
    # The first pair of each document is as long as the document aims at.
    own = document_of(tokens, found.first[:, 0])
    _, firsts = np.unique(own, return_index=True)
    aimed = sizes[firsts]
    assert np.mean(aimed < 61) == pytest.approx(0.1 * 59 / 60, abs=0.02)
    assert aimed.min() >= 2
    short = aimed[aimed < 61]
    assert short.mean() == pytest.approx((2 + 60) / 2, abs=4)
    none = pairs_of(
        tokens, max_length=64, next_sentence="order", short_sequence_probability=0
    )
    assert (np.diff(none.first) + np.diff(none.second) == 61).all()


@pytest.mark.parametrize(
    ("a", "b", "most", "kept"),
    [(50, 10, 61, (50, 10)), (90, 90, 61, (31, 30)), (90, 10, 61, (51, 10)),
     (10, 90, 61, (10, 51)), (31, 31, 61, (31, 30)), (90, 90, 60, (30, 30))],
)  # fmt: skip
def test_the_longer_text_is_truncated_at_both_ends(
    a: int, b: int, most: int, kept: tuple[int, int]
) -> None:
    tokens = documents([[a, b]] * 2000)
    pairs = pairs_of(
        tokens, max_length=most + 3, next_sentence="order", short_sequence_probability=0
    )
    pairs = pairs.take(pairs.labels == 0)
    edges = tokens.sentences[tokens.documents[document_of(tokens, pairs.first[:, 0])]]
    texts = ((pairs.first, edges, a, kept[0]), (pairs.second, edges + a, b, kept[1]))
    for text, start, size, left in texts:
        assert (text[:, 1] - text[:, 0] == left).all()
        front = text[:, 0] - start
        cut = size - left
        assert front.min() >= 0 and front.max() <= cut
        if cut > 1:
            assert front.mean() == pytest.approx(cut / 2, abs=0.1 * np.sqrt(cut))
            assert front.std() == pytest.approx(np.sqrt(cut) / 2, rel=0.15)


@pytest.mark.parametrize("seed", range(3))
def test_sentence_order(seed: int) -> None:
    tokens = some_documents(seed, count=300, longest=20)
    pairs = pairs_of(tokens, seed=seed, max_length=64, next_sentence="order")
    texts = np.stack([pairs.first, pairs.second], axis=1)
    texts[pairs.labels == 1] = texts[pairs.labels == 1, ::-1]
    places = document_of(tokens, texts[..., 0])
    assert (places[:, 0] == places[:, 1]).all()
    assert (texts[:, 0, 1] <= texts[:, 1, 0]).all()
    assert pairs.labels.mean() == pytest.approx(0.5, abs=0.05)
    # Of each document with two sentences there is a pair, and of no other.
    counts = np.diff(tokens.documents)
    assert set(places[:, 0]) == set(np.flatnonzero(counts > 1))


def test_sentence_order_of_one_token_each() -> None:
    tokens = documents([[1] * n for n in (1, 2, 3, 62, 123)])
    pairs = pairs_of(
        tokens, max_length=64, next_sentence="order", short_sequence_probability=0
    )
    seen = Counter(
        i for start, end in [*pairs.first, *pairs.second] for i in range(start, end)
    )
    # 62 leaves one alone, which goes with the 61st; 123 is two times 61 and one.
    twice = [6 + 60, 68 + 121]
    assert seen == Counter([*range(1, 191), *twice])


def test_without_pairs_every_token_is_in_one_row() -> None:
    tokens = some_documents(3)
    inside = np.random.default_rng(1).random(len(tokens.ids)) < 0.3
    config = PretrainingDataConfig(
        max_length=32, next_sentence="none", short_sequence_probability=0
    )
    pairs = make_pairs(tokens, config, np.random.default_rng(0), inside)
    edges = tokens.sentences[tokens.documents]
    assert pairs.first[:, 0].tolist() == [0, *pairs.first[:-1, 1]]
    assert pairs.first[-1, 1] == len(tokens.ids)
    assert np.diff(pairs.first).max() == 30
    assert (np.diff(pairs.second) == 0).all() and not pairs.labels.any()
    assert set(edges[:-1]) <= set(pairs.first[:, 0])
    begun = set(pairs.first[:, 0]) - set(edges)
    assert begun and not any(inside[place] for place in begun)


def test_a_word_longer_than_a_row_is_split() -> None:
    tokens = documents([[100]])
    config = PretrainingDataConfig(
        max_length=32, next_sentence="none", short_sequence_probability=0
    )
    inside = np.ones(100, bool)
    pairs = make_pairs(tokens, config, np.random.default_rng(0), inside)
    assert pairs.first.tolist() == [[0, 30], [30, 60], [60, 90], [90, 100]]


def test_one_document_alone() -> None:
    tokens = documents([[5, 5, 5]])
    refused(
        lambda: pairs_of(tokens), "`next_sentence`", "two documents", "received one"
    )
    assert len(pairs_of(tokens, next_sentence="order").labels) == 1


def test_the_same_numbers_give_the_same_pairs() -> None:
    tokens = some_documents(7)
    once, again, other = (pairs_of(tokens, seed=seed) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(once, again, strict=True))
    assert once.first.shape != other.first.shape or (once.first != other.first).any()


def test_rows() -> None:
    ids = np.arange(10, 20, dtype="int32")
    tokens = tokens_of(ids, np.array([4, 6]), [2])
    pairs = Pairs(
        np.array([[1, 3], [0, 4], [9, 10]]),
        np.array([[7, 10], [4, 4], [0, 4]]),
        np.array([0, 0, 1], "int32"),
    )
    rows = make_rows(tokens, pairs, max_length=8, cls_id=CLS, sep_id=SEP, pad_id=PAD)
    assert rows.token_ids.tolist() == [
        [CLS, 11, 12, SEP, 17, 18, 19, SEP],
        [CLS, 10, 11, 12, 13, SEP, PAD, PAD],
        [CLS, 19, SEP, 10, 11, 12, 13, SEP],
    ]
    assert rows.segment_ids.tolist() == [
        [0, 0, 0, 0, 1, 1, 1, 1],
        [0] * 8,
        [0, 0, 0, 1, 1, 1, 1, 1],
    ]
    assert rows.padding_mask.tolist() == [[1] * 8, [1] * 6 + [0] * 2, [1] * 8]


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"max_length": 4}, ("`max_length`", "at least 5", "received 4")),
        ({"max_length": True}, ("`max_length`", "True")),
        ({"max_predictions": 0}, ("`max_predictions`", "received 0")),
        ({"max_predictions": 129}, ("`max_predictions`", "129 and 128")),
        ({"dupe_factor": 1.5}, ("`dupe_factor`", "1.5")),
        ({"seed": -1}, ("`seed`", "-1")),
        ({"block_characters": "many"}, ("`block_characters`", "'many'")),
        ({"mask_rate": 0}, ("`mask_rate`", "above 0", "received 0")),
        ({"short_sequence_probability": 1.1}, ("`short_sequence_probability`", "1.1")),
        ({"random_share": 0.3}, ("together", "0.8 and 0.3")),
        ({"mask_unit": "letter"}, ("`mask_unit`", "piece, word, ngram", "'letter'")),
        ({"next_sentence": True}, ("`next_sentence`", "next, order, none", "True")),
        ({"masking": "both"}, ("`masking`", "static, dynamic", "'both'")),
    ],
)
def test_wrong_settings(settings: dict[str, Any], parts: tuple[str, ...]) -> None:
    refused(lambda: PretrainingDataConfig(**settings), *parts)


@pytest.mark.parametrize(
    ("length", "rate", "predictions"),
    [(128, 0.15, 20), (512, 0.15, 76), (64, 0.15, 12), (5, 0.15, 4), (128, 1.0, 128)],
)
def test_predictions_by_default(length: int, rate: float, predictions: int) -> None:
    config = PretrainingDataConfig(max_length=length, mask_rate=rate)
    assert config.predictions == predictions
    assert config.duplicates == 10
    assert PretrainingDataConfig(masking="dynamic").duplicates == 1
