"""TF Model Garden's settings of an encoder: params.yaml, or Keras's metadata.

Runs of its `train.py` write a `params.yaml`, Keras's SavedModels a `keras_metadata.pb`;
without either, the shapes of the weights give the sizes.

Source: TF Model Garden `configs/encoders.py`, `configs/bert.py`, `modeling/tf_utils.py`
(its "gelu" is the tanh form); Keras 2, `saved_metadata.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras.checkpoints.checkpoint import Shape, as_checkpoint_error, bert_config
from bert_keras.checkpoints.matching import encoder_sizes
from bert_keras.checkpoints.tensorflow_checkpoint import BrokenError, fields
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.json_file import parse_json
from bert_keras.files.lfs import check_no_pointer

PARAMS = "params.yaml"
METADATA = "keras_metadata.pb"
# Names of settings in params.yaml, in the config of the Keras layer, and ours.
PARAMS_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "hidden_activation": "hidden_act",
    "intermediate_size": "intermediate_size",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "initializer_range": "initializer_range",
}
_LAYER_KEYS = {
    "inner_activation": "hidden_act",
    "output_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
_TYPES = ("bert", "bert_v2")
_CLASSES = ("BertEncoder", "BertEncoderV2")
# In a params.yaml "gelu" is the tanh form; in Keras's files it is the erf form, and the
# tanh form is Model Garden's own function, or the default of the class.
_ACTIVATIONS = {"gelu": "gelu_new"}
_LAYER_ACTIVATIONS = {"Text>gelu": "gelu_new", "<lambda>": "gelu_new"}
_MOST_BYTES = 32 << 20
_NOT_KERAS = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
_MOST_YAML_BYTES = 256 << 10  # a run's file has about 10 KB


# As entries of a `config.json`, as sizes, and notes on them.
_Settings = tuple[dict[str, Any], BertConfig, list[str]]


def read_settings(
    folder: Path, shapes: Mapping[str, Shape], *, heads: int, masked_lm: bool
) -> _Settings:
    """Return the settings of the encoder in a folder; the first file found decides.

    Args:
        folder: the folder of the checkpoint, or the SavedModel.
        shapes: canonical name to canonical shape, for settings that no file gives.
        heads: number of attention heads, as in the weights.
        masked_lm: whether there is a masked-LM head, whose activation may differ.
    """
    if (folder / PARAMS).exists():
        return _of_params(folder / PARAMS, masked_lm=masked_lm)
    sizes = {**encoder_sizes(shapes, place=folder), "num_attention_heads": heads}
    path = folder / METADATA
    layer = _layer(path) if path.exists() else None
    if layer is None:
        notes = ["no config found: the weights give the sizes, gelu is the tanh form"]
        values = {**sizes, "hidden_act": "gelu_new"}
    else:
        notes = []
        check_plain(layer, width=sizes["hidden_size"], path=path)
        found = {k: layer[k] for k in _LAYER_KEYS if k in layer}
        values = {**sizes, **{_LAYER_KEYS[k]: value for k, value in found.items()}}
        act = values.get("hidden_act", "<lambda>")
        values["hidden_act"] = _LAYER_ACTIVATIONS.get(str(act), act)
    return values, bert_config(values, path=path), notes


def _of_params(path: Path, *, masked_lm: bool) -> _Settings:
    """Return the settings of the encoder in a `params.yaml`."""
    model = _read_yaml(path)
    for key in ("task", "model"):
        model = model[key] if isinstance(model.get(key), dict) else model
    encoder = model.get("encoder", model)
    kind = encoder.get("type", "bert") if isinstance(encoder, dict) else None
    if kind not in _TYPES:
        found = kind if isinstance(kind, str) else type(kind).__name__
        raise CheckpointError(
            f"{path}: the encoder must be {' or '.join(_TYPES)}; "
            f"found {one_line(found)}"
        )
    theirs = _plain_values(encoder.get(kind, {}), name=kind, path=path)
    values = {ours: theirs[key] for key, ours in PARAMS_KEYS.items() if key in theirs}
    check_plain(theirs, width=values.get("hidden_size"), path=path)
    notes = []
    act = values.get("hidden_act", "gelu")
    values["hidden_act"] = _ACTIVATIONS.get(str(act), act)
    if act == "gelu":
        notes.append("hidden_activation gelu is read as gelu_new, the tanh form")
    head = model.get("mlm_activation", act)
    if masked_lm and isinstance(head, str) and head != act:
        notes.append(
            f"the masked-LM head computes {one_line(head)}, here it computes as the "
            f"encoder does, {one_line(act)}: its outputs differ"
        )
    return values, bert_config(values, path=path), notes


def _plain_values(values: Any, *, name: str, path: Path) -> dict[str, Any]:
    """Return a mapping of plain values: nested lists could make a message endless."""
    kinds = (str, int, float, type(None))
    if not isinstance(values, dict) or not all(
        isinstance(value, kinds) for value in values.values()
    ):
        raise CheckpointError(f"{path}: `{name}` must hold plain values")
    return values


def check_plain(values: Mapping[str, Any], *, width: Any, path: Path) -> None:
    """Raise if the encoder computes something other than BERT."""
    if values.get("norm_first"):
        raise CheckpointError(
            f"{path}: `norm_first` must be false: BERT normalizes after each block; "
            f"received {one_line(values['norm_first'])}"
        )
    for key in ("embedding_size", "embedding_width"):
        if values.get(key) is not None and values[key] != width:
            raise CheckpointError(
                f"{path}: `{key}` must be the hidden size, {one_line(width)}; received "
                f"{one_line(values[key])}"
            )


def _read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; Python type tags are rejected."""
    import yaml  # only for files of train.py

    check_no_pointer(path)
    broken = (OSError, ValueError, RecursionError, yaml.YAMLError)
    with as_checkpoint_error(f"{path}: not a YAML file", *broken):
        if path.stat().st_size > _MOST_YAML_BYTES:
            raise ValueError(f"more than {_MOST_YAML_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8")
        if "<<" in text:  # nested merges grow without bound
            raise ValueError("merged mappings, which are not supported")
        values = yaml.safe_load(text)
    if not isinstance(values, dict):
        raise CheckpointError(
            f"{path}: must hold a mapping; received {type(values).__name__}"
        )
    return values


def _layer(path: Path) -> dict[str, Any] | None:
    """Return the settings of the BertEncoder among the objects that Keras saved."""
    others = []
    check_no_pointer(path)
    # Text that is not JSON, or not the JSON that Keras writes, is also broken.
    with as_checkpoint_error(f"{path}: broken", BrokenError, OSError, *_NOT_KERAS):
        if path.stat().st_size > _MOST_BYTES:
            raise BrokenError(f"more than {_MOST_BYTES:,} bytes")
        for number, node in fields(path.read_bytes()):
            if number != 1 or not isinstance(node, bytes):
                continue
            text = dict(fields(node)).get(5) or b"{}"
            layer = parse_json(text.decode())  # type: ignore[union-attr]
            kind = str(layer.get("class_name", "")).rpartition(">")[2]
            if kind in _CLASSES and isinstance(layer.get("config"), dict):
                return dict(layer["config"])
            if kind.endswith("Encoder"):
                others.append(kind)
    if others:
        raise CheckpointError(
            f"{path}: the encoder must be one of {', '.join(_CLASSES)}; found "
            f"{one_line(others[0])}"
        )
    return None
