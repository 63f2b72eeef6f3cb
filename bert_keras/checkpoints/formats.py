"""Which format a folder holds: a table of formats, each recognized by its files.

`read_checkpoint` takes the first that recognizes a folder. A format's module is
imported when its files are there: safetensors wait for no other reader.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bert_keras.checkpoints.checkpoint import Checkpoint, listed
from bert_keras.checkpoints.hub import given_prefix, resolve
from bert_keras.errors import CheckpointError

_CONFIG = "config.json"
_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
_GRAPH = "saved_model.pb"
_PRESET = ("model.weights.h5", "model.weights.json")
_POOLING = "1_Pooling"


class Format(NamedTuple):
    """How one format is recognized and read.

    `find(place)` returns what to read of a folder, or of the prefix of a TensorFlow
    checkpoint; `None` where it is another format. `reader` is the name of the function
    in `bert_keras.checkpoints.<module>` that reads it.
    """

    find: Callable[[Path], Path | None]
    module: str
    reader: str


def read_checkpoint(path: str | os.PathLike[str] | Checkpoint) -> Checkpoint:
    """Open the checkpoint at a path; the files that are there tell the format.

    A hub name is resolved to one revision: pass on the checkpoint, not the name, so
    that everything that is read comes from that revision.

    Args:
        path: a Hugging Face folder; a folder with `bert_config.json` and one
            `*.ckpt*.index`, or the path of that checkpoint without `.index`; one of TF
            Model Garden; a preset folder of KerasHub; a SavedModel of Model Garden's or
            TF-Hub's kind, or the folder of an `encoder` and its `preprocess`; a hub
            name `hf://owner/name[@revision]`; or a checkpoint, returned as it is.

    Raises:
        CheckpointError: there is no checkpoint, or it is broken or not a BERT.
        ConfigError: a size in its config is out of range.
    """
    if isinstance(path, Checkpoint):
        return path
    folder = resolve(path)
    prefix = None if os.path.isdir(path) else given_prefix(os.fspath(path))
    place = prefix or folder
    for each in FORMATS:
        found = each.find(place)
        if found is not None:
            checkpoint: Checkpoint = getattr(_module(each.module), each.reader)(found)
            return checkpoint
    raise CheckpointError(
        f"{folder}: holds no checkpoint: neither {_CONFIG} with {_SAFETENSORS[0]} nor "
        f"bert_config.json with bert_model.ckpt.index nor {_PRESET[0]} nor {_GRAPH} of "
        f"a BERT{_hint(folder)}"
    )


def _module(name: str) -> Any:
    return importlib.import_module(f"bert_keras.checkpoints.{name}")


def _hub_encoder(folder: Path) -> Path | None:
    """Return the SavedModel of TF-Hub's kind in a folder: itself or its `encoder`."""
    if _holds(folder, _CONFIG) or not _holds(folder, _GRAPH, f"encoder/{_GRAPH}"):
        return None
    saved_model: Path | None = _module("tf_hub").find_encoder(folder)
    if saved_model is None or _module("model_garden").is_saved_model(saved_model):
        return None
    return saved_model


def _safetensors(folder: Path) -> Path | None:
    return folder if _holds(folder, *_SAFETENSORS) else None


def _saved_model(folder: Path) -> Path | None:
    return folder if _holds(folder, _GRAPH) else None


def _object_based(place: Path) -> Path | None:
    """Return the prefix of a checkpoint of TensorFlow 2."""
    prefix = _variables(place)
    if prefix is None or not _module("model_garden").is_object_based(prefix):
        return None
    return prefix


def _variables(place: Path) -> Path | None:
    """Return the prefix of a TensorFlow checkpoint: as given, or that of a folder."""
    if not os.path.isdir(place):
        return place
    if not any(place.glob("*ckpt*.index")):
        return None
    prefix: Path | None = _module("google").find_prefix(place)
    return prefix


def _preset(folder: Path) -> Path | None:
    return folder if _holds(folder, *_PRESET) else None


def _config(folder: Path) -> Path | None:
    return folder if _holds(folder, _CONFIG) else None


# In this order: what a folder holds beside safetensors does not count.
FORMATS = (
    Format(_hub_encoder, "tf_hub", "read_tf_hub"),
    Format(_safetensors, "huggingface", "read_huggingface"),
    Format(_saved_model, "model_garden", "read_model_garden"),
    Format(_object_based, "model_garden", "read_model_garden"),
    Format(_variables, "google", "read_google"),
    Format(_preset, "keras_hub", "read_keras_hub"),
    Format(_config, "huggingface", "read_huggingface"),
)


def _holds(folder: Path, *files: str) -> bool:
    return any(os.path.isfile(folder / name) for name in files)


def _hint(folder: Path) -> str:
    """Return which folders below hold one, as in old ones of sentence-transformers."""
    found = sorted(path.parent.name for path in folder.glob(f"*/{_CONFIG}"))
    found = [name for name in found if name != _POOLING]
    return f"; a folder in it may: {listed(found)}" if found else ""
