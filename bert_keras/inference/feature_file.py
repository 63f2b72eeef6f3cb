"""A file of features, written as they come: `feature_writer` for npz and Parquet.

The file is made beside its place and moved there when it is whole. npz holds arrays
that `numpy.load` reads: `embeddings` float32 [N, D] and `lines` int64 [N], or of tokens
`embeddings` float32 [M, D], `tokens` string [M], `starts` and `ends` int32 [M],
`row_splits` int64 [N + 1] (the tokens of text i stand at row_splits[i] up to
row_splits[i + 1]) and `lines`. Parquet holds one row a text with `line`, `text` and
`embedding`, or `tokens`, `starts`, `ends` and `embeddings`, lists of one length.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bert_keras.errors import ConfigError, DataError
from bert_keras.files.unfinished import new_folder

ENDINGS = (".npz", ".parquet")
_INSTALL = "pip install 'bert_keras[parquet]'"


class Writer(Protocol):
    """Takes the features of some texts at a time, in order."""

    def texts(self, lines: Any, texts: Sequence[str], embeddings: np.ndarray) -> None:
        """Add vectors of texts: `lines` int [N], N texts, float32 [N, D]."""

    def tokens(
        self,
        lines: Any,
        texts: Sequence[str],
        embeddings: np.ndarray,
        *,
        counts: np.ndarray,
        tokens: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
    ) -> None:
        """Add vectors of tokens, float32 [M, D]; `counts` [N] of them are of a text."""

    def close(self, *, whole: bool) -> None:
        """Finish the file, or leave it as it is."""


def check_output(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file of features if it can be written.

    Raises:
        ConfigError: its ending is unknown, or the package that writes it is missing.
        DataError: it cannot be written.
    """
    target = Path(os.path.realpath(path))  # what a link points to, not the link
    if target.suffix not in ENDINGS:
        raise ConfigError(
            f"`output` must end with {' or '.join(ENDINGS)}; received {os.fspath(path)}"
        )
    if target.is_dir():
        raise DataError("is a folder, not a file", path=path)
    if not target.parent.is_dir():
        raise DataError(f"no such folder: {target.parent}", path=path)
    if target.suffix == ".parquet":
        _pyarrow()
    return target


@contextlib.contextmanager
def feature_writer(path: str | os.PathLike[str]) -> Iterator[Writer]:
    """Give the writer of a new file; it takes its place when all went well.

    Raises:
        ConfigError, DataError: see `check_output`; the disk refuses.
    """
    target = check_output(path)
    make: Callable[[Path], Writer] = _Npz if target.suffix == ".npz" else _Parquet
    try:
        with new_folder(target.parent, f".{target.name}-") as folder:
            writer, whole = make(folder), False
            try:
                yield writer
                whole = True
            finally:
                writer.close(whole=whole)
            os.replace(folder / "whole", target)
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise DataError(message, path=path) from None


class _Npz:
    """Each array grows in a file of its own; at the end they become one zip.

    An array's header holds its length, which is known at the end only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spools: dict[str, _Spool] = {}
        self._count = 0

    def texts(self, lines: Any, texts: Sequence[str], embeddings: np.ndarray) -> None:
        self._add("embeddings", embeddings)
        self._add("lines", np.asarray(lines, np.int64))

    def tokens(
        self,
        lines: Any,
        texts: Sequence[str],
        embeddings: np.ndarray,
        *,
        counts: np.ndarray,
        tokens: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
    ) -> None:
        if not self._count:
            self._add("row_splits", np.zeros(1, np.int64))
        splits = self._count + np.cumsum(counts, dtype=np.int64)
        self._count = int(splits[-1])
        self._add("row_splits", splits)
        self._add("tokens", tokens)
        self._add("starts", starts)
        self._add("ends", ends)
        self.texts(lines, texts, embeddings)

    def _add(self, name: str, values: np.ndarray) -> None:
        if name not in self._spools:
            self._spools[name] = _Spool(self._folder / name, values)
        self._spools[name].add(values)

    def close(self, *, whole: bool) -> None:
        for spool in self._spools.values():
            spool.file.close()
        if whole:
            self._join()

    def _join(self) -> None:
        with zipfile.ZipFile(self._folder / "whole", "w", allowZip64=True) as joined:
            for name, spool in self._spools.items():
                with joined.open(f"{name}.npy", "w", force_zip64=True) as member:
                    spool.pour(member)


class _Spool:
    """An array that grows along its first axis, in a file."""

    def __init__(self, path: Path, like: np.ndarray) -> None:
        self._path = path
        self.file = open(path, "wb")
        self._dtype, self._inner, self._count = like.dtype, like.shape[1:], 0

    def add(self, values: np.ndarray) -> None:
        self.file.write(np.asarray(values, self._dtype).tobytes())
        self._count += len(values)

    def pour(self, member: Any) -> None:
        """Write the array in NumPy's format, and drop the file."""
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._count, *self._inner),
        }
        np.lib.format.write_array_header_1_0(member, header)
        with open(self._path, "rb") as file:
            shutil.copyfileobj(file, member, 1 << 20)
        self._path.unlink()


class _Parquet:
    """Rows of Parquet, a row group each time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "whole"
        self._arrow = _pyarrow()
        self._parquet = importlib.import_module("pyarrow.parquet")
        self._writer: Any = None

    def texts(self, lines: Any, texts: Sequence[str], embeddings: np.ndarray) -> None:
        self._add(lines, texts, embedding=self._vectors(embeddings))

    def tokens(
        self,
        lines: Any,
        texts: Sequence[str],
        embeddings: np.ndarray,
        *,
        counts: np.ndarray,
        tokens: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
    ) -> None:
        arrow = self._arrow
        offsets = arrow.array(np.concatenate([[0], np.cumsum(counts)]), arrow.int32())
        values = {
            "tokens": arrow.array(tokens.tolist(), arrow.string()),
            "starts": arrow.array(starts, arrow.int32()),
            "ends": arrow.array(ends, arrow.int32()),
            "embeddings": self._vectors(embeddings),
        }
        lists = {
            name: arrow.ListArray.from_arrays(offsets, column)
            for name, column in values.items()
        }
        self._add(lines, texts, **lists)

    def _vectors(self, embeddings: np.ndarray) -> Any:
        flat = self._arrow.array(embeddings.reshape(-1), self._arrow.float32())
        size = embeddings.shape[1]
        return self._arrow.FixedSizeListArray.from_arrays(flat, size)

    def _add(self, lines: Any, texts: Sequence[str], **columns: Any) -> None:
        arrow = self._arrow
        table = arrow.table(
            {
                "line": arrow.array(lines, arrow.int64()),
                "text": arrow.array(list(texts), arrow.string()),
                **columns,
            }
        )
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self, *, whole: bool) -> None:
        if self._writer is not None:
            self._writer.close()


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise ConfigError(f"writing Parquet needs a package: {_INSTALL}") from None
