"""Answers of a trained model: `load(folder).predict(texts)`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.errors import DataError
from bert_keras.model_folder import load_model
from bert_keras.table import Columns
from bert_keras.tasks.base import Task, TaskModel


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
    return Predictor(load_model(folder, task=task, dtype=precision))


class Predictor:
    """Texts to answers, in batches, with the very graph that `export` writes.

    Args:
        model: a task model with its preprocessor.
    """

    def __init__(self, model: TaskModel) -> None:
        self.model = model
        self._prepare = tf.function(model.preprocessor, autograph=False)
        self._answer = tf.function(
            lambda batch: model.task.answer(model(batch, training=False)),
            autograph=False,
        )

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
        parts = _parts(texts)
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
        """Yield the answers of each batch as arrays [B, …], in the order of the texts.

        The text of the next batches is prepared while a batch is computed.
        """
        if not texts or not len(texts[0]):
            return
        parts = texts if len(texts) > 1 else texts[0]
        dataset = tf.data.Dataset.from_tensor_slices(
            tuple(list(part) for part in texts) if len(texts) > 1 else list(parts)
        )
        dataset = dataset.batch(batch_size)
        dataset = dataset.map(
            lambda *part: self._prepare(part if len(texts) > 1 else part[0]),
            num_parallel_calls=2,
        )
        # One graph for batches of every shape; called as it is, it would be traced anew.
        answer = self._answer.get_concrete_function(dataset.element_spec)
        for batch in dataset.prefetch(2):
            yield {key: value.numpy() for key, value in answer(batch).items()}


def _parts(texts: Sequence[Any]) -> tuple[Sequence[str], ...]:
    """Return a list of texts, or of pairs, as one list a role."""
    if not len(texts):
        return ()
    pairs = isinstance(texts[0], tuple | list)
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
