"""Quantized layers: which ones can be, and what a model with them cannot do."""

from __future__ import annotations

from typing import Any

import keras

from bert_keras.errors import ConfigError


def is_dense(layer: Any) -> bool:
    """Return whether a layer has a matrix product, which Keras can quantize."""
    return isinstance(layer, keras.layers.Dense | keras.layers.EinsumDense)


def check_not_quantized(model: keras.Model, what: str) -> None:
    """Raise ConfigError if weights are quantized, which file formats cannot store."""
    if any(weight.path.endswith("/kernel_scale") for weight in model.weights):
        raise ConfigError(
            f"a quantized model cannot be {what}: save it before `quantize`, or export "
            "it as a SavedModel"
        )
