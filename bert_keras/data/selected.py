"""The selected columns of the rows of a table: `select_cells`, and `select_keys`.

`select_cells` is for TSV and CSV, whose rows are lists of cells, `select_keys` for rows
that are objects, as in JSONL. Both refuse missing columns and bad cells.
"""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_keras.data.annotations import usual_names
from bert_keras.data.columns import Columns
from bert_keras.data.json_rows import json_cell
from bert_keras.data.memory import MISSING_WORDS, MemoryRows
from bert_keras.data.rows import (
    Selection,
    dialect_of,
    existing,
    good_rows,
    quote,
    refuse_hidden_header,
    refuse_lines,
    repeated_headers,
)
from bert_keras.data.text_column import TextColumn, rows_among
from bert_keras.errors import DataError, NoColumnError, NoRowsError, counted, first_of
from bert_keras.files.parquet import is_parquet, is_stored
from bert_keras.runs.notes import say_once

SLICE = "slice "  # prefix of the roles of columns by which rows are sliced


def table_dialect(path: str, text: str, chosen: Selection) -> tuple[str, str]:
    """Return format and delimiter of a table, whose header may name columns."""
    has_names = chosen.header != "no" and bool(chosen.names)
    return dialect_of(path, text, names=chosen.names, has_header=has_names)


@dataclasses.dataclass(frozen=True)
class Header:
    """The first row of a table, and the index of the column of each role."""

    cells: list[str]  # as names: without spaces around them
    named: bool  # whether the row holds the names of the columns
    is_guessed: bool  # whether nobody said so
    found: dict[str, int]


def header_of(
    path: str, row: Sequence[str], chosen: Selection, delimiter: str
) -> Header:
    """Return what the first row of a table tells of its columns.

    Raises:
        DataError: the row is blank, or a column is missing.
    """
    first = [cell.strip() for cell in row]
    if not any(first):
        raise DataError("the first line must not be blank", path=path, line=1)
    is_guessed = chosen.header == "auto"
    named = chosen.header == "yes" or (is_guessed and chosen.names_a_column(first))
    if named:
        chosen.tell_unread(path, first)
        names = chosen.columns.values()
        usual = usual_names(path, first, names, names)
        first = [usual.get(name, name) for name in first]
    found = chosen.locate(path, first, named=named, delimiter=delimiter)
    return Header(first, named, is_guessed, found)


def select_cells(
    path: str,
    rows: list[tuple[int, list[str]]],
    chosen: Selection,
    dialect: tuple[str, str],
) -> Columns:
    """Return the columns of a TSV or CSV file."""
    kind, delimiter = dialect
    top = header_of(path, rows[0][1], chosen, delimiter)
    found, named, first = top.found, top.named, top.cells
    data = rows[1:] if named else rows
    if not data:
        raise NoRowsError("holds a header but no rows", path=path)
    width = len(first)
    if width == 1:  # a blank line is an empty cell
        data = [(line, row or [""]) for line, row in data]
    problems = [
        (line, _width_problem(row, width, kind))
        for line, row in data
        if len(row) != width
    ]
    for role, index in found.items():
        if role in chosen.empty:
            continue
        problems += [
            (line, f"`{role}` (column {index}) is empty")
            for line, row in data
            if len(row) == width and not row[index].strip()
        ]
    if named and width > 1:
        refuse_lines(path, repeated_headers(first, data))
    if problems:
        kept = good_rows(path, data, problems, bad_rows=chosen.bad_rows)
        data = [data[row] for row in kept]
    cells = {role: [row[i] for _, row in data] for role, i in found.items()}
    return checked(Columns(path, cells, [line for line, _ in data]), top)


def checked(columns: Columns, top: Header) -> Columns:
    """Return the columns of a TSV or CSV file.

    Raises:
        DataError: the first row looks like a header.
    """
    if top.is_guessed and not top.named:
        refuse_hidden_header(columns.path, columns.cells)
    return columns


def report_doubtful_cells(columns: Columns, kind: str = "") -> Columns:
    """Report the doubtful cells of a file of a format; return the columns."""
    notes = CellNotes(columns.path, kind)
    notes.add(columns)
    notes.tell()
    return columns


class CellNotes:
    """The doubtful cells of a file, which may come in parts; `tell` reports them.

    They are texts that other tools write for a missing value, and cells of TSV that are
    quoted as in CSV. Labels are excepted: a note on class names tells of them.

    Args:
        path: the file.
        kind: its format.
    """

    def __init__(self, path: str, kind: str = "") -> None:
        self._path, self._kind = path, kind
        # By role the words and the lines; the lines of quoted cells.
        self._missing: dict[str, tuple[set[str], array.array[int]]] = {}
        self._quoted = array.array("q")

    def add(self, columns: Columns) -> None:
        """Find the doubtful cells of a part."""
        for role, cells in columns.cells.items():
            if role in ("id", "label") or role.startswith(SLICE):
                continue
            if rows := rows_among(cells, MISSING_WORDS):
                empty = (set[str](), array.array("q"))
                words, lines = self._missing.setdefault(role, empty)
                words.update(cells[row] for row in rows)
                lines.extend(columns.lines[row] for row in rows)
        if self._kind == "tsv":
            self._quoted.extend(sorted(_quoted_lines(columns)))

    def tell(self) -> None:
        """Report the cells of all parts."""
        if quoted := self._quoted:
            say_once(
                f"{self._path}: rows with cells quoted as in CSV: {len(quoted):,}; in "
                "TSV quotes are text, unless the file's name ends in .csv: "
                f"line{'s' * (len(quoted) > 1)} {first_of(quoted)}"
            )
        for role, (words, lines) in self._missing.items():
            say_once(
                f"{self._path}: cells of `{role}` with {first_of(sorted(words))}, as "
                "other tools write a missing value, are read as text: "
                f"{len(lines):,}: {Columns(self._path, {}, lines).places()}"
            )


def _quoted_lines(columns: Columns) -> set[int]:
    """Return the lines of rows with a cell that is quoted as in CSV."""
    quoted: set[int] = set()
    for cells in columns.cells.values():
        is_large = isinstance(cells, TextColumn)
        rows = cells.containing('""') if is_large else range(len(cells))
        quoted |= {
            columns.lines[row]
            for row in rows
            if '""' in (cell := cells[row]) and cell[0] == cell[-1] == '"'
        }
    return quoted


def _width_problem(row: list[str], width: int, kind: str) -> str:
    if not any(row):
        return "is blank"
    columns = counted(len(row), "columns")
    reason = f"has {columns} where the first row has {width} (read as {kind.upper()}"
    if kind == "tsv" and any(cell.count('"') % 2 for cell in row):
        reason += ", where a quote is text; a cell over several lines needs .csv"
    return f"{reason})"


def select_keys(
    path: str, rows: list[tuple[int, dict[str, Any]]], chosen: Selection
) -> Columns:
    """Return the columns of a JSONL file."""
    chosen.tell_unread(path, list(rows[0][1]))
    cells: dict[str, list[Any]] = {}
    problems: list[tuple[int, str]] = []
    missing = []
    for role, key in chosen.columns.items():
        if not isinstance(key, str):
            stored = "a Parquet file" if is_parquet(path) else "an Arrow file"
            kind = stored if is_stored(path) else "a JSONL file"
            what = "in memory" if path == MemoryRows.path else f"of {kind}"
            message = f"columns {what} have names; received {key} for `{role}`"
            raise DataError(message, path=path)
        values = [row.get(key) for _, row in rows]
        if role in chosen.whole:
            cells[role] = values
            continue
        if role in chosen.optional and all(value is None for value in values):
            continue
        if not any(key in row for _, row in rows):
            missing.append(quote(key))
            continue
        cells[role] = []
        for (line, _), value in zip(rows, values, strict=True):
            if value is None and role in chosen.nulls:
                value = ""
            if role in chosen.singles and isinstance(value, list):
                if len(value) > 1:
                    reason = f"must be one text; received a list of {len(value)}"
                    problems.append((line, f"`{role}` (key {quote(key)}) {reason}"))
                value = value[0] if value else ""
            cell, reason = json_cell(
                value, empty=role in chosen.empty, is_list=role in chosen.lists
            )
            cells[role].append(cell)
            if reason:
                problems.append((line, f"`{role}` (key {quote(key)}) {reason}"))
    if missing:
        keys = existing(list(rows[0][1]), named=True)
        message = f"has no key {', '.join(missing)}; its first line has {keys}"
        if is_stored(path):
            message = f"has no column {', '.join(missing)}; it has {keys}"
        elif path == MemoryRows.path:
            message = f"have no column {', '.join(missing)}; they have {keys}"
        if not chosen.fixed:
            message += chosen.other_columns(list(rows[0][1]), missing)
        raise NoColumnError(message, path=path)
    found = Columns(path, cells, [line for line, _ in rows])
    if problems:
        found = found.take(good_rows(path, rows, problems, bad_rows=chosen.bad_rows))
    return found
