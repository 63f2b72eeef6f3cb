"""Which hidden states are read: numbers, names, or all. Imports nothing heavy.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3, table 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from bert_keras.errors import ConfigError, shown
from bert_keras.settings import NAMED_LAYERS

LAST = NAMED_LAYERS["last"]
ALL = "all"  # blocks 1 to L, for any L
EMBEDDINGS_AND_ALL = "embeddings+all"  # the embedding layer, too
Layers = tuple[int, ...] | str


def parse_layers(value: str | int | Sequence[int]) -> Layers:
    """Return a selection of layers as numbers, or `all`.

    Args:
        value: a name of `NAMED_LAYERS`, `all`, one number, several numbers, or `1,2,3`.

    Raises:
        ConfigError: the value has another form.
    """
    if value == ALL:
        return ALL
    if isinstance(value, str):
        if value in NAMED_LAYERS:
            return NAMED_LAYERS[value]
        parts: list[object] = [whole_number(part) for part in value.split(",")]
    else:
        parts = list(value) if isinstance(value, Sequence) else [value]
    whole = [part for part in parts if type(part) is int]
    if not parts or len(whole) < len(parts) or len(set(whole)) < len(whole):
        raise ConfigError(
            f"`layers` must be {', '.join(NAMED_LAYERS)}, {ALL} or different whole "
            f"numbers such as 1,2,3; received {shown(value)}"
        )
    return tuple(whole)


def resolve_layers(layers: Layers, num_hidden_layers: int) -> tuple[int, ...]:
    """Return the indices of the layers in `hidden_states`, each from 0 to L.

    Raises:
        ConfigError: the encoder does not have such a layer, or one is named twice.
    """
    if isinstance(layers, str):
        return tuple(range(1 if layers == ALL else 0, num_hidden_layers + 1))
    count = num_hidden_layers + 1
    found = tuple(layer + count if layer < 0 else layer for layer in layers)
    wrong = [
        layer
        for layer, place in zip(layers, found, strict=True)
        if not 0 <= place < count or found.count(place) > 1
    ]
    if wrong:
        raise ConfigError(
            f"`layers` must be different numbers from 0 (embeddings) to "
            f"{num_hidden_layers}, or from -1 down to -{count}; received {wrong[0]} "
            f"among {', '.join(map(str, layers))}"
        )
    return found


def whole_number(text: str) -> object:
    """Return a whole number, or a text that is none unchanged."""
    try:
        return int(text)
    except ValueError:
        return text
