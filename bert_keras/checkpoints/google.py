"""Google's released checkpoints: TensorFlow 1 variables of a BERT or an ELECTRA.

Source: https://github.com/google-research/bert (`modeling.py`, whose "gelu" is the tanh
form; the releases hold `bert_config.json`, `bert_model.ckpt.*` and `vocab.txt`);
https://github.com/google-research/electra (`model/modeling.py`, whose "gelu" is the erf
form, `run_pretraining.py`, `util/training_utils.py`; the releases hold no config).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
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
from bert_keras.checkpoints.matching import encoder_sizes
from bert_keras.checkpoints.tensorflow_checkpoint import (
    ROOT,
    Variable,
    read_index,
    read_names,
)
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError
from bert_keras.files.json_file import read_json
from bert_keras.settings import check_choice

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
FILES = frozenset((CONFIG, f"{PREFIX}.data-00000-of-00001", f"{PREFIX}.index"))
FILES |= {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}


def find_prefix(folder: Path) -> Path | None:
    """Return the prefix of the only checkpoint in a folder, or `None` if it has none.

    `bert_model.ckpt` takes precedence over others, and a name with `ckpt` over one
    without, as of the released ELECTRAs; several others raise a CheckpointError.
    """
    found = sorted(path.with_suffix("") for path in folder.glob("*ckpt*.index"))
    if not found:
        others = sorted(path.with_suffix("") for path in folder.glob("*.index"))
        found = [each for each in others if any(folder.glob(f"{each.name}.data-*"))]
    if folder / PREFIX in found:
        return folder / PREFIX
    if len(found) > 1:
        raise CheckpointError(
            f"{folder}: holds {len(found)} checkpoints; give the path of one: "
            f"{listed([path.name for path in found])}"
        )
    return found[0] if found else None


def read_google(
    prefix: str | os.PathLike[str], *, part: str | None = None
) -> Checkpoint:
    """Open a TensorFlow 1 checkpoint; weights are read on demand.

    Args:
        prefix: the path before `.index`; `bert_config.json` is in the same folder. Its
            `hidden_act` "gelu" is the tanh form, `gelu_new` in our config: Google's
            code computes it so, while Hugging Face's "gelu" is the erf form (a file of
            `write_google` may specify the erf form). An ELECTRA needs no config, and
            its "gelu" is the erf form.
        part: of an ELECTRA, `discriminator` or `generator`; by default the
            discriminator, unless there is only a generator.

    Raises errors as `read_checkpoint` does.
    """
    prefix = Path(prefix)
    is_electra = any(name.startswith(_ENCODERS) for name in read_names(prefix))
    if not is_electra:
        formats.check_no_part(part, place=prefix)
        raw, config, notes = read_config(prefix.parent / CONFIG)
    variables = read_index(prefix)
    if ROOT in variables:
        raise CheckpointError(
            f"{prefix}: an object-based TensorFlow 2 checkpoint (TF Model Garden), not "
            "one of TensorFlow 1"
        )
    weights = {n: v for n, v in variables.items() if not names.is_optimizer_state(n)}
    if is_electra:
        part = _main_part(weights) if part is None else part
        check_choice("part", part, PARTS)
        chosen, unrecognized, others = _part_of(weights, part)
        raw, config, notes = _electra_config(prefix, chosen, part)
        if others:
            other = PARTS[part == PARTS[0]]
            notes.append(f"left out: {others:,} weights of the {other}")
    else:
        chosen, unrecognized = {}, []
        for name, variable in weights.items():
            if (ours := names.from_google(name)) is None:
                unrecognized.append(name)
            else:
                choose(chosen, ours.name, variable, transpose=ours.transpose)
    if skipped := len(variables) - len(weights):
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


# ELECTRA: a discriminator, whose encoder is in the scope `electra`, and the generator
# that its pretraining needs. They share the embeddings, unless the generator has its
# own, and in some settings the encoder.

PARTS = ("discriminator", "generator")
_ENCODERS = ("electra/encoder/", "generator/encoder/")  # of the two
_HEADS = {part: f"{part}_predictions/" for part in PARTS}
_HEAD_WIDTH = 64
_CONFIGS = (CONFIG, "config.json")  # the releases hold neither


def _main_part(weights: Collection[str]) -> str:
    """Return the part that a checkpoint is read as: the generator if it is alone."""

    def has(*scopes: str) -> bool:
        return any(name.startswith(scopes) for name in weights)

    has_discriminator, has_generator = (has(_HEADS[part]) for part in PARTS)
    fills_masks = has_generator and not (has_discriminator or has("generator/"))
    return PARTS[fills_masks or not has("electra/encoder/")]


def _part_of(
    weights: Mapping[str, Variable], part: str
) -> tuple[dict[str, StoredTensor], list[str], int]:
    """Return canonical name to variable; unrecognized names; how many are not its."""

    def scope_of(place: str) -> str:
        own = f"{part}/{place}/"  # only a generator may have its own
        return part if any(name.startswith(own) for name in weights) else "electra"

    scope, tables = scope_of("encoder"), scope_of("embeddings")
    mine = (f"{scope}/", f"{tables}/embeddings/", _HEADS[part])
    theirs = ("electra/", "generator/", *_HEADS.values())
    chosen: dict[str, StoredTensor] = {}
    unrecognized, others = [], 0
    for name, variable in weights.items():
        ours = names.from_google_electra(re.sub("^generator/", "electra/", name))
        if ours is not None and name.startswith(mine):
            choose(chosen, ours, variable)
        elif name.startswith(theirs) and not name.startswith(mine):
            others += 1
        else:
            unrecognized.append(name)
    return chosen, unrecognized, others


def _electra_config(
    prefix: Path, chosen: Mapping[str, StoredTensor], part: str
) -> tuple[dict[str, Any], BertConfig, list[str]]:
    """Return the entries of a `config.json` of a part, its sizes, and notes.

    The weights give the sizes that no file gives. A file with another width than the
    generator's describes the discriminator, as Google's code derives the generator.
    """
    shapes = {name: variable.shape for name, variable in chosen.items()}
    sizes: dict[str, Any] = encoder_sizes(shapes, place=prefix)
    width, heads = sizes["hidden_size"], max(1, sizes["hidden_size"] // _HEAD_WIDTH)
    sizes["embedding_size"] = shapes["bert/embeddings/word_embeddings"][-1]
    sizes["num_attention_heads"] = heads
    path = next((p for n in _CONFIGS if (p := prefix.parent / n).is_file()), None)
    raw = {} if path is None else read_json(path)
    derived = part == "generator" and raw.get("hidden_size", width) != width
    values = {**raw, **sizes} if derived else {**sizes, **raw}
    values["model_type"] = "electra"
    values["architectures"] = ["BertModel"]
    if any(name.startswith("cls/") for name in chosen):
        values["architectures"] = ["BertForMaskedLM"]
    elif any(name.startswith(f"{names.DISCRIMINATOR}/") for name in chosen):
        values["architectures"] = ["ElectraForPreTraining"]
    notes = []
    if path is None:
        notes.append(f"there is no {CONFIG}: the weights give the sizes")
    if derived or "num_attention_heads" not in raw:
        notes.append(
            f"num_attention_heads={heads}, guessed: width {_HEAD_WIDTH}, as Google's "
            "code builds an ELECTRA"
        )
    return values, bert_config(values, path=path or prefix), notes
