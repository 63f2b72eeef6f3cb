"""Ids of a few short texts without TensorFlow, whose string ops take longer than the
model in an engine: `PlainTokenizer`.

Source: Devlin et al. 2018 (arXiv:1810.04805), figure 2; Wu et al. 2016
(arXiv:1609.08144), section 4.1. Ids and batches are equal to those of `Preprocessor`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_keras.text.plain_splitter import PlainSplitter
from bert_keras.text.preprocessor import Preprocessor

_SURROGATE = re.compile("[\ud800-\udfff]")  # which no UTF-8 holds
_KNOWN_WORDS = 20_000  # whose ids are kept


class PlainTokenizer:
    """Turn texts into a padded batch, as `Preprocessor` with one text per row does.

    Args:
        preprocessor: gives the vocabulary and the maximum length. Its tokenizer splits
            as BERT does, see `covers`.

    Example:
        >>> plain = PlainTokenizer(preprocessor)
        >>> plain([["free cash", "hi"]])["token_ids"]
        array([[ 2, 10, 11,  3],
               [ 2, 12,  3,  0]], dtype=int32)
    """

    def __init__(self, preprocessor: Preprocessor) -> None:
        tokenizer = preprocessor.tokenizer
        self._split = PlainSplitter(
            lowercase=tokenizer.lowercase,
            strip_accents=tokenizer.strip_accents,
            tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
        )
        self._id_of = tokenizer.token_to_id
        self._longest_word = tokenizer.max_word_characters
        self._max_length = preprocessor.max_length
        self._special = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
        self._unknown = (tokenizer.unk_id,)
        self._ids_of_word = functools.lru_cache(_KNOWN_WORDS)(self._pieces)

    @staticmethod
    def covers(preprocessor: Preprocessor) -> bool:
        """Return whether it reads texts as a preprocessor does: as BERT, without added
        tokens, in rows that are as long as the longest.
        """
        tokenizer = preprocessor.tokenizer
        is_plain = tokenizer.splits_as_bert and not tokenizer.finds_added_tokens
        return is_plain and preprocessor.length_multiple == 1

    def __call__(self, texts: Sequence[Sequence[str]]) -> dict[str, np.ndarray] | None:
        """Return `token_ids`, `segment_ids` and `padding_mask`, int32 [B, T].

        Args:
            texts: B texts, or the first and the second ones of B pairs.

        Returns:
            `None` if one would be truncated.
        """
        cls, sep, pad = self._special
        rows = []
        for row in zip(*texts, strict=True):
            parts = [[*self.ids(text), sep] for text in row]
            parts[0].insert(0, cls)
            rows.append(parts)
        sizes = [sum(map(len, parts)) for parts in rows]
        most = max(sizes)
        if most > self._max_length:
            return None
        token_ids, segments, mask = [], [], []
        for parts, size in zip(rows, sizes, strict=True):
            rest = most - size
            token_ids.append([*itertools.chain(*parts), *[pad] * rest])
            first = len(parts[0])
            segments.append([0] * first + [1] * (size - first) + [0] * rest)
            mask.append([1] * size + [0] * rest)
        found = {"token_ids": token_ids, "segment_ids": segments, "padding_mask": mask}
        return {name: np.array(lists, np.int32) for name, lists in found.items()}

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        found: list[int] = []
        for word in self._split(text):
            fits = len(word) <= self._longest_word
            found += self._ids_of_word(word) if fits else self._unknown
        return found

    def _pieces(self, word: str) -> tuple[int, ...]:
        """Return the longest pieces from left to right; `[UNK]` if one is unknown."""
        found: list[int] = []
        start, size = 0, len(word)
        while start < size:
            mark, end = "##" if start else "", size
            while (number := self._id_of(mark + word[start:end])) is None:
                end -= 1
                if end == start:
                    return self._unknown
            found.append(number)
            start = end
        return tuple(found)


def are_few(texts: Sequence[Sequence[Any]], most: int) -> bool:
    """Return whether texts are strings of at most `most` characters in all."""
    found = [text for part in texts for text in part]
    if not all(isinstance(text, str) for text in found):
        return False
    whole = "".join(found)
    return len(whole) <= most and (whole.isascii() or not _SURROGATE.search(whole))
