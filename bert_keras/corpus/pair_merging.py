"""Pieces of words by merging the most frequent pairs: `merge_pairs`.

Byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909, section 3.2) over counted
words, with WordPiece's marks: a piece inside a word begins with `##`. Every word starts
as characters; then the most frequent pair of neighbours in the corpus becomes one
piece, again and again. The `tokenizers` library trains its WordPiece vocabularies in
the same way. Ties between equally frequent pairs are broken by their characters; there
the order of a hash table breaks them.

All words are stored one after the other in arrays. A piece is stored at the place of
its first character, with links to its neighbours, so a merge is a few array operations
on all places of a pair.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

MARK = "##"
_MOST_CHARACTERS = 64  # of a piece; tf-text takes 256 bytes
_NONE = -1  # between words
_GONE = -2  # inside a piece
_SHIFT = 32  # a pair is one number: first piece << 32 | second piece


def merge_pairs(
    words: Sequence[str],
    counts: Sequence[int],
    *,
    pieces: int,
    min_count: int = 1,
    known: Iterable[str] = (),
) -> list[str]:
    """Return new pieces, all different, in the order in which they were merged.

    Args:
        words: W different words, in any order.
        counts: occurrences of each word in the corpus.
        pieces: most pieces to find.
        min_count: occurrences that a pair needs.
        known: pieces, besides the characters of the words, that are not new.

    Example:
        >>> merge_pairs(["low", "lower", "new"], [5, 2, 6], pieces=3)
        ['##ow', 'low', '##ew']
    """
    if not words:
        return []
    order = sorted(range(len(words)), key=words.__getitem__)
    return _Merger([words[i] for i in order], [counts[i] for i in order], known).merge(
        pieces, min_count
    )


class _Merger:
    """The words as pieces, and the places of each pair of pieces.

    Attributes:
        names: the pieces; a piece's number is its index in this list.
        piece: int32 [N], the number of the piece that begins at each place, or _NONE,
            _GONE.
        before, after: int32 [N], places of the neighbours.
        weight: int64 [N], occurrences of the word at each place.
        counts: pair to its occurrences.
        places: pair to arrays of the places where it began at some time.
    """

    def __init__(
        self, words: Sequence[str], counts: Sequence[int], known: Iterable[str]
    ) -> None:
        self.known = set(known)
        starts = sorted({word[0] for word in words})
        others = sorted({MARK + character for word in words for character in word[1:]})
        self.names = starts + others
        self.numbers = {name: number for number, name in enumerate(self.names)}
        sizes = np.array([len(word) for word in words], np.int64)
        ends = np.cumsum(sizes + 1)  # each word is followed by a separator
        size = int(ends[-1]) + 1
        self.piece = np.full(size, _NONE, np.int32)
        self.piece[1:] = self._characters(words, ends, sizes)
        self.weight = np.zeros(size, np.int64)
        self.weight[1:] = np.repeat(np.array(counts, np.int64), sizes + 1)
        self.before = np.arange(-1, size - 1, dtype=np.int32)
        self.after = np.arange(1, size + 1, dtype=np.int32)
        self.counts: dict[int, int] = {}
        self.places: dict[int, list[Any]] = {}
        self.queue: list[tuple[int, str, str, int]] = []
        self._add(np.arange(size - 1, dtype=np.int32))

    def _characters(self, words: Sequence[str], ends: Any, sizes: Any) -> Any:
        """Return the pieces of all words as characters, int32 [N - 1]."""
        joined = "\n".join((*words, ""))
        codes = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        first = np.zeros(len(codes), bool)
        first[ends - sizes - 1] = True
        table = np.full((2, int(codes.max()) + 1), _NONE, np.int32)
        for number, name in enumerate(self.names):
            inside = name.startswith(MARK) and len(name) > len(MARK)
            table[int(inside), ord(name[-1])] = number
        pieces = table[np.where(first, 0, 1), codes]
        pieces[ends - 1] = _NONE
        return pieces

    def merge(self, pieces: int, min_count: int) -> list[str]:
        """Merge until enough new pieces are found or no pair is frequent enough."""
        found: list[str] = []
        while self.queue and len(found) < pieces:
            least, _, _, pair = heapq.heappop(self.queue)
            count = self.counts.get(pair, 0)
            if count < -least:  # it has become rarer since it was queued
                if count:
                    self._put(pair, count)
                continue
            if count < min_count:
                break
            name = self._name(pair)
            number = self.numbers.setdefault(name, len(self.names))
            if number == len(self.names):
                self.names.append(name)
                if name not in self.known:
                    found.append(name)
            self._merge(pair, number)
        return found

    def _name(self, pair: int) -> str:
        first, second = self.names[pair >> _SHIFT], self.names[pair & 0xFFFFFFFF]
        return first + second.removeprefix(MARK)

    def _merge(self, pair: int, number: int) -> None:
        """Replace all occurrences of a pair by a piece."""
        first, second = pair >> _SHIFT, pair & 0xFFFFFFFF
        places = np.concatenate(self.places.pop(pair))
        del self.counts[pair]
        nexts = self.after[places]
        good = (self.piece[places] == first) & (self.piece[nexts] == second)
        places = places[good]
        if first == second:
            places = _apart(np.sort(places), self.after)
        nexts = self.after[places]
        self._remove(np.concatenate([self.before[places], nexts]), pair)
        ends = self.after[nexts]
        self.piece[places] = number
        self.piece[nexts] = _GONE
        self.after[places] = ends
        self.before[ends] = places
        self._add(np.concatenate([self.before[places], places]))

    def _pairs_at(self, places: Any) -> tuple[Any, Any]:
        """Return the distinct places at which a pair begins, and the pairs.

        Sorted by pair, then by place.
        """
        places = np.sort(places)
        places = places[_changes(places)]
        first = self.piece[places].astype(np.int64)
        second = self.piece[self.after[places]].astype(np.int64)
        good = (first >= 0) & (second >= 0)
        places, pairs = places[good], (first[good] << _SHIFT) | second[good]
        order = np.argsort(pairs, kind="stable")
        return places[order], pairs[order]

    def _grouped(self, places: Any) -> tuple[Any, list[int], list[int], list[int]]:
        """Return places sorted by pair, and each pair with first index and count."""
        places, pairs = self._pairs_at(places)
        if not len(pairs):
            return places, [], [], []
        begins = np.flatnonzero(_changes(pairs))
        counts = np.add.reduceat(self.weight[places], begins)
        return places, pairs[begins].tolist(), begins.tolist(), counts.tolist()

    def _remove(self, places: Any, merged: int) -> None:
        """Subtract the pairs at these places from the counts, before they change."""
        _, pairs, _, counts = self._grouped(places)
        for pair, count in zip(pairs, counts, strict=True):
            if pair != merged:
                self.counts[pair] -= count

    def _add(self, places: Any) -> None:
        """Count the pairs that begin at these places."""
        places, pairs, begins, counts = self._grouped(places)
        ends = [*begins[1:], len(places)]
        for pair, begin, end, count in zip(pairs, begins, ends, counts, strict=False):
            total = self.counts.get(pair, 0) + count
            self.counts[pair] = total
            self.places.setdefault(pair, []).append(places[begin:end])
            self._put(pair, total)

    def _put(self, pair: int, count: int) -> None:
        first, second = self.names[pair >> _SHIFT], self.names[pair & 0xFFFFFFFF]
        if len(first) + len(second) <= _MOST_CHARACTERS:
            heapq.heappush(self.queue, (-count, first, second, pair))


def _changes(values: Any) -> Any:
    """Return bool [N], true for the first value and where a value differs from its
    predecessor."""
    changes = np.empty(len(values), bool)
    changes[:1] = True
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def _apart(places: Any, after: Any) -> Any:
    """Return every second one of adjacent places: `aaa` holds one `aa`."""
    follows = np.concatenate([[False], after[places[:-1]] == places[1:]])
    index = np.arange(len(places))
    begin = np.maximum.accumulate(np.where(follows, 0, index))
    return places[(index - begin) % 2 == 0]
