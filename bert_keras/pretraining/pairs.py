"""Tokenized documents to pairs of texts, as ranges of their tokens, and to rows.

A pair is two ranges, so a block's pairs take little memory, however many passes; a
batch of them becomes rows at once. NumPy only: the same generator gives the same pairs
on every machine.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.2; the algorithm of
google-research/bert `create_pretraining_data.py`, with three differences: B is never
from the same document (there, after ten draws, it may be); the number of tokens cut at
the front is one binomial draw (there one coin flip per token: the same distribution);
and the numbers themselves come from NumPy. Sentence order: Lan et al. 2019
(arXiv:1909.11942), section 3.1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_keras.errors import DataError
from bert_keras.pretraining.config import PretrainingDataConfig

_SHORTEST = 2  # minimum target length of a short row
_Pair = tuple[int, int, int, int, int]


class Tokens(NamedTuple):
    """Tokenized documents, none of them empty."""

    ids: np.ndarray  # int32 [N], the pieces of all sentences
    sentences: np.ndarray  # int64 [S + 1], where each begins in `ids`, and N
    documents: np.ndarray  # int64 [D + 1], where each begins in the sentences, and S


class Pairs(NamedTuple):
    """M pairs of texts; text B may be empty."""

    first: np.ndarray  # int64 [M, 2], the range of A in the tokens
    second: np.ndarray  # int64 [M, 2], the range of B
    labels: np.ndarray  # int32 [M]: 0 if B follows A, 1 if it is random or swapped

    def take(self, rows: np.ndarray | slice) -> Pairs:
        """Return some of the pairs, by index or mask."""
        return Pairs(*(column[rows] for column in self))


class Rows(NamedTuple):
    """Joined pairs, padded, int32 [M, T]: `[CLS] A [SEP]` and, if any, `B [SEP]`."""

    token_ids: np.ndarray
    segment_ids: np.ndarray  # 1 for B and its `[SEP]`, else 0
    padding_mask: np.ndarray  # 1 for real tokens


def tokens_of(ids: np.ndarray, sizes: np.ndarray, counts: Sequence[int]) -> Tokens:
    """Return documents without empty sentences and empty documents.

    `ids` int32 [N] are the pieces of all sentences, `sizes` int64 the number of pieces
    of each sentence, and `counts` the number of sentences of each document.
    """
    owner = np.repeat(np.arange(len(counts)), counts)[sizes > 0]
    full = np.bincount(owner, minlength=len(counts))
    return Tokens(ids, _edges(sizes[sizes > 0]), _edges(full[full > 0]))


def _edges(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype("int64")


def make_pairs(
    tokens: Tokens,
    config: PretrainingDataConfig,
    random: np.random.Generator,
    inside: np.ndarray,
) -> Pairs:
    """Return the pairs of all documents for one pass over the text.

    Sentences are collected up to the document's target length, then split into A and B
    at a random sentence. In half of the cases, and if there is only one sentence, B is
    a part of another document, and the sentences that would have been B are used next.
    Pairs that are too long are cut at both ends of the longer text.

    For sentence order a pair needs two sentences (documents of one sentence are
    skipped), and a single last sentence joins the pair before it. Without pairs every
    token of a document is in one row, cut between words.

    `random` is the source of all draws; `inside` bool [N] are the tokens that continue
    the word before.

    Raises:
        DataError: next sentences are requested, and there is only one document.
    """
    documents = tokens.documents.tolist()
    if config.next_sentence == "next" and len(documents) == 2:
        raise DataError(
            "`next_sentence` next needs two documents with text in each block; "
            "received one: raise `block_characters`, or set order or none"
        )
    maker = _Maker(tokens.sentences.tolist(), documents, random, inside)
    make = getattr(maker, config.next_sentence)
    most = config.text_tokens
    found: list[_Pair] = []
    for document in range(len(documents) - 1):
        target = most
        if random.random() < config.short_sequence_probability:
            target = _SHORTEST + maker.below(most - _SHORTEST + 1)
        found.extend(make(document, target))
    table = np.array(found, "int64").reshape(-1, 5)
    return _truncated(table, most, random)


class _Maker:
    """Makes pairs, document by document; edges are the starts of the sentences."""

    def __init__(
        self,
        edges: list[int],
        documents: list[int],
        random: np.random.Generator,
        inside: np.ndarray,
    ) -> None:
        self.edges = edges
        self.documents = documents
        self.random = random.random
        self.inside = inside

    def below(self, count: int) -> int:
        """Return a whole number from 0 to below `count`."""
        return int(self.random() * count)

    def _filled(self, start: int, size: int, end: int) -> int:
        """Return the sentence before which `size` tokens are reached, at most `end`."""
        goal = self.edges[start] + size
        return bisect_left(self.edges, goal, min(start + 1, end), end)

    def _pair(self, start: int, middle: int, b: int, end: int, label: int) -> _Pair:
        edges = self.edges
        return edges[start], edges[middle], edges[b], edges[end], label

    def next(self, document: int, target: int) -> Iterator[_Pair]:
        start, last = self.documents[document : document + 2]
        while start < last:
            end = self._filled(start, target, last)
            alone = end - start == 1
            middle = end if alone else start + 1 + self.below(end - start - 1)
            if not alone and self.random() >= 0.5:
                yield self._pair(start, middle, middle, end, 0)
                start = end
                continue
            other = self.below(len(self.documents) - 2)
            other += other >= document
            first, stop = self.documents[other : other + 2]
            b = first + self.below(stop - first)
            wanted = max(target - (self.edges[middle] - self.edges[start]), 1)
            yield self._pair(start, middle, b, self._filled(b, wanted, stop), 1)
            start = middle

    def order(self, document: int, target: int) -> Iterator[_Pair]:
        first, last = self.documents[document : document + 2]
        start = first
        while start < last and last - first > 1:
            start = min(start, last - 2)
            end = max(self._filled(start, target, last), start + 2)
            middle = start + 1 + self.below(end - start - 1)
            if self.random() < 0.5:
                yield self._pair(start, middle, middle, end, 0)
            else:
                yield self._pair(middle, end, start, middle, 1)
            start = end

    def none(self, document: int, target: int) -> Iterator[_Pair]:
        first, last = self.documents[document : document + 2]
        start, last = self.edges[first], self.edges[last]
        while start < last:
            end = min(start + target, last)
            if end < last and not self.inside[start + 1 : end + 1].all():
                while self.inside[end]:
                    end -= 1
            yield start, end, end, end, 0
            start = end


def _truncated(
    table: np.ndarray, max_tokens: int, random: np.random.Generator
) -> Pairs:
    """Truncate pairs, int64 [M, 5], to at most `max_tokens` tokens.

    Equal to removing one token at a time from the longer text, from B when equal.
    """
    first, second = table[:, :2].copy(), table[:, 2:4].copy()
    size_a, size_b = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
    half = (max_tokens + 1) // 2
    keep_a = np.minimum(size_a, np.maximum(max_tokens - size_b, half))
    keep_b = np.minimum(size_b, max_tokens - keep_a)
    for text, size, kept in ((first, size_a, keep_a), (second, size_b, keep_b)):
        text[:, 0] += random.binomial(size - kept, 0.5)
        text[:, 1] = text[:, 0] + kept
    return Pairs(first, second, table[:, 4].astype("int32"))


def make_rows(
    tokens: Tokens,
    pairs: Pairs,
    *,
    max_length: int,
    cls_id: int,
    sep_id: int,
    pad_id: int,
) -> Rows:
    """Return pairs as rows of `max_length` tokens; an empty B has no `[SEP]`."""
    size_a = np.diff(pairs.first) + 1  # [CLS] included; int64 [M, 1]
    size_b = np.diff(pairs.second)
    column = np.arange(max_length)
    has_b = size_b > 0
    end = size_a + 1 + size_b + has_b
    in_a = (column > 0) & (column < size_a)
    in_b = (column > size_a) & (column <= size_a + size_b)
    place = np.where(in_b, pairs.second[:, :1] - size_a, pairs.first[:, :1]) + column
    token_ids = np.full(in_a.shape, sep_id, "int32")
    text = in_a | in_b
    token_ids[text] = tokens.ids[place[text] - 1]
    token_ids[:, 0] = cls_id
    real = column < end
    token_ids[~real] = pad_id
    segments = real & (column > size_a)
    return Rows(token_ids, segments.astype("int32"), real.astype("int32"))
