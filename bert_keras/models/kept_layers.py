"""A BERT with only some of its layers: `with_layers`.

Sources: Sanh et al. 2019 (arXiv:1910.01108), section 3, whose student starts from every
second layer of its teacher; Sajjad et al. 2020 (arXiv:2004.03844); for decoders,
Shleifer and Rush 2020 (arXiv:2010.13002), section 3.1.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.checkpoints import Checkpoint, LazyArrays
from bert_keras.checkpoints.huggingface import is_encoder_decoder
from bert_keras.config import KEY
from bert_keras.errors import ConfigError, shown
from bert_keras.models.folder import Folder
from bert_keras.settings import ALL_LAYERS, LAST_LAYER, layer_numbers

_LAYER = re.compile(r"(decoder/)?bert/encoder/layer_(\d+)/")
_COUNT = "num_hidden_layers"
KERNEL = "classifier/kernel"


def with_layers(folder: Folder, layers: str | Sequence[int] | None) -> Folder:
    """Return a folder with some layers of its encoder, and its heads.

    A decoder keeps the same layers, unless its number of layers is its own: then it
    stays whole, and a note says so.

    Args:
        folder: an encoder, with or without heads.
        layers: numbers of the layers, from 0, as in `layer_numbers`; `None`: all.

    Raises:
        ConfigError: there is no such layer, or it is an embedding model of other layers
            than the last.
    """
    if layers is None:
        return folder
    kept, checkpoint = layer_numbers(layers), folder.checkpoint
    count = checkpoint.config.num_hidden_layers
    given = ",".join(map(str, kept))
    if kept[-1] >= count:
        raise ConfigError(
            f"`keep_layers` must be from 0 to {count - 1} for {folder.path}, which has "
            f"{count} layers; received {given}"
        )
    read = checkpoint.own_entry.get("settings", {}).get("layers", LAST_LAYER)
    is_wide = read == ALL_LAYERS and KERNEL in checkpoint.shapes
    if read not in (LAST_LAYER, [LAST_LAYER], [-1]) and not is_wide:
        raise ConfigError(
            "`keep_layers` needs a model that reads the last layer; received "
            f"{folder.path}, whose setting `layers` is {shown(read)}"
        )
    has_depth = _has_own_depth(checkpoint)
    places = {layer: place for place, layer in enumerate(kept)}
    names: dict[str, str] = {}
    for name in checkpoint.shapes:
        found = _LAYER.match(name)
        if found is None or (found[1] and has_depth):
            names[name] = name
        elif int(found[2]) in places:
            new = f"{found[1] or ''}bert/encoder/layer_{places[int(found[2])]}/"
            names[_LAYER.sub(new, name)] = name
    arrays, shapes = checkpoint.arrays, dict(checkpoint.arrays.shapes)
    # Of a head on all layers, the rows of the embeddings and of the layers that stay.
    width = checkpoint.config.hidden_size
    blocks = [0, *(layer + 1 for layer in kept)]
    if is_wide:
        shapes[KERNEL] = (len(blocks) * width, *shapes[KERNEL][1:])

    def read_array(new: str) -> np.ndarray:
        array = arrays[names[new]]
        if not is_wide or new != KERNEL:
            return array
        return np.concatenate([array[n * width : (n + 1) * width] for n in blocks])

    notes = checkpoint.notes
    if has_depth:
        depth = checkpoint.raw_config["decoder"][_COUNT]
        notes = (*notes, f"`keep_layers` leaves the decoder as it is, {depth} layers")
    changed = dataclasses.replace(
        checkpoint,
        config=checkpoint.config.replace(**{_COUNT: len(kept)}),
        raw_config=_with_count(checkpoint.raw_config, len(kept), has_depth),
        notes=notes,
        arrays=LazyArrays(
            {new: shapes[name] for new, name in names.items()},
            read_array,
            place=str(checkpoint.path),
        ),
    )
    config = _with_count(folder.config, len(kept), has_depth)
    return dataclasses.replace(folder, checkpoint=changed, config=config)


def _has_own_depth(checkpoint: Checkpoint) -> bool:
    """Return whether there is a decoder whose number of layers is set for it alone."""
    raw = checkpoint.raw_config
    if not is_encoder_decoder(raw):
        return False
    sizes = checkpoint.own_entry.get("settings", {}).get("sizes")
    if sizes is not None:
        return _COUNT in sizes
    return raw["decoder"].get(_COUNT) != raw["encoder"].get(_COUNT)


def _with_count(
    config: Mapping[str, Any], count: int, has_depth: bool
) -> dict[str, Any]:
    """Return a config with another number of layers, also of a decoder that has none
    of its own.
    """
    own = config.get(KEY) or {}
    if "aligned_to" in own.get("settings", {}):  # the vectors are others
        settings = {k: v for k, v in own["settings"].items() if k != "aligned_to"}
        config = {**config, KEY: {**own, "settings": settings}}
    if not is_encoder_decoder(config):
        return {**config, _COUNT: count}
    parts = ("encoder",) if has_depth else ("encoder", "decoder")
    return {**config, **{part: {**config[part], _COUNT: count} for part in parts}}
