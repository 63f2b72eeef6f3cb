"""Variants of the training rows that a teacher answers."""

import functools
from collections import Counter

import numpy as np

from bert_keras.data.table import as_columns
from bert_keras.training.word_variants import similar_words, word_variants

WORDS = [f"{first}{second}" for first in "abcdefgh" for second in "xyz"]
# Of each word the next ten on a half circle are the nearest.
ANGLES = np.linspace(0, np.pi, len(WORDS))
SIMILAR = functools.partial(
    similar_words,
    tokens=("[UNK]", "a", *WORDS, "##ax"),
    embeddings=np.stack([np.zeros(len(WORDS) + 3)] * 2, axis=1)
    + np.pad(np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1), [(2, 1), (0, 0)]),
)


def test_similar_words_are_the_nearest_whole_words() -> None:
    found = SIMILAR({"ax", "hz", "a", "##ax", "other"})
    assert found == {"ax": WORDS[1:11], "hz": WORDS[-11:-1]}


def test_words_are_left_out_or_replaced() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([*WORDS, "Q"], 50)) for _ in range(40)]
    rows = as_columns(text=texts, label=["x"] * 40)
    found = word_variants(rows, ("text",), 3, similar=SIMILAR, seed=1)
    again = word_variants(rows, ("text",), 3, similar=SIMILAR, seed=1)
    assert found == again
    assert len(found) == 120 and list(found.cells) == ["text"]
    assert list(found.lines) == 3 * list(rows.lines)
    lengths = np.array([len(text.split()) for text in found["text"]])
    # A third of a tenth, a fifth or two fifths of the words is left out.
    assert 0.06 < 1 - lengths.mean() / 50 < 0.1
    known = Counter(" ".join(texts).split())
    assert set(Counter(" ".join(found["text"]).split())) <= set(known)


def test_pairs_keep_their_words_and_come_in_both_orders() -> None:
    rows = as_columns(text=["1 2 3 4 5 6"] * 200, text_pair=["7 8 9"] * 200)
    roles = ("text", "text_pair")
    found = word_variants(rows, roles, 1, similar=SIMILAR, seed=1)
    first = [each.startswith(("1", "2")) for each in found["text"]]
    assert 70 < sum(first) < 130
    pairs = [*zip(found["text"], found["text_pair"], strict=True)]
    words = {word for pair in pairs for text in pair for word in text.split()}
    assert words == set("123456789")
    same = sum(set("789").isdisjoint("".join(pair)) for pair in pairs)
    assert 15 < same < 45
    assert all(text for pair in pairs for text in pair)


def test_texts_of_one_word_stay() -> None:
    texts = ["", *"一二三四五六七八九"]
    rows = as_columns(text=texts, label=["x"] * 10)
    found = word_variants(rows, ("text",), 2, similar=SIMILAR, seed=1)
    assert found["text"] == 2 * texts
