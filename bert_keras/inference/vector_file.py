"""The file of the vectors of texts, npz or Parquet, that `features` and `search` share.

An npz holds `embeddings` float32 [N, D] and `lines` int64 [N], the `format`, a hash of
the `texts`, and for `search` perhaps faiss's `graph`. A file of the vectors of tokens
has `tokens` and `row_splits`, too, and is no index. Files of earlier versions are read:
the index with `vectors` in place of `embeddings`, and features without format and hash.
For Parquet see `features`: the file contains the texts, and no graph.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_keras.errors import DataError
from bert_keras.files.parquet import is_parquet, stream_tables

FORMAT = 2
_AT_ONCE = 8192  # rows of Parquet
_OF_TOKENS = "holds the vectors of tokens: an index has one for each text"
_NOT_OURS = "must be an index that `search` or `features` wrote"


class TextsHash:
    """A hash of texts in their order, which may come in parts."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._hash.update(json.dumps(text).encode() + b"\n")

    def __str__(self) -> str:
        return self._hash.hexdigest()


class VectorFile(NamedTuple):
    """The content of a file of vectors.

    Attributes:
        vectors: float [N, D].
        graph: faiss's graph as bytes, if there is one.
        texts: the hash of the texts; empty if an earlier version wrote none.
        format: 1 for files of earlier versions.
    """

    vectors: np.ndarray
    graph: np.ndarray | None
    texts: str
    format: int

    def is_of(self, texts: Sequence[str]) -> bool:
        """Return whether the vectors may belong to these texts, in this order."""
        if len(texts) != len(self.vectors):
            return False
        if self.format == 1:
            old = hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()
            return self.texts in ("", old)
        mark = TextsHash()
        mark.add(texts)
        return self.texts == str(mark)


def entries_of(texts_hash: str) -> dict[str, Any]:
    """Return the entries that name format and texts of a file of vectors."""
    return {"format": FORMAT, "texts": texts_hash}


def is_vector_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is npz or Parquet, by its ending or its arrays."""
    if not os.path.isfile(path):
        return False
    if os.fspath(path).endswith(".npz") or is_parquet(os.fspath(path)):
        return True
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return bool({"embeddings.npy", "vectors.npy"} & set(file.namelist()))


def read_vectors(path: str | os.PathLike[str]) -> VectorFile:
    """Return the vectors of texts in a file.

    Raises:
        ConfigError: it is Parquet, and pyarrow is not installed.
        DataError: it is another file, of another version, or of the vectors of tokens.
    """
    if is_parquet(os.fspath(path)):
        return _read_parquet(path)
    try:
        with np.load(path, allow_pickle=False) as stored:
            if "row_splits" in stored:
                raise DataError(_OF_TOKENS, path=path)
            name = "embeddings" if "embeddings" in stored else "vectors"
            version = int(stored["format"]) if "format" in stored else 1
            if not 1 <= version <= FORMAT or stored[name].ndim != 2:
                raise KeyError
            return VectorFile(
                stored[name],
                stored["graph"] if "graph" in stored else None,
                str(stored["texts"]) if "texts" in stored else "",
                version,
            )
    except DataError:
        raise
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile):
        raise DataError(_NOT_OURS, path=path) from None


def _read_parquet(path: str | os.PathLike[str]) -> VectorFile:
    """Return the vectors of a Parquet file that `features` wrote."""
    parts, mark = [], TextsHash()
    for table in stream_tables(os.fspath(path), _AT_ONCE):
        names = set(table.column_names)
        if {"tokens", "embeddings"} <= names:
            raise DataError(_OF_TOKENS, path=path)
        if not {"text", "embedding"} <= names:
            raise DataError(_NOT_OURS, path=path)
        try:
            flat = table["embedding"].combine_chunks().flatten().to_numpy()
            parts.append(flat.astype("float32", casting="same_kind"))
            parts[-1] = parts[-1].reshape(len(table), -1)
        except (AttributeError, TypeError, ValueError):  # other columns of these names
            raise DataError(_NOT_OURS, path=path) from None
        mark.add(table["text"].to_pylist())
    return VectorFile(np.concatenate(parts), None, str(mark), FORMAT)


def _count_tokens(path: str | os.PathLike[str]) -> dict[str, int] | None:
    """Return the texts and tokens of a file of the vectors of tokens, or `None`."""
    try:
        if is_parquet(os.fspath(path)):
            first = next(stream_tables(os.fspath(path), 1))
            if not {"tokens", "starts", "ends", "embeddings"} <= {*first.column_names}:
                return None
            tables = list(stream_tables(os.fspath(path), _AT_ONCE, column="starts"))
            flat = [table["starts"].combine_chunks().flatten() for table in tables]
            return {"texts": sum(map(len, tables)), "tokens": sum(map(len, flat))}
        with np.load(path, allow_pickle=False) as stored:
            splits = stored["row_splits"]
        return {"texts": len(splits) - 1, "tokens": int(splits[-1])}
    except (DataError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    except (EOFError, zipfile.BadZipFile):
        return None


def describe_vectors(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return facts about a file of vectors, as plain values.

    Raises:
        ConfigError, DataError: as for `read_vectors`; the vectors may be of tokens.
    """
    tokens = _count_tokens(path)
    if tokens is not None:
        return {
            "kind": "vectors of tokens, no index for `search`",
            "path": os.fspath(path),
            **tokens,
            "bytes": os.path.getsize(path),
        }
    found = read_vectors(path)
    count, width = found.vectors.shape
    return {
        "kind": "index of vectors, for `search --index`",
        "path": os.fspath(path),
        "format": "Parquet" if is_parquet(os.fspath(path)) else found.format,
        "texts": count,
        "width": width,
        "dtype": str(found.vectors.dtype),
        "faiss graph": found.graph is not None,
        "hash of the texts": found.texts or "none",
        "bytes": os.path.getsize(path),
    }
