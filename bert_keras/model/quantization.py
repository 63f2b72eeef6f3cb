"""Keras's `quantize` for the models here: `Quantizable`.

A quantized model can predict and be exported as a SavedModel. It cannot be saved
otherwise: model folders have no such weights, and a `.keras` file with nested layers,
such as the blocks, does not load again (Keras 3.15).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from bert_keras.errors import ConfigError

# No model itself: Keras makes the bases of a functional model functional, once each.
_Model: Any = keras.Model if TYPE_CHECKING else object
_KINDS = (keras.layers.Dense, keras.layers.EinsumDense)


class Quantizable(_Model):
    """A base of models whose `quantize` skips layers without matrix products."""

    def quantize(
        self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantize the dense layers for inference, as `keras.Model.quantize` does.

        Args:
            mode: `int8`, `int4` or `float8`.
            config: a `keras.quantizers.QuantizationConfig`, in place of a mode.
            filters: which layers, see Keras; by default all dense layers.
            **kwargs: further arguments of Keras.
        """
        if filters is None:
            # Keras warns of each layer that it cannot quantize.
            def filters(layer: Any) -> bool:
                return isinstance(layer, _KINDS)

        super().quantize(mode, config=config, filters=filters, **kwargs)


def check_not_quantized(model: keras.Model, what: str) -> None:
    """Raise if weights are quantized, which our file formats cannot hold.

    Raises:
        ConfigError: names what cannot be done.
    """
    if any(weight.path.endswith("/kernel_scale") for weight in model.weights):
        raise ConfigError(
            f"a quantized model cannot be {what}: save it before `quantize`, or export "
            "it as a SavedModel"
        )
