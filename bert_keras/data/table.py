"""Labelled columns of a user's file: `read_columns` gives lists of strings by role.

No row is silently dropped: an invalid row is an error with its line.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.data.annotations import plain_rows
from bert_keras.data.columns import Columns
from bert_keras.data.conll import ENDINGS
from bert_keras.data.json_rows import json_rows, one_object
from bert_keras.data.memory import (
    MemoryRows,
    Row,
    is_column,
    is_path,
    rows_in_memory,
    source_of,
)
from bert_keras.data.objects import stream_objects
from bert_keras.data.rows import (
    FORMATS,
    ColumnNames,
    Selection,
    batched,
    check_header,
    dialect_of,
    ending_of,
    format_of,
    has_objects,
    read_text,
    selection_of,
    start_of,
    stream_lines,
    table_rows,
)
from bert_keras.data.selected import (
    SLICE,
    CellNotes,
    report_doubtful_cells,
    select_cells,
    select_keys,
    table_dialect,
)
from bert_keras.errors import (
    BertKerasError,
    ConfigError,
    DataError,
    NoColumnError,
    received,
)
from bert_keras.files.parquet import is_stored, stream_tables
from bert_keras.lazy_names import deferred

if TYPE_CHECKING:
    from bert_keras.data import large_files, squad, tagged
else:  # of some files only: a process that answers a request reads none
    large_files, squad, tagged = deferred(
        "bert_keras.data.large_files", "bert_keras.data.squad", "bert_keras.data.tagged"
    )


def as_columns(data: Any = None, /, *, header: str = "auto", **roles: Any) -> Columns:
    """Return the columns of a file, of a table in memory, or of lists.

    `train` and `evaluate` take the same data directly; use this to choose or rename
    columns. Numbers become text, as in a file.

    Args:
        data: a path of TSV, CSV, JSONL, Parquet, CoNLL or SQuAD's JSON; a DataFrame,
            an Arrow table, a dict of lists, a list of dicts, a `datasets.Dataset`, or a
            finite `tf.data.Dataset` (see `rows_in_memory`). `None`: `roles` are the
            cells.
        header: for a file, as in `read_columns`.
        **roles: role to the name of its column; in TSV and CSV also its number. If
            none is given, each column has the role of its name.

    Raises:
        ConfigError: the data has another type.
        DataError: a column, or a cell of a selected one, is missing, or a cell is of
            another type, such as a date.

    Example:
        >>> as_columns([{"body": "win cash now", "spam": 1}], text="body", label="spam")
        Columns(path='rows in memory', cells={'text': ['win cash now'], 'label': ['1']},
        lines=[1])
        >>> as_columns(text=["win cash now"], label=["1"])["label"]
        ['1']
    """
    chosen = {role: each for role, each in roles.items() if each is not None}
    if isinstance(data, Columns):
        return data.select(chosen) if chosen else data
    if data is None:
        for role, cells in chosen.items():
            if not is_column(cells):
                message = f"`{role}` must be a list of cells; {received(cells)}"
                raise ConfigError(message)
    found = rows_in_memory(chosen) if data is None else source_of(data)
    if isinstance(found, str):
        return _of_file(found, chosen, header)
    lines = list(range(1, len(next(iter(found.columns.values()))) + 1))
    columns = Columns(found.path, found.columns, lines)
    if data is not None and chosen:
        columns = columns.select(chosen)
    columns.refuse(
        [
            (row, f"`{role}` {fault}")
            for role, cells in columns.cells.items()
            for row, cell in enumerate(cells)
            if (fault := _fault(cell, is_chosen=role in chosen))
        ]
    )
    return columns


def _fault(cell: Any, *, is_chosen: bool) -> str:
    """Return the fault of a cell, empty if there is none.

    A column that was not chosen by role may hold values of any type.
    """
    if cell is None:
        return "is missing"
    if is_chosen and not isinstance(cell, str | list | dict):
        return f"must be text, a number or a list; received a {type(cell).__name__}"
    return ""


def _of_file(path: str, columns: Mapping[str, str | int], header: str) -> Columns:
    """Return selected columns of a file of any format; by default all."""
    check_header(path, header)
    text = start_of(path)
    is_json = format_of(path, text) == "jsonl"
    content = one_object(text) if is_json else None
    if squad.is_squad(content):
        found = squad.read_squad(path)
        return found.select(columns) if columns else found
    if ending_of(path) in ENDINGS:
        return tagged.read_tagged(path, columns=columns, header=header)
    if not columns:
        columns = {name: name for name in column_names(path, text)}
        header = "auto" if is_json else "yes"
    return read_columns(path, columns, header=header)


def column_names(path: str, text: str) -> list[str]:
    """Return the names of a table's columns: its first row, or its first object's."""
    kind = format_of(path, text)
    if kind == "jsonl":
        first = text.partition("\n")[0]
        is_whole = text.startswith("[") or one_object(text) is not None
        return list(json_rows(path, text if is_whole else first)[0][1])
    rows = table_rows(path, text, dialect_of(path, text))
    return [name.strip() for name in next(rows)[1]]


def names_of(source: Any) -> list[str]:
    """Return the names of the columns of a file, or of a table in memory.

    Of a file they are the first row, which may hold no names.
    """
    if not is_path(source):
        return list(rows_in_memory(source).columns)
    place = os.fspath(source)
    if is_stored(place):
        names: list[str] = next(stream_tables(place, 1)).column_names
        return names
    return column_names(place, start_of(place))


def sliced(columns: Columns, name: str) -> list[Any]:
    """Return the cells of a column to slice by."""
    role = f"{SLICE}{name}"
    return columns[role if role in columns else name]


def without_slices(columns: Columns) -> list[str]:
    """Return the roles that a task reads, sorted."""
    return sorted(role for role in columns.cells if not role.startswith(SLICE))


def read_columns(
    path: Any,
    columns: ColumnNames,
    *,
    optional: Sequence[str] = (),
    empty: Sequence[str] = (),
    lists: Sequence[str] = (),
    singles: Sequence[str] = (),
    nulls: Sequence[str] = (),
    whole: Sequence[str] = (),
    unread: Sequence[str] = (),
    fixed: bool = False,
    header: str = "auto",
    bad_rows: str = "error",
) -> Columns:
    """Return the selected columns of a file of rows as lists of strings.

    A column is selected by its name or, in TSV and CSV, by its number from 0. A string
    of digits, as the command line gives, is a column number unless the file has a
    header with exactly that name. JSONL has names only; its numbers keep their spelling
    (`5.00`), and its booleans are `true` and `false`.

    Args:
        path: the file; its ending determines the format (see `rows`). Or a table in
            memory, as in `as_columns`, which is read like JSONL, as is Parquet.
        columns: role, such as `text` or `label`, to the column; a role of `None` is
            left out.
        optional: roles whose column may be missing; they then have no entry. In JSONL
            `null` counts as missing. A column is in every row or in none.
        empty: roles whose cells may be empty.
        lists: roles whose cells in JSONL may be lists of strings, which then become
            JSON cells.
        singles: roles whose cells in JSONL may be a list of one text, which is then
            the cell.
        nulls: roles whose cells in JSONL may be `null`, which becomes "".
        whole: roles whose values in JSONL are returned unchanged, missing ones as
            `None`.
        unread: columns of which a note tells that they are not read, if they are there.
        fixed: whether the user cannot select other columns, so that no error says how.
        header: `yes` or `no`: whether the first row of TSV or CSV holds the names; an
            error for a file of another format.
            `auto`: it does if a required column is selected by name, or if it holds the
            name of an optional column. If all columns are selected by number, it does
            not, and a first row that looks like a header is an error that requests
            `yes` or `no` rather than a guess.
        bad_rows: `error`; `skip` leaves out the rows with a problem, and a note counts
            them; `keep` reads empty cells of any role as "".

    Returns:
        The cells of each role and the line of each row. Cells are unchanged;
        only names in a header lose surrounding spaces.

    Raises:
        ConfigError: an argument is wrong.
        DataError: the file is missing, empty or broken, lacks a column, or has rows
            of a different width or with an empty cell; all bad lines are counted and
            the first ten named.
    """
    chosen = selection_of(
        columns,
        optional=optional,
        empty=empty,
        lists=lists,
        singles=singles,
        nulls=nulls,
        whole=whole,
        unread=unread,
        fixed=fixed,
        header=header,
        bad_rows=bad_rows,
    )
    check_header(path, header)
    if is_path(path):
        large = large_files.read_large(os.fspath(path), chosen)
        if large is not None:
            return large
    place = source_of(path)
    if isinstance(place, MemoryRows):
        return report_doubtful_cells(_select_objects(place.path, place.rows(), chosen))
    text = read_text(place)
    if format_of(place, text) == "jsonl":
        return report_doubtful_cells(
            _select_objects(place, json_rows(place, text), chosen)
        )
    dialect = table_dialect(place, text, chosen)
    rows = list(table_rows(place, text, dialect))
    return report_doubtful_cells(select_cells(place, rows, chosen, dialect), dialect[0])


_FIRST_ROWS = 1024  # in which `check_columns` looks for keys
_NOT_TABLES = (".json", ".txt")  # perhaps not


def check_columns(
    path: str, *forms: ColumnNames, header: str = "auto", fixed: bool = False
) -> None:
    """Raise NoColumnError if a table lacks a column, by a look at its first rows.

    This is a check of a file before TensorFlow is imported and the file is read. Other
    faults are left to the reader of the file, and so are files that are no tables.

    Args:
        path: the file.
        forms: role to column, as in `read_columns`. All columns of one of them must be
            there; the error is of the one that has most of them.
        header, fixed: as in `read_columns`.
    """
    ending = ending_of(path)
    is_table = ending in FORMATS and ending not in _NOT_TABLES or is_stored(path)
    if not all(forms) or not is_table or not os.path.exists(path):
        return
    errors: list[NoColumnError] = []
    try:
        for columns in forms:
            rules: dict[str, Any] = {"header": header, "fixed": fixed}
            rules |= dict.fromkeys(("empty", "lists", "nulls"), [*columns])
            try:
                next(stream_columns(path, columns, rows_at_once=_FIRST_ROWS, **rules))
                return
            except NoColumnError as error:
                errors.append(error)
        if has_objects(path):  # a later row may have the key
            names = {key for _, row in json_rows(path, read_text(path)) for key in row}
        else:
            names = set(names_of(path))
    except (BertKerasError, OSError):
        return
    present = [len(names & set(columns.values())) for columns in forms]
    if all(n < len(c) for n, c in zip(present, forms, strict=True)):
        raise errors[present.index(max(present))]


def _select_objects(path: str, rows: list[Row], chosen: Selection) -> Columns:
    """Return the columns of all rows of JSON or of a table in memory."""
    names = chosen.columns.values()
    rows = plain_rows(path, rows, names, names)
    return select_keys(path, rows, chosen)


def stream_columns(
    path: str | os.PathLike[str],
    columns: ColumnNames,
    *,
    rows_at_once: int = 1024,
    **rules: Any,
) -> Iterator[Columns]:
    """Yield the columns of `read_columns` in parts, for files larger than memory.

    Bad rows raise an error when reached, and doubtful cells are told at the end. A
    header in a file whose columns are selected by number is detected in the first part,
    which may have one row more. A file that is no list of rows, such as an array of
    JSON, or that an annotation tool wrote, is read as a whole.

    Args:
        path, columns: as in `read_columns`.
        rows_at_once: rows of a part.
        **rules: further arguments of `read_columns`; no row is skipped.

    Raises:
        DataError: as in `read_columns`; a column is in some parts only.
    """
    place = os.fspath(path)
    chosen = selection_of(columns, **rules)
    check_header(place, chosen.header)
    kind = ""
    parts: Iterator[Columns]
    if has_objects(place):
        names = chosen.columns.values()
        found = stream_objects(place, rows_at_once, names, names)
        parts = (select_keys(place, rows, chosen) for rows in found)
    else:
        lines = stream_lines(place)
        first = next(lines)
        kind = format_of(place, first)
        lines = itertools.chain([first], lines)
        parts = _table_parts(place, lines, chosen, rows_at_once)
    notes = CellNotes(place, kind)
    before: set[str] | None = None
    for part in parts:
        roles = set(part.cells)
        for role in sorted(roles ^ (roles if before is None else before)):
            which = "no" if role in roles else "each"
            message = (
                f"`{role}` must be in each row or in none; {which} row before has it"
            )
            raise DataError(message, path=place, line=part.lines[0])
        before = roles
        notes.add(part)
        yield part
    notes.tell()


def _table_parts(
    path: str, lines: Iterator[str], chosen: Selection, rows_at_once: int
) -> Iterator[Columns]:
    """Yield the columns of the lines of a TSV or CSV file."""
    first = next(lines)
    dialect = table_dialect(path, first, chosen)
    rows = table_rows(path, itertools.chain([first], lines), dialect)
    top = next(rows)
    cells = list(itertools.islice(rows, rows_at_once))
    found = select_cells(path, [top, *cells], chosen, dialect)
    named = len(found) == len(cells)  # else the first row is data
    yield found
    chosen = dataclasses.replace(chosen, header="yes" if named else "no")
    for cells in batched(rows, rows_at_once):
        # Each part is read after the first row, which determines names and width.
        found = select_cells(path, [top, *cells], chosen, dialect)
        yield found if named else found.take(range(1, len(found)))
