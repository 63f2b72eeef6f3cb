"""Weights as constants of the graphs of a model: `FrozenWeights`.

A model in mixed precision keeps float32 weights and casts them at each call. As
constants they are cast once, and oneDNN keeps them in the layout of its matrix
products: prediction in bfloat16 on processors takes 10 to 50% less time. In float32
it would be slower: oneDNN lays out the constants for the first batch, and again at each
call for batches of other sizes. docs/figures.md has the figures.
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.distribution.replicas import replica_count


def gains_by_freezing(model: Any) -> bool:
    """Return whether a model is a task model that computes in 16 bits, on one device.

    In float32 there is nothing to cast.
    """
    return (
        isinstance(model, keras.Model)
        and model.backbone.compute_dtype in ("bfloat16", "float16")
        and replica_count(model) == 1
    )


class FrozenWeights:
    """The weights of a `TaskModel` as constants, for `Predictor` and `export`.

    They are captured at construction. If the model is trained further, `is_current`
    returns false, and its graphs have to be traced with new ones.

    Args:
        model: a task model.

    Example:
        >>> with FrozenWeights(model).scope():  # in graph
        ...     answers = model.answer(texts)
    """

    def __init__(self, model: keras.Model) -> None:
        # These share memory with the weights until the weights change.
        self._values = {id(v): v.value.read_value() for v in model.variables}
        self._addresses = [_address(value) for value in self._values.values()]
        variables = [v.value for v in model.variables]

        def read() -> list[tf.Tensor]:
            return [variable.read_value() for variable in variables]

        # One call takes a third of the time of a call for each weight, and calling the
        # concrete function two thirds of the time of calling its `tf.function`.
        self._read = tf.function(read, autograph=False).get_concrete_function()
        self._constants: dict[tuple[int, str], Any] = {}

    def scope(self) -> keras.StatelessScope:
        """Return a scope in which the model reads its weights as constants."""
        return _Constants(self._values, self._constants)

    def is_current(self) -> bool:
        """Return whether the constants equal the model's current weights."""
        # TensorFlow writes a new value to other memory while the old one is referenced.
        return [_address(value) for value in self._read()] == self._addresses


class _Constants(keras.StatelessScope):
    """A scope in which each weight is read as a constant of the graph.

    The constant has the dtype in which the layer reads the weight. It belongs to the
    graph in which the scope is entered; loops read it as one of their inputs, because
    TensorFlow fuses no product with a constant inside of a loop's body.

    Args:
        values: the weights by the `id` of their variables.
        constants: filled with a function for each constant, by this `id` and its
            dtype, so that all graphs of a SavedModel share it; TensorFlow inlines it
            before it fuses ops.
    """

    def __init__(
        self, values: dict[int, tf.Tensor], constants: dict[tuple[int, str], Any]
    ) -> None:
        super().__init__(initialize_variables=False)
        self._values = values
        self._constants = constants
        self._in_graph: dict[tuple[int, str], tf.Tensor] = {}
        self._is_casting = False
        self._graph: Any = contextlib.nullcontext

    def __enter__(self) -> Any:
        if not tf.executing_eagerly():
            self._graph = tf.compat.v1.get_default_graph().as_default
        return super().__enter__()

    def get_current_value(self, variable: Any) -> tf.Tensor | None:
        place = id(variable)
        if self._is_casting or place not in self._values:
            return self._values.get(place)
        self._is_casting = True
        try:
            with tf.init_scope():
                value = variable.value  # as in `_values`, cast to the layer's dtype
        finally:
            self._is_casting = False
        key = (place, value.dtype.name)
        if key not in self._constants:
            self._constants[key] = _constant(value.numpy())
        if key not in self._in_graph:
            with self._graph():
                self._in_graph[key] = self._constants[key]()
        return self._in_graph[key]


def _constant(array: np.ndarray) -> Any:
    """Return a graph function that returns an array."""
    with tf.init_scope():
        function = tf.function(lambda: tf.constant(array), autograph=False)
        return function.get_concrete_function()


def _address(value: tf.Tensor) -> int:
    """Return the memory address of a tensor on the CPU."""
    address: int = np.asarray(value).__array_interface__["data"][0]
    return address
