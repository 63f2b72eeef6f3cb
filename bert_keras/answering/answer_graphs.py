"""The TensorFlow graphs that answer texts: `AnswerGraphs`."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.answering.answering import DEFAULT, Answering, Measured, Parts
from bert_keras.answering.frozen_weights import FrozenWeights, gains_by_freezing
from bert_keras.errors import ConfigError
from bert_keras.tasks.protocols import (
    Writing,
    input_specs,
    lengths_of,
    score_specs,
    windows_of,
)
from bert_keras.text.preprocessor import as_tensor, one_or_all

# Maps the ranks of the inputs to a function that returns the graph.
_Graphs = dict[tuple[int, ...], Callable[[], Any]]


class AnswerGraphs(Answering):
    """Answers texts with the same graph that `export` writes.

    Args:
        model: a `Backend`.
        freeze: as in `Predictor`.
    """

    def __init__(self, model: Any, *, freeze: bool = True) -> None:
        self._model = model
        accelerators = [tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU")]
        self._freezes = freeze and gains_by_freezing(model) and not any(accelerators)
        # A model that writes computes its steps once for each batch.
        is_writing = isinstance(model.task, Writing)
        self.in_small_batches = not any(accelerators) and not is_writing
        self.runs_keras = isinstance(model, keras.Model)
        self.answers_untraced = self.runs_keras and not (self._freezes or is_writing)
        # Texts of similar length are computed together: there is little padding, and
        # attention costs least with one text per row.
        self._padded = padded = model.graph_preprocessor.replace(layout="padded")

        def lengths(
            *texts: Any, scored: bool = False
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            given = one_or_all(texts)
            read, lost = lengths_of(model.task, padded, given, scored=scored)
            windows = windows_of(model.task, padded, given, read, scored=scored)
            return read, tf.cast(lost, tf.int32), windows

        # Traced at their first call.
        self._lengths = self._scored_lengths = self._graphs(lengths)
        if model.task.scores_sides:
            self._scored_lengths = self._graphs(lengths, scored=True)
        self._lock = threading.Lock()
        self._take_weights()

    def _take_weights(self) -> None:
        """Build the graphs with the model's current weights."""
        model: Any = self._model
        frozen = self._frozen = FrozenWeights(model) if self._freezes else None
        weights = frozen.scope if frozen else contextlib.nullcontext

        def answer(*texts: Any, scored: bool = False) -> dict[str, tf.Tensor]:
            with weights():
                given = one_or_all(texts)
                return model.answer(given, preprocessor=self._padded, scored=scored)

        self._answer = self._graphs(answer)
        self._scored_answer = self._graphs(answer, scored=True)
        self._function = answer

    def _current(self, *, scored: bool) -> _Graphs:
        """Return the graphs of the answers, for the model's current weights."""
        with self._lock:
            if self._frozen is not None and not self._frozen.is_current():
                self._take_weights()
            return self._scored_answer if scored else self._answer

    def _graphs(self, function: Callable[..., Any], *, scored: bool = False) -> _Graphs:
        """Return a graph for each form of the texts, by the ranks of its tensors.

        `scored` is for texts to score. Each has a signature, so that it accepts batches
        of any size. A concrete function is called in less time than the `tf.function`
        that looks it up.
        """
        task = self._model.task
        return {
            # TensorFlow counts the tracings of a function's code, but not of a partial
            # object, and warns when a program has loaded five models.
            ranks_of(signature): _once(
                functools.partial(
                    traced, functools.partial(function, scored=scored), signature
                )
            )
            for signature in (score_specs if scored else input_specs)(task).values()
        }

    def outputs(self, signature: str = DEFAULT) -> dict[str, tf.TensorSpec]:
        specs = input_specs(self._model.task)[signature]
        graph = self._current(scored=False)[ranks_of(specs)]
        return dict(graph().structured_outputs)

    def measure(self, texts: Parts, *, scored: bool = False) -> Measured:
        tensors = self._tensors(texts)
        graphs = self._scored_lengths if scored else self._lengths
        found = graphs[ranks_of(tensors)]()(*tensors)
        return Measured(texts, *(each.numpy() for each in found))

    def answer(
        self, texts: Parts, *, scored: bool = False, traced: bool = True
    ) -> dict[str, np.ndarray]:
        tensors = self._tensors(texts)
        if traced:
            found = self._current(scored=scored)[ranks_of(tensors)]()(*tensors)
        else:
            found = self._function(*tensors)
        return {name: value.numpy() for name, value in found.items()}

    def _tensors(self, texts: Parts) -> tuple[Any, ...]:
        backend = keras.config.backend()
        if backend != "tensorflow" and self.runs_keras:
            raise ConfigError(
                f"a model answers texts with KERAS_BACKEND=tensorflow; received "
                f"{backend}, on which `TaskModel.predict` works"
            )
        return tuple(map(as_tensor, texts))


def traced(function: Callable[..., Any], signature: Sequence[tf.TensorSpec]) -> Any:
    """Return the graph of a function of tensors that fit a signature."""
    graph: Any = tf.function(function, input_signature=signature, autograph=False)
    return graph.get_concrete_function()


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that returns what the first call of `make` returned.

    Threads wait for the one that makes it: each would trace a graph of its own.
    """
    lock, made = threading.Lock(), functools.cache(make)

    def get() -> Any:
        with lock:
            return made()

    return get


def ranks_of(tensors: Sequence[Any]) -> tuple[int, ...]:
    """Return the rank of each tensor, or of each input spec."""
    return tuple(tensor.shape.rank for tensor in tensors)
