"""Texts in Arrow's memory, which take their bytes and no Python object: `TextColumn`.

A list of a million short strings takes four times as much.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any, overload

import numpy as np

_AT_ONCE = 4096  # texts


class TextColumn(Sequence[str]):
    """N texts, like a list of strings; a slice is a list.

    Args:
        parts: Arrow arrays of strings, none of them null.
        rows: the texts in order, by index from 0 over all parts, int [N]; `None`: all
            of them.

    Example:
        >>> import pyarrow
        >>> column = TextColumn([pyarrow.array(["a", "b"]), pyarrow.array(["c"])])
        >>> column[2], len(column), list(column.take([2, 0]))
        ('c', 3, ['c', 'a'])
    """

    def __init__(self, parts: Sequence[Any], rows: np.ndarray | None = None) -> None:
        self._parts = list(parts)
        self._starts = [0, *itertools.accumulate(map(len, self._parts))]
        self._rows = rows

    def __len__(self) -> int:
        return self._starts[-1] if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            rows = np.arange(*place.indices(len(self)))
            return [str(cell, "utf-8") for cell in self._cells(rows)]
        row = int(place) + (len(self) if place < 0 else 0)
        if not 0 <= row < len(self):
            raise IndexError(f"row {place} of {len(self)}")
        row = row if self._rows is None else int(self._rows[row])
        part = bisect.bisect_right(self._starts, row) - 1
        return str(self._cell(part, row - self._starts[part]), "utf-8")

    def __iter__(self) -> Iterator[str]:
        if self._rows is None:
            for part in self._parts:
                yield from part.to_pylist()
            return
        for start in range(0, len(self), _AT_ONCE):
            yield from self[start : start + _AT_ONCE]

    def __eq__(self, other: object) -> bool:
        """Return whether it has the texts of another sequence."""
        if not isinstance(other, TextColumn | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self):,} texts: {', '.join(map(repr, self[:3]))}, …>"

    def __reduce__(self) -> tuple[Any, ...]:
        return TextColumn, (self._parts, self._rows)

    def take(self, rows: Sequence[int] | np.ndarray) -> TextColumn:
        """Return some of the texts, by index from 0; their bytes are shared."""
        chosen = np.asarray(rows).astype(row_dtype(self._starts[-1]), copy=False)
        first, last = (chosen.min(), chosen.max()) if len(chosen) else (0, -1)
        if not -len(self) <= first or not last < len(self):
            raise IndexError(f"rows of {len(self):,}")
        if self._rows is not None:
            return TextColumn(self._parts, self._rows[chosen])
        if first < 0:
            chosen = np.where(chosen < 0, chosen + len(self), chosen)
        return TextColumn(self._parts, chosen)

    def encoded(self, rows: np.ndarray) -> list[bytes]:
        """Return the UTF-8 bytes of some of the texts, by index, int [M]."""
        return [bytes(cell) for cell in self._cells(rows)]

    def _cells(self, rows: np.ndarray) -> Iterator[memoryview]:
        places = rows if self._rows is None else self._rows[rows]
        starts = np.array(self._starts)
        parts = np.searchsorted(starts, places, side="right") - 1
        cells = zip(parts.tolist(), (places - starts[parts]).tolist(), strict=True)
        return itertools.starmap(self._cell, cells)

    def _cell(self, part: int, row: int) -> memoryview:
        """Return the UTF-8 bytes of a text."""
        offsets, data = self._buffers[part]
        return data[offsets[row] : offsets[row + 1]]

    @functools.cached_property
    def _buffers(self) -> list[tuple[np.ndarray, memoryview]]:
        """The offsets and the UTF-8 bytes of each part."""
        found = []
        for part in self._parts:
            _, offsets, data = part.buffers()
            dtype = np.int64 if str(part.type) == "large_string" else np.int32
            numbers = np.frombuffer(offsets, dtype, len(part) + part.offset + 1)
            found.append((numbers[part.offset :], memoryview(data or b"")))
        return found

    def coded(self) -> tuple[list[str], np.ndarray]:
        """Return the distinct texts, and the number of each text's, int32 [N]."""
        from pyarrow import chunked_array

        parts = chunked_array(self._parts).dictionary_encode().unify_dictionaries()
        names = parts.chunk(0).dictionary.to_pylist() if parts.num_chunks else []
        codes = [np.asarray(part.indices) for part in parts.chunks]
        found = np.concatenate([np.zeros(0, "int32"), *codes])
        if self._rows is None:
            return names, found
        found = found[self._rows]
        used = np.flatnonzero(np.bincount(found, minlength=len(names)))
        place = np.zeros(len(names), "int32")
        place[used] = np.arange(len(used))
        return [names[code] for code in used.tolist()], place[found]

    def among(self, words: Collection[str]) -> list[int]:
        """Return the rows whose text is one of the words, by index from 0."""
        from pyarrow import array, compute

        wanted = array(list(words), "string")
        found = [
            np.asarray(compute.is_in(part, wanted.cast(part.type)))
            for part in self._parts
        ]
        return self._rows_where(found)

    def containing(self, word: str) -> list[int]:
        """Return the rows whose text contains a string, by index from 0."""
        from pyarrow import compute

        found = [np.asarray(compute.match_substring(p, word)) for p in self._parts]
        return self._rows_where(found)

    def _rows_where(self, found: list[np.ndarray]) -> list[int]:
        """Return the rows from one Boolean for each text of each part."""
        chosen = np.concatenate(found) if found else np.zeros(0, bool)
        if self._rows is not None:
            chosen = chosen[self._rows]
        return [int(row) for row in np.flatnonzero(chosen)]


def joined(parts: Sequence[Sequence[str]]) -> TextColumn:
    """Return the texts of several columns or lists, one after the other."""
    from pyarrow import array

    columns = [
        part
        if isinstance(part, TextColumn)
        else TextColumn([array(list(part), "string")])
        for part in parts
    ]
    if len(columns) == 1:
        return columns[0]
    found: list[Any] = []
    rows: list[np.ndarray] = []
    for each in columns:
        own = np.arange(len(each)) if each._rows is None else each._rows
        rows.append(own + sum(map(len, found)))
        found += each._parts
    return TextColumn(found, np.concatenate(rows))


def row_dtype(count: int) -> str:
    """Return the smallest dtype of the index, or line, of some rows."""
    return "int32" if count < 2**31 else "int64"


def coded(cells: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the distinct cells, and the number of each cell's, int32 [N].

    Example:
        >>> coded(["ham", "spam", "ham"])
        (['ham', 'spam'], array([0, 1, 0], dtype=int32))
    """
    if isinstance(cells, TextColumn):
        return cells.coded()
    number: dict[str, int] = {}
    codes = [number.setdefault(cell, len(number)) for cell in cells]
    return list(number), np.array(codes, "int32")


def rows_among(cells: Sequence[Any], words: Collection[str]) -> list[int]:
    """Return the rows whose cell is one of the words, by index from 0."""
    if isinstance(cells, TextColumn):
        return cells.among(words)
    known = set(words)
    return [
        row for row, cell in enumerate(cells) if isinstance(cell, str) and cell in known
    ]
