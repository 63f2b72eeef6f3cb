"""Vectors of tokens, several for each text, and the nearest texts by MaxSim.

Sources: Khattab and Zaharia 2020 (arXiv:2004.12832), section 3; Santhanam et al. 2021
(arXiv:2112.01488), section 3.3, for vectors of a few bits, here int8.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_keras.retrieval.token_centroids import TokenCentroids
from bert_keras.scoring.similarity import kept_vectors, ragged_maxsim

_AT_ONCE = 1 << 22  # products of tokens computed at once
_STEPS = 127  # of int8, for numbers from 0 to 1
_SAME = 1e-2  # vectors of the same text differ by less, whatever the precision
_FORMAT = 5  # of the file
# Candidates that centroids find: at least so many, and so many for each answer.
_LEAST_CANDIDATES, _CANDIDATES_EACH = 1000, 20


@dataclasses.dataclass(frozen=True, eq=False)
class TokenVectors:
    """The vectors of the tokens of N texts, M in all, see `VectorStore`.

    Args:
        values: float32 [M, D], or int8, the numbers times 127; these are at most 1.
        ends: the end of each text in `values`, int64 [N].
        centroids: of the vectors, which find candidates for `near`.
    """

    values: np.ndarray
    ends: np.ndarray
    centroids: TokenCentroids | None = None

    kind: ClassVar[str] = "tokens"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int8")
    formats: ClassVar[tuple[int, ...]] = (_FORMAT,)

    @classmethod
    def of_batches(
        cls,
        batches: Iterable[np.ndarray],
        width: int,
        dtype: str = "float32",
        *,
        rescored: bool = True,
    ) -> TokenVectors:
        """Return vectors given in parts, float32 [B, T, D]; those that are 0 are none.

        int8 needs numbers of at most 1, as vectors of length 1 have.
        """
        values = [np.zeros((0, width), np.int8 if dtype == "int8" else np.float32)]
        counts = [np.zeros(0, np.int64)]
        for part in batches:
            found = part[part.any(axis=-1)]
            if dtype == "int8":
                found = np.rint(np.clip(found, -1, 1) * _STEPS).astype(np.int8)
            values.append(found)
            counts.append(part.any(axis=-1).sum(axis=1))
        ends = np.cumsum(np.concatenate(counts)).astype(np.int64)
        return cls(np.concatenate(values), ends)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def width(self) -> int:
        """D."""
        return int(self.values.shape[1])

    @property
    def dtype(self) -> str:
        """`float32` or `int8`."""
        return "int8" if self.values.dtype == np.int8 else "float32"

    @property
    def step(self) -> float | None:
        """What a step of int8 is worth; `None` for float32."""
        return 1 / _STEPS if self.dtype == "int8" else None

    @property
    def starts(self) -> np.ndarray:
        """The start of each text in `values`, int64 [N]."""
        return np.append(0, self.ends[:-1])[: len(self)]

    @property
    def counts(self) -> np.ndarray:
        """The number of vectors of each text, int64 [N]."""
        return self.ends - self.starts

    def of_text(self, row: int) -> np.ndarray:
        """Return the vectors of a text, float32 [T, D]."""
        return self._floats(slice(self.starts[row], self.ends[row]))

    def _floats(self, part: slice) -> np.ndarray:
        values = self.values[part]
        is_int8 = values.dtype == np.int8
        return values.astype(np.float32) / _STEPS if is_int8 else values

    def numbers(self, rows: Any) -> np.ndarray:
        """Return vectors of some texts, float32 [..., T, D], 0 after their last one."""
        found = [self.of_text(row) for row in np.arange(len(self))[rows]]
        longest = max(map(len, found), default=0)
        padded = np.zeros((len(found), longest, self.width), np.float32)
        for row, each in zip(padded, found, strict=True):
            row[: len(each)] = each
        return padded

    def take(self, rows: Any) -> TokenVectors:
        """Return the vectors of some texts, without centroids."""
        rows = np.arange(len(self))[rows]
        starts, counts = self.starts[rows], self.counts[rows]
        ends = np.cumsum(counts)
        # The place of each vector that is taken in `values`.
        chosen = np.repeat(starts - ends + counts, counts) + np.arange(counts.sum())
        return TokenVectors(self.values[chosen], ends)

    def compared(self) -> TokenVectors:
        """Return the vectors as `nearest` takes them."""
        return self

    def asked(self, queries: np.ndarray) -> np.ndarray:
        """Return vectors of queries, float [Q, T, D], as `nearest` takes them."""
        return queries

    def variants(self, widths: Sequence[int]) -> Iterator[tuple[str, TokenVectors]]:
        """Yield float32 vectors, and the same in int8; others as they are."""
        of_int8 = f"{self.kind} int8"
        yield (self.kind if self.dtype == "float32" else of_int8), self
        if self.dtype == "float32" and np.abs(self.values).max(initial=0) <= 1:
            packed = np.rint(self.values * _STEPS).astype(np.int8)
            yield of_int8, dataclasses.replace(self, values=packed)

    def nearest(
        self, queries: np.ndarray, top: int, *, rescore: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and MaxSim [Q, top] of all texts; ties go to the earlier row.

        Rows are -1 after the last text that has a vector.

        Args:
            queries: float32 [Q, T, D]; vectors that are 0 do not count.
            top: at most N.
            rescore: without effect: all texts are compared.
        """
        found = np.full((len(queries), len(self)), -np.inf, np.float32)
        there = np.flatnonzero(self.ends > self.starts)
        asked = [kept_vectors(query) for query in queries]
        longest = max(map(len, asked), default=0)
        for rows in self._parts(there, max(_AT_ONCE // max(longest, 1), 1)):
            first, last = self.starts[rows[0]], self.ends[rows[-1]]
            values = self._floats(slice(first, last))
            for scores, query in zip(found, asked, strict=True):
                scores[rows] = ragged_maxsim(query, values, self.starts[rows] - first)
        order = np.argsort(-found, axis=1, kind="stable")[:, :top]
        scores = np.take_along_axis(found, order, axis=1)
        is_there = np.isfinite(scores)
        return np.where(is_there, order, -1), np.where(is_there, scores, 0)

    def with_centroids(
        self, *, seen: Callable[[int], object] = lambda count: None
    ) -> TokenVectors:
        """Return the vectors with centroids; `seen` is as in `TokenCentroids.of`."""
        if self.centroids is not None or not len(self.values):
            return self
        found = TokenCentroids.of(self._floats, self.ends, seen=seen)
        return dataclasses.replace(self, centroids=found)

    def near(self, queries: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and MaxSim [Q, top], as `nearest` does, of candidates alone.

        The centroids find them, and may miss some of the nearest.
        """
        if self.centroids is None:
            return self.nearest(queries, top)
        most = max(_LEAST_CANDIDATES, _CANDIDATES_EACH * top)
        rows, scores = (
            np.zeros((len(queries), top), t) for t in (np.int64, np.float32)
        )
        rows -= 1
        for place, query in enumerate(map(kept_vectors, queries)):
            candidates = self.centroids.candidates(query, most)
            (order,), (found,) = self.take(candidates).nearest(query[None], top)
            there = order >= 0
            count = np.count_nonzero(there)
            rows[place, :count] = candidates[order[there]]
            scores[place, :count] = found[there]
        return rows, scores

    def _parts(self, rows: np.ndarray, most: int) -> Iterator[np.ndarray]:
        """Yield rows one after the other, of at most so many tokens or one text."""
        start = 0
        while start < len(rows):
            limit = self.starts[rows[start]] + most
            end = int(np.searchsorted(self.ends[rows], limit, side="right"))
            end = max(end, start + 1)
            yield rows[start:end]
            start = end

    def pair_scores(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the MaxSim of each query and the text of a row, float32 [Q]."""
        found = np.zeros(len(rows), np.float32)
        for place, (query, row) in enumerate(zip(queries, rows, strict=True)):
            values = self.of_text(row)
            if len(values):
                found[place] = ragged_maxsim(kept_vectors(query), values, [0])[0]
        return found

    def is_same(self, vectors: np.ndarray, rows: np.ndarray) -> bool:
        """Return whether the rows have the vectors of the same texts."""
        most = _SAME + (1 / _STEPS if self.dtype == "int8" else 0)
        for tokens, row in zip(map(kept_vectors, vectors), rows, strict=True):
            own = self.of_text(row)
            if own.shape != tokens.shape or np.abs(own - tokens).max(initial=0) > most:
                return False
        return True

    def entries(self) -> dict[str, Any]:
        """Return the arrays of a file, and its format."""
        found = {"embeddings": self.values, "ends": self.ends, "format": _FORMAT}
        return found | (self.centroids.entries() if self.centroids else {})

    @classmethod
    def from_entries(cls, stored: Mapping[str, Any]) -> TokenVectors:
        """Return the vectors of a file.

        Raises:
            ValueError: shapes or types do not match.
        """
        values, ends = stored["embeddings"], stored["ends"]
        if (
            values.ndim != 2
            or values.dtype not in (np.float32, np.int8)
            or ends.ndim != 1
            or (np.diff(ends, prepend=0) < 0).any()
            or (ends[-1] if len(ends) else 0) != len(values)
        ):
            raise ValueError
        return cls(
            values,
            ends,
            TokenCentroids.from_entries(stored, len(ends), values.shape[1]),
        )
