"""What computes the answers of a `Predictor`: `Backend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bert_keras.answering.answering import Answering
from bert_keras.lazy_names import deferred
from bert_keras.tasks.base import Batch, Task

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_keras.answering import answer_graphs
else:
    (answer_graphs,) = deferred("bert_keras.answering.answer_graphs")


class Backend:
    """A task with what computes its model: Keras, the graph of an export, an engine.

    A subclass defines `infer`. Prediction and export share `answer`, so they give equal
    answers.

    Attributes:
        task: features and answers.
        preprocessor: strings to batches: a `Preprocessor`, in graph, or `TokenRows`.
        platform: Triton's name of what computes it.
        has_fixed_task: whether the settings of the task cannot be changed.
    """

    task: Task
    preprocessor: Any
    platform: str = "tensorflow_savedmodel"
    has_fixed_task: bool = False

    @property
    def graph_preprocessor(self) -> Any:
        """The `Preprocessor`, which makes the batches of `answer` in graph."""
        return self.preprocessor

    def with_task(self, task: Task) -> Backend:
        """Return a model with another task, on the same weights."""
        return _WithTask(self, task)

    def prompted(self, task: Task, name: str) -> Backend:
        """Return a model with a task that reads texts with the prompt of a name."""
        return self.with_task(task)

    def answering(self, *, freeze: bool = True) -> Answering:
        """Return what answers batches of texts: by default graphs of `answer`.

        `freeze` is as in `Predictor`.
        """
        return answer_graphs.AnswerGraphs(self, freeze=freeze)

    def infer(self, batch: Batch) -> Any:
        """Return what the task's `answer` reads of a batch dict, in graph."""
        raise NotImplementedError

    def computed(self, batch: Batch) -> Any:
        """Return the outputs of the model for a batch dict, in graph."""
        return self.infer(batch)

    def answer(
        self, texts: Any, *, preprocessor: Any = None, scored: bool = False
    ) -> dict[str, tf.Tensor]:
        """Return the answers for tf.string [B], or a tuple, one per role, in graph.

        Args:
            texts: the texts.
            preprocessor: overrides the model's, for another layout.
            scored: whether the answers are for the task's `score` rather than users.
        """
        preprocessor = preprocessor or self.graph_preprocessor
        return self.task.respond(texts, preprocessor, self.infer, scored=scored)


class _WithTask(Backend):
    """A model with another task, such as one with another prompt or width."""

    def __init__(self, model: Backend, task: Task) -> None:
        self.task = task
        self.preprocessor = model.preprocessor
        self.infer = model.infer  # type: ignore[method-assign]
        self.weights = getattr(model, "weights", ())
        self.output = getattr(model, "output", None)
