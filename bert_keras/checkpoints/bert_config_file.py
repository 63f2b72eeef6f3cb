"""`bert_config.json`: the sizes as Google's released code says them.

Source: google-research/bert `modeling.py`, whose "gelu" is the tanh form.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras.checkpoints.base import bert_config
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError
from bert_keras.files.json_file import read_json

CONFIG = "bert_config.json"
# The keys of the released files, and the activations that Google's code knows.
_KEYS = (
    "attention_probs_dropout_prob",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "type_vocab_size",
    "vocab_size",
)
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu", "relu": "relu", "tanh": "tanh"}
_EPSILON = 1e-12  # of its LayerNorm, which no config changes
# Our key for what its word "gelu" hides: the erf form, if that is what is meant.
_EXACT_ACTIVATION = "huggingface_hidden_act"


def read_config(path: Path) -> tuple[dict[str, Any], BertConfig, list[str]]:
    """Return what a `bert_config.json` holds, the sizes it means, and notes.

    Raises:
        CheckpointError: the file is missing or broken.
        ConfigError: a size is out of its range.
    """
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
    config: Mapping[str, Any],
    *,
    code: str = "Google's code",
    activations: Mapping[str, str] = _ACTIVATIONS,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what `bert_config.json` holds, and notes on what it cannot say.

    Args:
        config: the whole of a `config.json`.
        code: whose code is to read it, for messages.
        activations: our names of those that it has, and its own.

    Raises:
        CheckpointError: that code has no such computation.
        ConfigError: a size in `config` is out of its range.
    """
    sizes = bert_config(config, path=Path(CONFIG))
    if sizes.is_decoder:
        raise CheckpointError(f"{code} has no causal attention (`is_decoder`)")
    if sizes.hidden_act not in activations:
        raise CheckpointError(
            f"{code} has no activation {sizes.hidden_act}; "
            f"it has {', '.join(sorted(set(activations.values())))}"
        )
    known = sizes.to_dict()
    others = {key: config[key] for key in config if key not in known}
    others.pop("model_type", None)
    others.pop(_EXACT_ACTIVATION, None)
    values = {**others, **{key: known[key] for key in _KEYS}}
    values["hidden_act"] = activations[sizes.hidden_act]
    notes = []
    if sizes.hidden_act == "gelu":
        values[_EXACT_ACTIVATION] = "gelu"
        notes.append(
            f"{code} computes gelu by its tanh form, this model by erf: there its "
            "outputs differ a little"
        )
    if sizes.layer_norm_eps != _EPSILON:
        values["layer_norm_eps"] = sizes.layer_norm_eps
        notes.append(
            f"{code} computes LayerNorm with epsilon {_EPSILON:g}, this model with "
            f"{sizes.layer_norm_eps:g}: there its outputs differ"
        )
    return values, tuple(notes)
