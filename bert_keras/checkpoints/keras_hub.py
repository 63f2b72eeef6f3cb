"""Preset folders of KerasHub: a BERT, DistilBERT or ELECTRA, and a task's head.

The JSON files name Python classes; the names are compared as text and never imported.
Presets are written tensor by tensor, without a second model in memory.

Source: KerasHub `preset_utils.py`, `bert_backbone.py`, `masked_lm_head.py`;
`get_config` of `BertBackbone`, `BertTokenizer`, `BertMaskedLM`, `BertTextClassifier`,
`BertTextEmbedder` and their preprocessors; the same files of `distil_bert` and
`electra`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping
from importlib import metadata as distributions
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_keras.checkpoints import formats, names
from bert_keras.checkpoints.checkpoint import (
    FORMAT,
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
from bert_keras.config import KEY, BertConfig
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
# KerasHub's task: its Hugging Face class, and others with the same head.
ARCHITECTURES = {
    "MaskedLM": ("BertForMaskedLM",),
    "TextClassifier": ("BertForSequenceClassification", "BertForMultipleChoice"),
    "TextEmbedder": ("BertModel",),
}
_POOLINGS = ("mean", "cls", "max")  # of an embedder
_OLD_NAMES = {"Classifier": "TextClassifier"}
_POOLER = "bert/pooler/"


class Kind(NamedTuple):
    """The classes of KerasHub for one `model_type`.

    Args:
        model_type: ours.
        classes: how their names begin.
        module: the module that defines them, and how the names of its modules begin.
        sizes: as `SIZES`.
        tasks: those that have a class.
    """

    model_type: str
    classes: str
    module: str
    sizes: Mapping[str, str]
    tasks: tuple[str, ...]

    @property
    def backbone(self) -> str:
        """The class of the encoder."""
        return f"{self.classes}Backbone"

    def serialized(self, name: str, **settings: Any) -> dict[str, Any]:
        """Return the object of a class, such as `Tokenizer`, as Keras writes it."""
        steps = re.findall("LM|[A-Z][a-z]+", name)
        module = "_".join([self.module, *steps]).lower()
        return {
            "module": f"keras_hub.src.models.{self.module}.{module}",
            "class_name": f"{self.classes}{name}",
            "config": {"name": module, "trainable": True, **settings},
            "registered_name": f"keras_hub>{self.classes}{name}",
        }

    def places(self, sizes: BertConfig) -> str:
        """Return whose table of `names` has the places of its weights."""
        plain = self.model_type == "electra" and not sizes.embedding_size
        return "bert" if plain else self.model_type  # Keras then names them as a BERT's


_OF_ELECTRA = {"vocab_size": "vocab_size", "embedding_dim": "embedding_size"}
KINDS = {
    each.model_type: each
    for each in (
        Kind("bert", "Bert", "bert", SIZES, tuple(ARCHITECTURES)),
        Kind(
            "distilbert",
            "DistilBert",
            "distil_bert",
            {k: v for k, v in SIZES.items() if k != "num_segments"},
            ("MaskedLM", "TextClassifier"),
        ),
        Kind(
            "electra",
            "Electra",
            "electra",
            {k: v for k, v in SIZES.items() if v != "vocab_size"} | _OF_ELECTRA,
            (),
        ),
    )
}


def read_keras_hub(folder: str | os.PathLike[str]) -> Checkpoint:
    """Open a preset folder of KerasHub; weights are read on demand.

    Args:
        folder: holds `config.json` of a `BertBackbone` and `model.weights.h5`, and
            optionally the files of a task. Its gelu is the tanh form, `gelu_new`.

    Raises errors as `read_checkpoint` does.
    """
    folder = Path(folder)
    name, theirs = _object(folder / CONFIG)
    kind = next((each for each in KINDS.values() if each.backbone == name), None)
    if kind is None:
        raise CheckpointError(
            f"{folder / CONFIG}: must be a "
            f"{' or '.join(each.backbone for each in KINDS.values())}; "
            f"found {one_line(name)}"
        )
    dialect = formats.KERAS_HUB_TYPES[kind.model_type]
    values: dict[str, Any] = {
        ours: theirs[key] for key, ours in kind.sizes.items() if key in theirs
    }
    values["attention_probs_dropout_prob"] = values.get("hidden_dropout_prob", 0.1)
    values |= {"hidden_act": dialect.gelu, "layer_norm_eps": dialect.epsilon}
    values["model_type"] = kind.model_type
    if kind.model_type == "distilbert":
        values["type_vocab_size"] = 0
    task = _task(folder, kind)
    raw = _task_config(task, folder)
    left_out: tuple[str, ...] = ()
    notes = []
    if _is_ours(folder):
        written = read_json(folder / OURS)
        scopes = written.pop("left_out", [])
        if not isinstance(scopes, list) or not all(isinstance(s, str) for s in scopes):
            raise CheckpointError(
                f"{folder / OURS}: `left_out` must be a list of names"
            )
        left_out = tuple(scopes)
        known = {*kind.sizes.values(), "model_type"}
        values |= {k: v for k, v in written.items() if k not in known}
        raw |= written
    elif kind.model_type == "electra":
        left_out = (_POOLER,)
        notes.append(
            "left out: `pooled_dense`, which transformers' ELECTRA does not have"
        )
    config = bert_config(values, path=folder / CONFIG)
    if task and task[0] == "MaskedLM":
        notes.append(_masked_lm_note(kind))
    arrays = _arrays(folder, with_task=task is not None)
    chosen, unrecognized = _sorted_out(arrays, left_out, kind.places(config))
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


def _masked_lm_note(kind: Kind) -> str:
    """Return a note on what the masked-LM head computes otherwise than the encoder."""
    by_erf = "" if kind.model_type == "distilbert" else "gelu by erf and "
    return (
        f"KerasHub's masked-LM head computes {by_erf}LayerNorm with epsilon 1e-05, "
        "here the head computes as the encoder does: its outputs differ slightly"
    )


def _object(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the class and the arguments in a JSON file of Keras."""
    values = read_json(path)
    kind, config = values.get("class_name"), values.get("config")
    if not isinstance(kind, str) or not isinstance(config, dict):
        raise CheckpointError(f"{path}: must hold `class_name` and `config`")
    return kind, config


def _task(folder: Path, kind: Kind) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the arguments of a preset's task, `None` if it has none."""
    if not (folder / TASK).is_file():
        return None
    found, config = _object(folder / TASK)
    name = found.removeprefix(kind.classes)
    name = _OLD_NAMES.get(name, name)
    if name not in kind.tasks or not found.startswith(kind.classes):
        known = ", ".join(f"{kind.classes}{task}" for task in kind.tasks)
        raise CheckpointError(
            f"{folder / TASK}: must be one of {known or 'no task'}; "
            f"found {one_line(found)}"
        )
    return name, config


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
    if kind == "TextEmbedder":
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


def embeds(settings: Mapping[str, Any], model_type: str) -> bool:
    """Return whether an embedder of KerasHub computes vectors of these settings.

    Args:
        model_type: of the encoder.
        settings: of the task `embedding`, or what `read_sentence_files` returned.
            Prompts by name are left out: KerasHub has none.
    """
    plain = {"kind": "dense", "long": "truncate", "layers": [-1]}
    empty = ("dense", "truncate_dim", "default_prompt", "default_length")
    return (
        "TextEmbedder" in KINDS[model_type].tasks
        and settings.get("pooling") in _POOLINGS
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
    arrays: Mapping[str, StoredArray], left_out: tuple[str, ...], table: str
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Return canonical name to array; unrecognized places."""
    chosen: dict[str, StoredTensor] = {}
    unrecognized = []
    for place, array in arrays.items():
        name = names.from_keras_hub(place, table)
        if name is None:
            # The optimizer is Keras's own, of `compile`.
            if not place.startswith(("model:optimizer/", "task:optimizer/")):
                unrecognized.append(place)
        elif not name.startswith(left_out):
            choose(chosen, name, array)
    return chosen, unrecognized


# The objects in its JSON files, as Keras serializes them.


def _backbone(kind: Kind, sizes: BertConfig) -> dict[str, Any]:
    """Return the backbone of these sizes."""
    values = {**sizes.to_dict(), "embedding_size": sizes.embedding_width}
    settings = {theirs: values[ours] for theirs, ours in kind.sizes.items()}
    return kind.serialized("Backbone", dtype=_dtype("float32"), **settings)


def _task_of(
    kind: Kind, config: Mapping[str, Any], shapes: Mapping[str, Shape]
) -> dict[str, Any]:
    """Return the task of KerasHub that has this head; empty for an encoder alone."""
    classifier = shapes.get("classifier/kernel")
    masked_lm = any(name.startswith("cls/predictions/") for name in shapes)
    if classifier is None and masked_lm:
        return kind.serialized("MaskedLM")
    if classifier is None:
        entry = config.get(KEY) or {}
        is_ours = entry.get("task") == "embedding"
        vectors = entry["settings"] if is_ours else entry.get("sentence") or {}
        if not embeds(vectors, kind.model_type):
            return {}
        pooling, normalize = vectors["pooling"], vectors["normalize"]
        settings = {"pooling_mode": pooling, "normalize": normalize}
        return kind.serialized("TextEmbedder", **settings)
    architecture = config.get("architectures", [""])[0]
    fitting = ARCHITECTURES["TextClassifier"]
    if masked_lm or architecture not in fitting:
        raise CheckpointError(
            "KerasHub has the heads of BertForMaskedLM and of "
            f"{' and '.join(fitting)}; received {one_line(architecture)}"
        )
    several = config.get("problem_type") == "multi_label_classification"
    return kind.serialized(
        "TextClassifier",
        num_classes=classifier[1],
        activation="sigmoid" if several else "linear",
        dropout=config.get("hidden_dropout_prob", 0.1),
    )


def _tokenizer(kind: Kind, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokenizer of a `WordPieceTokenizer.get_config`.

    KerasHub folds case (`ß` becomes `ss`) where we lower-case as Google does.
    """
    accents = settings["strip_accents"]
    return kind.serialized(
        "Tokenizer",
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
    kind: Kind, task: str, config: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the preprocessor of a task; pairs are truncated as ours or round robin."""
    ours = (config.get(KEY) or {}).get("preprocessing", {})
    truncate = {ours: theirs for theirs, ours in TRUNCATIONS.items()}
    return kind.serialized(
        f"{task}Preprocessor",
        dtype=_dtype("float32"),
        tokenizer=_tokenizer(kind, settings),
        config_file="preprocessor.json",
        sequence_length=ours.get("max_length", config["max_position_embeddings"]),
        truncate=truncate.get(ours.get("truncation", ""), "round_robin"),
    )


def _dtype(name: str) -> dict[str, Any]:
    policy = {"module": "keras", "class_name": "DTypePolicy", "registered_name": None}
    return {**policy, "config": {"name": name}}


# Writing.

VOCABULARY = "assets/tokenizer/vocabulary.txt"
FILES = frozenset((CONFIG, WEIGHTS, TASK, TASK_WEIGHTS, PREPROCESSOR, OURS, METADATA))
FILES |= {"tokenizer.json", VOCABULARY}
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
    kind = KINDS[sizes.model_type]
    dialect = formats.KERAS_HUB_TYPES[sizes.model_type]
    notes = dialect.check(sizes)
    notes += [] if tokenizer is None else _check_tokenizer(tokenizer)
    shapes = shapes_of(arrays)
    dialect.check_heads(shapes, config)
    task = _task_of(kind, config, shapes)
    if kind.model_type == "distilbert" and "classifier/kernel" not in shapes:
        layer = {_POOLER: "layer on [CLS] without a classifier"}
        dialect = dataclasses.replace(dialect, left_out=layer)
    kept, lost = dialect.kept(sorted(shapes))
    table = kind.places(sizes)
    places = {names.to_keras_hub(name, table): name for name in kept}
    if lost:
        config["architectures"] = ["BertForMaskedLM" if task else "BertModel"]
    notes += lost
    zeros: dict[str, np.ndarray] = {}
    if kind.model_type != "distilbert" and f"{_POOLER}dense/kernel" not in kept:
        zeros = _no_pooler(sizes.hidden_size, table)
        config["left_out"] = [_POOLER]
        notes.append("there is no pooler: KerasHub's `pooled_dense` is all zeros")
    if any(name.startswith("cls/") for name in kept):
        notes.append(_masked_lm_note(kind))

    def values(place: str) -> np.ndarray:
        heads = sizes.num_attention_heads
        return weight_of(arrays, places[place], place=str(folder), heads=heads)

    objects = {
        CONFIG: _backbone(kind, sizes),
        OURS: {k: v for k, v in config.items() if k != "model_type"},
        METADATA: _metadata(kind, shapes),
        **_task_objects(kind, task, config, sizes, tokenizer),
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


def _no_pooler(size: int, table: str) -> dict[str, np.ndarray]:
    """Return zeros in place of a missing pooler, whose output is then zero."""
    shapes: dict[str, Shape] = {"kernel": (size, size), "bias": (size,)}
    return {
        names.to_keras_hub(f"{_POOLER}dense/{part}", table): np.zeros(shape, np.float32)
        for part, shape in shapes.items()
    }


def _metadata(kind: Kind, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    encoder = [shape for name, shape in shapes.items() if name.startswith("bert/")]
    return {
        "keras_version": distributions.version("keras"),
        "keras_hub_version": distributions.version("keras-hub"),
        "parameter_count": sum(map(math.prod, encoder)),
        "tasks": list(kind.tasks),
    }


def _task_objects(
    kind: Kind,
    task: dict[str, Any],
    config: Mapping[str, Any],
    sizes: BertConfig,
    tokenizer: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the content of the JSON files of tokenizer and task, if there are any."""
    parts: dict[str, Any] = {"backbone": _backbone(kind, sizes), "preprocessor": None}
    objects: dict[str, Any] = {}
    if tokenizer is not None:
        objects["tokenizer.json"] = _tokenizer(kind, tokenizer)
    if task and tokenizer is not None:
        name = task["class_name"].removeprefix(kind.classes)
        preprocessor = _preprocessor(kind, name, config, tokenizer)
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
