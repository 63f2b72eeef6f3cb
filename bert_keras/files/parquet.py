"""Rows of Parquet files, with pyarrow; they are read like rows in memory."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from bert_keras.errors import DataError, NoRowsError, reason_of
from bert_keras.files.filesystems import is_remote, opened
from bert_keras.files.lfs import check_no_pointer

ENDING = ".parquet"


def is_parquet(path: str) -> bool:
    """Return whether a path names a Parquet file, by its ending."""
    return path.lower().endswith(ENDING)


def read_table(path: str) -> Any:
    """Return the rows of a Parquet file as an Arrow table.

    Raises:
        DataError: the file is missing, broken or has no rows.
    """
    with _parquet(path) as parquet, _stored(path) as file:
        table = parquet.read_table(file)
    if not table.num_rows:
        raise NoRowsError("has no rows", path=path)
    return table


def stream_tables(
    path: str, rows_at_once: int, *, column: str | None = None
) -> Iterator[Any]:
    """Yield the rows of a Parquet file in Arrow tables of this size; as `read_table`.

    With `column`, only that one is read.
    """
    from pyarrow import Table

    count = 0
    with _parquet(path) as parquet, _stored(path) as stored:
        file = parquet.ParquetFile(stored)
        names = file.schema_arrow.names
        if column is not None and column not in names:
            have = ", ".join(names[:5]) or "none"
            raise DataError(f"must have the column {column!r}; has {have}", path=path)
        columns = None if column is None else [column]
        for batch in file.iter_batches(rows_at_once, columns=columns):
            count += 1
            yield Table.from_batches([batch])
    if not count:
        raise NoRowsError("has no rows", path=path)


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
    import pyarrow as arrow

    with _parquet(path, "written") as parquet:

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
    from pyarrow import ArrowException, parquet

    try:
        yield parquet
    except (ArrowException, OSError) as error:
        if done == "read" and not is_remote(path):
            check_no_pointer(path, error=DataError)
        message = f"cannot be {done}: {reason_of(error)}"
        raise DataError(message, path=path) from None
