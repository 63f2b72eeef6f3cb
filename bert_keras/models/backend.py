"""What answers texts: `Answering`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bert_keras.tasks.protocols import respond
from bert_keras.text.preprocessor import Preprocessor


class Answering:
    """A model that answers texts, with `task`, `preprocessor` and `infer`.

    Prediction and export share these functions, so they give equal answers.
    """

    def answer(
        self: Any, texts: Any, *, preprocessor: Preprocessor | None = None
    ) -> dict[str, tf.Tensor]:
        """Return the answers for tf.string [B], or a tuple, one per role, in graph.

        `preprocessor` overrides the model's, for another layout.
        """
        return respond(self.task, texts, preprocessor or self.preprocessor, self.infer)

    def measure(self: Any, texts: Any, *, preprocessor: Preprocessor) -> dict[str, Any]:
        """Return the input of the task's `score` for texts, in graph."""
        return respond(self.task, texts, preprocessor, self.infer, scored=True)
