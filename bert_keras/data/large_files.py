"""Large local files, read in blocks into Arrow's memory: `read_large`.

Very large ones are in a temporary file that is mapped into memory, so that the system
keeps there what is used.

pyarrow splits the rows of TSV and CSV, and decodes Parquet. It reads only what it
reads as the readers of `rows` do, cell by cell: a file that is odd or wrong anywhere,
such as by a quote within a cell or a row of another width, is left to them, which name
file and line. Cells are text, whatever they look like.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_keras.data.annotations import TOOL_KEYS
from bert_keras.data.columns import Columns, numbers
from bert_keras.data.json_rows import json_rows
from bert_keras.data.memory import rows_of_file
from bert_keras.data.rows import (
    Selection,
    csv_rows,
    declares_delimiter,
    format_of,
    tsv_rows,
)
from bert_keras.data.selected import (
    Header,
    checked,
    header_of,
    report_doubtful_cells,
    select_keys,
    table_dialect,
)
from bert_keras.data.text_column import TextColumn
from bert_keras.errors import BertKerasError, DataError, reason_of
from bert_keras.files.parquet import is_saved, is_stored, size_of, stream_tables
from bert_keras.files.streams import blocks_of

LEAST_BYTES = 4 << 20  # of a large file; smaller ones do not need pyarrow
BLOCK_BYTES = 4 << 20  # read at once
MAPPED_BYTES = 256 << 20  # of cells, from which they are in a temporary file
_MOST_BYTES = 256 << 20  # of a row
_PARQUET_ROWS = 1 << 16  # decoded at once
# What `str.strip` removes.
SPACES = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005"
    "\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_NEWLINE, _RETURN, _QUOTE, _OPEN, _CLOSE = b'\n\r"{}'


class _OddError(Exception):
    """The readers of `rows` must read the file, or refuse it."""


def read_large(path: str, chosen: Selection) -> Columns | None:
    """Return the columns of a large file; `None` if it is small, odd or wrong."""
    is_local = os.path.isfile(path) or is_saved(path)
    if chosen.whole or not is_local or size_of(path) < LEAST_BYTES:
        return None
    try:
        from pyarrow import ArrowException
    except ImportError:  # as in bert_keras-runtime
        return None
    try:
        if is_stored(path):
            return _of_parts(path, _parquet_parts(path, chosen))
        blocks = blocks_of(path, BLOCK_BYTES)
        block = next(blocks, b"")
        if b"\n" not in block:
            return None
        first = block.partition(b"\n")[0].decode()
        blocks = itertools.chain([block], blocks)
        if format_of(path, first) == "jsonl":
            return _of_parts(path, _json_parts(path, blocks, chosen))
        return _read_table(path, first, blocks, chosen)
    except (_OddError, DataError, UnicodeDecodeError, ArrowException):
        return None


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Some whole rows of a table."""

    data: bytes  # without the last line break
    lines: np.ndarray  # at which each row begins


def _read_table(
    path: str, first: str, blocks: Iterable[bytes], chosen: Selection
) -> Columns:
    """Return the columns of a TSV or CSV file."""
    if declares_delimiter(first):
        raise _OddError
    kind, delimiter = table_dialect(path, first, chosen)
    if not delimiter.isascii():
        raise _OddError
    top: Header | None = None
    with _Kept(path) as kept:
        for rows in _whole_rows(blocks, delimiter.encode(), is_csv=kind == "csv"):
            if top is None:
                row, rest = _first_row(path, rows, kind, delimiter)
                top = header_of(path, row, chosen, delimiter)
                rows = rest if top.named else rows
                if not len(rows.lines):
                    raise _OddError
            kept.add(_split(rows, top, chosen, kind, delimiter), rows.lines)
        if top is None:
            raise _OddError
        return report_doubtful_cells(checked(kept.columns(), top), kind)


class _Kept:
    """The cells of a file, which come in parts; many of them in a temporary file.

    Args:
        path: the file, for errors.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._parts: list[Any] = []  # Arrow's record batches
        self._lines: list[np.ndarray] = []
        self._before = 0  # bytes that Arrow has allocated for others
        self._folder = contextlib.ExitStack()
        self._writer: Any = None
        self._file = ""

    def __enter__(self) -> _Kept:
        from pyarrow import total_allocated_bytes

        self._before = total_allocated_bytes()
        return self

    def __exit__(self, *error: Any) -> None:
        self._folder.close()

    def add(self, cells: dict[str, Any], lines: Any) -> None:
        """Keep Arrow's cells of each role, and the lines of their rows."""
        from pyarrow import RecordBatch, total_allocated_bytes

        if self._parts and self._parts[0].schema.names != list(cells):
            raise _OddError
        types = [field.type for field in self._parts[0].schema] if self._parts else []
        arrays = list(cells.values())
        if types:
            arrays = [a.cast(t) for a, t in zip(arrays, types, strict=True)]
        batch = RecordBatch.from_arrays(arrays, list(cells))
        self._lines.append(np.asarray(lines))
        if self._writer is None:
            self._parts.append(batch)
            if total_allocated_bytes() - self._before >= MAPPED_BYTES:
                self._map()
        else:
            self._written(batch)

    def _map(self) -> None:
        """Move what is kept to a file."""
        from pyarrow import ipc

        with self._refused():
            folder = tempfile.TemporaryDirectory(prefix="bert_keras-")
            self._file = os.path.join(self._folder.enter_context(folder), "rows.arrow")
            writer = ipc.new_file(self._file, self._parts[0].schema)
            self._writer = self._folder.enter_context(writer)
        for part in self._parts:
            self._written(part)
        del self._parts[1:]  # the first tells the types

    def _written(self, batch: Any) -> None:
        with self._refused():
            self._writer.write_batch(batch)

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BertKerasError(
                f"{tempfile.gettempdir()}, the folder of temporary files, cannot take "
                f"the rows of {self._path}: {reason_of(error)}; TMPDIR names another"
            ) from None

    def columns(self) -> Columns:
        """Return all cells."""
        from pyarrow import ipc, memory_map

        if not self._parts:
            raise _OddError
        if self._writer is not None:
            with self._refused():
                self._writer.close()
            # The memory stays when the folder is removed.
            stored = ipc.open_file(memory_map(self._file))
            batches = range(stored.num_record_batches)
            self._parts = [stored.get_batch(number) for number in batches]
        roles = self._parts[0].schema.names
        texts = {r: TextColumn([part[r] for part in self._parts]) for r in roles}
        return Columns(self._path, texts, _joined(self._lines))


def _joined(lines: Sequence[Any]) -> Sequence[int]:
    """Return the lines of all rows; a range if they are in turn."""
    first, last = int(lines[0][0]), int(lines[-1][-1])
    if last - first + 1 == sum(map(len, lines)):
        return range(first, last + 1)
    return numbers(np.concatenate(lines))


def _whole_rows(
    blocks: Iterable[bytes], delimiter: bytes, *, is_csv: bool
) -> Iterator[_Rows]:
    """Yield the rows of a table in parts; empty lines at its end are no rows.

    Raises:
        _OddError: it has a NUL, a line break of CR alone, bytes that are not UTF-8, or
            a quote that neither begins nor ends a cell.
    """
    rest, line = b"", 1
    for block in itertools.chain(blocks, [None]):
        data = rest + (block or b"")
        if len(data) > _MOST_BYTES:
            raise _OddError
        marks = np.frombuffer(data, "uint8")
        quotes = np.flatnonzero((marks == _QUOTE) & is_csv)
        breaks = np.flatnonzero(marks == _NEWLINE)
        is_end = np.searchsorted(quotes, breaks) % 2 == 0
        end = len(data)
        if block is not None:
            end = int(breaks[is_end][-1]) if is_end.any() else 0
        body = data[:end].rstrip(b"\r\n")
        if not body:
            rest = data
            continue
        rest = _after_break(data[len(body) :])
        _check_bytes(body)
        _check_quotes(marks, quotes[quotes < len(body)], len(body), delimiter)
        is_end = is_end[breaks < len(body)]
        starts = np.concatenate([[0], np.flatnonzero(is_end) + 1])
        yield _Rows(body, starts + line)
        line += len(is_end) + 1


def _after_break(data: bytes) -> bytes:
    """Return what follows the line break with which data begins."""
    for ending in (b"\n", b"\r\n"):
        if data.startswith(ending):
            return data[len(ending) :]
    if data:
        raise _OddError
    return data


def _check_bytes(data: bytes) -> None:
    data.decode()
    returns = data.count(b"\r")
    if b"\0" in data or returns and returns != data.count(b"\r\n"):
        raise _OddError


def _check_quotes(
    marks: np.ndarray, quotes: np.ndarray, size: int, delimiter: bytes
) -> None:
    """Raise unless each quote begins or ends a cell, or is one of two within a cell.

    Args:
        marks: the bytes.
        quotes: the places of quotes among the first `size` bytes.
        size: number of bytes.
        delimiter: what separates cells.
    """
    if len(quotes) % 2:
        raise _OddError
    first, second = quotes[::2], quotes[1::2]
    before = marks[np.maximum(first - 1, 0)][first > 0]
    after = marks[np.minimum(second + 1, size - 1)][second < size - 1]
    for near, edges in ((before, (_NEWLINE,)), (after, (_NEWLINE, _RETURN))):
        allowed = (_QUOTE, delimiter[0], *edges)
        if not np.isin(near, np.array(allowed, "uint8")).all():
            raise _OddError


def _first_row(
    path: str, rows: _Rows, kind: str, delimiter: str
) -> tuple[list[str], _Rows]:
    """Return the cells of the first row, and the other rows."""
    size = int(rows.lines[1] - rows.lines[0]) if len(rows.lines) > 1 else 0
    end = -1
    for _ in range(size):
        end = rows.data.index(b"\n", end + 1)
    head, rest = (rows.data[:end], rows.data[end + 1 :]) if size else (rows.data, b"")
    text = head.decode()
    found = tsv_rows(text) if kind == "tsv" else csv_rows(path, text, delimiter)
    return next(found)[1], _Rows(rest, rows.lines[1:])


def _split(
    rows: _Rows, top: Header, chosen: Selection, kind: str, delimiter: str
) -> dict[str, Any]:
    """Return the selected cells of each role as an Arrow array of strings.

    Raises:
        _OddError: a row has another width, a required cell is blank, or a row may be
            the header again.
    """
    import pyarrow
    from pyarrow import compute, csv

    if rows.data.startswith(b"\xef\xbb\xbf"):  # pyarrow would drop it
        raise _OddError
    width, used = len(top.cells), sorted(set(top.found.values()))
    table = csv.read_csv(
        pyarrow.BufferReader(rows.data),
        csv.ReadOptions(
            use_threads=False,
            block_size=len(rows.data) + 1,
            column_names=[str(index) for index in range(width)],
        ),
        csv.ParseOptions(
            delimiter=delimiter,
            quote_char=kind == "csv" and b'"' in rows.data and '"',
            escape_char=False,
            newlines_in_values=len(rows.lines) <= rows.data.count(b"\n"),
            # Else a blank line would be a row of empty cells, in any number of columns.
            ignore_empty_lines=width > 1,
        ),
        csv.ConvertOptions(
            check_utf8=False,
            include_columns=[str(index) for index in used],
            column_types={str(index): pyarrow.string() for index in used},
            null_values=[],
            strings_can_be_null=False,
        ),
    )
    if table.num_rows != len(rows.lines):
        raise _OddError
    columns = {index: table[str(index)].combine_chunks() for index in used}
    trimmed = {i: compute.utf8_trim(each, SPACES) for i, each in columns.items()}
    for role, index in top.found.items():
        if role not in chosen.empty and _holds(compute.equal(trimmed[index], "")):
            raise _OddError
    if top.named and width > 1:
        names = pyarrow.array(top.cells)
        alike = [np.asarray(compute.is_in(each, names)) for each in trimmed.values()]
        if np.logical_and.reduce(alike).any():
            raise _OddError
    return {role: columns[index] for role, index in top.found.items()}


def _holds(found: Any) -> bool:
    """Return whether one of Arrow's Booleans is true."""
    from pyarrow import compute

    return bool(compute.any(found).as_py())


_Part = tuple[dict[str, Any], Sequence[int]]  # Arrow's cells by role, and lines


def _of_parts(path: str, parts: Iterable[_Part]) -> Columns:
    """Return the columns of parts that have the same roles."""
    with _Kept(path) as kept:
        for cells, lines in parts:
            kept.add(cells, lines)
        return report_doubtful_cells(kept.columns())


def _json_parts(
    path: str, blocks: Iterable[bytes], chosen: Selection
) -> Iterator[_Part]:
    """Yield the cells of JSON objects, one a line."""
    rest, line = b"", 1
    for block in itertools.chain(blocks, [None]):
        data = rest + (block or b"")
        if len(data) > _MOST_BYTES or b"\0" in data:
            raise _OddError
        end = len(data) if block is None else data.rfind(b"\n") + 1
        body = data[:end].rstrip(b"\r\n")
        # A single line may be a whole file of another form.
        if not body or line == 1 and b"\n" not in body and block is not None:
            rest = data
            continue
        rest = _after_break(data[len(body) :])
        if line == 1 and (not body.startswith(b"{") or b"\n" not in body):
            raise _OddError
        text = body.decode()
        some = "\n".join(text.split("\n", 100)[:100])
        rows = json_rows(path, some, first_line=line)
        if any(not TOOL_KEYS.isdisjoint(row) for _, row in rows):
            raise _OddError
        count = text.count("\n") + 1
        if line == 1:
            chosen.tell_unread(path, list(rows[0][1]))
        cells = _plain_json(body, count, some, chosen)
        if cells is None:
            cells = _strings(path, json_rows(path, text, first_line=line), chosen)
        yield cells, range(line, line + count)
        line += count
        chosen = dataclasses.replace(chosen, unread=())  # told of the first row


_JSON_TYPES = {str: "string", int: "int64", bool: "bool"}


def _plain_json(
    body: bytes, count: int, some: str, chosen: Selection
) -> dict[str, Any] | None:
    """Return the selected cells of JSON objects; `None`: they must be read by cell.

    pyarrow reads texts, whole numbers and Booleans as the reader of `json_rows` does;
    a column with others, or with a missing cell, is left to it.

    Args:
        body: objects, one a line.
        count: their number.
        some: the first of them.
        chosen: the columns.
    """
    import pyarrow
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    marks = np.frombuffer(body.replace(b"\r\n", b"\n"), "uint8")
    breaks = np.flatnonzero(marks == _NEWLINE)
    starts, ends = marks[np.append(0, breaks + 1)], marks[np.append(breaks, 0) - 1]
    if (starts != _OPEN).any() or (ends != _CLOSE).any():
        return None
    values = json.loads(some.partition("\n")[0])
    types = {}
    for role, key in chosen.columns.items():
        kind = _JSON_TYPES.get(type(values.get(key)))
        if not isinstance(key, str):
            return None
        if role in chosen.optional and key not in values:
            kind = "string"
        if kind is None or kind == "int64" and b"-0" in body:  # as spelled
            return None
        types[key] = pyarrow.type_for_alias(kind)
    try:
        table = read_json(
            pyarrow.BufferReader(body),
            ReadOptions(use_threads=False, block_size=len(body) + 1),
            ParseOptions(pyarrow.schema(types), unexpected_field_behavior="ignore"),
        )
    except pyarrow.ArrowException:
        return None
    if table.num_rows != count:
        return None
    cells = {}
    for role, key in chosen.columns.items():
        column = table[key]
        if role in chosen.optional and column.null_count == count:
            continue
        column = pyarrow.table({key: column.cast("string")})
        cells[role] = _plain_texts(column, role, key, chosen)
    return None if any(each is None for each in cells.values()) else cells


def _strings(path: str, rows: list[Any], chosen: Selection) -> dict[str, Any]:
    """Return the selected cells of objects as Arrow arrays; a bad one raises."""
    from pyarrow import array

    cells = select_keys(path, rows, dataclasses.replace(chosen, bad_rows="error")).cells
    return {role: array(each, "string") for role, each in cells.items()}


def _parquet_parts(path: str, chosen: Selection) -> Iterator[_Part]:
    """Yield the cells of a Parquet file."""
    count = 0
    for table in stream_tables(path, _PARQUET_ROWS):
        names = table.column_names
        if TOOL_KEYS & set(names) or len(set(names)) < len(names):
            raise _OddError
        if not count:
            chosen.tell_unread(path, names)
        cells: dict[str, Any] = {}
        for role, key in chosen.columns.items():
            plain = _plain_texts(table, role, key, chosen)
            if plain is not None:
                cells[role] = plain
                continue
            one = dataclasses.replace(chosen, columns={role: key}, unread=())
            held = [key] if key in names else names[:1]
            rows = rows_of_file(path, table.select(held)).rows()
            cells |= _strings(path, rows, one)
        yield cells, range(count + 1, count + 1 + table.num_rows)
        count += table.num_rows


def _plain_texts(table: Any, role: str, key: Any, chosen: Selection) -> Any:
    """Return a column of texts without a bad one; `None`: it must be read by cell."""
    import pyarrow
    from pyarrow import compute

    if key not in table.column_names:
        return None
    column = table[key]
    # One part is not copied, so that a mapped file stays where it is.
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if str(column.type) not in ("string", "large_string") or column.null_count:
        return None
    column.validate(full=True)
    if _holds(compute.match_substring(column, "\0")):
        return None
    if role not in chosen.empty:
        trimmed = compute.utf8_trim(column, SPACES)
        if _holds(compute.equal(trimmed, "")):
            return None
    return column
