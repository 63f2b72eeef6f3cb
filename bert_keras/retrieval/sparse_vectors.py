"""Sparse vectors, one number for each token of a vocabulary, and an inverted index.

Source: Formal et al. 2021 (arXiv:2109.10086); Manning et al. 2008, "Introduction to
Information Retrieval", section 6.3.3 for scores by the lists of a query's terms.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_keras.scoring.similarity import unit_rows

_SAME = 1e-2  # vectors of the same text differ by less, whatever the precision
_FORMAT = 4  # of the file


@dataclasses.dataclass(frozen=True, eq=False)
class SparseVectors:
    """N vectors of D numbers, of which the numbers above 0 are stored, row by row.

    See `VectorStore`.

    Args:
        values: the numbers, float32 [M].
        places: the place of each in its vector, int32 [M].
        ends: the end of each vector in `values`, int64 [N].
        width: D.
    """

    values: np.ndarray
    places: np.ndarray
    ends: np.ndarray
    width: int

    kind: ClassVar[str] = "sparse"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    formats: ClassVar[tuple[int, ...]] = (_FORMAT,)
    dtype = "float32"

    @classmethod
    def of_batches(
        cls,
        batches: Iterable[np.ndarray],
        width: int,
        dtype: str = "float32",
        *,
        rescored: bool = True,
    ) -> SparseVectors:
        """Return vectors given in parts, float [B, D] each; numbers below 0 are 0."""
        values, places, counts = [], [], [np.zeros(0, np.int64)]
        for part in batches:
            rows, columns = np.nonzero(part > 0)
            values.append(part[rows, columns].astype(np.float32))
            places.append(columns.astype(np.int32))
            counts.append(np.bincount(rows, minlength=len(part)))
        return cls(
            np.concatenate([np.zeros(0, np.float32), *values]),
            np.concatenate([np.zeros(0, np.int32), *places]),
            np.cumsum(np.concatenate(counts)).astype(np.int64),
            width,
        )

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def _rows(self) -> np.ndarray:
        """The vector of each number, int32 [M]."""
        counts = np.diff(self.ends, prepend=0)
        return np.repeat(np.arange(len(self), dtype=np.int32), counts)

    def compared(self) -> SparseVectors:
        """Return the vectors as `nearest` takes them."""
        return self

    def asked(self, queries: np.ndarray) -> np.ndarray:
        """Return vectors of queries, float [Q, D], as `nearest` takes them."""
        return queries

    def variants(self, widths: Sequence[int]) -> Iterator[tuple[str, SparseVectors]]:
        """Yield the vectors, with the name of the ranking by them."""
        yield self.kind, self

    def pair_scores(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the product of each query and the vector of a row, float32 [Q]."""
        starts, found = np.append(0, self.ends), np.zeros(len(rows), np.float32)
        for place, (query, row) in enumerate(zip(queries, rows, strict=True)):
            part = slice(starts[row], starts[row + 1])
            found[place] = query[self.places[part]] @ self.values[part]
        return found

    def is_same(self, vectors: np.ndarray, rows: np.ndarray) -> bool:
        """Return whether the rows have the vectors of the same texts."""
        differs = np.abs(unit_rows(vectors) - unit_rows(self.numbers(rows)))
        return bool(differs.max() <= _SAME)

    def entries(self) -> dict[str, Any]:
        """Return the arrays of a file, and its format."""
        return {
            "embeddings": self.values,
            "places": self.places,
            "ends": self.ends,
            "width": self.width,
            "format": _FORMAT,
        }

    @classmethod
    def from_entries(cls, stored: Mapping[str, Any]) -> SparseVectors:
        """Return the vectors of a file.

        Raises:
            ValueError: shapes or places do not match.
        """
        values, places, ends = (stored[n] for n in ("embeddings", "places", "ends"))
        width, counts = int(stored["width"]), np.diff(ends, prepend=0)
        if (
            not places.shape == values.shape == (ends[-1] if len(ends) else 0,)
            or (counts < 0).any()
            or ((places < 0) | (places >= width)).any()
        ):
            raise ValueError
        return cls(values, places, ends, width)

    def numbers(self, rows: Any) -> np.ndarray:
        """Return some vectors with all their numbers, float32 [..., D]."""
        chosen = np.arange(len(self))[rows]
        found = np.zeros((len(chosen), self.width), np.float32)
        starts = np.concatenate([[0], self.ends])
        for row, each in enumerate(chosen):
            part = slice(starts[each], starts[each + 1])
            found[row, self.places[part]] = self.values[part]
        return found

    def take(self, rows: np.ndarray) -> SparseVectors:
        """Return some of the vectors."""
        counts = np.diff(self.ends, prepend=0)[rows]
        starts = self.ends[rows] - counts
        ends = np.cumsum(counts)
        # The place of each number that is taken in `values`.
        chosen = np.repeat(starts - ends + counts, counts) + np.arange(counts.sum())
        return SparseVectors(self.values[chosen], self.places[chosen], ends, self.width)

    @functools.cached_property
    def _lists(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The inverted index: start of each term's list, its vectors and numbers."""
        order = np.argsort(self.places, kind="stable")
        starts = np.searchsorted(self.places[order], np.arange(self.width + 1))
        return starts, self._rows[order], self.values[order]

    def nearest(
        self, queries: np.ndarray, top: int, *, rescore: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and dot products [Q, top]; ties go to the earlier row.

        Rows are -1 after the last one that has a term of the query.

        Args:
            queries: float32 [Q, D].
            top: at most N.
            rescore: without effect: the products are exact.
        """
        starts, rows, values = self._lists
        found = np.zeros((len(queries), len(self)), np.float32)
        for scores, query in zip(found, queries, strict=True):
            for term in np.flatnonzero(query > 0):
                part = slice(starts[term], starts[term + 1])
                scores[rows[part]] += query[term] * values[part]
        order = np.argsort(-found, axis=1, kind="stable")[:, :top]
        scores = np.take_along_axis(found, order, axis=1)
        return np.where(scores > 0, order, -1), scores
