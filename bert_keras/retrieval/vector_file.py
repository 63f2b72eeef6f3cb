"""The file of the vectors of texts, npz or Parquet, that `features` and `search` share.

An npz holds `embeddings` float32 [N, D] and `lines` int64 [N], the `format`, a hash of
the `texts`, and for `search` perhaps faiss's `graph`, and the texts and their names in
UTF-8: `content` and `ids` uint8, with the end of each, `content_ends` and `ids_ends`.
`model` is a hash of the model, see `index_model.model_hash`.
Format 4 has sparse vectors: `embeddings` float32 [M], their `places` int32 [M], `ends`
int64 [N] and `width`, see `SparseVectors`. Format 3 has `embeddings` int8, or bits in
uint8, with `width`, `ranges` and perhaps int8 `rescoring`, see `PackedVectors`.
Format 5 has several vectors for each text: `embeddings` float32 or int8 [M, D] and
`ends` int64 [N], see `TokenVectors`, and perhaps `centroids` float32 [K, D], with
`centroid_texts` int32 [P] and `centroid_ends` int64 [K], see `TokenCentroids`. A file
of `features` for tokens has `tokens` and `row_splits`, too, and is no index. For
Parquet see `features`: the file contains the texts, and no graph.
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
from bert_keras.files.npz import open_arrays
from bert_keras.files.parquet import is_parquet, stream_tables
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.vector_store import STORE_OF_FORMAT, VectorStore

MODEL_KEY = b"bert_keras.model"  # in the metadata of Parquet
_AT_ONCE = 8192  # rows of Parquet
_OF_TOKENS = "contains the vectors of tokens: an index has one for each text"
_NOT_OURS = "must be an index that `search` or `features` wrote"
# Raised for files that are not of vectors, or broken.
_BROKEN = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile)


class TextsHash:
    """A hash of texts in their order, which may come in parts."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._hash = hashlib.sha256()
        self.add(texts)

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._hash.update(json.dumps(text).encode() + b"\n")

    def __str__(self) -> str:
        return self._hash.hexdigest()


class VectorFile(NamedTuple):
    """The content of a file of vectors.

    Attributes:
        packed: the vectors, of any length.
        graph: faiss's graph as bytes, if there is one.
        texts: the hash of the texts.
        format: of the file, see above.
        content, ids: N texts, and their names, if the file holds them.
        lines: int64 [N], the lines of the texts.
        model: the hash of the model; empty if it is unknown.
    """

    packed: VectorStore
    graph: np.ndarray | None
    texts: str
    format: int
    content: list[str] | None = None
    ids: list[str] | None = None
    lines: np.ndarray | None = None
    model: str = ""

    def is_of(self, texts: Sequence[str]) -> bool:
        """Return whether the vectors may belong to these texts, in this order."""
        is_long = len(texts) == len(self.packed)
        return is_long and self.texts == str(TextsHash(texts))


def entries_of(
    packed: VectorStore,
    texts_hash: str,
    *,
    lines: Any,
    content: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    model: str = "",
) -> dict[str, Any]:
    """Return the arrays of a file of vectors; the arguments are as in `VectorFile`."""
    found: dict[str, Any] = {**packed.entries(), "texts": texts_hash}
    found["lines"] = np.asarray(lines, np.int64)
    if model:
        found["model"] = model
    for name, strings in (("content", content), ("ids", ids)):
        if strings is not None:
            parts = [each.encode("utf-8") for each in strings]
            found[name] = np.frombuffer(b"".join(parts), np.uint8)
            found[f"{name}_ends"] = np.cumsum([len(part) for part in parts])
    return found


def _strings(stored: Any, name: str) -> list[str] | None:
    if name not in stored:
        return None
    data, ends = stored[name].tobytes(), stored[f"{name}_ends"].tolist()
    starts = [0, *ends[:-1]]
    return [
        data[start:end].decode("utf-8") for start, end in zip(starts, ends, strict=True)
    ]


def is_vector_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is npz or Parquet, by its ending or its arrays."""
    if not os.path.isfile(path):
        return False
    if os.fspath(path).endswith(".npz") or is_parquet(path):
        return True
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return "embeddings.npy" in file.namelist()


def check_index(path: str | os.PathLike[str], *, may_be_new: bool = False) -> None:
    """Raise DataError unless a path is an index, or that of one to be written."""
    if os.path.exists(path):
        if not is_vector_file(path):
            raise DataError(_NOT_OURS, path=path)
    elif not may_be_new:
        raise DataError("no such file", path=path)
    elif not os.path.isdir(os.path.dirname(os.path.realpath(path))):
        raise DataError("cannot be written: no such folder", path=path)


def read_vectors(path: str | os.PathLike[str]) -> VectorFile:
    """Return the vectors of texts in a file.

    Raises:
        DataError: it is another file, of another version, or of the vectors of tokens.
    """
    check_index(path)
    if is_parquet(path):
        return _read_parquet(path)
    try:
        with open_arrays(path) as stored:
            if "row_splits" in stored:
                raise DataError(_OF_TOKENS, path=path)
            version = int(stored["format"])
            return VectorFile(
                STORE_OF_FORMAT[version].from_entries(stored),
                stored["graph"] if "graph" in stored else None,
                str(stored["texts"]),
                version,
                _strings(stored, "content"),
                _strings(stored, "ids"),
                stored["lines"] if "lines" in stored else None,
                str(stored["model"]) if "model" in stored else "",
            )
    except DataError:
        raise
    except _BROKEN:
        raise DataError(_NOT_OURS, path=path) from None


def _read_parquet(path: str | os.PathLike[str]) -> VectorFile:
    """Return the vectors of a Parquet file that `features` wrote."""
    parts, lines, ids, content = [], [], [], []
    model = ""
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
        content += table["text"].to_pylist()
        model = (table.schema.metadata or {}).get(MODEL_KEY, b"").decode()
        if "line" in names:
            lines += table["line"].to_pylist()
        if "id" in names:
            held = table["id"].to_pylist()
            ids += ["" if each is None else str(each) for each in held]
    vectors = np.concatenate(parts)
    packed = PackedVectors(vectors, vectors.shape[1])
    return VectorFile(
        packed,
        None,
        str(TextsHash(content)),
        PackedVectors.formats[0],
        content,
        ids if len(ids) == len(content) else None,
        lines=np.array(lines, np.int64) if len(lines) == len(content) else None,
        model=model,
    )


def _count_tokens(path: str | os.PathLike[str]) -> dict[str, int] | None:
    """Return the texts and tokens of a file of the vectors of tokens, or `None`."""
    try:
        if is_parquet(path):
            first = next(stream_tables(os.fspath(path), 1))
            if not {"tokens", "starts", "ends", "embeddings"} <= {*first.column_names}:
                return None
            tables = list(stream_tables(os.fspath(path), _AT_ONCE, column="starts"))
            flat = [table["starts"].combine_chunks().flatten() for table in tables]
            return {"texts": sum(map(len, tables)), "tokens": sum(map(len, flat))}
        with np.load(path, allow_pickle=False) as stored:
            splits = stored["row_splits"]
        return {"texts": len(splits) - 1, "tokens": int(splits[-1])}
    except (AttributeError, *_BROKEN):
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
    return {
        "kind": "index of vectors, for `search --index`",
        "path": os.fspath(path),
        "format": "Parquet" if is_parquet(path) else found.format,
        "texts": len(found.packed),
        "width": found.packed.width,
        "vectors": found.packed.kind,
        "dtype": found.packed.dtype,
        "holds the texts": found.content is not None,
        "faiss graph": found.graph is not None,
        "centroids": getattr(found.packed, "centroids", None) is not None,
        "hash of the texts": found.texts,
        "hash of the model": found.model or "none",
        "bytes": os.path.getsize(path),
    }
