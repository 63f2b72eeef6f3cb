"""Equal texts: computed once, and ranked with equal scores, in the order of their rows.

A vector depends, in its last digits, on the texts that are computed beside it. Equal
texts in different rows would get scores that differ by rounding, and their order would
depend on the batch size.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_keras.scoring.bm25 import fused

Answers = dict[str, np.ndarray]


class EqualTexts:
    """Which of N texts are equal; a text may have several parts, as a pair has two.

    Args:
        *parts: the N texts, or N first parts, N second parts … of them: strings,
            bytes, numbers or lists of strings.

    Attributes:
        places: the number of each text among the different ones, int64 [N]; these are
            numbered in the order in which they appear.
        first: the first row of each different text, int64 [D].

    Example:
        >>> found = EqualTexts(["b", "a", "b"])
        >>> found.places.tolist(), found.first.tolist()
        ([0, 1, 0], [0, 1])
    """

    def __init__(self, *parts: Sequence[Any]) -> None:
        columns = [map(_key, part) for part in parts]
        keys = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
        number: dict[Any, int] = {}
        first: list[int] = []
        places: list[int] = []
        for row, key in enumerate(keys):
            place = number.setdefault(key, len(first))
            if place == len(first):
                first.append(row)
            places.append(place)
        self.places, self.first = np.array(places, np.int64), np.array(first, np.int64)

    def __bool__(self) -> bool:
        """Return whether some texts are equal."""
        return len(self.first) < len(self.places)

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """The number of rows of each different text, int64 [D]."""
        return np.bincount(self.places, minlength=len(self.first))

    def answered(self, parts: Iterable[Answers]) -> Iterator[Answers]:
        """Yield the answers to all texts, in their order.

        Args:
            parts: the answers to the different texts, arrays [B, …], in their order.
        """
        last = np.zeros(len(self.first), np.int64)
        np.maximum.at(last, self.places, np.arange(len(self.places)))
        held = np.zeros(0, np.int64)  # different texts that recur in later rows
        answers: Answers = {}
        done = start = 0
        for part in parts:
            end = start + len(next(iter(part.values())))
            # Until the first row of the next part's first text.
            limit = self.first[end] if end < len(self.first) else len(self.places)
            answers = joined([answers, part]) if len(held) else part
            held = np.concatenate([held, np.arange(start, end)])
            rows = np.searchsorted(held, self.places[done:limit])
            yield {key: values[rows] for key, values in answers.items()}
            recurs = last[held] >= limit
            answers = {key: values[recurs] for key, values in answers.items()}
            held, done, start = held[recurs], int(limit), end

    def ranked(
        self, rows: np.ndarray, scores: np.ndarray, top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rankings in which equal texts have the same score, [Q, top] each.

        All rows with a text that is found are; ties go to the earlier row.

        Args:
            rows: int [Q, K], best first; -1 where there are no more.
            scores: float [Q, K].
            top: number of rows to return.
        """
        if not self:
            return rows[:, :top], scores[:, :top]
        found = np.full((len(rows), top), -1, np.int64)
        values = np.zeros((len(rows), top), scores.dtype)
        for query, (row, score) in enumerate(zip(rows, scores, strict=True)):
            # Of a text's scores the first one is the best.
            near = self.places[row[row >= 0]]
            near, at = np.unique(near, return_index=True)
            members = [self._rows(place) for place in near]
            each = np.repeat(score[row >= 0][at], [*map(len, members)])
            every = np.concatenate([np.zeros(0, np.int64), *members])
            order = np.lexsort((every, -each))[:top]
            found[query, : len(order)] = every[order]
            values[query, : len(order)] = each[order]
        return found, values

    def fused(
        self,
        rankings: Sequence[Sequence[int]],
        top: int,
        *,
        weights: Sequence[float] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and fused scores of several rankings, [top] each.

        Equal texts count as one in each ranking, so that all have the same score;
        rows are -1 where there are no more. The arguments are as in `bm25.fused`.
        """
        if self:
            places = [self.places[list(each)].tolist() for each in rankings]
            rankings = [self.first[[*dict.fromkeys(each)]].tolist() for each in places]
        found = fused(rankings, top, weights=weights)
        rows = np.full((1, top), -1, np.int64)
        scores = np.zeros((1, top))
        for place, (row, score) in enumerate(found):
            rows[0, place], scores[0, place] = row, score
        (row,), (score,) = self.ranked(rows, scores, top)
        return row, score

    def _rows(self, place: int) -> np.ndarray:
        """Return the rows of one of the different texts, int64."""
        order, ends = self._by_text
        return order[ends[place] - self.counts[place] : ends[place]]

    @functools.cached_property
    def _by_text(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows, those of a text together, and the end of each text's."""
        return np.argsort(self.places, kind="stable"), np.cumsum(self.counts)


def _key(text: Any) -> Any:
    """Return what stands for a text, or a list of texts, in a dict."""
    return tuple(map(_key, text)) if isinstance(text, list | tuple) else text


def joined(parts: Sequence[Answers]) -> Answers:
    """Return the answers of several batches as one.

    Lists of different lengths, such as the names found in each text, are padded:
    strings with empty ones, integers with -1, others with 0.
    """
    return {key: _concatenate([part[key] for part in parts]) for key in parts[0]}


def _concatenate(arrays: list[np.ndarray]) -> np.ndarray:
    first = arrays[0]
    if len({array.shape[1:] for array in arrays}) == 1:
        return np.concatenate(arrays)
    shape = np.max([array.shape[1:] for array in arrays], axis=0)
    fill = b"" if first.dtype == object else -1 if first.dtype.kind == "i" else 0
    whole = np.full((sum(map(len, arrays)), *shape), fill, first.dtype)
    start = 0
    for array in arrays:
        end = start + len(array)
        whole[(slice(start, end), *map(slice, array.shape[1:]))] = array
        start = end
    return whole
