"""Vectors in float32, in int8 or as bits, and the nearest of them by cosine.

int8 divides the range of each number, learned from the vectors, into 256 steps; a bit
says whether a number is above 0. Both as in sentence-transformers' `int8` and
`ubinary`. Bits are compared by their Hamming distance; the candidates that it finds may
be compared again with int8 vectors stored beside them (Yamada et al. 2021,
arXiv:2106.00882, rescore with whole vectors).
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from bert_keras.scoring.similarity import unit_rows
from bert_keras.settings import DTYPES

# Vectors compared at once, of float32 and of the others, which are unpacked.
_AT_ONCE, _UNPACKED_AT_ONCE = 8192, 1024
# Queries whose products NumPy computes faster than BLAS, in a thread for each part.
_FEW = 4
_PEAKS = 128  # scores of which the largest one is compared first
_SAME = 1e-2  # vectors of the same text differ by less, whatever the precision
_SAME_BITS = 0.9  # of a text's bits, likewise
_FORMAT, _FORMAT_OF_INTEGERS = 2, 3  # of the file
_BITS_OF_BYTE = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1)


def as_int8(vectors: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return vectors in steps of their ranges, int8 [N, D]."""
    step = _step(ranges)
    steps = np.floor((vectors - ranges[0]) / np.where(step == 0, 1, step))
    return (np.clip(steps, 0, 255) - 128).astype(np.int8)


def as_bits(vectors: np.ndarray) -> np.ndarray:
    """Return which numbers are above 0, uint8 [N, D / 8], rounded up."""
    return np.packbits(vectors > 0, axis=-1)


def _step(ranges: np.ndarray) -> np.ndarray:
    return ((ranges[1] - ranges[0]) / 255).astype(np.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class PackedVectors:
    """N vectors of D numbers, see `VectorStore`.

    Args:
        values: float32 [N, D], of length 1 for `nearest`; int8 [N, D]; or bits, uint8
            [N, D / 8], rounded up.
        width: D.
        ranges: the least and the largest value of each number, float32 [2, D], for
            int8.
        rescoring: int8 [N, D], for bits whose candidates are compared again.
    """

    values: np.ndarray
    width: int
    ranges: Any = None
    rescoring: np.ndarray | None = None

    kind: ClassVar[str] = "dense"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    formats: ClassVar[tuple[int, ...]] = (_FORMAT, _FORMAT_OF_INTEGERS)

    @classmethod
    def of_batches(
        cls,
        batches: Iterable[np.ndarray],
        width: int,
        dtype: str = "float32",
        *,
        rescored: bool = True,
    ) -> PackedVectors:
        """Return vectors given in parts, float32 [B, D] each."""
        vectors = np.concatenate([np.zeros((0, width), np.float32), *batches])
        if dtype != "float32":
            vectors = unit_rows(vectors)
        return cls.of(vectors, dtype, rescored=rescored)

    @classmethod
    def of(
        cls, vectors: np.ndarray, dtype: str = "float32", *, rescored: bool = True
    ) -> PackedVectors:
        """Return vectors, float [N, D], in one of the types of `settings.DTYPES`.

        `rescored` stores int8 vectors beside bits.
        """
        vectors = np.asarray(vectors)
        width = vectors.shape[1]
        if dtype == "float32" or not len(vectors):
            return cls(vectors, width)
        if dtype == "binary" and not rescored:
            return cls(as_bits(vectors), width)
        ranges = np.stack([vectors.min(axis=0), vectors.max(axis=0)])
        ranges = ranges.astype(np.float32)
        numbers = as_int8(vectors, ranges)
        if dtype == "int8":
            return cls(numbers, width, ranges)
        return cls(as_bits(vectors), width, ranges, numbers)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dtype(self) -> str:
        """`float32`, `int8` or `binary`."""
        kinds = {"i": "int8", "u": "binary"}
        return kinds.get(self.values.dtype.kind, "float32")

    def compared(self) -> PackedVectors:
        """Return the vectors as `nearest` takes them."""
        if self.dtype != "float32":
            return self
        return PackedVectors.of(unit_rows(self.values))

    def asked(self, queries: np.ndarray) -> np.ndarray:
        """Return vectors of queries, float [Q, D] or wider, as `nearest` takes them."""
        return unit_rows(queries[:, : self.width])

    def variants(self, widths: Sequence[int]) -> Iterator[tuple[str, PackedVectors]]:
        """Yield float32 vectors in each type, whole and shortened; others as they are.

        Each with the name of its ranking.
        """
        if self.dtype != "float32":
            yield self.dtype, self
            return
        vectors, width = self.numbers(slice(None)), self.width
        narrow = sorted((size for size in widths if size < width), reverse=True)
        for size in (width, *narrow):
            units = unit_rows(vectors[:, :size])
            for dtype in DTYPES:
                name = dtype if size == width else f"{dtype}, width {size}"
                yield name, PackedVectors.of(units, dtype)

    def pair_scores(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the cosine of each query and the vector of a row, float32 [Q]."""
        return np.sum(queries * self.numbers(rows), axis=1)

    def is_same(self, vectors: np.ndarray, rows: np.ndarray) -> bool:
        """Return whether the rows have the vectors of the same texts."""
        vectors = unit_rows(vectors)
        if self.dtype == "binary":
            differ = np.unpackbits(as_bits(vectors) ^ self.values[rows])
            return bool(1 - differ.sum() / vectors.size >= _SAME_BITS)
        most = _SAME
        if self.ranges is not None:
            most += float((self.ranges[1] - self.ranges[0]).max()) / 255
        return bool(np.abs(vectors - unit_rows(self.numbers(rows))).max() <= most)

    def entries(self) -> dict[str, Any]:
        """Return the arrays of a file, and its format."""
        found: dict[str, Any] = {"embeddings": self.values, "format": _FORMAT}
        if self.dtype != "float32":
            found |= {"format": _FORMAT_OF_INTEGERS, "width": self.width}
        held = {"ranges": self.ranges, "rescoring": self.rescoring}
        return found | {k: value for k, value in held.items() if value is not None}

    @classmethod
    def from_entries(cls, stored: Mapping[str, Any]) -> PackedVectors:
        """Return the vectors of a file.

        Raises:
            ValueError: shapes or types do not match.
        """
        values = stored["embeddings"]
        held = {n: stored[n] for n in ("ranges", "rescoring") if n in stored}
        if values.ndim != 2:
            raise ValueError
        width = int(stored["width"]) if "width" in stored else values.shape[1]
        found = cls(values, width, **held)
        wanted = {"float32": width, "int8": width, "binary": -(-width // 8)}
        is_float = values.dtype.kind == "f"
        if (
            values.dtype not in (np.int8, np.uint8)
            and not is_float
            or values.shape[1] != wanted[found.dtype]
            or found.dtype == "int8"
            and found.ranges is None
            or found.ranges is not None
            and found.ranges.shape != (2, width)
            or found.rescoring is not None
            and found.rescoring.shape != (len(values), width)
        ):
            raise ValueError
        return found

    def numbers(self, rows: Any) -> np.ndarray:
        """Return vectors as float32 [..., D], as exactly as they are stored."""
        values = self.values if self.rescoring is None else self.rescoring
        if values.dtype == np.uint8:
            bits = np.unpackbits(values[rows], axis=-1, count=self.width)
            return bits.astype(np.float32) * 2 - 1
        if values.dtype != np.int8 or self.ranges is None:
            return np.asarray(values[rows], np.float32)
        return values[rows].astype(np.float32) * self.step + self.offset

    def take(self, rows: np.ndarray) -> PackedVectors:
        """Return some of the vectors."""
        more = None if self.rescoring is None else self.rescoring[rows]
        return dataclasses.replace(self, values=self.values[rows], rescoring=more)

    @property
    def step(self) -> np.ndarray:
        """What a step of int8 is worth, float32 [D]; 0 for equal numbers."""
        return _step(self.ranges)

    @property
    def offset(self) -> np.ndarray:
        """The number that int8's 0 stands for, the middle of its step, float32 [D]."""
        return 128.5 * self.step + self.ranges[0]

    def nearest(
        self, queries: np.ndarray, top: int, *, rescore: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and cosines [Q, top]; ties go to the earlier row.

        Args:
            queries: unit vectors, float32 [Q, D].
            top: at most N.
            rescore: for bits with `rescoring`, how many times `top` candidates are
                compared again; 0: none. The cosine is else estimated from the distance.
        """
        if self.dtype != "binary":
            return self._best(queries, top, lambda part: self._cosines(queries, part))
        bits = as_bits(queries)
        rescore = 0 if self.rescoring is None else rescore
        candidates = min(top * max(rescore, 1), len(self))
        rows, near = self._best(
            queries, candidates, lambda part: self._agreement(bits, part)
        )
        if not rescore:
            return rows, near
        found = unit_rows(self.numbers(rows))
        cosines = np.einsum("qd,qcd->qc", queries, found)
        # Candidates are in order of their rows, so that ties go to the earlier one.
        order = np.lexsort((rows, -cosines), axis=1)[:, :top]
        return in_order(order, rows, cosines)

    def _cosines(self, queries: np.ndarray, part: slice) -> np.ndarray:
        if self.ranges is None:
            return _products(queries, self.values[part])
        first = queries @ self.offset
        values = self.values[part].astype(np.float32)
        products = _products(queries * self.step, values)
        return (products + first[:, None]) / self._lengths[part]

    @functools.cached_property
    def _lengths(self) -> np.ndarray:
        found = map(self.numbers, _parts(len(self), _UNPACKED_AT_ONCE))
        lengths = [np.linalg.norm(each, axis=1) for each in found]
        return np.maximum(np.concatenate(lengths), 1e-12)

    def _agreement(self, bits: np.ndarray, part: slice) -> np.ndarray:
        """Return 1 for equal bits to -1 for opposite ones, float32 [Q, B]."""
        differ = bits[:, None, :] ^ self.values[None, part]
        if hasattr(np, "bitwise_count"):  # NumPy 2
            distance = np.bitwise_count(differ).sum(axis=-1, dtype=np.int32)
        else:
            distance = _BITS_OF_BYTE[differ].sum(axis=-1, dtype=np.int32)
        return (1 - 2 * distance / self.width).astype(np.float32)

    def _best(
        self, queries: np.ndarray, top: int, compare: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        if not len(queries):
            return np.zeros((0, top), np.int64), np.zeros((0, top), np.float32)

        def best_of(part: slice) -> tuple[np.ndarray, np.ndarray]:
            scores = compare(part)
            rows = np.stack([_largest(each, top) for each in scores])
            return rows + part.start, np.take_along_axis(scores, rows, axis=1)

        parts = _parts(
            len(self), _AT_ONCE if self.dtype == "float32" else _UNPACKED_AT_ONCE
        )
        # BLAS has threads of its own.
        is_alone = len(queries) > _FEW or len(parts) == 1
        each = map if is_alone else _threads().map
        found = list(each(best_of, parts))
        rows, scores = (
            np.concatenate(part, axis=1) for part in zip(*found, strict=True)
        )
        order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        return in_order(order, rows, scores)


def in_order(
    order: np.ndarray, rows: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and scores of a ranking, [Q, C] each, at places, int [Q, K]."""
    return (
        np.take_along_axis(rows, order, axis=1),
        np.take_along_axis(scores, order, axis=1),
    )


def _parts(count: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]


def _products(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the dot products of queries and vectors, float32 [Q, N]."""
    if len(queries) <= _FEW:
        return np.einsum("qd,nd->qn", queries, vectors)
    return queries @ vectors.T


def _largest(scores: np.ndarray, top: int) -> np.ndarray:
    """Return the places of the largest scores, equal ones in their order."""
    count = len(scores) // _PEAKS
    places = np.arange(len(scores))
    if count >= top:
        # So many scores are as large as the least of the largest peaks, at least.
        peaks = scores[: count * _PEAKS].reshape(count, _PEAKS).max(axis=1)
        least = np.partition(peaks, -top)[-top]
        places = np.flatnonzero(~(scores < least))
    return places[np.argsort(-scores[places], kind="stable")[:top]]


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="search")
