"""What an encoder takes: `batch_inputs`, and `complete` for what may be left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

REQUIRED_INPUTS = ("token_ids", "segment_ids", "padding_mask")
# What a packed row needs besides: see `packing.pack_rows`.
PACKED_INPUTS = ("position_ids", "sequence_ids", "cls_positions")


def batch_inputs(*, cls_positions: bool = True) -> dict[str, Any]:
    """Return Keras inputs for one batch dict, those of packed rows optional.

    Args:
        cls_positions: whether the model reads them; Keras 3.12 refuses a model with an
            input that leads nowhere.
    """
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name) for name in REQUIRED_INPUTS
    }
    for name in PACKED_INPUTS:
        if name != "cls_positions":
            inputs[name] = keras.Input((None,), dtype="int32", name=name, optional=True)
        elif cls_positions:
            inputs[name] = keras.Input((), dtype="int32", name=name, optional=True)
    return inputs


def complete(inputs: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return what a model takes of a batch, with what may be left out.

    Tensors get `None`: one text a row. In a functional model under construction Keras
    wants a tensor in each place, so the same meaning is computed.

    Args:
        inputs: a batch dict; what else is in it is for a task's answers.
        names: the model's inputs.
    """
    inputs = {name: inputs[name] for name in names if name in inputs}
    missing = [name for name in PACKED_INPUTS if name in names and name not in inputs]
    if not missing or "padding_mask" not in inputs:
        return inputs
    filled: dict[str, Any] = dict.fromkeys(missing)
    mask = inputs["padding_mask"]
    if keras.utils.is_keras_tensor(mask):
        ones = ops.ones_like(mask)
        places = ops.cumsum(ones, axis=1)
        row_starts = ops.cumsum(ops.sum(ones, axis=1)) - ops.sum(ones, axis=1)
        computed = {
            "position_ids": places - 1,
            "sequence_ids": ones,
            "cls_positions": row_starts,
        }
        filled = {name: computed[name] for name in missing}
    return {**inputs, **filled}
