"""The words of texts, with their offsets and their tokens.

Words are split as in the tokenizer's first step: letters between spaces, a punctuation
mark, or a CJK character (Devlin et al. 2018, google-research/bert `tokenization.py`).
The WordPiece pieces of a word share one attribution.
"""

from __future__ import annotations

import collections
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_keras.text.characters import over_marks_of
from bert_keras.text.tokenizer import WordPieceTokenizer

_JOINERS = "'’‘-‐_@&/."  # join what stands on both sides, as in "don't" and "e-mail"
_JOIN_DIGITS = ",:"  # as in "1,000" and "12:30"
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
        words: words of the texts added so far.
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
            start, end = first + int(start), over_marks_of(text, first + int(end))
            self.words.append(Word(text[start:end], start, end, role))
        return numbers.astype(np.int32)


def whole_words(words: Sequence[Word]) -> list[tuple[str, list[int]]]:
    """Return words as people read them, each with the places of its parts in `words`.

    Punctuation only counts inside a word, as in "don't", "e-mail" or "1,000". The name
    of a word that occurs more than once tells which one it is: "good (2nd)".

    Example:
        >>> whole_words([Word("e", 0, 1, "text"), Word("-", 1, 2, "text"),
        ...              Word("mail", 2, 6, "text"), Word("!", 6, 7, "text")])
        [('e-mail', [0, 1, 2])]
    """
    groups: list[list[int]] = []
    for place, word in enumerate(words):
        if groups and place < len(words) - 1 and _joins(words[place - 1 : place + 2]):
            groups[-1].append(place)
        elif groups and len(groups[-1]) > 1 and _joins(words[place - 2 : place + 1]):
            groups[-1].append(place)
        elif any(not _is_punctuation(letter) for letter in word.text):
            groups.append([place])
    return list(zip(_names(words, groups), groups, strict=True))


def _joins(three: Sequence[Word]) -> bool:
    """Return whether the second of three words is punctuation that joins the others."""
    if len(three) < 3 or len({word.role for word in three}) > 1:
        return False
    before, mark, after = three
    if (before.end, mark.end) != (mark.start, after.start):
        return False
    sides = before.text[-1] + after.text[0]
    return (mark.text in _JOINERS and sides.isalnum()) or (
        mark.text in _JOIN_DIGITS and sides.isdigit()
    )


def _is_punctuation(letter: str) -> bool:
    return unicodedata.category(letter)[0] == "P" or letter in "`´^"


def _names(words: Sequence[Word], groups: Sequence[Sequence[int]]) -> list[str]:
    """Return the text of each group, with its place among equal ones in brackets."""
    texts = ["".join(words[place].text for place in group) for group in groups]
    roles = [words[group[0]].role for group in groups]
    keys = [text.casefold() for text in texts]
    total = collections.Counter(zip(keys, roles, strict=True))
    in_roles = collections.Counter(key for key, _ in total)
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    names = []
    for text, key, role in zip(texts, keys, roles, strict=True):
        seen[key, role] += 1
        which = [_ordinal(seen[key, role])] if total[key, role] > 1 else []
        which += [role.replace("_", " ")] if in_roles[key] > 1 else []
        names.append(f"{text} ({', '.join(which)})" if which else text)
    return names


def _ordinal(number: int) -> str:
    last = 0 if 10 < number % 100 < 20 else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"


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
