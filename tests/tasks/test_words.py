"""Words in batches: pieces by hand, windows that lose nothing, entities in graph."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.scoring.entities import entities_of
from bert_keras.tasks.tagging.words import (
    Pieces,
    find_entities,
    lay_windows,
    pieces_of_texts,
    pieces_of_words,
    targets_at,
    values_of_words,
)
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##want", "##ed", "new", ",", "日"]
UNK, CLS, SEP, UN, WANT, ED, NEW, COMMA, DAY = range(1, 10)


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(TOKENS)


def test_pieces_of_texts_by_hand(tokenizer: WordPieceTokenizer) -> None:
    texts = tf.constant(["é日, unwanted", "", " new\u200b  x"])
    pieces = pieces_of_texts(tokenizer, texts)
    wanted = [[UNK, DAY, COMMA, UN, WANT, ED], [], [NEW, UNK]]
    assert pieces.ids.to_list() == wanted
    assert pieces.words.to_list() == [[0, 1, 2, 3, -1, -1], [], [4, 5]]
    assert pieces.starts.numpy().tolist() == [
        [0, 1, 2, 4],
        [-1, -1, -1, -1],
        [1, 7, -1, -1],
    ]
    assert pieces.ends.numpy().tolist() == [
        [1, 2, 3, 12],
        [-1, -1, -1, -1],
        [4, 8, -1, -1],
    ]
    assert pieces.mask.numpy().sum(axis=1).tolist() == [4, 0, 2]


def test_pieces_of_words_by_hand(tokenizer: WordPieceTokenizer) -> None:
    # "new,new" is one word here; a word that the tokenizer drops is [UNK]; an empty
    # string is none, at any position.
    words = tf.constant([["new,new", "unwanted", "\u200b"], ["", "", ""]])
    words = tf.concat([words, [["", "", "new"]]], 0)
    pieces = pieces_of_words(tokenizer, words)
    assert pieces.ids.to_list() == [[NEW, COMMA, NEW, UN, WANT, ED, UNK], [], [NEW]]
    assert pieces.words.to_list() == [[0, -1, -1, 1, -1, -1, 2], [], [3]]
    assert pieces.mask.numpy().tolist() == [
        [True, True, True],
        [False, False, False],
        [False, False, True],
    ]


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("max_length", [3, 4, 7, 10, 64])
def test_every_word_is_read_once_and_with_context(
    tokenizer: WordPieceTokenizer, layout: str, max_length: int
) -> None:
    drawn = random.Random(max_length)
    rows = [drawn.choices(["new", "unwanted", "日"], k=n) for n in (0, 1, 9, 40, 5)]
    words = tf.ragged.constant(rows, tf.string, ragged_rank=1).to_tensor("")
    preprocessor = Preprocessor(tokenizer, max_length=max_length, layout=layout)
    pieces = pieces_of_words(tokenizer, words)
    batch = lay_windows(preprocessor, pieces)
    numbers = batch["words"].numpy()
    assert sorted(numbers[numbers >= 0]) == list(range(55))
    # The token of a word is its first piece.
    flat = [word for row in rows for word in row]
    first = {"new": NEW, "unwanted": UN, "日": DAY}
    found = batch["token_ids"].numpy()[numbers >= 0].tolist()
    assert found == [first[flat[number]] for number in numbers[numbers >= 0]]
    # The way back, and the way there.
    back = values_of_words(
        batch["token_ids"][..., tf.newaxis], batch["words"], pieces.mask
    )
    wanted = [[first[word] for word in row] for row in rows]
    assert tf.boolean_mask(back[..., 0], pieces.mask).numpy().tolist() == sum(
        wanted, []
    )
    targets = tf.ragged.constant(wanted, ragged_rank=1).to_tensor(-1)
    laid = targets_at(batch["words"], pieces.mask, targets).numpy()
    np.testing.assert_array_equal(
        laid, np.where(numbers >= 0, batch["token_ids"].numpy(), -1)
    )


def test_windows_give_each_word_a_quarter_of_context(
    tokenizer: WordPieceTokenizer,
) -> None:
    preprocessor = Preprocessor(tokenizer, max_length=18, layout="padded")
    words = tf.constant([["new"] * 39])
    batch = lay_windows(preprocessor, pieces_of_words(tokenizer, words))
    # Windows of 16 start at 0, 8, 16 and, for the last to be full, at 23.
    wanted = [
        [*range(12), *[-1] * 4],
        [*[-1] * 4, *range(12, 20), *[-1] * 4],
        [*[-1] * 4, *range(20, 27), *[-1] * 5],
        [*[-1] * 4, *range(27, 39)],
    ]
    assert batch["words"].numpy()[:, 1:-1].tolist() == wanted
    assert batch["token_ids"].numpy()[:, [0, -1]].tolist() == [[CLS, SEP]] * 4


def texts_of(pieces: int, drawn: random.Random) -> str:
    letters = ["a", "é", "日", "🎉", " ", ",", "e\u0301", "\u200b", "\u0301"]
    return "".join(drawn.choices(letters, k=pieces))


def test_entities_in_graph_are_those_of_the_metrics(
    tokenizer: WordPieceTokenizer,
) -> None:
    classes = ["O", "B-A", "I-A", "B-B", "I-B", "E-A", "S-B", "A"]
    drawn = random.Random(1)
    texts = [texts_of(drawn.randrange(14), drawn) for _ in range(200)] + [""]
    pieces = pieces_of_texts(tokenizer, tf.constant(texts))
    shape = pieces.mask.shape
    generator = np.random.default_rng(1)
    tags = generator.integers(0, len(classes), shape)
    scores = generator.random(shape, "float32")
    found = find_entities(
        classes, tf.constant(tags), tf.constant(scores), pieces, tf.constant(texts)
    )
    mask, starts, ends = (
        np.asarray(part) for part in (pieces.mask, pieces.starts, pieces.ends)
    )
    total = 0
    for row, text in enumerate(texts):
        names = [classes[tag] for tag in tags[row, mask[row]]]
        wanted = entities_of(names)
        total += len(wanted)
        kinds = found["types"][row].numpy()
        assert [k.decode() for k in kinds if k] == [entity.type for entity in wanted]
        for place, (_, first, last) in enumerate(wanted):
            start, end = (int(found[key][row, place]) for key in ("starts", "ends"))
            assert start == starts[row, first]
            # Accents behind the last letter belong to the word.
            assert text[ends[row, last - 1] : end].strip("\u0301") == ""
            assert not text[end : end + 1] == "\u0301"
            assert found["entities"][row, place].numpy().decode() == text[start:end]
            assert float(found["scores"][row, place]) == pytest.approx(
                scores[row, first:last].mean(), rel=1e-5
            )
        assert (np.asarray(found["starts"][row, len(wanted) :]) == -1).all()
    assert total > 300


def test_texts_without_entities_give_empty_lists(tokenizer: WordPieceTokenizer) -> None:
    texts = tf.constant(["new", ""])
    pieces = pieces_of_texts(tokenizer, texts)
    tags, scores = tf.zeros([2, 1], tf.int64), tf.ones([2, 1])
    found = find_entities(["O", "B-A"], tags, scores, pieces, texts)
    assert {
        key: value.shape.as_list() for key, value in found.items()
    } == dict.fromkeys(("entities", "types", "starts", "ends", "scores"), [2, 0])


def test_broken_utf8_counts_as_python_counts(tokenizer: WordPieceTokenizer) -> None:
    text = b"\xffnew \xe6\x97 new"
    pieces = pieces_of_texts(tokenizer, tf.constant([text]))
    tags = tf.ones_like(pieces.starts)
    found = find_entities(
        ["O", "S-A"], tags, tf.ones(tags.shape), pieces, tf.constant([text])
    )
    decoded = text.decode("utf-8", "replace")
    for name, start, end in zip(
        found["entities"][0].numpy(), found["starts"][0], found["ends"][0], strict=True
    ):
        assert decoded[int(start) : int(end)] == name.decode() == "new"
    assert isinstance(pieces, Pieces)
