"""Write a Hugging Face folder: `config.json` and `model.safetensors`.

Source: Hugging Face transformers, `configuration_bert.py` and `modeling_bert.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import names
from bert_keras.checkpoints.base import check_finite, one_line, written
from bert_keras.checkpoints.huggingface import CONFIG, WEIGHTS, check_is_bert
from bert_keras.checkpoints.tensor_file import opened, write_tensors
from bert_keras.errors import CheckpointError


def write_huggingface(
    folder: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
) -> None:
    """Write `config.json` and `model.safetensors`; the old pair stays until both stand.

    Arrays are taken from the mapping one by one, twice each (shape, then values), so
    a mapping that makes them when asked keeps memory low.

    Args:
        folder: made if absent.
        arrays: canonical name to float32 or float16 array, canonical shape.
        config: the whole of `config.json`; `architectures` holds one name, and
            encoder names get the prefix `bert.` unless it is `BertModel`.

    Raises:
        CheckpointError: a name, an array or the config cannot be stored, a value is
            not finite, or the disk refuses.
    """
    folder = Path(folder)
    text, prefix = _config_text({"model_type": "bert", **config})
    origins: dict[str, tuple[str, bool]] = {}
    tensors = []
    for name in arrays:
        array = arrays[name]
        theirs, transpose = names.to_huggingface(name, prefix=prefix)
        if transpose and array.ndim != 2:
            raise CheckpointError(
                f"`{name}` must have 2 axes; received {list(array.shape)}"
            )
        if array.size == 0:
            raise CheckpointError(f"`{name}` is empty: {list(array.shape)}")
        origins[theirs] = (name, transpose)
        shape = array.shape[::-1] if transpose else array.shape
        tensors.append((theirs, shape, array.dtype))

    def values(theirs: str) -> np.ndarray:
        name, transpose = origins[theirs]
        array = arrays[name]
        check_finite(array, name=name, place=str(folder))
        return array.T if transpose else array

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            weights = written(
                folder, undo, lambda file: write_tensors(file, tensors, values)
            )
            with opened(weights):  # what was written must open
                pass
            settings = written(folder, undo, lambda file: file.write(text.encode()))
            os.replace(weights, folder / WEIGHTS)
            os.replace(settings, folder / CONFIG)
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot write: {one_line(error)}") from None


def _config_text(config: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text of `config.json`, and whether encoder names have a prefix."""
    check_is_bert(config, place="`config`")
    architectures = config.get("architectures")
    if not architectures or len(architectures) != 1:
        raise CheckpointError(
            "`config` must hold `architectures`, a list of one name such as "
            f"BertForMaskedLM; received {one_line(architectures)}"
        )
    try:
        text = json.dumps(config, indent=2, sort_keys=True, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"`config` is no JSON: {one_line(error)}") from None
    return text, architectures[0] != "BertModel"
