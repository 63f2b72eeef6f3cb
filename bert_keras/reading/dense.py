"""Dense layers on the vector of a text, or on its tokens, as sentence-transformers has.

Their settings are a list of objects, see `checked_dense`.

Source: Mu and Viswanath 2018 (arXiv:1702.01417) for principal components that many
vectors share and that tell little, here of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.config import DENSE_SCOPE
from bert_keras.errors import ConfigError, shown
from bert_keras.lazy_names import deferred
from bert_keras.reading.layers import LAST, Layers
from bert_keras.settings import check_boolean, check_choice, check_whole_number

if TYPE_CHECKING:
    import keras

    from bert_keras.model import pooling
else:
    keras, pooling = deferred("keras", "bert_keras.model.pooling")

_ACTIVATIONS = ("linear", "sigmoid", "tanh", "relu", "gelu", "silu")
_MOST = 4


def checked_dense(given: Any, layers: Layers) -> tuple[dict[str, Any], ...]:
    """Return the settings of layers on a text's vector, checked."""
    keys, more = {"units", "activation", "use_bias"}, {"use_residual", "on_tokens"}
    whole = isinstance(given, tuple | list)
    if not whole or not all(
        isinstance(d, Mapping) and keys <= set(d) <= keys | more for d in given
    ):
        raise ConfigError(
            f"`dense` must be a list of objects with {', '.join(sorted(keys))} and "
            f"perhaps {', '.join(sorted(more))}; received {shown(given)}"
        )
    if len(given) > _MOST or (given and layers != LAST):
        raise ConfigError(
            f"`dense` must be at most {_MOST} layers, on the last hidden state; "
            f"received {len(given)} with `layers` {shown(layers)}"
        )
    for layer in given:
        check_whole_number("units", layer["units"], least=1, most=1 << 16)
        check_choice("activation", layer["activation"], _ACTIVATIONS)
        for name in ("use_bias", *more & set(layer)):
            check_boolean(name, layer[name])
    places = [bool(layer.get("on_tokens")) for layer in given]
    if places != sorted(places, reverse=True):
        raise ConfigError(
            "`on_tokens` must be true of the first layers of `dense` alone; received "
            f"{shown(places)}"
        )
    return tuple(
        {k: v for k, v in layer.items() if v or k not in more} for layer in given
    )


def dense_layers(
    given: Any, seed: int | None
) -> tuple[list[keras.layers.Layer], list[keras.layers.Layer]]:
    """Return the layers of the setting `dense`: on tokens, and on the pooled vector.

    Layers on tokens start as orthogonal matrices, which keep more of the products of
    the tokens' vectors than Glorot's.
    """
    found: dict[bool, list[keras.layers.Layer]] = {True: [], False: []}
    for number, layer in enumerate(given):
        settings, kind = dict(layer), keras.layers.Dense
        if settings.pop("use_residual", False):
            kind = pooling.ResidualDense
        on_tokens = bool(settings.pop("on_tokens", False))
        initializers = keras.initializers
        first = initializers.Orthogonal if on_tokens else initializers.GlorotUniform
        settings |= {"kernel_initializer": first(seed=seed), "dtype": "float32"}
        found[on_tokens].append(kind(**settings, name=f"{DENSE_SCOPE}{number}"))
    return found[True], found[False]


def principal_kernel(vectors: np.ndarray, units: int) -> np.ndarray:
    """Return the kernel of a linear layer that keeps what tells vectors apart.

    Their principal components, each divided by the square root of its standard
    deviation, so that the few that all vectors share count less in products.

    Args:
        vectors: float32 [M, D].
        units: at most D.

    Returns:
        float32 [D, units], of the same mean square of outputs as of inputs.
    """
    moments = vectors.T @ vectors / len(vectors)
    values, components = np.linalg.eigh(moments.astype(np.float64))
    # Few vectors leave most components without any variance.
    values = np.maximum(values, values.mean() / 8)[::-1][:units]
    kernel = components[:, ::-1][:, :units] * values**-0.25
    kernel *= np.sqrt(np.trace(moments) / np.sqrt(values).sum())
    found: np.ndarray = kernel.astype(np.float32)
    return found
