"""The npz file of the vectors of texts, which `features` and `search` share.

It holds `embeddings` float32 [N, D] and `lines` int64 [N], the `format`, a hash of the
`texts`, and for `search` perhaps faiss's `graph`. A file of the vectors of tokens has
`tokens` and `row_splits`, too, and is no index. Files of earlier versions are read: the
index with `vectors` in place of `embeddings`, and features without format and hash.
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

FORMAT = 2


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
        """Return whether the vectors may be those of these texts, in this order."""
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


def read_vectors(path: str | os.PathLike[str]) -> VectorFile:
    """Return the vectors of texts in a file.

    Raises:
        DataError: it is another file, of another version, or of the vectors of tokens.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            if "row_splits" in stored:
                message = "holds the vectors of tokens: an index has one for each text"
                raise DataError(message, path=path)
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
        message = "must be an index that `search` or `features` wrote"
        raise DataError(message, path=path) from None


def describe_vectors(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return facts about a file of vectors, as plain values.

    Raises:
        DataError: as for `read_vectors`.
    """
    found = read_vectors(path)
    count, width = found.vectors.shape
    return {
        "kind": "index of vectors, for `search --index`",
        "path": os.fspath(path),
        "format": found.format,
        "texts": count,
        "width": width,
        "dtype": str(found.vectors.dtype),
        "faiss graph": found.graph is not None,
        "hash of the texts": found.texts or "none",
        "bytes": os.path.getsize(path),
    }
