"""The words of texts, with their characters, and the tokens that they became.

A word is what the tokenizer's first step finds: letters between spaces, a punctuation
mark, or a CJK character (Devlin et al. 2018, google-research/bert `tokenization.py`).
Its WordPiece pieces share one attribution.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_keras.text.tokenizer import WordPieceTokenizer

NO_WORD = -1  # of `[CLS]`, `[SEP]`, `[MASK]` and padding


class Word(NamedTuple):
    """A word of a text.

    Attributes:
        text: the word as the text has it.
        start, end: its place in the text, in characters of a Python string.
        role: which of the texts it is in, such as `text_pair` or `choice 2`.
    """

    text: str
    start: int
    end: int
    role: str


class Pieces(NamedTuple):
    """The pieces of one text.

    Attributes:
        ids: int32 [P].
        words: int32 [P], the word of each, counted through all texts of an item.
    """

    ids: np.ndarray
    words: np.ndarray


class WordList:
    """The words of the texts of one item, in order.

    Args:
        tokenizer: cuts texts into pieces.

    Attributes:
        words: those of the texts added so far.
        texts: role to text.
    """

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        self.words: list[Word] = []
        self.texts: dict[str, str] = {}
        self._tokenizer = tokenizer
        self._inside = np.array(
            [token.startswith("##") for token in tokenizer.vocabulary]
        )

    def add(self, role: str, text: str) -> Pieces:
        """Add the words of a text and return its pieces."""
        self.texts[role] = text
        return self._add(role, text, 0, len(text))

    def add_spans(
        self, role: str, text: str, spans: Sequence[tuple[int, int]]
    ) -> list[Pieces]:
        """Add the words of some parts of a text and return the pieces of each part."""
        self.texts[role] = text
        return [self._add(role, text, start, end) for start, end in spans]

    def add_words(self, role: str, words: Sequence[str]) -> Pieces:
        """Add words that came as a list; the text has spaces between."""
        self.texts[role] = " ".join(words)
        rows = self._tokenizer(list(words)).to_list()
        ids: list[int] = []
        numbers: list[int] = []
        start = 0
        for word, row in zip(words, rows, strict=True):
            row = row or [self._tokenizer.unk_id]  # as the task reads it
            ids += row
            numbers += [len(self.words)] * len(row)
            self.words.append(Word(word, start, start + len(word), role))
            start += len(word) + 1
        return Pieces(np.array(ids, np.int32), np.array(numbers, np.int32))

    def _add(self, role: str, text: str, first: int, last: int) -> Pieces:
        cells = self._tokenizer.tokenize_with_offsets(
            [text[first:last]], unit="characters"
        )
        ids, starts, ends = (cell.values.numpy() for cell in cells)
        begins = ~self._inside[ids]
        numbers = np.cumsum(begins) - 1 + len(self.words)
        places = np.flatnonzero(begins)
        lasts = np.append(places[1:], len(ids)) - 1 if len(ids) else places
        for start, end in zip(starts[places], ends[lasts], strict=True):
            start, end = first + int(start), _over_marks(text, first + int(end))
            self.words.append(Word(text[start:end], start, end, role))
        return Pieces(ids, numbers.astype(np.int32))


def _over_marks(text: str, end: int) -> int:
    """Return the end of a word with the accents that the tokenizer drops."""
    while end < len(text) and unicodedata.category(text[end]) == "Mn":
        end += 1
    return end


def words_in_row(length: int, *parts: tuple[int, np.ndarray]) -> np.ndarray:
    """Return the word of each token of a row, int32 [T], `NO_WORD` at others.

    Args:
        length: T.
        *parts: column of the first piece of a part, and the words of its pieces.
    """
    row = np.full(length, NO_WORD, np.int32)
    for column, words in parts:
        row[column : column + len(words)] = words
    return row


def sums_by_word(values: np.ndarray, words: np.ndarray, count: int) -> np.ndarray:
    """Return the sum of the values of each word's tokens, float64 [W].

    Args:
        values: float [R, T], of each token.
        words: int32 [R, T], the word of each token.
        count: W.
    """
    real = words >= 0
    return np.bincount(words[real], values[real].astype("float64"), minlength=count)
