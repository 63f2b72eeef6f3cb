"""A file of features: `feature_writer` for npz and Parquet.

The file is made beside its place and moved there when it is whole. Parquet is streamed
and holds one row a text with `line`, `text` and `embedding`, or `tokens`, `starts`,
`ends` and `embeddings`, lists of one length. npz, for what fits in memory, holds arrays
that `numpy.load` reads: `embeddings` float32 [N, D] and `lines` int64 [N], or of tokens
`embeddings` float32 [M, D], `tokens` string [M], `starts` and `ends` int32 [M],
`row_splits` int64 [N + 1] (the tokens of text i stand at row_splits[i] up to
row_splits[i + 1]) and `lines`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bert_keras.errors import ConfigError, DataError
from bert_keras.files.atomic import new_folder

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
        ConfigError: see `check_output`; features for npz do not fit in memory.
        DataError: see `check_output`; the disk refuses.
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
    """Arrays that are kept in memory until all are there: their lengths come first."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "whole"
        self._parts: dict[str, list[np.ndarray]] = {}
        self._bytes = 0

    def texts(self, lines: Any, texts: Sequence[str], embeddings: np.ndarray) -> None:
        self._add(embeddings=embeddings, lines=np.asarray(lines, np.int64))

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
        self._add(row_splits=np.asarray(counts, np.int64))
        self._add(tokens=tokens, starts=starts, ends=ends)
        self.texts(lines, texts, embeddings)

    def _add(self, **arrays: np.ndarray) -> None:
        for name, values in arrays.items():
            self._parts.setdefault(name, []).append(values)
            self._bytes += values.nbytes
        if self._bytes > _most_bytes():
            raise ConfigError(
                "`output` must end with .parquet for features that do not fit in "
                f"memory; received more than {self._bytes:,} bytes for .npz"
            )

    def close(self, *, whole: bool) -> None:
        if not whole:
            return
        names = list(self._parts)
        arrays = {name: np.concatenate(self._parts.pop(name)) for name in names}
        if "row_splits" in arrays:  # until here the tokens of each text
            arrays["row_splits"] = np.cumsum([0, *arrays["row_splits"]], dtype=np.int64)
        with open(self._path, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


def _most_bytes() -> int:
    """Return a third of the machine's memory: arrays are there twice when joined."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3


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
