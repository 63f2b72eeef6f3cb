"""The file of the vectors of texts, npz or Parquet, that `features` and `search` share.

An npz holds `embeddings` float32 [N, D] and `lines` int64 [N], the `format`, a hash of
the `texts`, and for `search` perhaps faiss's `graph`, and the texts and their names in
UTF-8: `content` and `ids` uint8, with the end of each, `content_ends` and `ids_ends`.
`model` is a hash of the model, see `index_model.model_hash`.
Format 4 has sparse vectors: `embeddings` float32 [M], their `places` int32 [M], `ends`
int64 [N] and `width`, see `SparseVectors`. Format 3 has `embeddings` int8, or bits in
uint8, with `width`, `ranges` and perhaps int8 `rescoring`, see `PackedVectors`. A file
of the vectors of tokens has `tokens` and `row_splits`, too, and is no index. For
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
from bert_keras.files.parquet import is_parquet, stream_tables
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.sparse_vectors import SparseVectors

FORMAT = 2
_PACKED_FORMAT = 3  # of vectors in int8 or bits
_SPARSE_FORMAT = 4
MODEL_KEY = b"bert_keras.model"  # in the metadata of Parquet
_AT_ONCE = 8192  # rows of Parquet
_OF_TOKENS = "contains the vectors of tokens: an index has one for each text"
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
        packed: the vectors, of any length.
        graph: faiss's graph as bytes, if there is one.
        texts: the hash of the texts.
        format: of the file, see above.
        content, ids: N texts, and their names, if the file holds them.
        lines: int64 [N], the lines of the texts.
        model: the hash of the model; empty if it is unknown.
    """

    packed: PackedVectors | SparseVectors
    graph: np.ndarray | None
    texts: str
    format: int
    content: list[str] | None = None
    ids: list[str] | None = None
    lines: np.ndarray | None = None
    model: str = ""

    @property
    def vectors(self) -> np.ndarray:
        """The vectors as float32 [N, D]."""
        return self.packed.numbers(slice(None))

    def is_of(self, texts: Sequence[str]) -> bool:
        """Return whether the vectors may belong to these texts, in this order."""
        if len(texts) != len(self.packed):
            return False
        mark = TextsHash()
        mark.add(texts)
        return self.texts == str(mark)


def entries_of(
    packed: PackedVectors | SparseVectors,
    texts_hash: str,
    *,
    lines: Any,
    content: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    model: str = "",
) -> dict[str, Any]:
    """Return the arrays of a file of vectors; the arguments are as in `VectorFile`."""
    found: dict[str, Any] = {"embeddings": packed.values, "texts": texts_hash}
    found["lines"] = np.asarray(lines, np.int64)
    found["format"] = FORMAT
    if model:
        found["model"] = model
    if packed.dtype != "float32":
        found |= {"format": _PACKED_FORMAT, "width": packed.width}
    if isinstance(packed, SparseVectors):
        found |= {"places": packed.places, "ends": packed.ends}
        found["format"] = _SPARSE_FORMAT
    held = {"ranges": packed.ranges, "rescoring": packed.rescoring}
    found |= {name: value for name, value in held.items() if value is not None}
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


def _sparse(stored: Any, values: np.ndarray) -> SparseVectors:
    """Return the sparse vectors of an npz.

    Raises:
        ValueError: shapes or places do not match.
    """
    width, places, ends = int(stored["width"]), stored["places"], stored["ends"]
    counts = np.diff(ends, prepend=0)
    if (
        not places.shape == values.shape == (ends[-1],)
        or (counts < 0).any()
        or ((places < 0) | (places >= width)).any()
    ):
        raise ValueError
    return SparseVectors(values, places, ends, width)


def _packed(stored: Any, values: np.ndarray) -> PackedVectors:
    """Return the vectors of an npz.

    Raises:
        ValueError: shapes or types do not match.
    """
    held = {n: stored[n] for n in ("ranges", "rescoring") if n in stored}
    width = int(stored["width"]) if "width" in stored else values.shape[1]
    found = PackedVectors(values, width, **held)
    wanted = {"float32": width, "int8": width, "binary": -(-width // 8)}
    is_float = values.dtype.kind == "f"
    if (
        values.dtype not in (np.int8, np.uint8)
        and not is_float
        or values.shape[1] != wanted[found.dtype]
        or found.dtype == "int8"
        and found.ranges is None
        or found.ranges is not None
        and found.ranges.shape != (2, width)
        or found.rescoring is not None
        and found.rescoring.shape != (len(values), width)
    ):
        raise ValueError
    return found


def is_vector_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is npz or Parquet, by its ending or its arrays."""
    if not os.path.isfile(path):
        return False
    if os.fspath(path).endswith(".npz") or is_parquet(os.fspath(path)):
        return True
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return "embeddings.npy" in file.namelist()


def read_vectors(path: str | os.PathLike[str]) -> VectorFile:
    """Return the vectors of texts in a file.

    Raises:
        DataError: it is another file, of another version, or of the vectors of tokens.
    """
    if is_parquet(os.fspath(path)):
        return _read_parquet(path)
    try:
        with np.load(path, allow_pickle=False) as stored:
            if "row_splits" in stored:
                raise DataError(_OF_TOKENS, path=path)
            version, values = int(stored["format"]), stored["embeddings"]
            is_sparse = version == _SPARSE_FORMAT
            if not FORMAT <= version <= _SPARSE_FORMAT or values.ndim != 2 - is_sparse:
                raise KeyError
            return VectorFile(
                (_sparse if is_sparse else _packed)(stored, values),
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
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile):
        raise DataError(_NOT_OURS, path=path) from None


def _read_parquet(path: str | os.PathLike[str]) -> VectorFile:
    """Return the vectors of a Parquet file that `features` wrote."""
    parts, lines, ids, content, mark = [], [], [], [], TextsHash()
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
    mark.add(content)
    vectors = np.concatenate(parts)
    packed = PackedVectors(vectors, vectors.shape[1])
    return VectorFile(
        packed,
        None,
        str(mark),
        FORMAT,
        content,
        ids if len(ids) == len(content) else None,
        lines=np.array(lines, np.int64) if len(lines) == len(content) else None,
        model=model,
    )


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
    return {
        "kind": "index of vectors, for `search --index`",
        "path": os.fspath(path),
        "format": "Parquet" if is_parquet(os.fspath(path)) else found.format,
        "texts": len(found.packed),
        "width": found.packed.width,
        "dtype": found.packed.dtype,
        "holds the texts": found.content is not None,
        "faiss graph": found.graph is not None,
        "hash of the texts": found.texts,
        "hash of the model": found.model or "none",
        "bytes": os.path.getsize(path),
    }
