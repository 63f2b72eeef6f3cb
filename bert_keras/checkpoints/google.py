"""Read and write a checkpoint of Google's released code: TensorFlow 1 variables.

Source: https://github.com/google-research/bert (`modeling.py`; the releases hold
`bert_config.json`, `bert_model.ckpt.*` and `vocab.txt`). Imports TensorFlow when it
writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import names
from bert_keras.checkpoints.base import (
    Checkpoint,
    LazyArrays,
    check_finite,
    listed,
    one_line,
)
from bert_keras.checkpoints.bert_config_file import CONFIG, config_values, read_config
from bert_keras.checkpoints.bundle import read_index
from bert_keras.checkpoints.object_graph import ROOT
from bert_keras.checkpoints.variable import Variable
from bert_keras.errors import CheckpointError

PREFIX = "bert_model.ckpt"
# What `convert` writes: tokenizer_config.json is ours, Google's tools take flags.
FILES = frozenset(
    (
        CONFIG,
        f"{PREFIX}.data-00000-of-00001",
        f"{PREFIX}.index",
        "tokenizer_config.json",
        "vocab.txt",
    )
)


def find_prefix(folder: Path) -> Path | None:
    """Return the prefix of the one checkpoint in a folder, or `None` if it has none.

    `bert_model.ckpt` is taken before others.

    Raises:
        CheckpointError: there are several, such as `model.ckpt-20`, `ckpt-40`.
    """
    found = sorted(path.with_suffix("") for path in folder.glob("*ckpt*.index"))
    if folder / PREFIX in found:
        return folder / PREFIX
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
            what Google's code computes, where Hugging Face's "gelu" is the erf form
            (a file of `write_google` may say that it is meant nevertheless).

    Raises:
        CheckpointError: a file is missing or broken, or holds no BERT.
        ConfigError: a size in `bert_config.json` is out of its range.
    """
    prefix = Path(prefix)
    raw, config, notes = read_config(prefix.parent / CONFIG)
    variables = read_index(prefix)
    if ROOT in variables:
        raise CheckpointError(
            f"{prefix}: an object-based TensorFlow 2 checkpoint (TF Model Garden), not "
            "one of TensorFlow 1"
        )
    chosen, unrecognized, skipped = _sorted_out(variables, prefix=prefix)
    for variable, _ in chosen.values():
        variable.check()
    if skipped:
        notes.append(f"{skipped:,} values of the optimizer are passed over")

    def read(name: str) -> np.ndarray:
        variable, transpose = chosen[name]
        return variable.read(transpose=transpose)

    shapes = {
        name: variable.shape[::-1] if transpose else variable.shape
        for name, (variable, transpose) in chosen.items()
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


def write_google(
    folder: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
) -> tuple[str, ...]:
    """Write `bert_config.json` and `bert_model.ckpt.*`, as the released files are.

    `tf.train.load_checkpoint` reads every weight under the name, shape and type that
    Google's code gives it; heads as `run_pretraining.py`, `run_classifier.py` and
    `run_squad.py` write them. All weights are in memory at once.

    Args:
        folder: made if absent; `convert` gives one that nobody sees before it is whole.
        arrays: canonical name to array, canonical shape; each is asked for once.
        config: the whole of a `config.json`. Keys that Google's code has no use for
            are kept: it passes over them, and `read_google` finds them.

    Returns:
        Lines that tell where Google's code computes something else.

    Raises:
        CheckpointError: Google's code has no such weight or computation, a value is
            not finite, or the disk refuses.
        ConfigError: a size in `config` is out of its range.
    """
    folder = Path(folder)
    values, notes = config_values(config)
    renamed = {name: names.to_google(name) for name in arrays}
    import tensorflow as tf

    tensors = []
    for name, new in renamed.items():
        array = np.asarray(arrays[name], np.float32)
        check_finite(array, name=name, place=str(folder))
        tensors.append(tf.constant(array.T if new.transpose else array))
    text = json.dumps(values, indent=2, sort_keys=True) + "\n"
    prefix = folder / PREFIX
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(text, encoding="utf-8")
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=[new.name for new in renamed.values()],
            shape_and_slices=[""] * len(tensors),
            tensors=tensors,
        )
    except (OSError, tf.errors.OpError) as error:
        raise CheckpointError(f"{folder}: cannot write: {one_line(error)}") from None
    for variable in read_index(prefix).values():  # what was written must open
        variable.check()
    return notes


def _sorted_out(
    variables: Mapping[str, Variable], *, prefix: Path
) -> tuple[dict[str, tuple[Variable, bool]], list[str], int]:
    """Return canonical name to (variable, transpose); unrecognized names; skipped."""
    chosen: dict[str, tuple[Variable, bool]] = {}
    unrecognized = []
    skipped = 0
    for name, variable in variables.items():
        renamed = names.from_google(name)
        if renamed is not None:
            if renamed.transpose and len(variable.shape) != 2:
                raise CheckpointError(
                    f"{prefix}: {name} must have 2 axes; has {list(variable.shape)}"
                )
            chosen[renamed.name] = (variable, renamed.transpose)
        elif names.is_optimizer_state(name):
            skipped += 1
        else:
            unrecognized.append(name)
    return chosen, unrecognized, skipped
