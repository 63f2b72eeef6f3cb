"""The objects in the JSON files of a preset of KerasHub, as Keras serializes them.

Source: `get_config` of KerasHub's `BertBackbone`, `BertTokenizer`, `BertMaskedLM`,
`BertTextClassifier` and their preprocessors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import metadata as distributions
from typing import Any

from bert_keras.checkpoints.base import Shape
from bert_keras.checkpoints.keras_hub import SIZES, TRUNCATIONS
from bert_keras.checkpoints.own_entry import KEY
from bert_keras.config import BertConfig

_MODULE = "keras_hub.src.models.bert"


def backbone(sizes: BertConfig) -> dict[str, Any]:
    """Return the `BertBackbone` of these sizes."""
    values = sizes.to_dict()
    settings = {theirs: values[ours] for theirs, ours in SIZES.items()}
    return _object("bert_backbone", "BertBackbone", dtype=_dtype("float32"), **settings)


def masked_lm() -> dict[str, Any]:
    """Return the `BertMaskedLM`, without backbone and preprocessor."""
    return _object("bert_masked_lm", "BertMaskedLM")


def text_classifier(config: Mapping[str, Any], classes: int) -> dict[str, Any]:
    """Return the `BertTextClassifier` of a `config.json`, without its parts."""
    several = config.get("problem_type") == "multi_label_classification"
    return _object(
        "bert_text_classifier",
        "BertTextClassifier",
        num_classes=classes,
        activation="sigmoid" if several else "linear",
        dropout=config.get("hidden_dropout_prob", 0.1),
    )


def tokenizer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `BertTokenizer` of `WordPieceTokenizer.get_config`.

    Its vocabulary stands in a file of its own. Where we lower-case as Google does, it
    folds case (`ß` becomes `ss`).
    """
    accents = settings["strip_accents"]
    return _object(
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


def preprocessor(
    task: str, config: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the preprocessor of a task; pairs are cut as they are, or round robin.

    Args:
        task: KerasHub's class.
        config: the whole of a `config.json`.
        settings: of `WordPieceTokenizer.get_config`.
    """
    ours = (config.get(KEY) or {}).get("preprocessing", {})
    truncate = {ours: theirs for theirs, ours in TRUNCATIONS.items()}
    name = "bert_masked_lm" if task == "BertMaskedLM" else "bert_text_classifier"
    return _object(
        f"{name}_preprocessor",
        f"{task}Preprocessor",
        dtype=_dtype("float32"),
        tokenizer=tokenizer(settings),
        config_file="preprocessor.json",
        sequence_length=ours.get("max_length", config["max_position_embeddings"]),
        truncate=truncate.get(ours.get("truncation", ""), "round_robin"),
    )


def metadata(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return what a preset says of itself."""
    encoder = [shape for name, shape in shapes.items() if name.startswith("bert/")]
    return {
        "keras_version": distributions.version("keras"),
        "keras_hub_version": distributions.version("keras-hub"),
        "parameter_count": sum(math.prod(shape) for shape in encoder),
        "tasks": ["MaskedLM", "TextClassifier"],
    }


def _object(module: str, name: str, **settings: Any) -> dict[str, Any]:
    return {
        "module": f"{_MODULE}.{module}",
        "class_name": name,
        "config": {"name": module, "trainable": True, **settings},
        "registered_name": f"keras_hub>{name}",
    }


def _dtype(name: str) -> dict[str, Any]:
    policy = {"module": "keras", "class_name": "DTypePolicy", "registered_name": None}
    return {**policy, "config": {"name": name}}
