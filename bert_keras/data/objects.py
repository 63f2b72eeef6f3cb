"""The rows of any source as objects: JSON, Parquet, rows in memory, CSV and TSV."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection
from typing import Any

from bert_keras.data.annotations import plain_rows
from bert_keras.data.json_rows import json_rows, list_in
from bert_keras.data.memory import MemoryRows, Row
from bert_keras.data.rows import (
    dialect_of,
    format_of,
    read_text,
    refuse_lines,
    repeated_headers,
    table_rows,
)
from bert_keras.errors import ConfigError, DataError, NoRowsError


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
    text = read_text(source)
    if format_of(source, text) == "jsonl":
        return source, plain_rows(source, json_rows(source, text), selected)
    if header == "no":
        raise ConfigError(
            f"`header` must be yes for {source}, whose lists have names; received no"
        )
    lines = table_rows(source, text, dialect_of(source, text))
    names = [cell.strip() for cell in next(lines)[1]]
    found = list(lines)
    refuse_lines(source, repeated_headers(names, found) if len(names) > 1 else [])
    rows: list[Row] = []
    for number, cells in found:
        if len(cells) != len(names):
            message = f"has {len(cells)} columns where the header has {len(names)}"
            raise DataError(message, path=source, line=number)
        values = [_value(cell) for cell in cells]
        rows.append((number, dict(zip(names, values, strict=True))))
    if not rows:
        raise NoRowsError("holds a header but no rows", path=source)
    return source, plain_rows(source, rows, selected)


def _value(cell: str) -> Any:
    """Return the list or dict that a cell spells, or its text; `None` if empty."""
    found: Any = list_in(cell)
    if found is None and cell.strip()[:1] == "{":
        found = _dict_in(cell)
    return found if found is not None else cell if cell.strip() else None


def _dict_in(cell: str) -> dict[str, Any] | None:
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(cell)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(found, dict):
            return found
    return None
