"""Answers of a trained model: `load(folder).predict(texts)`."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.errors import ConfigError, DataError
from bert_keras.model_folder import load_model
from bert_keras.table import Columns
from bert_keras.task_model import TaskModel, as_tensors
from bert_keras.tasks.base import Task
from bert_keras.train_config import PRECISIONS

_WINDOW_BATCHES = 32  # so many batches of texts are sorted by length together
_AT_ONCE = 2  # batches in flight: the cores stay busy between the large products


def load(
    folder: str | os.PathLike[str],
    *,
    task: str | type[Task] | Task | None = None,
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
        # Texts of about one length are computed together: hardly any padding, and
        # attention costs least with one text a row.
        padded = model.preprocessor.replace(layout="padded")

        # A signature, so that one graph serves batches of every size.
        @tf.function(input_signature=model.task.signature(), autograph=False)
        def answer(*texts: Any) -> dict[str, tf.Tensor]:
            given = texts if len(texts) > 1 else texts[0]
            return model.answer(given, preprocessor=padded)

        self._answer = answer

    def predict(
        self, texts: Sequence[Any], *, batch_size: int = 32
    ) -> list[dict[str, Any]]:
        """Return one dict a text; see the task's `answer` for its keys.

        Args:
            texts: strings, or tuples of strings, one a role, where the task reads
                several, such as pairs.
            batch_size: texts computed at once.
        """
        if isinstance(texts, str):
            raise DataError(f"`texts` must be a list of strings; received {texts!r}")
        rows: list[dict[str, Any]] = []
        parts = self.model.task.parts(texts)
        for answers in self.stream(parts, batch_size=batch_size):
            rows.extend(self.model.task.rows(answers))
        return rows

    def answers(
        self, columns: Columns, *, batch_size: int = 32
    ) -> dict[str, np.ndarray]:
        """Return the answers for the rows of a file as arrays [N, …]."""
        texts = self.model.task.texts(columns)
        return _joined(list(self.stream(texts, batch_size=batch_size)))

    def stream(
        self, texts: tuple[Sequence[Any], ...], *, batch_size: int = 32
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield answers as arrays [B, …], in the order of the texts.

        Texts are read a window of batches at a time; those of about one length are
        computed together, and then put back into their order.
        """
        if batch_size < 1:
            raise ConfigError(f"`batch_size` must be at least 1; received {batch_size}")
        count = len(texts[0]) if texts else 0
        window = _WINDOW_BATCHES * batch_size

        def compute(batch: list[list[Any]]) -> dict[str, np.ndarray]:
            tensors = as_tensors(batch)
            parts = tensors if isinstance(tensors, tuple) else (tensors,)
            answers = self._answer(*parts)
            return {key: value.numpy() for key, value in answers.items()}

        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            for start in range(0, count, window):
                rows = range(start, min(start + window, count))
                order = sorted(rows, key=lambda row: _size(texts, row))
                batches = [
                    [[part[row] for row in order[i : i + batch_size]] for part in texts]
                    for i in range(0, len(order), batch_size)
                ]
                answers = _joined(list(pool.map(compute, batches)))
                back = np.argsort(order)
                yield {key: values[back] for key, values in answers.items()}


def _size(texts: Sequence[Sequence[Any]], row: int) -> int:
    """Return about how long the texts of a row are: in bytes, as tokens go."""
    cells = [part[row] for part in texts]
    return sum(
        len(text.encode("utf-8", "surrogatepass"))
        for cell in cells
        for text in ([cell] if isinstance(cell, str) else cell)
    )


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the answers of several batches as one.

    Lists of different lengths, such as the names found in each text, are filled up:
    strings with empty ones, whole numbers with -1, others with 0.
    """
    return {key: _concatenate([part[key] for part in parts]) for key in parts[0]}


def _concatenate(arrays: list[np.ndarray]) -> np.ndarray:
    first = arrays[0]
    if len({array.shape[1:] for array in arrays}) == 1:
        return np.concatenate(arrays)
    shape = np.max([array.shape[1:] for array in arrays], axis=0)
    fill = b"" if first.dtype == object else -1 if first.dtype.kind == "i" else 0
    widened = [
        np.pad(
            array,
            [
                (0, 0),
                *(
                    (0, most - size)
                    for most, size in zip(shape, array.shape[1:], strict=True)
                ),
            ],
            constant_values=fill,
        )
        for array in arrays
    ]
    return np.concatenate(widened)
