"""The words that are counted: those of the graph, for every kind of character."""

from __future__ import annotations

import random
from typing import Any

import pytest
import tensorflow as tf
from conftest import thorough

from bert_keras.corpus.word_counts import count_words
from bert_keras.text import characters
from bert_keras.text.characters import as_set
from bert_keras.text.normalization import WordSplitter

UNCASED = {"lowercase": True, "strip_accents": True, "tokenize_chinese_chars": True}
CASED = dict.fromkeys(UNCASED, False)
SPECIAL = (characters.DELETED, characters.SPACES, characters.PUNCTUATION)
KEPT = sorted(as_set(characters.KEPT_MARKS))
MARKS = sorted(as_set(characters.MARKS)) + KEPT


def texts_of(codes: list[int]) -> list[str]:
    """Return texts with each character inside a word, and before and among marks."""
    draw = random.Random(0)
    inside = [f"a{chr(code)}b" for code in codes]
    before = [f"{chr(code)}{chr(draw.choice(KEPT))}x" for code in codes]
    among = ["".join(map(chr, draw.choices([*MARKS, c], k=6))) for c in codes]
    return [*inside, *before, *among, "日" * 200 + "é" * 101]


@pytest.mark.parametrize(
    ("settings", "step"),
    [(UNCASED, 97), (CASED, 997), *(thorough(each, 1) for each in (UNCASED, CASED))],
)
def test_the_words_are_those_of_the_graph(settings: dict[str, Any], step: int) -> None:
    special = set().union(*map(as_set, SPECIAL)) - as_set(((0xE000, 0x10FFFF),))
    codes = sorted({*special, *range(0x600), *MARKS, *range(0, 0x110000, step)})
    texts = texts_of([code for code in codes if not 0xD800 <= code < 0xE000])
    found = WordSplitter(max_word_characters=1000, **settings)(tf.constant(texts))
    rows = tf.RaggedTensor.from_row_splits(found.strings, found.row_splits).to_list()
    splitter = count_words([], **settings).splitter
    for text, words in zip(texts, rows, strict=True):
        assert splitter(text) == [word.decode() for word in words], ascii(text)
