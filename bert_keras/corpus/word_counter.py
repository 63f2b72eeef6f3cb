"""Words of texts and how often each was met, in bounded memory: `WordCounter`.

Words are those of `WordPieceTokenizer`, by its own `WordSplitter`. Since white space
always parts words, a text is cut there first and the strings are counted: in most
languages few strings make up most of a text. Those of plain ASCII are letters, digits
and single marks, as in the tokenizer; all others go through the splitter.

Rare words are forgotten when there are too many, as in lossy counting (Manku & Motwani
2002, "Approximate frequency counts over data streams", section 4.2): a count is then
too small by at most `WordCounts.missed`.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.corpus.counts_file import Kept, Seen
from bert_keras.errors import ConfigError
from bert_keras.text.normalization import WordSplitter
from bert_keras.text.ragged import segment_ids

_TEXT_BYTES = 4 << 20  # that are cut together
_STRINGS = 1 << 19  # distinct strings, and ...
_STRING_BYTES = 32 << 20  # ... their bytes, that wait for the splitter at most
_BATCH_BYTES = 1 << 19  # that go through the splitter together
_PLAIN = re.compile(rb"[!-~]+")
_PLAIN_WORD = re.compile(rb"[0-9A-Za-z]+|[!-~]")


@dataclasses.dataclass(frozen=True)
class WordCounts:
    """The words of a corpus.

    Args:
        counts: word to how often it was met, most frequent first, equals in the order
            of their code points.
        words: of the corpus, all together.
        characters: of the words, all together.
        texts: how many were read.
        too_long: words of more than `max_word_characters`, which are not in `counts`;
            the tokenizer makes them `[UNK]`.
        forgotten: words (distinct ones, but some twice if they came again) that were
            dropped for being rare, to keep at most `max_words`.
        missed: the most that any count can be too small by.
        splitter: what split the texts into words.
    """

    counts: Mapping[str, int]
    words: int
    characters: int
    texts: int
    too_long: int
    forgotten: int
    missed: int
    splitter: WordSplitter


class WordCounter:
    """Strings that wait for the splitter, and the words of those that went through."""

    def __init__(
        self, splitter: WordSplitter, lowercase: bool, most: int, max_words: int
    ) -> None:
        self._splitter = splitter
        self._split = _split_function(splitter)
        self._lowercase = lowercase
        self._most_characters = most
        self._max_words = max_words
        self._texts: list[bytes] = []
        self._bytes = self._count = 0
        self._strings: Counter[bytes] = Counter()
        self._words: dict[bytes, int] = {}
        self._too_long = self._forgotten = self._missed = 0

    def add(self, text: str) -> None:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise ConfigError(f"`texts` must hold strings; received a {kind}")
        # A lone surrogate has no UTF-8; the tokenizer drops its bytes, too.
        data = text.encode("utf-8", "ignore")
        self._count += 1
        self._texts.append(data)
        self._bytes += len(data)
        if self._bytes >= _TEXT_BYTES:
            self._cut()

    def _cut(self) -> None:
        # Of what `bytes.split` takes for space, these two are dropped by the tokenizer.
        data = b" ".join(self._texts).translate(None, b"\x0b\x0c")
        # Of ASCII alone; the splitter does the rest.
        self._strings.update((data.lower() if self._lowercase else data).split())
        self._texts, self._bytes = [], 0
        many = len(self._strings) >= _STRINGS
        if many or sum(map(len, self._strings)) >= _STRING_BYTES:
            self._count_words()

    def count(self) -> None:
        """Count all that waits."""
        self._cut()
        self._count_words()

    def kept(self, seen: Seen, *, whole: bool) -> Kept:
        """Return what was counted so far, for `restore`; nothing waits."""
        return Kept(
            documents=seen.documents,
            blake2b=seen.blake2b,
            whole=whole,
            texts=self._count,
            too_long=self._too_long,
            forgotten=self._forgotten,
            missed=self._missed,
            words=self._words,
        )

    def restore(self, kept: Kept) -> None:
        """Go on where an earlier run has been."""
        self._count, self._too_long = kept.texts, kept.too_long
        self._forgotten, self._missed = kept.forgotten, kept.missed
        self._words = dict(kept.words)

    def _count_words(self) -> None:
        """Add up the words of the strings that wait."""
        batch: list[bytes] = []
        size = 0
        for string, count in self._strings.items():
            if string.isalnum():  # of bytes: ASCII
                self._add_word(string, count)
            elif _PLAIN.fullmatch(string):
                for word in _PLAIN_WORD.findall(string):
                    self._add_word(word, count)
            else:
                batch.append(string)
                size += len(string)
                if size >= _BATCH_BYTES:
                    self._count_batch(batch)
                    batch, size = [], 0
        self._count_batch(batch)
        self._strings = Counter()
        self._forget(2 * self._max_words)

    def _add_word(self, word: bytes, count: int) -> None:
        if len(word) > self._most_characters:
            self._too_long += count
        else:
            self._words[word] = self._words.get(word, 0) + count

    def _count_batch(self, batch: list[bytes]) -> None:
        if not batch:
            return
        times = np.array([self._strings[string] for string in batch], np.int64)
        with tf.device("CPU:0"):  # where strings are
            parts = self._split(tf.constant(batch), tf.constant(times))
        words, counts, too_long = parts
        known = self._words
        for word, count in zip(
            words.numpy().tolist(), counts.numpy().tolist(), strict=True
        ):
            known[word] = known.get(word, 0) + count
        self._too_long += int(too_long)

    def _forget(self, most: int) -> None:
        """Drop the rarest words if there are more than `most`, to at most max_words."""
        if len(self._words) <= most:
            return
        counts = np.fromiter(self._words.values(), np.int64, len(self._words))
        # All of one count go or stay, so that no order decides.
        least = int(np.partition(counts, -self._max_words - 1)[-self._max_words - 1])
        kept = {word: count for word, count in self._words.items() if count > least}
        self._forgotten += len(self._words) - len(kept)
        self._missed += least
        self._words = kept

    def result(self) -> WordCounts:
        self.count()
        total = sum(self._words.values())
        self._forget(self._max_words)
        # UTF-8 has the order of the code points.
        order = sorted(self._words.items(), key=lambda item: (-item[1], item[0]))
        counts = {word.decode("utf-8"): count for word, count in order}
        return WordCounts(
            counts=counts,
            words=total + self._too_long,
            characters=sum(len(word) * count for word, count in counts.items()),
            texts=self._count,
            too_long=self._too_long,
            forgotten=self._forgotten,
            missed=self._missed,
            splitter=self._splitter,
        )


@functools.lru_cache(maxsize=4)  # its tables and graph take a second
def splitter_of(lowercase: bool, accents: bool, chinese: bool, most: int) -> Any:
    return WordSplitter(
        lowercase=lowercase,
        strip_accents=accents,
        tokenize_chinese_chars=chinese,
        max_word_characters=most,
    )


@functools.lru_cache(maxsize=4)
def _split_function(splitter: WordSplitter) -> Callable:
    """Return a compiled function: strings [S], times [S] to words, counts, too long."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string),
            tf.TensorSpec([None], tf.int64),
        ]
    )
    def split(strings, times):  # type: ignore[no-untyped-def]
        words = splitter(strings)
        times = tf.gather(times, segment_ids(words.row_splits))
        # The splitter puts a private character for each one of a word that is too long.
        too_long = tf.strings.regex_full_match(words.strings, "\uf8ff.*")
        kept = tf.boolean_mask(words.strings, ~too_long)
        unique, index = tf.unique(kept)
        counts = tf.math.unsorted_segment_sum(
            tf.boolean_mask(times, ~too_long), index, tf.size(unique)
        )
        return unique, counts, tf.reduce_sum(tf.where(too_long, times, 0))

    return split
