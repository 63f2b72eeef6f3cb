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

        Texts of about one length are computed together, which saves attention work, so
        answers come a window of batches at a time. The text of the next batches is
        prepared while a batch is computed.
        """
        if batch_size < 1:
            raise ConfigError(f"`batch_size` must be at least 1; received {batch_size}")
        count = len(texts[0]) if texts else 0
        if not count:
            return
        window = _WINDOW_BATCHES * batch_size
        sizes = [sum(map(len, row)) for row in zip(*texts, strict=True)]
        order = by_length(sizes, window)
        # Bytes, since Python's strings may hold what is not Unicode: half a pair.
        parts = tuple(
            [part[row].encode("utf-8", "surrogatepass") for row in order]
            for part in texts
        )
        single = len(texts) == 1
        dataset = tf.data.Dataset.from_tensor_slices(parts[0] if single else parts)
        dataset = dataset.batch(batch_size)
        # One graph for all shapes; called as they are, they are traced for each.
        prepare = self._prepare.get_concrete_function(dataset.element_spec)
        answer = self._answer.get_concrete_function(prepare.structured_outputs)
        batches: Any
        if count <= batch_size:  # starting a dataset takes longer than a few texts do
            batches = [prepare(next(iter(dataset)))]
        else:
            batches = dataset.map(
                lambda *part: prepare(part[0] if single else part),
                num_parallel_calls=2,
            ).prefetch(2)
        found: list[dict[str, np.ndarray]] = []
        start = 0
        for batch in batches:
            found.append({key: value.numpy() for key, value in answer(batch).items()})
            end = min(start + window, count)
            if start + sum(len(_first(answers)) for answers in found) == end:
                back = np.argsort(order[start:end])
                yield {
                    key: np.concatenate([answers[key] for answers in found])[back]
                    for key in found[0]
                }
                start, found = end, []


def by_length(sizes: Sequence[int], window: int) -> list[int]:
    """Return the rows, sorted by size within each window of rows."""
    order: list[int] = []
    for start in range(0, len(sizes), window):
        rows = range(start, min(start + window, len(sizes)))
        order.extend(sorted(rows, key=lambda row: sizes[row]))
    return order


def _first(answers: dict[str, np.ndarray]) -> np.ndarray:
    return next(iter(answers.values()))


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
