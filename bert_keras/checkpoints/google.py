"""Google's released checkpoints: `bert_config.json` and TensorFlow 1 variables.

Source: https://github.com/google-research/bert (`modeling.py`, whose "gelu" is the tanh
form; the releases hold `bert_config.json`, `bert_model.ckpt.*` and `vocab.txt`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import formats, names
from bert_keras.checkpoints.checkpoint import (
    Checkpoint,
    LazyArrays,
    StoredTensor,
    as_checkpoint_error,
    bert_config,
    choose,
    listed,
    weight_of,
)
from bert_keras.checkpoints.formats import Dialect
from bert_keras.checkpoints.tensorflow_checkpoint import ROOT, Variable, read_index
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError
from bert_keras.files.json_file import read_json

CONFIG = "bert_config.json"
_UNKNOWN = ("is_decoder", "layer_norm_eps")  # our sizes that no released file has
# Our key for the erf form, which Google's "gelu" cannot express.
_EXACT_ACTIVATION = "huggingface_hidden_act"


def read_config(path: Path) -> tuple[dict[str, Any], BertConfig, list[str]]:
    """Return the content of a `bert_config.json`, its sizes, and notes."""
    raw = read_json(path)
    notes = []
    values = dict(raw)
    if _EXACT_ACTIVATION in raw:
        values["hidden_act"] = raw[_EXACT_ACTIVATION]
    elif values.get("hidden_act", "gelu") == "gelu":
        values["hidden_act"] = "gelu_new"
        notes.append(
            "hidden_act gelu is read as gelu_new, the tanh form of Google's code"
        )
    return raw, bert_config(values, path=path), notes


def config_values(
    config: Mapping[str, Any], dialect: Dialect = formats.GOOGLE
) -> tuple[dict[str, Any], list[str]]:
    """Return the content of `bert_config.json`, and notes on what it cannot express.

    `config` is the whole of a `config.json`; the code of `dialect` will read the
    result.
    """
    sizes = bert_config(config, path=Path(CONFIG))
    notes = dialect.check(sizes)
    known = sizes.to_dict()
    values = {key: config[key] for key in config if key not in known}
    values.pop("model_type", None)
    values.pop(_EXACT_ACTIVATION, None)
    values |= {key: known[key] for key in known if key not in _UNKNOWN}
    values["hidden_act"] = dialect.activations[sizes.hidden_act]
    if sizes.hidden_act == "gelu":
        values[_EXACT_ACTIVATION] = "gelu"
    if sizes.layer_norm_eps != dialect.epsilon:
        values["layer_norm_eps"] = sizes.layer_norm_eps
    return values, notes


# The checkpoint.

PREFIX = "bert_model.ckpt"
# What `convert` writes: tokenizer_config.json is ours, Google's tools take flags.
FILES = frozenset(
    (
        CONFIG,
        f"{PREFIX}.data-00000-of-00001",
        f"{PREFIX}.index",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    )
)


def find_prefix(folder: Path) -> Path | None:
    """Return the prefix of the only checkpoint in a folder, or `None` if it has none.

    `bert_model.ckpt` takes precedence over others; several others raise a
    CheckpointError.
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
    """Open a TensorFlow 1 checkpoint; weights are read on demand.

    Args:
        prefix: the path before `.index`; `bert_config.json` is in the same folder. Its
            `hidden_act` "gelu" is the tanh form, `gelu_new` in our config: Google's
            code computes it so, while Hugging Face's "gelu" is the erf form (a file of
            `write_google` may specify the erf form).

    Raises errors as `read_checkpoint` does.
    """
    prefix = Path(prefix)
    raw, config, notes = read_config(prefix.parent / CONFIG)
    variables = read_index(prefix)
    if ROOT in variables:
        raise CheckpointError(
            f"{prefix}: an object-based TensorFlow 2 checkpoint (TF Model Garden), not "
            "one of TensorFlow 1"
        )
    chosen, unrecognized, skipped = _sorted_out(variables)
    if skipped:
        notes.append(f"{skipped:,} optimizer values are skipped")
    return Checkpoint(
        path=prefix.parent,
        origin="google",
        config=config,
        raw_config=raw,
        arrays=LazyArrays.of(chosen, place=str(prefix)),
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
        folder: created if absent; `convert` passes one that is hidden until complete.
        arrays: canonical name to array, canonical shape; each is read once.
        config: the whole of a `config.json`. Keys that Google's code does not
            use are kept: it ignores them, and `read_google` finds them.

    Returns:
        Notes on what Google's code computes differently.

    Raises:
        CheckpointError: Google's code has no such weight or computation, a value is
            not finite, or writing fails.
        ConfigError: a size in `config` is out of its range.
    """
    folder = Path(folder)
    values, notes = config_values(config)
    formats.GOOGLE.check_heads(arrays, config)
    renamed = {name: names.to_google(name) for name in arrays}
    import tensorflow as tf

    tensors = []
    for name, new in renamed.items():
        array = weight_of(arrays, name, place=str(folder))
        tensors.append(tf.constant(array.T if new.transpose else array))
    text = json.dumps(values, indent=2, sort_keys=True) + "\n"
    prefix = folder / PREFIX
    with as_checkpoint_error(f"{folder}: cannot write", OSError, tf.errors.OpError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(text, encoding="utf-8")
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=[new.name for new in renamed.values()],
            shape_and_slices=[""] * len(tensors),
            tensors=tensors,
        )
    for variable in read_index(prefix).values():  # the written file must open
        variable.check()
    return tuple(notes)


def _sorted_out(
    variables: Mapping[str, Variable],
) -> tuple[dict[str, StoredTensor], list[str], int]:
    """Return canonical name to variable; unrecognized names; the number skipped."""
    chosen: dict[str, StoredTensor] = {}
    unrecognized = []
    skipped = 0
    for name, variable in variables.items():
        renamed = names.from_google(name)
        if renamed is not None:
            choose(chosen, renamed.name, variable, transpose=renamed.transpose)
        elif names.is_optimizer_state(name):
            skipped += 1
        else:
            unrecognized.append(name)
    return chosen, unrecognized, skipped
