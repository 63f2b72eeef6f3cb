"""A weight's canonical name from that of another format, and back, by `name_table`.

Each function returns the other side's name; those of Hugging Face and of Google say
whether the values are transposed on the way, too.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bert_keras.checkpoints.name_table import (
    BUFFERS,
    GOOGLE,
    HEAD_AXES,
    KERAS_HUB,
    MODEL_GARDEN,
    TABLE,
)
from bert_keras.errors import CheckpointError

# What an optimizer keeps beside each variable, below its name.
_SLOT = re.compile(
    r"(?:adam|lamb)_[mv]|(?:Adam|AdamW|AdamWeightDecayOptimizer|LAMB|LAMBOptimizer"
    r"|Momentum|ExponentialMovingAverage)(?:_[0-9]{1,2})?"
)
_COUNTERS = {"global_step", "beta1_power", "beta2_power", "good_steps", "loss_scale"}

_FROM_HUGGINGFACE = {theirs: ours for ours, theirs in TABLE.items()}
_FROM_GOOGLE = {theirs: ours for ours, theirs in GOOGLE.items()}
_FROM_KERAS_HUB = {
    theirs.replace("/_", "/"): ours for ours, theirs in KERAS_HUB.items()
}
_FROM_MODEL_GARDEN = {theirs: ours for ours, theirs in MODEL_GARDEN.items()}
# No leading zero: two spellings of one layer would break the round trip.
_LAYER = re.compile(r"(?<=^bert/encoder/layer_)(?:0|[1-9][0-9]{0,3})(?=/)")
_HUGGINGFACE_LAYER = re.compile(
    r"(?<=^bert\.encoder\.layer\.)(?:0|[1-9][0-9]{0,3})(?=\.)"
)
_KERAS_HUB_NUMBER = re.compile(
    r"(?<=^model:layers/transformer_encoder)(?:|_[1-9][0-9]{0,3})(?=/)"
)
_GARDEN_NUMBER = re.compile(
    r"(?<=^encoder/_transformer_layers/)(?:0|[1-9][0-9]{0,3})(?=/)"
)
_OWN = re.compile(r"[A-Za-z0-9_.\-]{1,99}(/[A-Za-z0-9_.\-]{1,99}){1,9}")


class Renamed(NamedTuple):
    """A weight's name on the other side, and whether its values are transposed."""

    name: str
    transpose: bool


def from_huggingface(name: str) -> Renamed | None:
    """Return the canonical name of a Hugging Face weight, or `None` if it has none.

    With or without the prefix `bert.`; LayerNorm as `weight`, `bias` or, in older
    files, `gamma`, `beta`. A name with a slash is a canonical name that Hugging Face
    has no word for (see `to_huggingface`).
    """
    if "/" in name:
        known = name.startswith(("bert/", "cls/")) or name in TABLE
        return None if known or not _OWN.fullmatch(name) else Renamed(name, False)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    if name.endswith(".LayerNorm.gamma"):
        name = name.removesuffix("gamma") + "weight"
    elif name.endswith(".LayerNorm.beta"):
        name = name.removesuffix("beta") + "bias"
    number = _HUGGINGFACE_LAYER.search(name)
    ours = _FROM_HUGGINGFACE.get(_HUGGINGFACE_LAYER.sub("#", name))
    if ours is None or "#" in name:
        return None
    if number:
        ours = ours.replace("#", number.group())
    return Renamed(ours, ours.endswith("/kernel"))


def to_huggingface(name: str, *, prefix: bool = True) -> Renamed:
    """Return the Hugging Face name of a canonical one.

    A head that Hugging Face has no name for, such as `my_head/kernel`, keeps its
    canonical name and its values as they are: transformers passes over it, and
    `from_huggingface` knows it by its slash.

    Args:
        name: a canonical name.
        prefix: whether encoder names begin with `bert.`, as in every `BertFor…`
            architecture; `BertModel` has none.

    Raises:
        CheckpointError: the name cannot be stored so that it reads back.
    """
    number = _LAYER.search(name)
    theirs = None if "#" in name else TABLE.get(_LAYER.sub("#", name))
    if theirs is None:
        if from_huggingface(name) != Renamed(name, False):
            raise CheckpointError(f"no weight of BERT or of a head is named {name!r}")
        return Renamed(name, False)
    if number:
        theirs = theirs.replace("#", number.group())
    if not prefix:
        theirs = theirs.removeprefix("bert.")
    return Renamed(theirs, name.endswith("/kernel"))


def from_google(name: str) -> Renamed | None:
    """Return the canonical name of a weight in Google's files, or `None`."""
    if name in _FROM_GOOGLE:
        return Renamed(_FROM_GOOGLE[name], name.endswith("output_weights"))
    if name in GOOGLE or "#" in name or _LAYER.sub("#", name) not in TABLE:
        return None
    return Renamed(name, False)


def to_google(name: str) -> Renamed:
    """Return Google's name of a canonical one.

    Raises:
        CheckpointError: Google's code has no such weight.
    """
    if name in GOOGLE:
        return Renamed(GOOGLE[name], name.endswith("/kernel"))
    if from_google(name) is None:
        raise CheckpointError(f"Google's BERT has no weight named {name!r}")
    return Renamed(name, False)


def from_keras_hub(place: str) -> str | None:
    """Return the canonical name of a weight in KerasHub's files, or `None`.

    Args:
        place: `model:` or `task:`, then the path in that file. Keras has saved some of
            its steps with a leading underscore and without, so that none counts.
    """
    place = place.replace("/_", "/")
    number = _KERAS_HUB_NUMBER.search(place)
    ours = _FROM_KERAS_HUB.get(_KERAS_HUB_NUMBER.sub("#", place))
    if ours is None or "#" in place:
        return None
    return ours.replace("#", number.group()[1:] or "0") if number else ours


def to_keras_hub(name: str) -> str:
    """Return the place of a canonical name in KerasHub's files.

    Raises:
        CheckpointError: KerasHub has no such weight.
    """
    number = _LAYER.search(name)
    theirs = None if "#" in name else KERAS_HUB.get(_LAYER.sub("#", name))
    if theirs is None:
        raise CheckpointError(f"KerasHub's BERT has no weight named {name!r}")
    if number:
        count = "" if number.group() == "0" else f"_{number.group()}"
        theirs = theirs.replace("#", count)
    return theirs


def from_model_garden(place: str) -> str | None:
    """Return the canonical name of a place in Model Garden's objects, or `None`."""
    number = _GARDEN_NUMBER.search(place)
    ours = _FROM_MODEL_GARDEN.get(_GARDEN_NUMBER.sub("#", place))
    if ours is None or "#" in place:
        return None
    return ours.replace("#", number.group()) if number else ours


def to_model_garden(name: str) -> str:
    """Return the place of a canonical name in Model Garden's objects.

    Raises:
        CheckpointError: its pretrainer has no such weight.
    """
    number = _LAYER.search(name)
    theirs = None if "#" in name else MODEL_GARDEN.get(_LAYER.sub("#", name))
    if theirs is None:
        raise CheckpointError(
            f"Model Garden's BertPretrainerV2 has no weight named {name!r}"
        )
    return theirs.replace("#", number.group()) if number else theirs


def head_axis(name: str) -> int | None:
    """Return the canonical axis that some formats split into heads, `None` without one.

    Stored in its place, by KerasHub and Model Garden, are two axes: the heads, and the
    width of a head.
    """
    return HEAD_AXES.get(name.partition("/layer_")[2].partition("/")[2])


def is_buffer(name: str) -> bool:
    """Return whether a Hugging Face name is a saved constant, not a weight."""
    return name.removeprefix("bert.") in BUFFERS


def is_optimizer_state(name: str) -> bool:
    """Return whether a name in Google's files belongs to the optimizer."""
    return name in _COUNTERS or bool(_SLOT.fullmatch(name.rpartition("/")[2]))
