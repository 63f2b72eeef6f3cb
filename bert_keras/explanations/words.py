"""The words of texts, with their offsets and their tokens.

Words are those of the tokenizer's first step: letters between spaces, a punctuation
mark, or a CJK character (Devlin et al. 2018, google-research/bert `tokenization.py`).
The WordPiece pieces of a word share one attribution.
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
        text: the word, as in the text.
        start, end: its offsets in the text, in characters of a Python string.
        role: the role of the text, such as `text_pair` or `choice 2`.
    """

    text: str
    start: int
    end: int
    role: str


class WordList:
    """The words of the texts of one item, in order.

    Methods that add words return the word of each of their P pieces, int32 [P],
    numbered across all texts of the item.

    Args:
        tokenizer: splits texts into pieces.

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

    def add(self, role: str, text: str) -> np.ndarray:
        """Add the words of a text."""
        return self.add_spans(role, text, [(0, len(text))])[0]

    def add_spans(
        self, role: str, text: str, spans: Sequence[tuple[int, int]]
    ) -> list[np.ndarray]:
        """Add the words of some parts of a text; return an array for each part."""
        self.texts[role] = text
        return [self._add(role, text, start, end) for start, end in spans]

    def add_words(self, role: str, words: Sequence[str]) -> np.ndarray:
        """Add the words of a list; the text is these, separated by spaces."""
        self.texts[role] = " ".join(words)
        counts = self._tokenizer(list(words)).row_lengths().numpy()
        counts = np.maximum(counts, 1)  # the task reads a word without pieces as [UNK]
        first = len(self.words)
        start = 0
        for word in words:
            self.words.append(Word(word, start, start + len(word), role))
            start += len(word) + 1
        return np.arange(first, len(self.words), dtype=np.int32).repeat(counts)

    def _add(self, role: str, text: str, first: int, last: int) -> np.ndarray:
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
        return numbers.astype(np.int32)


def _over_marks(text: str, end: int) -> int:
    """Extend the end of a word over the accents that the tokenizer drops."""
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
