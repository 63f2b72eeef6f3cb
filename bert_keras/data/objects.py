"""The rows of any source as objects: JSON, Parquet, rows in memory, CSV and TSV."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterator
from typing import Any

from bert_keras.data.annotations import TOOL_KEYS, plain_rows
from bert_keras.data.json_rows import json_rows, value_in
from bert_keras.data.memory import MemoryRows, Row, rows_of_file
from bert_keras.data.rows import (
    batched,
    dialect_of,
    has_objects,
    refuse_lines,
    repeated_headers,
    stream_lines,
    table_rows,
)
from bert_keras.errors import ConfigError, DataError, NoRowsError
from bert_keras.files.parquet import is_stored, stream_tables


def objects_of(
    source: str | MemoryRows, selected: Collection[Any] = (), *, header: str = "auto"
) -> tuple[str, list[Row]]:
    """Return the name of a source and its rows, a line and a dict each.

    Cells of a table with a header are texts, or the lists and dicts that they spell;
    empty ones are `None`.

    Args:
        source: what `source_of` returns.
        selected: the columns that the user chose, see `plain_rows`.
        header: `no` is refused for a table, whose names its header holds.

    Raises:
        ConfigError: a table must have a header.
        DataError: the file cannot be read, or a row has another width.
    """
    if isinstance(source, MemoryRows):
        return source.path, plain_rows(source.path, source.rows(), selected)
    return source, next(stream_objects(source, sys.maxsize, selected, header=header))


def stream_objects(
    path: str,
    rows_at_once: int,
    selected: Collection[Any] = (),
    wanted: Collection[Any] | None = None,
    *,
    header: str = "auto",
) -> Iterator[list[Row]]:
    """Yield the rows of a file in parts; a bad row raises when it is reached.

    A file that is no list of rows, such as an array of JSON, or that an annotation tool
    wrote, is one part.

    Args:
        path: the file.
        rows_at_once: rows of a part.
        selected, wanted: as in `plain_rows`.
        header: as in `objects_of`.
    """
    if is_stored(path):
        parts = _stored_parts(path, rows_at_once)
    elif has_objects(path):
        parts = _json_parts(path, rows_at_once)
    else:
        parts = _table_parts(path, rows_at_once, header)
    first = next(parts)
    if all(TOOL_KEYS.isdisjoint(row) for _, row in first[:100]):
        yield first
        yield from parts
    else:
        rows = list(itertools.chain(first, *parts))
        yield plain_rows(path, rows, selected, wanted)


def _stored_parts(path: str, rows_at_once: int) -> Iterator[list[Row]]:
    """Yield the rows of Parquet."""
    count = 0
    for table in stream_tables(path, rows_at_once):
        try:
            rows = rows_of_file(path, table).rows()
        except DataError as error:
            line = None if error.line is None else count + error.line
            raise DataError(error.message, path=path, line=line) from None
        yield [(count + number, row) for number, row in rows]
        count += len(rows)


def _json_parts(path: str, rows_at_once: int) -> Iterator[list[Row]]:
    """Yield the objects of the lines of JSON."""
    number, lines = 1, stream_lines(path)
    for part in batched(lines, rows_at_once):
        first = part[0].strip()
        if number == 1 and not (first.startswith("{") and first.endswith("}")):
            part += lines
        text = "".join(part).removesuffix("\n")
        yield json_rows(path, text, first_line=number)
        number += len(part)


def _table_parts(path: str, rows_at_once: int, header: str) -> Iterator[list[Row]]:
    """Yield the rows of TSV and CSV, whose header has their names."""
    if header == "no":
        raise ConfigError(
            f"`header` must be yes for {path}, whose lists have names; received no"
        )
    dialect = dialect_of(path, next(stream_lines(path)))
    lines = table_rows(path, stream_lines(path), dialect)
    names = [cell.strip() for cell in next(lines)[1]]
    is_empty = True
    for found in batched(lines, rows_at_once):
        is_empty = False
        refuse_lines(path, repeated_headers(names, found) if len(names) > 1 else [])
        rows: list[Row] = []
        for number, cells in found:
            if len(cells) != len(names):
                message = f"has {len(cells)} columns where the header has {len(names)}"
                raise DataError(message, path=path, line=number)
            values = [_value(cell) for cell in cells]
            rows.append((number, dict(zip(names, values, strict=True))))
        yield rows
    if is_empty:
        raise NoRowsError("holds a header but no rows", path=path)


def _value(cell: str) -> Any:
    """Return the list or dict that a cell spells, or its text; `None` if empty."""
    found = value_in(cell)
    return found if found is not None else cell if cell.strip() else None
