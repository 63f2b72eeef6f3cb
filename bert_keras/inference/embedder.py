"""Vectors of texts from any encoder, trained or not: `embed` and `load_embedder`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_keras.checkpoints import Checkpoint, read_checkpoint
from bert_keras.data.items import as_strings
from bert_keras.errors import ConfigError
from bert_keras.inference.model_folder import check_max_length, load_model, task_of
from bert_keras.inference.predictor import Predictor
from bert_keras.settings import PRECISIONS, check_choice
from bert_keras.tasks.embedding import Embedding
from bert_keras.text.truncation import Truncation

Source = str | os.PathLike[str] | Predictor


def load_embedder(
    source: Source,
    *,
    max_length: int | None = None,
    precision: str = "float32",
    kind: type[Embedding] = Embedding,
    **changes: Any,
) -> Predictor:
    """Return a predictor of text vectors.

    Settings that are not given come from the folder: a model folder of the task
    `embedding` and a folder of sentence-transformers hold layers, pooling,
    normalization and maximum length. Any other encoder returns the mean over the tokens
    of the last layer, not normalized.

    Args:
        source: a model folder of any task, an encoder (Hugging Face folder, Google
            checkpoint, `hf://owner/name`), or a loaded predictor.
        max_length: in tokens; longer texts are truncated.
        precision: as in `load`.
        kind: the class of the task, `Embedding` or a subclass with other answers.
        **changes: `layers`, `combine`, `pooling`, `normalize`, as in `Embedding`.

    Raises:
        CheckpointError: there is no encoder, or it is broken.
        ConfigError: a setting is out of range.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if isinstance(source, Predictor):
        if given or max_length or not isinstance(source.model.task, kind):
            raise ConfigError(
                "`source` must be a folder if settings are given, or a predictor of "
                f"the task {kind.name}; received a predictor of "
                f"{source.model.task.name}"
            )
        return source
    unknown = set(given) - {"layers", "combine", "pooling", "normalize"}
    if unknown:
        raise ConfigError(f"no setting of features is named {sorted(unknown)[0]!r}")
    check_choice("precision", precision, PRECISIONS)
    checkpoint = read_checkpoint(source)
    task = kind(**{**_settings_of(checkpoint), **given})
    _check_learned(task, checkpoint, os.fspath(source))
    model = load_model(checkpoint, task=task, dtype=precision)
    if max_length is not None:
        check_max_length(max_length, checkpoint.config)
        model.preprocessor = model.preprocessor.replace(max_length=max_length)
    return Predictor(model)


def embed(
    source: Source, texts: Iterable[str], *, batch_size: int = 32, **settings: Any
) -> np.ndarray:
    """Return the vectors of texts, float32 [N, D].

    Args:
        source: as in `load_embedder`; for many calls, load and pass a predictor.
        texts: N strings, see `data.items.as_items`.
        batch_size: texts computed at once.
        **settings: those of `load_embedder`, such as `layers="last-four"`.

    Example:
        >>> embed("hf://sentence-transformers/all-MiniLM-L6-v2", ["good day"]).shape
        (1, 384)
    """
    strings = as_strings(texts)
    return vectors_of(load_embedder(source, **settings), strings, batch_size)


def vectors_of(
    predictor: Predictor, texts: Sequence[str], batch_size: int
) -> np.ndarray:
    """Return the vectors of N texts by a predictor of vectors, float32 [N, D].

    Truncated texts are reported as in `Predictor.predict`.
    """
    parts, counts = predictor.model.task.parts(texts), Truncation()
    answers = predictor.stream(parts, batch_size=batch_size, truncation=counts)
    empty = np.zeros((0, predictor.model.outputs[0].shape[-1]), np.float32)
    found = np.concatenate([empty, *(answer["embedding"] for answer in answers)])
    predictor.tell_truncated(counts)
    return found


def _settings_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the settings that a folder holds; for other tasks the defaults."""
    ours = checkpoint.own_entry
    if ours and ours.get("task") != Embedding.name:
        return Embedding.from_model_config({}).settings()
    return task_of(checkpoint, Embedding).settings()


def _check_learned(task: Embedding, checkpoint: Checkpoint, place: str) -> None:
    """Raise if a weighted combination of layers has no learned weights."""
    if task.combine != "weighted" or "layer_mix/scores" in checkpoint.shapes:
        return
    raise ConfigError(
        f"`combine` weighted needs learned weights, {place} holds none: "
        "train embedding with --set combine=weighted, or use sum or concat"
    )
