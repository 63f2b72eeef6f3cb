"""Answers of a trained model: `load(folder).predict(texts)`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.errors import ConfigError, DataError
from bert_keras.model_folder import load_model
from bert_keras.table import Columns
from bert_keras.tasks.base import Task, TaskModel
from bert_keras.train_config import PRECISIONS

_WINDOW_BATCHES = 32  # so many batches of texts are sorted by length together


def load(
    folder: str | os.PathLike[str],
    *,
    task: str | type[Task] | None = None,
    precision: str = "float32",
) -> Predictor:
    """Return the predictor of a model folder.

    Args:
        folder: a model folder or `hf://owner/name`.
        task: needed for a task of your own, see `load_model`.
        precision: `float32`, `mixed_bfloat16` or `mixed_float16`.

    Example:
        >>> load("models/emails").predict(["You have won!"])[0]["label"]
        'spam'
    """
    if precision not in PRECISIONS:
        raise ConfigError(
            f"`precision` must be one of {', '.join(PRECISIONS)}; "
            f"received {precision!r}"
        )
    return Predictor(load_model(folder, task=task, dtype=precision))


class Predictor:
    """Texts to answers, in batches, with the very graph that `export` writes.

    Args:
        model: a task model with its preprocessor.
    """

    def __init__(self, model: TaskModel) -> None:
        self.model = model
        ragged = tf.RaggedTensorSpec([None, None], tf.int32)
        # Signatures, so that one graph serves batches of every size.
        self._join = tf.function(
            model.preprocessor.join, autograph=False, reduce_retracing=True
        )
        self._answer = tf.function(
            self._answer_rows,
            input_signature=[ragged, ragged, tf.TensorSpec([None], tf.int32)],
            autograph=False,
        )

    def _answer_rows(self, ids: Any, segments: Any, rows: Any) -> dict[str, tf.Tensor]:
        """Return the answers for some of the joined texts, in graph."""
        chosen = tf.gather(ids, rows), tf.gather(segments, rows)
        batch = self.model.preprocessor.lay(*chosen)
        return self.model.task.answer(self.model(batch, training=False))

    def predict(
        self,
        texts: Sequence[str] | Sequence[tuple[str, str]],
        *,
        batch_size: int = 32,
    ) -> list[dict[str, Any]]:
        """Return one dict a text; see the task's `answer` for its keys.

        Args:
            texts: strings, or pairs of strings.
            batch_size: texts computed at once.
        """
        if isinstance(texts, str):
            raise DataError(f"`texts` must be a list of strings; received {texts!r}")
        rows: list[dict[str, Any]] = []
        parts = _parts(texts, pairs=self.model.task.pairs)
        for answers in self.stream(parts, batch_size=batch_size):
            rows.extend(self.model.task.rows(answers))
        return rows

    def answers(
        self, columns: Columns, *, batch_size: int = 32
    ) -> dict[str, np.ndarray]:
        """Return the answers for the rows of a file as arrays [N, …]."""
        texts = self.model.task.texts(columns)
        parts = list(self.stream(texts, batch_size=batch_size))
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def stream(
        self, texts: tuple[Sequence[str], ...], *, batch_size: int = 32
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield answers as arrays [B, …], in the order of the texts.

        Texts are read a window of batches at a time; those of about one length are
        computed together, and then put back into their order.
        """
        if batch_size < 1:
            raise ConfigError(f"`batch_size` must be at least 1; received {batch_size}")
        count = len(texts[0]) if texts else 0
        window = _WINDOW_BATCHES * batch_size
        for start in range(0, count, window):
            parts = [_strings(part[start : start + window]) for part in texts]
            ids, segments = self._join(parts if len(parts) > 1 else parts[0])
            order = np.argsort(ids.row_lengths().numpy(), kind="stable")
            found = []
            for first in range(0, len(order), batch_size):
                rows = tf.constant(order[first : first + batch_size], tf.int32)
                answers = self._answer(ids, segments, rows)
                found.append({key: value.numpy() for key, value in answers.items()})
            back = np.argsort(order)
            yield {
                key: np.concatenate([answers[key] for answers in found])[back]
                for key in found[0]
            }


def _strings(texts: Sequence[str]) -> tf.Tensor:
    """Return texts as a tensor; half a surrogate pair becomes broken UTF-8."""
    return tf.constant([text.encode("utf-8", "surrogatepass") for text in texts])


def _parts(texts: Sequence[Any], *, pairs: bool) -> tuple[Sequence[str], ...]:
    """Return a list of texts, or of pairs, as one list a role."""
    if not len(texts):
        return ()
    for row, text in enumerate(texts):
        fits = (
            isinstance(text, tuple | list)
            and len(text) == 2
            and all(isinstance(part, str) for part in text)
            if pairs
            else isinstance(text, str)
        )
        if not fits:
            wanted = "a pair of strings" if pairs else "a string"
            raise DataError(
                f"`texts` must hold {wanted} in each place; received at {row}: "
                f"{str(text)[:80]!r} ({type(text).__name__})"
            )
    return tuple(zip(*texts, strict=True)) if pairs else (texts,)
