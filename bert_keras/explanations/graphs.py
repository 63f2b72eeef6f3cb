"""The functions of a model that explanations call, and their graphs: `graphs_of`.

Tracing takes seconds; explaining a short text takes milliseconds. Without a graph it
takes a little longer, which is less for a few texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_keras.inference.predictor import Predictor
from bert_keras.model.layers import word_vectors
from bert_keras.models.task_model import TaskModel

_ATTRIBUTE = "_explanation_graphs"


class NumberFunctions(NamedTuple):
    """The functions of a `Target.number` and of its gradient.

    Both take points float32 [k, R, T, H], the batch dict of the rows and the further
    arguments of the number.

    Attributes:
        value: returns the number at each point, float32 [k].
        both: returns the number and its gradients, float32 [k, R, T, H].
    """

    value: Callable[..., Any]
    both: Callable[..., Any]


class Graphs:
    """The graphs of a model, each traced at its first call.

    They read the model's variables, so they always use its current weights.

    Args:
        model: the model.

    Attributes:
        predictor: predicts the answers that are explained.
    """

    def __init__(self, model: TaskModel) -> None:
        self.predictor = Predictor(model)
        self._model = model
        self._state = _state(model)
        self._numbers: dict[Callable[..., Any], NumberFunctions] = {}

    def is_current(self) -> bool:
        """Return whether the model still has the same variables and settings."""
        weights, tokenizer, settings = _state(self._model)
        known, known_tokenizer, known_settings = self._state
        return (
            len(weights) == len(known)
            and all(a is b for a, b in zip(weights, known, strict=True))
            and tokenizer is known_tokenizer
            and settings == known_settings
        )

    def of_number(
        self,
        number: Callable[..., Any],
        batch: Mapping[str, Any],
        given: Mapping[str, Any],
    ) -> NumberFunctions:
        """Return the graphs of a number.

        Args:
            number: see `Target`.
            batch, given: an example of its arguments; later ones may have other sizes.
        """
        if number not in self._numbers:
            functions = number_functions(self._model, number)
            width = self._model.backbone.config.embedding_width
            signature = (
                tf.TensorSpec([None, None, None, width], tf.float32),
                {name: _any_size(each) for name, each in batch.items()},
                {name: _any_size(each) for name, each in given.items()},
            )
            self._numbers[number] = NumberFunctions(
                *(
                    tf.function(each, input_signature=signature, autograph=False)
                    for each in functions
                )
            )
        return self._numbers[number]


def number_functions(model: TaskModel, number: Callable[..., Any]) -> NumberFunctions:
    """Return the functions of a number, see `Target`, without a graph."""

    def value(points: Any, batch: Any, given: Any) -> Any:
        return number(_outputs(model, points, batch), **given)

    def both(points: Any, batch: Any, given: Any) -> Any:
        # Otherwise the gradients of the weights are computed, too.
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(points)
            found = value(points, batch, given)
            total = tf.reduce_sum(found)
        return found, tape.gradient(total, points)

    return NumberFunctions(value, both)


def _outputs(model: TaskModel, points: Any, batch: Any) -> Any:
    """Return the outputs [k, R, …] for word embeddings, points [k, R, T, H]."""
    copies = tf.shape(points)[0]
    repeated = {
        name: tf.tile(each, [copies, *[1] * (each.shape.rank - 1)])
        for name, each in batch.items()
    }
    vectors = tf.reshape(points, [-1, tf.shape(points)[2], points.shape[3]])
    with word_vectors(lambda _: vectors):
        outputs = model(repeated, training=False)
    outputs = tf.cast(outputs, tf.float32)
    shape = tf.concat([[copies, -1], tf.shape(outputs)[1:]], 0)
    return tf.reshape(outputs, shape)


def graphs_of(model: TaskModel) -> Graphs:
    """Return the graphs of a model, new ones if its variables or settings changed.

    The model holds them: they refer to it and to its variables, so a table of weak
    references would keep it alive. Keras does not save this attribute.
    """
    attributes: dict[str, Any] = model.__dict__  # without Keras's tracking
    found: Graphs | None = attributes.get(_ATTRIBUTE)
    if found is None or not found.is_current():
        found = attributes[_ATTRIBUTE] = Graphs(model)
    return found


def _state(model: TaskModel) -> tuple[list[Any], Any, str]:
    """Return what graphs are bound to: variables, vocabulary and settings.

    LoRA and quantization replace variables.
    """
    preprocessor = model.preprocessor
    settings = repr((model.task, preprocessor.settings()))
    return list(model.weights), preprocessor.tokenizer, settings


def _any_size(tensor: Any) -> tf.TensorSpec:
    return tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)
