"""Read a checkpoint of Google's released code: TensorFlow 1 variables by name.

Source: https://github.com/google-research/bert (`modeling.py`; the releases hold
`bert_config.json`, `bert_model.ckpt.*` and `vocab.txt`). Imports TensorFlow when used.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import names
from bert_keras.checkpoints.base import (
    Checkpoint,
    LazyArrays,
    bert_config,
    listed,
    one_line,
    read_json,
)
from bert_keras.checkpoints.bundle import Entry, read_index
from bert_keras.errors import CheckpointError

CONFIG = "bert_config.json"
_TF2_ROOT = "_CHECKPOINTABLE_OBJECT_GRAPH"


def find_prefix(folder: Path) -> Path | None:
    """Return the prefix of the one checkpoint in a folder, or `None` if it has none.

    `bert_model.ckpt` is taken before others.

    Raises:
        CheckpointError: there are several, such as `model.ckpt-20`, `model.ckpt-40`.
    """
    found = sorted(path.with_suffix("") for path in folder.glob("*.ckpt*.index"))
    if folder / "bert_model.ckpt" in found:
        return folder / "bert_model.ckpt"
    if len(found) > 1:
        raise CheckpointError(
            f"{folder}: holds {len(found)} checkpoints; give the path of one: "
            f"{listed([path.name for path in found])}"
        )
    return found[0] if found else None


def read_google(prefix: str | os.PathLike[str]) -> Checkpoint:
    """Open a TensorFlow 1 checkpoint; weights are read when asked for.

    Args:
        prefix: the path before `.index`; `bert_config.json` stands beside it. Its
            `hidden_act` "gelu" is the tanh form, `gelu_new` in our config: that is
            what Google's code computes, where Hugging Face's "gelu" is the erf form.

    Raises:
        CheckpointError: a file is missing or broken, or holds no BERT.
        ConfigError: a size in `bert_config.json` is out of its range.
    """
    prefix = Path(prefix)
    path = prefix.parent / CONFIG
    raw = read_json(path)
    notes = []
    values = dict(raw)
    if values.get("hidden_act", "gelu") == "gelu":
        values["hidden_act"] = "gelu_new"
        notes.append(
            "hidden_act gelu is read as gelu_new, the tanh form of Google's code"
        )
    config = bert_config(values, path=path)
    entries, shards = read_index(prefix)
    if _TF2_ROOT in entries:
        raise CheckpointError(
            f"{prefix}: an object-based TensorFlow 2 checkpoint (TF Model Garden), "
            "which is not read"
        )
    chosen, unrecognized, skipped = _sorted_out(entries, prefix=prefix)
    for entry, _ in chosen.values():
        entry.check(prefix, shards)
    if skipped:
        notes.append(f"{skipped:,} values of the optimizer are passed over")
    reader = functools.cache(lambda: _open(prefix))

    def read(name: str) -> np.ndarray:
        entry, transpose = chosen[name]
        try:
            array = reader().get_tensor(entry.name)
        except Exception as error:  # TensorFlow raises many kinds, documented as none
            raise CheckpointError(
                f"{prefix}: broken or cut off: {one_line(error)}"
            ) from None
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(array.T if transpose else array, np.float32)

    shapes = {
        name: entry.shape[::-1] if transpose else entry.shape
        for name, (entry, transpose) in chosen.items()
    }
    return Checkpoint(
        path=prefix.parent,
        origin="google",
        config=config,
        raw_config=raw,
        arrays=LazyArrays(shapes, read, place=str(prefix)),
        notes=tuple(notes),
        unrecognized=tuple(unrecognized),
    )


def _open(prefix: Path) -> Any:
    """Return TensorFlow's reader of a checkpoint whose index was checked."""
    import tensorflow as tf  # takes seconds; readers of other formats do without

    return tf.train.load_checkpoint(str(prefix))


def _sorted_out(
    entries: Mapping[str, Entry], *, prefix: Path
) -> tuple[dict[str, tuple[Entry, bool]], list[str], int]:
    """Return canonical name to (entry, transpose); unrecognized names; skipped."""
    chosen: dict[str, tuple[Entry, bool]] = {}
    unrecognized = []
    skipped = 0
    for name, entry in entries.items():
        renamed = names.from_google(name)
        if renamed is not None:
            if renamed.transpose and len(entry.shape) != 2:
                raise CheckpointError(
                    f"{prefix}: {name} must have 2 axes; has {list(entry.shape)}"
                )
            chosen[renamed.name] = (entry, renamed.transpose)
        elif names.is_optimizer_state(name):
            skipped += 1
        else:
            unrecognized.append(name)
    return chosen, unrecognized, skipped
