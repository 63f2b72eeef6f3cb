"""Rows of Parquet files, with pyarrow; they are read like rows in memory."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

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


@contextlib.contextmanager
def _stored(path: str) -> Iterator[Any]:
    """Yield the file; one on another file system is read into memory."""
    with opened(path) as file:
        yield io.BytesIO(file.read()) if is_remote(path) else file


@contextlib.contextmanager
def _parquet(path: str) -> Iterator[Any]:
    """Yield pyarrow.parquet; turn its errors into errors of a user's file."""
    # Not at the top: most commands read no Parquet, and start faster without it.
    from pyarrow import ArrowException, parquet

    try:
        yield parquet
    except (ArrowException, OSError) as error:
        if not is_remote(path):
            check_no_pointer(path, error=DataError)
        message = f"cannot be read: {reason_of(error)}"
        raise DataError(message, path=path) from None
