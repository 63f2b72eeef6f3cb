"""Rows of Parquet and Arrow files, with pyarrow; they are read like rows in memory."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from bert_keras.errors import DataError, NoRowsError, needs, reason_of
from bert_keras.files.filesystems import is_remote, opened
from bert_keras.files.json_file import read_json
from bert_keras.files.lfs import check_no_pointer

ENDING, ARROW = ".parquet", (".arrow", ".feather")
_SAVED = "state.json"  # in a folder that `datasets` saved


def check_arrow() -> None:
    """Raise a ConfigError unless pyarrow is installed."""
    with needs("a Parquet or Arrow file", runtime_extra="parquet"):
        import pyarrow  # noqa: F401


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names a Parquet file, by its ending."""
    return os.fspath(path).lower().endswith(ENDING)


def is_stored(path: str) -> bool:
    """Return whether a path names rows of typed columns, by its ending.

    They are a Parquet file, an Arrow or Feather file, or a folder of Arrow files that
    `datasets` saved.
    """
    return path.lower().endswith((ENDING, *ARROW)) or is_saved(path)


def is_saved(path: str) -> bool:
    """Return whether a path is a folder that `Dataset.save_to_disk` wrote."""
    return os.path.isfile(os.path.join(path, _SAVED))


def size_of(path: str) -> int:
    """Return the bytes of a local file, or of the files in a saved folder."""
    return sum(map(os.path.getsize, _files_of(path) if is_saved(path) else [path]))


def read_table(path: str) -> Any:
    """Return the rows of a Parquet or Arrow file as an Arrow table.

    Raises:
        DataError: the file is missing, broken or has no rows.
    """
    check_arrow()
    from pyarrow import concat_tables

    if not is_parquet(path):
        return concat_tables(stream_tables(path, sys.maxsize))
    with _parquet(path) as parquet, _stored(path) as file:
        table = parquet.read_table(file)
    if not table.num_rows:
        raise NoRowsError("has no rows", path=path)
    return table


def stream_tables(
    path: str, rows_at_once: int, *, column: str | None = None
) -> Iterator[Any]:
    """Yield the rows of a Parquet file in Arrow tables of this size; as `read_table`.

    Tables of Arrow files may be smaller. Local ones are mapped into memory. With
    `column`, only that one is read.
    """
    count = 0
    with _parquet(path) as parquet:
        if is_parquet(path):
            tables = _parquet_tables(path, parquet, rows_at_once, column)
        else:
            tables = _arrow_tables(path, rows_at_once, column)
        for table in tables:
            count += 1
            yield table
    if not count:
        raise NoRowsError("has no rows", path=path)


def _parquet_tables(
    path: str, parquet: Any, rows_at_once: int, column: str | None
) -> Iterator[Any]:
    from pyarrow import Table

    with _stored(path) as stored:
        file = parquet.ParquetFile(stored)
        columns = _columns(path, file.schema_arrow, column)
        for batch in file.iter_batches(rows_at_once, columns=columns):
            yield Table.from_batches([batch])


def _columns(path: str, schema: Any, column: str | None) -> list[str] | None:
    if column is not None and column not in schema.names:
        have = ", ".join(schema.names[:5]) or "none"
        raise DataError(f"must have the column {column!r}; has {have}", path=path)
    return None if column is None else [column]


def _arrow_tables(path: str, rows_at_once: int, column: str | None) -> Iterator[Any]:
    for file in _files_of(path) if is_saved(path) else [path]:
        for batch in _batches_of(file):
            columns = _columns(path, batch.schema, column)
            batch = batch if columns is None else batch.select(columns)
            for start in range(0, batch.num_rows, rows_at_once):
                yield batch.slice(start, rows_at_once)


def _files_of(folder: str) -> list[str]:
    """Return the files of a folder that `Dataset.save_to_disk` wrote."""
    state = read_json(os.path.join(folder, _SAVED), error=DataError)
    files = state.get("_data_files")
    names = [each.get("filename") for each in files] if isinstance(files, list) else []
    # Early versions kept the order of the rows in a file of its own.
    is_ordered = state.get("_indices_data_files")
    if is_ordered or not names or not all(isinstance(name, str) for name in names):
        raise DataError("must name its files as `datasets` does", path=folder)
    return [os.path.join(folder, name) for name in names]


def _batches_of(path: str) -> Iterator[Any]:
    """Yield the tables of an Arrow file, a stream or a Feather file, as stored."""
    from pyarrow import BufferReader, Table, ipc, memory_map

    if is_remote(path):
        with opened(path) as file:
            source = BufferReader(file.read())
    else:
        source = memory_map(path)
    start = source.read(6)
    source.seek(0)
    if start == b"ARROW1":
        reader = ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield Table.from_batches([reader.get_batch(number)], reader.schema)
    else:
        stream = ipc.open_stream(source)
        for batch in stream:
            yield Table.from_batches([batch], stream.schema)


_ROWS_TOGETHER = 10_000


def write_rows(
    file: BinaryIO, read: Callable[[], Iterable[Mapping[str, Any]]], *, path: str
) -> None:
    """Write rows of plain values; one that lacks a column has null there.

    Args:
        file: a new file.
        read: called twice: for the type of each column in all rows, and for the rows.
        path: what errors name.

    Raises:
        DataError: a column has values of types that have none in common.
    """
    with _parquet(path, "written") as parquet:
        import pyarrow as arrow

        def schema_of(rows: Sequence[Mapping[str, Any]]) -> Any:
            names = dict.fromkeys(name for row in rows for name in row)
            return arrow.table({n: [row.get(n) for row in rows] for n in names}).schema

        schemas = [arrow.schema([]), *map(schema_of, _together(read()))]
        schema = arrow.unify_schemas(schemas, promote_options="permissive")
        with parquet.ParquetWriter(file, schema) as writer:
            for rows in _together(read()):
                writer.write_table(arrow.Table.from_pylist(rows, schema))


def _together(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(rows)
    while some := list(itertools.islice(rows, _ROWS_TOGETHER)):
        yield some


@contextlib.contextmanager
def _stored(path: str) -> Iterator[Any]:
    """Yield the file; one on another file system is read into memory."""
    with opened(path) as file:
        yield io.BytesIO(file.read()) if is_remote(path) else file


@contextlib.contextmanager
def _parquet(path: str, done: str = "read") -> Iterator[Any]:
    """Yield pyarrow.parquet; turn its errors into errors of a user's file."""
    # Not at the top: most commands read no Parquet, and start faster without it.
    check_arrow()
    from pyarrow import ArrowException, parquet

    try:
        yield parquet
    except (ArrowException, OSError) as error:
        if done == "read" and not is_remote(path):
            check_no_pointer(path, error=DataError)
        message = f"cannot be {done}: {reason_of(error)}"
        raise DataError(message, path=path) from None
