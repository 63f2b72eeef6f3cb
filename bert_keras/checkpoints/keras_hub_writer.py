"""Write a preset folder of KerasHub, which its `from_preset` opens.

Source: KerasHub `preset_utils.py`, `bert_backbone.py`, `bert_text_classifier.py`,
`bert_masked_lm.py`, `bert_tokenizer.py` and their `get_config`; written by hand, tensor
by tensor, so that no second model is made in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import keras_hub, names
from bert_keras.checkpoints import keras_hub_objects as objects
from bert_keras.checkpoints.base import (
    Shape,
    bert_config,
    check_finite,
    one_line,
    shapes_of,
)
from bert_keras.checkpoints.h5_file import write_arrays
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError

VOCABULARY = "assets/tokenizer/vocabulary.txt"
FILES = frozenset(
    (
        keras_hub.CONFIG,
        keras_hub.WEIGHTS,
        keras_hub.TASK,
        keras_hub.TASK_WEIGHTS,
        keras_hub.PREPROCESSOR,
        keras_hub.OURS,
        keras_hub.METADATA,
        "tokenizer.json",
        VOCABULARY,
    )
)
# A task of theirs is compiled, with the optimizer's state in the file: before a step.
_OPTIMIZER: dict[str, np.ndarray] = {
    "task:optimizer/vars/0": np.array(0, np.int64),  # steps
    "task:optimizer/vars/1": np.array(5e-5, np.float32),  # learning rate by default
}
_POOLER = "bert/pooler/dense/kernel"
_NEXT_SENTENCE = "cls/seq_relationship/"


def write_keras_hub(
    folder: Path,
    arrays: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Write an encoder, or a classifier or masked-LM, as a preset of KerasHub.

    Args:
        folder: a new folder.
        arrays: canonical name to array, canonical shape.
        config: the whole of a `config.json`. What KerasHub's files cannot say is kept
            in `bert_keras.json`, which KerasHub passes over.
        tokenizer: as of `WordPieceTokenizer.get_config`; without it the preset takes
            ids alone.

    Returns:
        Lines that tell where KerasHub computes something else, and what it lacks.

    Raises:
        CheckpointError: KerasHub has no such weight, computation or tokenizer, or a
            value is not finite, or the disk refuses.
        ConfigError: a size in `config` is out of its range.
    """
    sizes = bert_config(config, path=Path(keras_hub.CONFIG))
    config = {**config, **sizes.to_dict()}
    notes = _check(sizes, tokenizer)
    shapes = shapes_of(arrays)
    kept = [name for name in sorted(shapes) if not name.startswith(_NEXT_SENTENCE)]
    places = {names.to_keras_hub(name): name for name in kept}
    task = _task(config, shapes)
    if len(kept) < len(shapes):
        config["architectures"] = ["BertForMaskedLM" if task else "BertModel"]
        notes.append("left out: the next-sentence head, which KerasHub has not")
    if _POOLER not in shapes:
        config["left_out"] = ["bert/pooler/"]
        notes.append("there is no pooler: KerasHub's `pooled_dense` is all zeros")
    if task.get("class_name") == "BertMaskedLM":
        notes.append(keras_hub.MASKED_LM_NOTE)

    def values(place: str) -> np.ndarray:
        name = places[place]
        array = np.asarray(arrays[name], np.float32)
        check_finite(array, name=name, place=str(folder))
        return _split(name, array, sizes.num_attention_heads)

    files = {
        keras_hub.CONFIG: objects.backbone(sizes),
        keras_hub.OURS: {k: v for k, v in config.items() if k != "model_type"},
        keras_hub.METADATA: objects.metadata(shapes),
        **_task_files(task, config, sizes, tokenizer),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_texts(folder, files, tokenizer)
        extra = {} if _POOLER in shapes else _no_pooler(sizes.hidden_size)
        mine = [place for place in places if place.startswith("model:")]
        write_arrays(folder / keras_hub.WEIGHTS, mine, values, extra)
        if task:
            mine = [place for place in places if place.startswith("task:")]
            write_arrays(folder / keras_hub.TASK_WEIGHTS, mine, values, _OPTIMIZER)
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot write: {one_line(error)}") from None
    return tuple(notes)


def _write_texts(
    folder: Path, files: Mapping[str, Any], tokenizer: Mapping[str, Any] | None
) -> None:
    """Write the JSON files, and those of the tokenizer if there is one."""
    files = dict(files)
    if tokenizer is not None:
        files["tokenizer.json"] = objects.tokenizer(tokenizer)
        text = "".join(f"{token}\n" for token in tokenizer["vocabulary"])
        (folder / VOCABULARY).parent.mkdir(parents=True, exist_ok=True)
        (folder / VOCABULARY).write_text(text, encoding="utf-8")
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content, indent=4), encoding="utf-8")


def _no_pooler(hidden_size: int) -> dict[str, np.ndarray]:
    """Return what stands for the pooler where there is none: it answers zeros."""
    return {
        names.to_keras_hub("bert/pooler/dense/kernel"): np.zeros(
            (hidden_size, hidden_size), np.float32
        ),
        names.to_keras_hub("bert/pooler/dense/bias"): np.zeros(hidden_size, np.float32),
    }


def _task_files(
    task: dict[str, Any],
    config: Mapping[str, Any],
    sizes: BertConfig,
    tokenizer: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the JSON files of a task; none for an encoder alone."""
    if not task:
        return {}
    parts: dict[str, Any] = {"backbone": objects.backbone(sizes), "preprocessor": None}
    files: dict[str, Any] = {}
    if tokenizer is not None:
        preprocessor = objects.preprocessor(task["class_name"], config, tokenizer)
        files[keras_hub.PREPROCESSOR] = parts["preprocessor"] = preprocessor
    files[keras_hub.TASK] = {**task, "config": {**task["config"], **parts}}
    return files


def _check(sizes: BertConfig, tokenizer: Mapping[str, Any] | None) -> list[str]:
    """Raise where KerasHub cannot compute this BERT; returns notes where it nearly can.

    Raises:
        CheckpointError: names what it cannot do.
    """
    if sizes.is_decoder:
        raise CheckpointError("KerasHub's BERT has no causal attention (`is_decoder`)")
    if sizes.hidden_act not in ("gelu", "gelu_new"):
        raise CheckpointError(
            f"KerasHub's BERT has no activation {sizes.hidden_act}; it has gelu"
        )
    notes = []
    if tokenizer is not None:
        _check_tokens(tokenizer["vocabulary"])
        if tokenizer["lowercase"]:
            notes.append("KerasHub folds case for lower-casing: ß becomes ss")
    if sizes.hidden_act == "gelu":
        notes.append(
            "KerasHub computes gelu by its tanh form, this model by erf: there its "
            "outputs differ a little"
        )
    if sizes.layer_norm_eps != keras_hub.EPSILON:
        notes.append(
            f"KerasHub computes LayerNorm with epsilon {keras_hub.EPSILON:g}, this "
            f"model with {sizes.layer_norm_eps:g}: there its outputs differ"
        )
    return notes


def _check_tokens(vocabulary: Sequence[str]) -> None:
    """Raise unless KerasHub reads these tokens from a file of lines.

    It drops space at the end of a line: a token of space alone, as the released Chinese
    vocabulary has one, is an empty token there, which no text yields.
    """
    if "[MASK]" not in vocabulary:
        raise CheckpointError("KerasHub's tokenizer must have the token [MASK]")
    read = set()
    for token in vocabulary:
        if "\n" in token or "\r" in token or token.rstrip() in read:
            raise CheckpointError(
                "KerasHub's vocabulary.txt cannot hold a token with a line break, or "
                f"two that differ in space at the end; received {token!r}"
            )
        read.add(token.rstrip())


def _split(name: str, array: np.ndarray, heads: int) -> np.ndarray:
    """Return the values with the axes that KerasHub has."""
    axis = names.head_axis(name)
    if axis is None:
        return array
    shape = array.shape
    return array.reshape(*shape[:axis], heads, -1, *shape[axis + 1 :])


def _task(config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return the task of KerasHub that has this head; empty for an encoder alone.

    Raises:
        CheckpointError: it has no such task.
    """
    classifier = shapes.get("classifier/kernel")
    masked_lm = any(name.startswith("cls/predictions/") for name in shapes)
    if classifier is None:
        return objects.masked_lm() if masked_lm else {}
    architecture = config.get("architectures", [""])[0]
    fitting = keras_hub.ARCHITECTURES["BertTextClassifier"]
    if masked_lm or architecture not in fitting:
        raise CheckpointError(
            "KerasHub's BERT has the heads of BertForMaskedLM and of "
            f"{' and '.join(fitting)}; received {one_line(architecture)}"
        )
    return objects.text_classifier(config, classifier[1])
