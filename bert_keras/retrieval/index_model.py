"""Whose vectors an index holds: the hash of a model, and whether an index is of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.errors import ConfigError, DataError, counted, shown
from bert_keras.inference.equal_texts import joined
from bert_keras.inference.predictor import Predictor
from bert_keras.lazy_names import deferred
from bert_keras.retrieval.embedder import Source, load_embedder, with_prompt
from bert_keras.retrieval.vector_file import VectorFile, read_vectors
from bert_keras.retrieval.vector_store import VectorStore
from bert_keras.runs.notes import say
from bert_keras.tasks.protocols import check_dense

if TYPE_CHECKING:
    import keras
else:
    (keras,) = deferred("keras")

# What changes the vector of a short text, beside the width, which is compared.
_SETTINGS = ("kind", "pooling", "layers", "combine_layers", "include_prompt")
_OF_TOKENS = ("normalize", "skip_words")
_OF_WINDOWS = ("stride", "max_windows", "combine")


def model_hash(predictor: Predictor) -> str:
    """Return a hash of what vectors depend on: weights, vocabulary, pooling, prompt.

    How long texts are read follows the hash, after a space. It is empty for a model
    whose weights cannot be read, such as a SavedModel.

    Args:
        predictor: of the task `embedding`.
    """
    model: Any = predictor.model
    weights = getattr(model, "weights", ())
    if not weights:
        return ""
    task, tokenizer = model.task, model.preprocessor.tokenizer
    names = _SETTINGS + (_OF_TOKENS if task.kind == "tokens" else ())
    facts = [str(getattr(task, name)) for name in names]
    facts += [task.prompt(), str(tokenizer.lowercase), *tokenizer.vocabulary]
    found = hashlib.sha256(json.dumps(facts).encode())
    for weight in sorted(weights, key=lambda each: each.path):
        found.update(weight.path.encode())
        values = np.asarray(keras.ops.convert_to_numpy(weight))
        found.update(np.ascontiguousarray(values).data)
    return f"{found.hexdigest()} {_reading(model)}"


def _reading(model: Any) -> str:
    """Return how a model reads long texts, such as `max_length=256 long=truncate`."""
    task = model.task
    names = _OF_WINDOWS if task.long == "windows" else ()
    length = task.default_length or model.preprocessor.max_length
    facts = {"max_length": length, "long": task.long}
    facts |= {name: getattr(task, name) for name in names}
    return " ".join(f"{name}={value}" for name, value in facts.items())


def read_index_of(path: str | os.PathLike[str], predictor: Predictor) -> VectorFile:
    """Return an index that holds its texts, with vectors of a model.

    Args:
        path: a file that `search` wrote, or a Parquet file of `features`.
        predictor: the model, which computes vectors of documents.

    Raises:
        DataError: it contains no texts, or vectors of another model.
    """
    stored = read_vectors(path)
    if stored.content is None:
        raise DataError(
            "contains no texts, which are answers: write it with `search --index`, or "
            "as Parquet",
            path=path,
        )
    reason = mismatch(stored, predictor, stored.content, path, same_reading=False)
    if reason:
        raise DataError(f"contains vectors of {reason}", path=path)
    return stored


def indexed_vectors(
    path: str | os.PathLike[str], predictor: Predictor, texts: Sequence[str]
) -> VectorStore:
    """Return the vectors of texts that an index has, in the order of the texts.

    Args:
        path: a file that `search` or `features` wrote. If it holds the texts, their
            order may differ, and it may have more of them.
        predictor: the model, which computes vectors of documents.
        texts: N strings.

    Raises:
        DataError: there is no such file, or it lacks a text, or has vectors of another
            model.
    """
    stored = read_vectors(path)
    packed = stored.packed
    if not stored.is_of(texts):
        content = stored.content
        if content is None:
            raise DataError(
                f"must have the vectors of the {counted(len(texts), 'texts')}, in "
                f"their order; it has {counted(len(packed), 'vectors')} of others",
                path=path,
            )
        row = {text: place for place, text in enumerate(content)}
        lost = [text for text in texts if text not in row]
        if lost:
            raise DataError(
                f"lacks {len(lost):,} of {counted(len(texts), 'texts')}, such as "
                f"{shown(lost[0])}",
                path=path,
            )
        packed = packed.take(np.array([row[text] for text in texts]))
    reason = mismatch(stored._replace(packed=packed), predictor, texts, path)
    if reason:
        raise DataError(f"contains vectors of {reason}", path=path)
    return packed


def mismatch(
    stored: VectorFile,
    predictor: Predictor,
    texts: Sequence[str],
    path: str | os.PathLike[str],
    *,
    same_reading: bool = True,
) -> str:
    """Return of what other model an index has vectors; empty if they are this model's.

    The hashes of the models are compared, and the vectors of three texts. A message
    tells if only the vectors are, since there is no hash. A student that is aligned to
    the model of an index, see the setting `aligned_to`, asks for its texts.

    Args:
        stored: the index.
        predictor: computes vectors of documents.
        texts: N strings, of which the index has the vectors.
        path: of the index, for messages.
        same_reading: whether long texts must have been read as the model reads them;
            if not, a message tells that they were read otherwise.
    """
    packed = stored.packed
    task: Any = predictor.model.task
    if packed.kind != task.kind:
        return f"a model of `kind` {packed.kind}"
    own = model_hash(predictor)
    (model, reading), (own_model, own_reading) = (
        each.partition(" ")[::2] for each in (stored.model, own)
    )
    has_hashes = bool(model and own_model)
    is_student = bool(model) and model == task.aligned_to  # an export's has no hash
    if has_hashes and model != own_model and not is_student:
        return "another model"
    longest = max(range(len(texts)), key=lambda row: len(texts[row]))
    rows = sorted({0, longest, len(texts) - 1})
    some = [texts[row] for row in rows]
    parts = task.parts(some)  # not `vectors_of`, which reports truncated texts
    answers = joined([*predictor.stream(parts, batch_size=len(rows))])
    probe = answers[task.vector_output]
    if probe.shape[-1] != packed.width:
        return f"another width, {packed.width} numbers"
    if is_student:
        return ""
    if has_hashes and reading and reading != own_reading:
        difference = f"texts read with {reading}, where the model has {own_reading}"
        if same_reading:
            return difference
        say(f"{path}: contains vectors of {difference}")
        return ""
    if not has_hashes:
        reason = "the weights of the model cannot be read"
        if not stored.model:
            reason = "it has no hash of its model"
        say(f"{path}: {reason}: it is recognized by the vectors of three texts")
    if packed.is_same(probe, np.array(rows)):
        return ""
    if not stored.model and task.aligned_to:
        return "a model whose hash it does not contain, which a student needs"
    return "another model"


def query_encoder_of(documents: Predictor, source: Source | None) -> Predictor:
    """Return a predictor of the vectors of queries, the model of documents by default.

    Args:
        documents: computes the vectors of documents.
        source: a student of this model.

    Raises:
        ConfigError: the vectors of queries are in another space than the documents'.
    """
    if source is None:
        return documents
    check_dense(documents.model.task, "`query_encoder`")
    encoder = load_embedder(source)
    task: Any = encoder.model.task
    check_dense(task, "`query_encoder`")
    space = model_hash(with_prompt(documents, "document")).partition(" ")[0]
    own = task.aligned_to
    if not own or own != space:
        received = f"one aligned to {own[:12]}" if own else "one without `aligned_to`"
        raise ConfigError(
            "`query_encoder` must be a student of the documents' model, "
            f"{space[:12] or 'whose weights cannot be read'}, which `train embedding "
            f"--teacher` makes of texts without pairs; received {received}"
        )
    own_width, width = (
        each.outputs[task.vector_output].shape[-1] for each in (encoder, documents)
    )
    if own_width != width:
        raise ConfigError(
            f"`query_encoder` must give vectors of {width} numbers, as the documents "
            f"have; received one of {own_width}"
        )
    return encoder
