"""What computes the answers of a `Predictor`: `Backend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.tasks.base import Batch, Task
from bert_keras.tasks.protocols import respond
from bert_keras.text.preprocessor import Preprocessor


class Backend:
    """A task with what computes its model: Keras, the graph of an export, an engine.

    A subclass defines `infer`. Prediction and export share `answer`, so they give equal
    answers.

    Attributes:
        task: features and answers.
        preprocessor: strings to batches.
        platform: Triton's name of what computes it.
    """

    task: Task
    preprocessor: Preprocessor
    platform: str = "tensorflow_savedmodel"

    def infer(self, batch: Batch) -> Any:
        """Return what the task's `answer` reads of a batch dict, in graph."""
        raise NotImplementedError

    def computed(self, batch: Batch) -> Any:
        """Return the outputs of the model for a batch dict, in graph."""
        return self.infer(batch)

    def answer_few(
        self, texts: Sequence[Sequence[Any]]
    ) -> dict[str, np.ndarray] | None:
        """Return the answers to a batch of a few short texts in a faster way.

        Args:
            texts: B texts of each role.

        Returns:
            arrays [B, …] as those of `answer`, or `None` where there is no such way.
        """
        return None

    def answer(
        self,
        texts: Any,
        *,
        preprocessor: Preprocessor | None = None,
        scored: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Return the answers for tf.string [B], or a tuple, one per role, in graph.

        Args:
            texts: the texts.
            preprocessor: overrides the model's, for another layout.
            scored: whether the answers are for the task's `score` rather than users.
        """
        preprocessor = preprocessor or self.preprocessor
        return respond(self.task, texts, preprocessor, self.infer, scored=scored)
