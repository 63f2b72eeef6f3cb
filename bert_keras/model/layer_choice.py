"""Which hidden states become a feature: names and rules of the choices.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3, table 7: the embeddings, the
second-to-last or last layer, the sum, weighted sum or concatenation of several.
Imports nothing heavy: the command line's help reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bert_keras.errors import ConfigError

POOLINGS = ("mean", "cls", "max")
COMBINATIONS = ("sum", "concat", "weighted")
# 0 is the embedding layer, L the last block; negative numbers count from the end.
NAMED_LAYERS: dict[str, tuple[int, ...]] = {
    "embeddings": (0,),
    "last": (-1,),
    "second-to-last": (-2,),
    "last-four": (-4, -3, -2, -1),
}
ALL = "all"  # blocks 1 to L, whatever L is
Layers = tuple[int, ...] | str


def parse_layers(value: str | int | Sequence[int]) -> Layers:
    """Return a choice of layers as numbers, or `all`.

    Args:
        value: a name of `NAMED_LAYERS`, `all`, one number, several, or `1,2,3`.

    Raises:
        ConfigError: it is none of these.
    """
    if value == ALL:
        return ALL
    if isinstance(value, str):
        if value in NAMED_LAYERS:
            return NAMED_LAYERS[value]
        parts: list[object] = [_number(part) for part in value.split(",")]
    else:
        parts = list(value) if isinstance(value, Sequence) else [value]
    numbers = [part for part in parts if type(part) is int]
    if not parts or len(numbers) < len(parts) or len(set(numbers)) < len(numbers):
        raise ConfigError(
            f"`layers` must be {', '.join(NAMED_LAYERS)}, {ALL} or different whole "
            f"numbers such as 1,2,3; received {value!r}"
        )
    return tuple(numbers)


def resolve_layers(layers: Layers, num_hidden_layers: int) -> tuple[int, ...]:
    """Return the places of the layers in `hidden_states`, each from 0 to L.

    Raises:
        ConfigError: the encoder has no such layer, or one is named twice.
    """
    if isinstance(layers, str):
        return tuple(range(1, num_hidden_layers + 1))
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


def _number(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        return text
