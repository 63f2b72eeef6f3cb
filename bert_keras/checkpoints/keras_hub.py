"""Preset folders of KerasHub: `BertBackbone`, with a task's head if it has one.

The JSON files name Python classes; the names are compared as text and never imported.
Presets are written tensor by tensor, without a second model in memory.

Source: KerasHub `preset_utils.py`, `bert_backbone.py`, `masked_lm_head.py`;
`get_config` of `BertBackbone`, `BertTokenizer`, `BertMaskedLM`, `BertTextClassifier`,
`BertTextEmbedder` and their preprocessors.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from importlib import metadata as distributions
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import formats, names
from bert_keras.checkpoints.checkpoint import (
    FORMAT,
    KEY,
    Checkpoint,
    LazyArrays,
    Shape,
    StoredTensor,
    as_checkpoint_error,
    bert_config,
    choose,
    joined_heads,
    shapes_of,
    weight_of,
)
from bert_keras.checkpoints.h5_file import StoredArray, stored_arrays, write_arrays
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.json_file import read_json

CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
SHARDS = "model.weights.json"
TASK = "task.json"
TASK_WEIGHTS = "task.weights.h5"
PREPROCESSOR = "preprocessor.json"
METADATA = "metadata.json"
OURS = "bert_keras.json"  # what KerasHub's files cannot express, see `write_keras_hub`
# KerasHub's names of sizes, and ours.
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
TRUNCATIONS = {"round_robin": "round_robin", "waterfall": "only_second"}
EMBEDDER = "BertTextEmbedder"
# KerasHub's task: its Hugging Face class, and others with the same head.
ARCHITECTURES = {
    "BertMaskedLM": ("BertForMaskedLM",),
    "BertTextClassifier": ("BertForSequenceClassification", "BertForMultipleChoice"),
    EMBEDDER: ("BertModel",),
}
_POOLINGS = ("mean", "cls", "max")  # of an embedder
_OLD_NAMES = {"BertClassifier": "BertTextClassifier"}
MASKED_LM_NOTE = (
    "KerasHub's masked-LM head computes gelu by erf and LayerNorm with epsilon 1e-05, "
    "here the head computes as the encoder does: its outputs differ slightly"
)


def read_keras_hub(folder: str | os.PathLike[str]) -> Checkpoint:
    """Open a preset folder of KerasHub; weights are read on demand.

    Args:
        folder: holds `config.json` of a `BertBackbone` and `model.weights.h5`, and
            optionally the files of a task. Its gelu is the tanh form, `gelu_new`.

    Raises errors as `read_checkpoint` does.
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
    values |= {"hidden_act": "gelu_new", "layer_norm_eps": formats.KERAS_HUB.epsilon}
    task = _task(folder)
    raw = _task_config(task, folder)
    left_out: tuple[str, ...] = ()
    if _is_ours(folder):
        written = read_json(folder / OURS)
        scopes = written.pop("left_out", [])
        if not isinstance(scopes, list) or not all(isinstance(s, str) for s in scopes):
            raise CheckpointError(
                f"{folder / OURS}: `left_out` must be a list of names"
            )
        left_out = tuple(scopes)
        values |= {k: v for k, v in written.items() if k not in SIZES.values()}
        raw |= written
    config = bert_config(values, path=folder / CONFIG)
    notes = [MASKED_LM_NOTE] if task and task[0] == "BertMaskedLM" else []
    arrays = _arrays(folder, with_task=task is not None)
    chosen, unrecognized = _sorted_out(arrays, left_out)
    heads = config.num_attention_heads
    shapes = {n: joined_heads(n, array, heads) for n, array in chosen.items()}
    return Checkpoint(
        path=folder,
        origin="keras-hub",
        config=config,
        raw_config=raw,
        arrays=LazyArrays.of(chosen, shapes=shapes, place=str(folder)),
        notes=tuple(notes),
        unrecognized=tuple(unrecognized),
    )


def _object(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the class and the arguments in a JSON file of Keras."""
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
    """Return a task's entries as in a Hugging Face `config.json`."""
    if task is None:
        return {"architectures": ["BertModel"]}
    kind, theirs = task
    config: dict[str, Any] = {"architectures": [ARCHITECTURES[kind][0]]}
    if theirs.get("activation") == "sigmoid":
        config["problem_type"] = "multi_label_classification"
    path, settings = folder / PREPROCESSOR, dict[str, Any]()
    if path.is_file():
        _, preprocessor = _object(path)
        truncate = preprocessor.get("truncate", "round_robin")
        if truncate not in tuple(TRUNCATIONS):
            raise CheckpointError(
                f"{path}: `truncate` must be one of {', '.join(TRUNCATIONS)}; "
                f"received {one_line(truncate)}"
            )
        settings["truncation"] = TRUNCATIONS[truncate]
        if (length := preprocessor.get("sequence_length")) is not None:
            settings["max_length"] = length
        config[KEY] = {"format": FORMAT, "preprocessing": settings}
    if kind == EMBEDDER:
        vectors = _vectors(theirs, folder)
        vectors |= {k: v for k, v in settings.items() if k == "max_length"}
        config[KEY] = {**config.get(KEY, {"format": FORMAT}), "sentence": vectors}
    return config


def _vectors(theirs: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return how an embedder makes a text's vector, as of sentence-transformers."""
    pooling = theirs.get("pooling_mode", "mean")
    normalize = theirs.get("normalize", True)
    if pooling not in _POOLINGS or type(normalize) is not bool:
        raise CheckpointError(
            f"{folder / TASK}: `pooling_mode` must be one of {', '.join(_POOLINGS)} "
            f"and `normalize` true or false; received {one_line(pooling)} and "
            f"{one_line(normalize)}"
        )
    return {"pooling": pooling, "normalize": normalize}


def embeds(settings: Mapping[str, Any]) -> bool:
    """Return whether an embedder of KerasHub computes vectors of these settings.

    Args:
        settings: of the task `embedding`, or what `read_sentence_files` returned.
            Prompts by name are left out: KerasHub has none.
    """
    plain = {"kind": "dense", "long": "truncate", "layers": [-1]}
    empty = ("dense", "truncate_dim", "default_prompt", "default_length")
    return (
        settings.get("pooling") in _POOLINGS
        and all(settings.get(key, v) in (v, (-1,)) for key, v in plain.items())
        and not any(settings.get(key) for key in empty)
    )


def _is_ours(folder: Path) -> bool:
    """Return whether our file describes this preset: KerasHub may have saved another.

    KerasHub records the date; our writer does not.
    """
    if not (folder / OURS).is_file() or not (folder / METADATA).is_file():
        return False
    return "date_saved" not in read_json(folder / METADATA)


def _arrays(folder: Path, *, with_task: bool) -> dict[str, StoredArray]:
    """Return the arrays of both files by place, as spelled in `names`."""
    if not os.path.isfile(folder / WEIGHTS):
        if os.path.isfile(folder / SHARDS):
            raise CheckpointError(
                f"{folder}: holds weights in shards ({SHARDS}), which are not read: no "
                "BERT is that large"
            )
        raise CheckpointError(f"{folder}: contains no {WEIGHTS}")
    arrays = {f"model:{k}": v for k, v in stored_arrays(folder / WEIGHTS).items()}
    if with_task and os.path.isfile(folder / TASK_WEIGHTS):
        more = stored_arrays(folder / TASK_WEIGHTS)
        arrays |= {f"task:{path}": array for path, array in more.items()}
    return arrays


def _sorted_out(
    arrays: Mapping[str, StoredArray], left_out: tuple[str, ...]
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Return canonical name to array; unrecognized places."""
    chosen: dict[str, StoredTensor] = {}
    unrecognized = []
    for place, array in arrays.items():
        name = names.from_keras_hub(place)
        if name is None:
            # The optimizer is Keras's own, of `compile`.
            if not place.startswith(("model:optimizer/", "task:optimizer/")):
                unrecognized.append(place)
        elif not name.startswith(left_out):
            choose(chosen, name, array)
    return chosen, unrecognized


# The objects in its JSON files, as Keras serializes them.

_MODULE = "keras_hub.src.models.bert"


def _backbone(sizes: BertConfig) -> dict[str, Any]:
    """Return the `BertBackbone` of these sizes."""
    values = sizes.to_dict()
    settings = {theirs: values[ours] for theirs, ours in SIZES.items()}
    return _serialized(
        "bert_backbone", "BertBackbone", dtype=_dtype("float32"), **settings
    )


def _task_of(config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return the task of KerasHub that has this head; empty for an encoder alone."""
    classifier = shapes.get("classifier/kernel")
    masked_lm = any(name.startswith("cls/predictions/") for name in shapes)
    if classifier is None and masked_lm:
        return _serialized("bert_masked_lm", "BertMaskedLM")
    if classifier is None:
        entry = config.get(KEY) or {}
        is_ours = entry.get("task") == "embedding"
        vectors = entry["settings"] if is_ours else entry.get("sentence") or {}
        if not embeds(vectors):
            return {}
        pooling, normalize = vectors["pooling"], vectors["normalize"]
        settings = {"pooling_mode": pooling, "normalize": normalize}
        return _serialized("bert_text_embedder", EMBEDDER, **settings)
    architecture = config.get("architectures", [""])[0]
    fitting = ARCHITECTURES["BertTextClassifier"]
    if masked_lm or architecture not in fitting:
        raise CheckpointError(
            "KerasHub's BERT has the heads of BertForMaskedLM and of "
            f"{' and '.join(fitting)}; received {one_line(architecture)}"
        )
    several = config.get("problem_type") == "multi_label_classification"
    return _serialized(
        "bert_text_classifier",
        "BertTextClassifier",
        num_classes=classifier[1],
        activation="sigmoid" if several else "linear",
        dropout=config.get("hidden_dropout_prob", 0.1),
    )


def _tokenizer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `BertTokenizer` of a `WordPieceTokenizer.get_config`.

    KerasHub folds case (`ß` becomes `ss`) where we lower-case as Google does.
    """
    accents = settings["strip_accents"]
    return _serialized(
        "bert_tokenizer",
        "BertTokenizer",
        dtype=_dtype("int32"),
        config_file="tokenizer.json",
        vocabulary=None,
        sequence_length=None,
        lowercase=settings["lowercase"],
        strip_accents=settings["lowercase"] if accents is None else accents,
        split=True,
        split_on_cjk=settings["tokenize_chinese_chars"],
        suffix_indicator="##",
        oov_token="[UNK]",
        special_tokens=None,
        special_tokens_in_strings=settings["special_tokens_in_text"] == "parse",
    )


def _preprocessor(
    task: str, config: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the preprocessor of a task; pairs are truncated as ours or round robin."""
    ours = (config.get(KEY) or {}).get("preprocessing", {})
    truncate = {ours: theirs for theirs, ours in TRUNCATIONS.items()}
    names = {"BertMaskedLM": "bert_masked_lm", EMBEDDER: "bert_text_embedder"}
    name = names.get(task, "bert_text_classifier")
    return _serialized(
        f"{name}_preprocessor",
        f"{task}Preprocessor",
        dtype=_dtype("float32"),
        tokenizer=_tokenizer(settings),
        config_file="preprocessor.json",
        sequence_length=ours.get("max_length", config["max_position_embeddings"]),
        truncate=truncate.get(ours.get("truncation", ""), "round_robin"),
    )


def _serialized(module: str, name: str, **settings: Any) -> dict[str, Any]:
    return {
        "module": f"{_MODULE}.{module}",
        "class_name": name,
        "config": {"name": module, "trainable": True, **settings},
        "registered_name": f"keras_hub>{name}",
    }


def _dtype(name: str) -> dict[str, Any]:
    policy = {"module": "keras", "class_name": "DTypePolicy", "registered_name": None}
    return {**policy, "config": {"name": name}}


# Writing.

VOCABULARY = "assets/tokenizer/vocabulary.txt"
FILES = frozenset(
    (
        CONFIG,
        WEIGHTS,
        TASK,
        TASK_WEIGHTS,
        PREPROCESSOR,
        OURS,
        METADATA,
        "tokenizer.json",
        VOCABULARY,
    )
)
# KerasHub's tasks are compiled, with the optimizer's state in the file: here at step 0.
_OPTIMIZER: dict[str, np.ndarray] = {
    "task:optimizer/vars/0": np.array(0, np.int64),  # steps
    "task:optimizer/vars/1": np.array(5e-5, np.float32),  # learning rate by default
}


def write_keras_hub(
    folder: Path,
    arrays: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Write an encoder, classifier, masked-LM or embedder as a preset of KerasHub.

    Args:
        folder: a new folder.
        arrays: canonical name to array, canonical shape.
        config: the whole of a `config.json`. What KerasHub's files cannot express is
            kept in `bert_keras.json`, which KerasHub ignores.
        tokenizer: as returned by `WordPieceTokenizer.get_config`; without it the
            preset takes ids only.

    Returns:
        Notes on what KerasHub computes differently, and what it lacks.

    Raises:
        CheckpointError: KerasHub lacks the weight, computation or tokenizer, a value is
            not finite, or writing fails.
        ConfigError: a size in `config` is out of its range.
    """
    sizes = bert_config(config, path=Path(CONFIG))
    config = {**config, **sizes.to_dict()}
    notes = formats.KERAS_HUB.check(sizes)
    notes += [] if tokenizer is None else _check_tokenizer(tokenizer)
    shapes = shapes_of(arrays)
    formats.KERAS_HUB.check_heads(shapes, config)
    kept, lost = formats.KERAS_HUB.kept(sorted(shapes))
    places = {names.to_keras_hub(name): name for name in kept}
    task = _task_of(config, shapes)
    if lost:
        config["architectures"] = ["BertForMaskedLM" if task else "BertModel"]
    notes += lost
    zeros: dict[str, np.ndarray] = {}
    if "bert/pooler/dense/kernel" not in shapes:
        zeros = _no_pooler(sizes.hidden_size)
        config["left_out"] = ["bert/pooler/"]
        notes.append("there is no pooler: KerasHub's `pooled_dense` is all zeros")
    if task.get("class_name") == "BertMaskedLM":
        notes.append(MASKED_LM_NOTE)

    def values(place: str) -> np.ndarray:
        heads = sizes.num_attention_heads
        return weight_of(arrays, places[place], place=str(folder), heads=heads)

    objects = {
        CONFIG: _backbone(sizes),
        OURS: {k: v for k, v in config.items() if k != "model_type"},
        METADATA: _metadata(shapes),
        **_task_objects(task, config, sizes, tokenizer),
    }
    texts = {file: json.dumps(each, indent=4) for file, each in objects.items()}
    if tokenizer is not None:
        tokens = [*tokenizer["vocabulary"], *_added(tokenizer)]
        texts[VOCABULARY] = "".join(f"{token}\n" for token in tokens)
    with as_checkpoint_error(f"{folder}: cannot write", OSError):
        for file, text in texts.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        mine = [place for place in places if place.startswith("model:")]
        write_arrays(folder / WEIGHTS, mine, values, zeros)
        mine = [place for place in places if place.startswith("task:")]
        if mine:  # an embedder has no weights of its own
            write_arrays(folder / TASK_WEIGHTS, mine, values, _OPTIMIZER)
    return tuple(notes)


def _no_pooler(size: int) -> dict[str, np.ndarray]:
    """Return zeros in place of a missing pooler, whose output is then zero."""
    shapes: dict[str, Shape] = {"kernel": (size, size), "bias": (size,)}
    return {
        names.to_keras_hub(f"bert/pooler/dense/{part}"): np.zeros(shape, np.float32)
        for part, shape in shapes.items()
    }


def _metadata(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    encoder = [shape for name, shape in shapes.items() if name.startswith("bert/")]
    return {
        "keras_version": distributions.version("keras"),
        "keras_hub_version": distributions.version("keras-hub"),
        "parameter_count": sum(map(math.prod, encoder)),
        "tasks": ["MaskedLM", "TextClassifier", "TextEmbedder"],
    }


def _task_objects(
    task: dict[str, Any],
    config: Mapping[str, Any],
    sizes: BertConfig,
    tokenizer: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the content of the JSON files of tokenizer and task, if there are any."""
    parts: dict[str, Any] = {"backbone": _backbone(sizes), "preprocessor": None}
    objects: dict[str, Any] = {}
    if tokenizer is not None:
        objects["tokenizer.json"] = _tokenizer(tokenizer)
    if task and tokenizer is not None:
        preprocessor = _preprocessor(task["class_name"], config, tokenizer)
        objects[PREPROCESSOR] = parts["preprocessor"] = preprocessor
    if task:
        objects[TASK] = {**task, "config": {**task["config"], **parts}}
    return objects


def _check_tokenizer(tokenizer: Mapping[str, Any]) -> list[str]:
    """Return notes on what KerasHub does differently; raise if it cannot read a token.

    KerasHub strips trailing space: a token of only spaces, as in the released Chinese
    vocabulary, becomes an empty token, which no text yields.
    """
    if "[MASK]" not in tokenizer["vocabulary"]:
        raise CheckpointError("KerasHub's tokenizer must have the token [MASK]")
    if "normalizer" in tokenizer or "pre_tokenizer" in tokenizer:
        raise CheckpointError(
            "KerasHub's tokenizer has no other normalizer and pre-tokenizer than BERT's"
        )
    read = set()
    for token in (*tokenizer["vocabulary"], *_added(tokenizer)):
        if "\n" in token or "\r" in token or token.rstrip() in read:
            raise CheckpointError(
                "KerasHub's vocabulary.txt cannot hold a token with a line break, or "
                f"two that differ only in trailing space; received {token!r}"
            )
        read.add(token.rstrip())
    notes = []
    if tokenizer.get("added_tokens"):
        notes.append(
            "KerasHub has no added tokens: in texts it splits them into pieces"
        )
    if tokenizer["lowercase"]:
        notes.append("KerasHub folds case for lower-casing: ß becomes ss")
    return notes


def _added(tokenizer: Mapping[str, Any]) -> list[str]:
    """Return the added tokens whose ids follow the ids of the vocabulary."""
    known = set(tokenizer["vocabulary"])
    contents = [each["content"] for each in tokenizer.get("added_tokens", ())]
    return [content for content in contents if content not in known]
