"""Read a preset folder of KerasHub: `BertBackbone`, with the head of a task if it has.

Source: KerasHub `preset_utils.py`, which writes `config.json`, `model.weights.h5` and,
for a task, `task.json`, `task.weights.h5`, `preprocessor.json`; `bert_backbone.py`,
`masked_lm_head.py`. The JSON files name Python classes: here they are names, nothing is
imported because of them. `keras_hub_writer` writes such folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import names
from bert_keras.checkpoints.base import (
    Checkpoint,
    LazyArrays,
    Shape,
    bert_config,
    joined_heads,
    one_line,
)
from bert_keras.checkpoints.h5_file import StoredArray, stored_arrays
from bert_keras.checkpoints.own_entry import FORMAT, KEY
from bert_keras.errors import CheckpointError
from bert_keras.files.json_file import read_json

CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
SHARDS = "model.weights.json"
TASK = "task.json"
TASK_WEIGHTS = "task.weights.h5"
PREPROCESSOR = "preprocessor.json"
METADATA = "metadata.json"
OURS = "bert_keras.json"  # what KerasHub's files cannot say, see `keras_hub_writer`
# Their names of sizes, and ours.
SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
}
EPSILON = 1e-12  # of its backbone, which no config changes
TRUNCATIONS = {"round_robin": "round_robin", "waterfall": "only_second"}
# A task of theirs: the class of Hugging Face that it is, and others of the same head.
ARCHITECTURES = {
    "BertMaskedLM": ("BertForMaskedLM",),
    "BertTextClassifier": ("BertForSequenceClassification", "BertForMultipleChoice"),
}
_OLD_NAMES = {"BertClassifier": "BertTextClassifier"}
MASKED_LM_NOTE = (
    "KerasHub's masked-LM head computes gelu by erf and LayerNorm with epsilon 1e-05, "
    "here the head computes as the encoder does: its outputs differ a little"
)


def read_keras_hub(folder: str | os.PathLike[str]) -> Checkpoint:
    """Open a preset folder of KerasHub; weights are read when asked for.

    Args:
        folder: holds `config.json` of a `BertBackbone` and `model.weights.h5`, and
            perhaps those of a task. Its gelu is the tanh form, `gelu_new`.

    Raises:
        CheckpointError: a file is missing or broken, or holds no BERT.
        ConfigError: a size in `config.json` is out of its range.
    """
    folder = Path(folder)
    kind, theirs = _object(folder / CONFIG)
    if kind != "BertBackbone":
        raise CheckpointError(
            f"{folder / CONFIG}: must be a BertBackbone; found {one_line(kind)}"
        )
    values: dict[str, Any] = {
        ours: theirs[key] for key, ours in SIZES.items() if key in theirs
    }
    values["attention_probs_dropout_prob"] = values.get("hidden_dropout_prob", 0.1)
    values |= {"hidden_act": "gelu_new", "layer_norm_eps": EPSILON}
    task = _task(folder)
    raw = _task_config(task, folder)
    left_out: tuple[str, ...] = ()
    if _is_ours(folder):
        said = read_json(folder / OURS)
        left_out = _scopes(said.pop("left_out", []), path=folder / OURS)
        values |= {k: v for k, v in said.items() if k not in SIZES.values()}
        raw |= said
    config = bert_config(values, path=folder / CONFIG)
    notes = [MASKED_LM_NOTE] if task and task[0] == "BertMaskedLM" else []
    chosen, shapes, unrecognized = _sorted_out(
        _arrays(folder, with_task=task is not None),
        heads=config.num_attention_heads,
        left_out=left_out,
    )

    def read(name: str) -> np.ndarray:
        return chosen[name].read().reshape(shapes[name])

    return Checkpoint(
        path=folder,
        origin="keras-hub",
        config=config,
        raw_config=raw,
        arrays=LazyArrays(shapes, read, place=str(folder)),
        notes=tuple(notes),
        unrecognized=tuple(unrecognized),
    )


def _object(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the class and the arguments that a file of Keras names."""
    values = read_json(path)
    kind, config = values.get("class_name"), values.get("config")
    if not isinstance(kind, str) or not isinstance(config, dict):
        raise CheckpointError(f"{path}: must hold `class_name` and `config`")
    return kind, config


def _task(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """Return the class and the arguments of a preset's task, `None` if it has none."""
    if not (folder / TASK).is_file():
        return None
    kind, config = _object(folder / TASK)
    kind = _OLD_NAMES.get(kind, kind)
    if kind not in ARCHITECTURES:
        raise CheckpointError(
            f"{folder / TASK}: must be one of {', '.join(ARCHITECTURES)}; "
            f"found {one_line(kind)}"
        )
    return kind, config


def _task_config(
    task: tuple[str, dict[str, Any]] | None, folder: Path
) -> dict[str, Any]:
    """Return what a Hugging Face `config.json` would say of a task."""
    if task is None:
        return {"architectures": ["BertModel"]}
    kind, theirs = task
    config: dict[str, Any] = {"architectures": [ARCHITECTURES[kind][0]]}
    if theirs.get("activation") == "sigmoid":
        config["problem_type"] = "multi_label_classification"
    if (folder / PREPROCESSOR).is_file():
        _, preprocessor = _object(folder / PREPROCESSOR)
        settings: dict[str, Any] = {
            "truncation": _truncation(preprocessor, path=folder / PREPROCESSOR)
        }
        length = preprocessor.get("sequence_length")
        if length is not None:
            settings["max_length"] = length
        config[KEY] = {"format": FORMAT, "preprocessing": settings}
    return config


def _is_ours(folder: Path) -> bool:
    """Say whether our file tells of this preset: KerasHub may have saved one since.

    It notes the date; the writer of ours does not.
    """
    if not (folder / OURS).is_file() or not (folder / METADATA).is_file():
        return False
    return "date_saved" not in read_json(folder / METADATA)


def _truncation(preprocessor: Mapping[str, Any], *, path: Path) -> str:
    """Return our word for how pairs are cut."""
    theirs = preprocessor.get("truncate", "round_robin")
    if not isinstance(theirs, str) or theirs not in TRUNCATIONS:
        raise CheckpointError(
            f"{path}: `truncate` must be one of {', '.join(TRUNCATIONS)}; "
            f"received {one_line(theirs)}"
        )
    return TRUNCATIONS[theirs]


def _scopes(values: Any, *, path: Path) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise CheckpointError(f"{path}: `left_out` must be a list of names")
    return tuple(values)


def _arrays(folder: Path, *, with_task: bool) -> dict[str, StoredArray]:
    """Return the arrays of both files by their place, as `names` spells it."""
    if not os.path.isfile(folder / WEIGHTS):
        if os.path.isfile(folder / SHARDS):
            raise CheckpointError(
                f"{folder}: holds weights in shards ({SHARDS}), which are not read: no "
                "BERT is that large"
            )
        raise CheckpointError(f"{folder}: holds no {WEIGHTS}")
    arrays = {f"model:{k}": v for k, v in stored_arrays(folder / WEIGHTS).items()}
    if with_task and os.path.isfile(folder / TASK_WEIGHTS):
        more = stored_arrays(folder / TASK_WEIGHTS)
        arrays |= {f"task:{path}": array for path, array in more.items()}
    return arrays


def _sorted_out(
    arrays: Mapping[str, StoredArray], *, heads: int, left_out: tuple[str, ...]
) -> tuple[dict[str, StoredArray], dict[str, Shape], list[str]]:
    """Return canonical name to array, and to canonical shape; unrecognized places."""
    chosen: dict[str, StoredArray] = {}
    shapes: dict[str, Shape] = {}
    unrecognized = []
    for place, array in arrays.items():
        name = names.from_keras_hub(place)
        if name is None:
            # The optimizer is Keras's own, of `compile`.
            if not place.startswith(("model:optimizer/", "task:optimizer/")):
                unrecognized.append(place)
            continue
        if name.startswith(left_out):
            continue
        if name in chosen:
            raise CheckpointError(
                f"{array.file}: {array.path} and {chosen[name].path} are both `{name}`"
            )
        array.check()
        chosen[name] = array
        shapes[name] = joined_heads(
            name, array.shape, heads, f"{array.file}: {array.path}"
        )
    return chosen, shapes, unrecognized
