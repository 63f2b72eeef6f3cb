"""Masked-LM corruption: counts, shares, units, and what each choice depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import VOCABULARY, refused

from bert_keras.text.masking import Masking
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

TOKENIZER = WordPieceTokenizer(VOCABULARY)
IDS = {token: number for number, token in enumerate(VOCABULARY)}
PAD, UNK, CLS, SEP, MASK = range(5)


def masked(rows: list[list[int]], draws: Any = None, **settings: Any) -> Any:
    """Return rows of content tokens, joined and masked, as lists."""
    ids = tf.ragged.constant([[CLS, *row, SEP] for row in rows], tf.int32)
    draws = range(len(rows)) if draws is None else draws
    found = Masking(**settings)(ids, tf.constant(list(draws), tf.int64), TOKENIZER)
    return [part.to_list() for part in found]


@pytest.mark.parametrize("unit", ["piece", "word", "ngram"])
def test_labels_are_the_original_tokens(unit: str) -> None:
    rows = [[IDS["win"], IDS["cash"], IDS["now"]] * 10, [], [IDS["sale"]]]
    ids, offsets, labels = masked(rows, rate=0.4, unit=unit)
    for row, hidden, places, wanted in zip(rows, ids, offsets, labels, strict=True):
        joined = [CLS, *row, SEP]
        assert len(hidden) == len(joined)
        assert [joined[place] for place in places] == wanted
        assert places == sorted(set(places))
        rest = [i for i in range(len(joined)) if i not in places]
        assert [hidden[i] for i in rest] == [joined[i] for i in rest]


@pytest.mark.parametrize(
    ("size", "rate", "most", "count"),
    [
        (0, 0.15, 80, 0),
        (1, 0.15, 80, 1),
        (9, 0.15, 80, 1),
        (10, 0.15, 80, 2),  # 1.5, rounded up
        (100, 0.15, 80, 15),
        (100, 0.15, 4, 4),
        (7, 1.0, 80, 7),
    ],
)
def test_counts_are_exact(size: int, rate: float, most: int, count: int) -> None:
    _, offsets, _ = masked([[IDS["win"]] * size], rate=rate, max_predictions=most)
    assert len(offsets[0]) == count


def test_special_tokens_are_never_chosen() -> None:
    row = [IDS["win"], SEP, CLS, PAD, IDS["now"]]  # as in a pair, or filled up
    _, offsets, _ = masked([row] * 50, rate=1.0)
    assert offsets == [[1, 5]] * 50


def test_shares_of_masked_random_and_unchanged_tokens() -> None:
    rows = [[IDS["win"]] * 200] * 100
    ids, offsets, _ = masked(rows, rate=1.0, max_predictions=200)
    flat = np.array([hidden[1:-1] for hidden in ids]).ravel()
    assert len(flat) == sum(map(len, offsets)) == 20_000
    stay = 0.1 + 0.1 / (len(VOCABULARY) - 5)  # some are drawn by chance
    assert np.mean(flat == MASK) == pytest.approx(0.8, abs=0.015)
    assert np.mean(flat == IDS["win"]) == pytest.approx(stay, abs=0.01)
    drawn = flat[(flat != MASK) & (flat != IDS["win"])]
    assert set(drawn) == set(range(5, len(VOCABULARY))) - {IDS["win"]}
    counts = np.bincount(drawn, minlength=len(VOCABULARY))[5:]
    expected = len(drawn) / (len(VOCABULARY) - 6)
    assert np.abs(counts - expected)[counts > 0].max() < 6 * np.sqrt(expected)


def test_each_place_is_chosen_as_often() -> None:
    _, offsets, _ = masked([[IDS["win"]] * 20] * 4000, rate=0.25)
    counts = np.bincount([place for row in offsets for place in row])[1:]
    assert counts.sum() == 20_000
    np.testing.assert_allclose(counts / 1000, 1, atol=0.15)


@pytest.mark.parametrize("unit", ["piece", "word", "ngram"])
def test_choices_depend_on_the_draw_alone(unit: str) -> None:
    long = [IDS["win"], IDS["##a"], IDS["now"], IDS["at"]] * 6
    rows = [long, long[:7], [], long[:20]]
    draws = [5, 2**62 + 3, 7, -1]
    settings: dict[str, Any] = {"rate": 0.3, "unit": unit}
    together = masked(rows, draws, **settings)
    backwards = masked(rows[::-1], draws[::-1], **settings)
    alone = [
        masked([row], [draw], **settings) for row, draw in zip(rows, draws, strict=True)
    ]
    assert [part[::-1] for part in backwards] == together
    assert [[part[0] for part in each] for each in alone] == [
        list(each) for each in zip(*together, strict=True)
    ]
    assert masked([long] * 2, [5, 6], **settings)[0][0] == together[0][0]
    assert masked([long] * 2, [5, 6], **settings)[0][1] != together[0][0]


def test_whole_words() -> None:
    word = [IDS["s"], IDS["##u"], IDS["##m"]]
    rows = [word + [IDS["win"]] + word * 3 + [IDS["now"]]] * 200
    _, offsets, _ = masked(rows, rate=0.3, unit="word")  # 4 of 14 pieces
    words = [{1, 2, 3}, {4}, {5, 6, 7}, {8, 9, 10}, {11, 12, 13}, {14}]
    seen = set()
    for places in offsets:
        chosen = [word for word in words if word & set(places)]
        assert set().union(*chosen) == set(places)  # each word wholly
        # Either a long word and a short one, or both short ones and a long one that
        # no longer fits: as many pieces as whole words can be.
        assert len(places) in (4, 2)
        seen.add(tuple(places))
    assert len(seen) == 9


def test_words_that_are_too_long_are_skipped() -> None:
    word = [IDS["s"], *[IDS["##u"]] * 9]
    _, offsets, _ = masked([word, [*word, IDS["now"]]], unit="word")
    assert offsets == [[], [11]]


def test_runs_of_words() -> None:
    word = [IDS["s"], IDS["##u"]]
    row = [*word * 8, SEP, *word * 8]  # as in a pair
    mean_runs = {}
    for unit in ("word", "ngram"):
        _, offsets, _ = masked([row] * 2000, rate=0.25, unit=unit)  # 8 of 32 pieces
        runs = 0
        for places in offsets:
            assert len(places) == 8 and 17 not in places
            firsts = {place for place in places if place % 2 == (place < 17)}
            assert sorted(firsts | {place + 1 for place in firsts}) == places
            runs += sum(first - 2 not in firsts for first in firsts)
        mean_runs[unit] = runs / 2000
    # Of four words, each has one chance in 15 for each other to stand right before it,
    # in 14 of its 16 places.
    assert mean_runs["word"] == pytest.approx(4 - 4 * 3 * 14 / (16 * 15), abs=0.05)
    assert mean_runs["ngram"] < 0.8 * mean_runs["word"]


def test_a_run_ends_where_a_word_does_not_fit() -> None:
    long = [IDS["s"], *[IDS["##u"]] * 9]
    row = [IDS["win"], *long, IDS["now"], *long]
    _, offsets, _ = masked([row] * 200, rate=0.1, unit="ngram")  # 2 of 22 pieces
    assert offsets == [[1, 12]] * 200


def test_in_a_graph_with_texts() -> None:
    preprocessor = Preprocessor(TOKENIZER, max_length=24, layout="packed")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def hide(texts: Any) -> Any:
        ids, _ = preprocessor.join(texts)
        draws = tf.strings.to_hash_bucket_fast(texts, 100)
        return Masking(unit="word")(ids, draws, TOKENIZER)

    for texts in ([], ["", "win cash now", "see you " * 40]):
        found = hide(tf.constant(texts, tf.string))
        assert found.ids.nrows() == len(texts)
        assert found.offsets.shape[0] == len(texts)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"rate": 0}, ("`rate`", "above 0", "received 0")),
        ({"rate": 1.5}, ("`rate`", "1.5")),
        ({"mask_share": -0.1}, ("`mask_share`", "-0.1")),
        ({"mask_share": "much"}, ("`mask_share`", "'much'")),
        ({"random_share": 0.3}, ("together", "0.8 and 0.3")),
        ({"max_predictions": 0}, ("`max_predictions`", "received 0")),
        ({"unit": "letter"}, ("`unit`", "piece, word, ngram", "'letter'")),
    ],
)
def test_wrong_settings(settings: dict[str, Any], parts: tuple[str, ...]) -> None:
    refused(lambda: Masking(**settings), *parts)


def test_a_vocabulary_without_a_mask() -> None:
    tokenizer = WordPieceTokenizer([t for t in VOCABULARY if t != "[MASK]"])
    ids = tf.ragged.constant([[2, 7, 3]], tf.int32)
    refused(lambda: Masking()(ids, tf.constant([1]), tokenizer), "[MASK]")
