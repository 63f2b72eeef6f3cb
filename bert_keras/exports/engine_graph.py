"""A task's model with the inputs and outputs that other tools expect: `EngineGraph`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from bert_keras.config import WINDOW_STARTS
from bert_keras.errors import ConfigError, one_line
from bert_keras.exports.engine_files import NAMES, OUR_NAMES
from bert_keras.model.encoder import is_of_packed_rows
from bert_keras.reading.text_vector import COUNTED_TOKENS

_OF_TEXTS = ("logits", "sentence_embedding")  # outputs with a row for each text


class EngineGraph(keras.Model):
    """The Keras model of a task, one text, or one window of a text, per row.

    Inputs: `input_ids`, `token_type_ids`, `attention_mask`, int64 [B, T]; further ones
    of a task keep their names and dtypes. Outputs: as the task's `named_outputs`.

    Args:
        model: the task model.
        with_weights: whether the weights are inputs too. tf2onnx copies constants at
            each of its passes: 21 GB and more for BERT-base.

    Raises:
        ConfigError: the outputs are neither one tensor nor a dict of tensors.
    """

    def __init__(self, model: keras.Model, *, with_weights: bool = False) -> None:
        super().__init__(name="engine_graph")
        outputs = model.task.named_outputs(outputs_of(model), model)
        named = keras.Model(model._inputs_struct, dict(sorted(outputs.items())))
        held = (model, named)
        if not with_weights:
            self._held = held  # in a tuple: not layers of this model
        # With weights, the exporter must not find the model: it would trace all
        # functions of the layers to look for tables.
        self._parts = lambda: held
        self._with_weights = with_weights
        self.built = True

    def specs(self) -> dict[str, keras.InputSpec]:
        """Return the inputs other than weights, by sorted name."""
        model, _ = self._parts()
        found = {}
        for name, each in inputs_of(model).items():
            if name in model.task.needs.filled_inputs:
                continue
            dtype = "int64" if name in NAMES else each.dtype
            named = NAMES.get(name, name)
            shape = (None, *each.shape[1:])
            found[named] = keras.InputSpec(shape=shape, dtype=dtype, name=named)
        return dict(sorted(found.items()))

    def signature(self) -> dict[str, keras.InputSpec]:
        """Return all inputs by sorted name.

        Sorted: TensorFlow orders the inputs of a function by name, and Keras's
        exporters name them in the order of this dict.
        """
        found = self.specs()
        for name, value in self._weight_inputs().items():
            found[name] = keras.InputSpec(
                shape=value.shape, dtype=value.dtype, name=name
            )
        return dict(sorted(found.items()))

    def outputs_by_name(self) -> dict[str, Any]:
        """Return the Keras outputs by sorted name."""
        found: dict[str, Any] = self._parts()[1]._outputs_struct
        return found

    def axes(self, name: str, shape: Sequence[int | None]) -> list[str | None]:
        """Return names for the axes of any size of an input or output."""
        inputs = inputs_of(self._parts()[0])
        by_text = ["batch", "choices", "sequence"]
        if len(inputs["token_ids"].shape) == 2:
            by_text.remove("choices")
        if WINDOW_STARTS in inputs:
            by_text[0] = "texts" if name in _OF_TEXTS else "windows"
        others = [  # inputs with places of their own, such as of sentences
            each
            for each, value in inputs.items()
            if each not in (*NAMES, COUNTED_TOKENS)
            and len(value.shape) > 1
            and each in self.specs()
        ]
        if name not in OUR_NAMES and others:
            by_text = ["batch", others[0].removesuffix("_positions")]
        names = iter(by_text)
        return [next(names, None) if size is None else None for size in shape]

    def weights_by_input(self) -> dict[str, np.ndarray]:
        """Return the weights by the names of their inputs."""
        found = self._weight_inputs().items()
        return {name: np.asarray(each.value) for name, each in found}

    def call(self, inputs: dict[str, Any], training: bool = False) -> Any:
        model, named = self._parts()
        batch = {OUR_NAMES.get(name, name): each for name, each in inputs.items()}
        given: dict[str, Any] = dict.fromkeys(model._inputs_struct)  # some are optional
        for name, each in inputs_of(model).items():
            if name not in model.task.needs.filled_inputs:
                given[name] = keras.ops.cast(batch[name], each.dtype)
        for name in model.task.needs.filled_inputs:  # every place of a row
            shape = keras.ops.shape(given["token_ids"])
            places = keras.ops.arange(shape[1], dtype="int32")[None]
            given[name] = keras.ops.broadcast_to(places, shape)
        if not self._with_weights:
            return named(given, training=training)
        weights = self._weight_inputs().items()
        values = [(variable, inputs[name]) for name, variable in weights]
        with keras.StatelessScope(state_mapping=values):
            return named(given, training=training)

    def _weight_inputs(self) -> dict[str, Any]:
        """Return the weights that are inputs, by the names of these."""
        weights = self._parts()[0].variables if self._with_weights else []
        return {f"weight_{i:05}": each for i, each in enumerate(weights)}


def inputs_of(model: keras.Model) -> dict[str, Any]:
    """Return the Keras inputs of a model without packed rows, by sorted name."""
    found: dict[str, Any] = model._inputs_struct
    return {name: found[name] for name in sorted(found) if not is_of_packed_rows(name)}


def outputs_of(model: keras.Model) -> Any:
    """Return the Keras outputs of a model, one tensor or a dict of tensors.

    Raises:
        ConfigError: they are something else.
    """
    outputs = model._outputs_struct
    found = outputs.values() if isinstance(outputs, dict) else [outputs]
    if not all(map(keras.utils.is_keras_tensor, found)):
        raise ConfigError(
            "`outputs` of the task must be one tensor or a dict of tensors for an "
            f"engine; received {one_line(outputs)}"
        )
    return outputs
