"""The frozen encoder as a source of features: `write_features` for a file of texts.

The file is written under a temporary name and renamed when complete. Parquet is
streamed: one row per text with `line`, `text` and `embedding` (of `search` perhaps
`id`, too), or, for tokens, `tokens`, `starts`, `ends` and `embeddings`, lists of equal
length. npz, for data that
fits in memory, holds arrays for `numpy.load`, see `vector_file`: `embeddings` float32
[N, D] and `lines` int64 [N]; for tokens `embeddings` float32 [M, D], `tokens` string
[M], `starts` and `ends` int32 [M], `row_splits` int64 [N + 1] (the tokens of text i are
at row_splits[i] to row_splits[i + 1] - 1) and `lines`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_keras.data.collection import document_rules, with_titles
from bert_keras.data.columns import Columns
from bert_keras.data.table import stream_columns
from bert_keras.errors import ConfigError, DataError, NoRowsError, counted
from bert_keras.files.atomic import check_output_place, new_folder, writing
from bert_keras.files.parquet import check_arrow, is_parquet
from bert_keras.inference.predictor import Predictor
from bert_keras.retrieval.embedder import Source, load_embedder
from bert_keras.retrieval.index_model import model_hash
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.vector_file import MODEL_KEY, TextsHash, entries_of
from bert_keras.runs.notes import say
from bert_keras.runs.progress import Progress, report
from bert_keras.settings import DTYPES, check_choice
from bert_keras.tasks.protocols import check_dense
from bert_keras.tasks.token_features import TokenFeatures
from bert_keras.text.truncation import Truncation

ENDINGS = (".npz", ".parquet")
_UNKNOWN_MEMORY = 8 << 30  # bytes, where the system does not tell them


class TextTokens(NamedTuple):
    """The tokens of N texts, M in all.

    Attributes:
        counts: int [N], tokens of each text.
        tokens: strings [M].
        starts, ends: int32 [M], their offsets in the text, in characters.
    """

    counts: np.ndarray
    tokens: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Part(NamedTuple):
    """The features of N texts.

    Attributes:
        lines: int [N], the line numbers of the texts in their file.
        texts: N strings.
        embeddings: float32 [N, D], or [M, D] of their M tokens.
        tokens: the tokens, if the vectors are theirs.
        ids: N names of the texts, which only Parquet holds.
    """

    lines: Any
    texts: Sequence[str]
    embeddings: np.ndarray
    tokens: TextTokens | None = None
    ids: Sequence[str] | None = None


def check_output(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file of features if it can be written.

    Raises:
        ConfigError: its extension is unknown.
        DataError: it cannot be written.
    """
    target = Path(os.path.realpath(path))  # the target of a link, not the link
    if target.suffix not in ENDINGS:
        raise ConfigError(
            f"`output` must end with {' or '.join(ENDINGS)}; received {os.fspath(path)}"
        )
    if target.is_dir():
        raise DataError("is a folder, not a file", path=path)
    if not target.parent.is_dir():
        raise DataError(f"no such folder: {target.parent}", path=path)
    return target


def check_dtype(dtype: str, path: str | os.PathLike[str] | None) -> None:
    """Raise a ConfigError unless vectors of a type can be written to a file."""
    check_choice("dtype", dtype, DTYPES)
    if path is not None and dtype != "float32" and is_parquet(path):
        raise ConfigError(
            f"`dtype` must be float32 for Parquet; received {dtype}: a file that ends "
            "with .npz holds int8 and bits"
        )


@contextlib.contextmanager
def feature_writer(
    path: str | os.PathLike[str], dtype: str = "float32", *, model: str = ""
) -> Iterator[_Npz | _Parquet]:
    """Yield the writer of a new file, which appears at `path` only on success.

    Parquet holds float32; npz any of `DTYPES`. `model` is the hash of the model.

    Raises:
        ConfigError: see `check_output`; or the features for npz do not fit in memory.
        DataError: see `check_output`; or writing fails.
    """
    target = check_output(path)
    make: Callable[[Path], _Npz | _Parquet] = functools.partial(_Parquet, model)
    if target.suffix == ".npz":
        make = functools.partial(_Npz, dtype, model)
    with writing(path), new_folder(target.parent, f".{target.name}-") as folder:
        writer, whole = make(folder), False
        try:
            yield writer
            whole = True
        finally:
            writer.close(whole=whole)
        os.replace(folder / "whole", target)


class _Npz:
    """Keeps all arrays in memory: npz stores their lengths first."""

    def __init__(self, dtype: str, model: str, folder: Path) -> None:
        self._path = folder / "whole"
        self._dtype, self._model = dtype, model
        self._parts: dict[str, list[np.ndarray]] = {}
        self._bytes = 0
        self._texts = TextsHash()

    def add(self, part: Part) -> None:
        """Keep the next part."""
        if part.tokens is not None:
            arrays = part.tokens._asdict()
            self._keep(row_splits=np.asarray(arrays.pop("counts"), np.int64))
            self._keep(**arrays)
        self._keep(embeddings=part.embeddings, lines=np.asarray(part.lines, np.int64))
        self._texts.add(part.texts)

    def _keep(self, **arrays: np.ndarray) -> None:
        for name, values in arrays.items():
            self._parts.setdefault(name, []).append(values)
            self._bytes += values.nbytes
        if self._bytes > _most_bytes():
            raise ConfigError(
                "`output` must end with .parquet for features that do not fit in "
                f"memory; received more than {self._bytes:,} bytes for .npz"
            )

    def close(self, *, whole: bool) -> None:
        """Write the file if it is whole."""
        if not whole:
            return
        names = list(self._parts)
        arrays: dict[str, Any]
        arrays = {name: np.concatenate(self._parts.pop(name)) for name in names}
        if "row_splits" in arrays:  # so far the token count of each text
            arrays["row_splits"] = np.cumsum([0, *arrays["row_splits"]], dtype=np.int64)
        packed = PackedVectors.of(arrays.pop("embeddings"), self._dtype, rescored=False)
        lines = arrays.pop("lines")
        arrays |= entries_of(packed, str(self._texts), lines=lines, model=self._model)
        with open(self._path, "wb") as file:
            np.savez(file, **arrays)


def _most_bytes() -> int:
    """Return a third of the machine's memory: joining holds the arrays twice."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # such as Windows
        memory = _UNKNOWN_MEMORY
    return memory // 3


class _Parquet:
    """Writes each part as one row group of Parquet."""

    def __init__(self, model: str, folder: Path) -> None:
        self._path = folder / "whole"
        self._metadata = {MODEL_KEY: model} if model else None
        check_arrow()
        self._arrow = importlib.import_module("pyarrow")
        self._parquet = importlib.import_module("pyarrow.parquet")
        self._writer: Any = None

    def add(self, part: Part) -> None:
        lines, texts, embeddings, tokens, ids = part
        arrow = self._arrow
        flat = arrow.array(embeddings.reshape(-1), arrow.float32())
        vectors = arrow.FixedSizeListArray.from_arrays(flat, embeddings.shape[1])
        columns = {
            "line": arrow.array(lines, arrow.int64()),
            "text": arrow.array(list(texts), arrow.string()),
        }
        if ids is not None:
            columns["id"] = arrow.array(list(ids), arrow.string())
        if tokens is None:
            columns["embedding"] = vectors
        else:
            splits = np.concatenate([[0], np.cumsum(tokens.counts)])
            offsets = arrow.array(splits, arrow.int32())
            values = {
                "tokens": arrow.array(tokens.tokens.tolist(), arrow.string()),
                "starts": arrow.array(tokens.starts, arrow.int32()),
                "ends": arrow.array(tokens.ends, arrow.int32()),
                "embeddings": vectors,
            }
            for name, column in values.items():
                columns[name] = arrow.ListArray.from_arrays(offsets, column)
        table = arrow.table(columns, metadata=self._metadata)
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self, *, whole: bool) -> None:
        if self._writer is not None:
            self._writer.close()


LEVELS = ("text", "token")
# Batches of texts held at once: each token has a vector as long as a text's.
_BATCHES = {"text": 32, "token": 4}


def write_features(
    source: Source,
    file: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    level: str = "text",
    column: str | int = "text",
    header: str = "auto",
    batch_size: int = 32,
    skip_empty: bool = False,
    dtype: str = "float32",
    **settings: Any,
) -> int:
    """Write the features of the texts of a file; return the number of texts.

    Texts are streamed. With Parquet, features are also written as they are computed, so
    memory does not grow with the file; npz is for vectors that fit in memory. The speed
    is reported on stderr.

    Args:
        source: as in `load_embedder`.
        file: TSV, CSV or JSONL with the texts, and with their `id` if there is one.
        output: the file to write, `.npz` or `.parquet`; it appears when complete. Only
            Parquet holds the ids.
        level: `text`, one vector per text, or `token`, one per token.
        column: the column of the texts, by name or by number from 0.
        header: as in `read_columns`.
        batch_size: texts computed at once.
        skip_empty: whether rows with an empty text are left out, with a message, rather
            than an error.
        dtype: of a text's vectors, in npz also `int8` or `binary`, see `PackedVectors`;
            the ranges of int8 are learned from all texts.
        **settings: arguments of `load_embedder`: `layers`, `combine_layers`,
            `pooling`, `normalize`, `long`, `combine`, `max_length`, `precision`,
            `prompt`, `dimensions`.

    Raises:
        BertKerasError: an argument is wrong; an existing `output` is unchanged.
    """
    check_choice("level", level, LEVELS)
    check_output_place("output", output, {"source": source, "file": file})
    check_output(output)
    check_dtype(dtype, output)
    if level == "token" and dtype != "float32":
        raise ConfigError(f"`dtype` must be float32 for tokens; received {dtype}")
    of_texts = ("pooling", "prompt", "dimensions", "long", "combine")
    for name in of_texts if level == "token" else ():
        if settings.get(name) is not None:
            raise ConfigError(
                f"`{name}` is for vectors of whole texts: leave it out for tokens"
            )
    rules = document_rules(os.fspath(file), text=column)
    given = stream_columns(
        file, header=header, rows_at_once=_BATCHES[level] * batch_size, **rules
    )
    parts = map(with_titles, given)
    first = next(parts)  # an unreadable file fails before the model is loaded
    kind: type[TokenFeatures] | None = None
    if level == "token":
        kind, normalize = TokenFeatures, settings.get("normalize")
        # A folder's settings are for whole texts.
        settings |= {"normalize": bool(normalize), "long": "truncate"}
    predictor, counts = load_embedder(source, kind=kind, **settings), Truncation()
    check_dense(predictor.model.task, "a file of features")
    task: Any = predictor.model.task
    if level == "token" and task.default_prompt:
        say(f"the prompt {task.default_prompt} is for vectors of whole texts: not used")
    model = "" if level == "token" else model_hash(predictor)
    if "id" in first and not is_parquet(output):
        say("ids are not written: only a .parquet file holds them")
    with (
        feature_writer(output, dtype, model=model) as writer,
        Progress("vectors", unit="texts") as shown,
    ):
        rows = 0
        for read in itertools.chain([first], parts):
            part = read.filled("text", skip_empty=skip_empty)
            rows += len(read)
            _write_part(writer, predictor, part, batch_size, counts, shown.add)
        if not shown.done:
            raise NoRowsError("has no text: all rows are empty", path=file)
    tell_empty(rows - shown.done, rows)
    predictor.tell_truncated(counts)
    report(shown.line())
    return shown.done


def tell_empty(empty: int, rows: int) -> None:
    """Report the number of empty texts that are left out, if there are any."""
    if empty:
        say(f"empty and left out: {empty:,} of {counted(rows, 'texts')}")


def _write_part(
    writer: _Npz | _Parquet,
    predictor: Predictor,
    part: Columns,
    batch_size: int,
    counts: Truncation,
    seen: Callable[[int], object],
) -> None:
    """Write the vectors of some texts, or of their tokens; count truncated ones.

    `seen` is called after each batch with the number of texts.
    """
    done = 0
    texts = (part["text"],)
    for answers in predictor.stream(
        texts, batch_size=batch_size, seen=seen, truncation=counts
    ):
        if "token_ids" in answers:
            # As wide as the longest token, so that all parts have the same dtype.
            vocabulary = np.array(predictor.model.preprocessor.tokenizer.vocabulary)
            real = answers["token_ids"] >= 0
            vectors = answers["embeddings"][real]
            tokens = TextTokens(
                counts=real.sum(axis=1),
                tokens=vocabulary[answers["token_ids"][real]],
                starts=answers["starts"][real],
                ends=answers["ends"][real],
            )
            count = len(real)
        else:
            vectors, tokens = answers["embedding"], None
            count = len(vectors)
        rows = slice(done, done + count)
        ids = part["id"][rows] if "id" in part else None
        writer.add(Part(part.lines[rows], part["text"][rows], vectors, tokens, ids))
        done = rows.stop
