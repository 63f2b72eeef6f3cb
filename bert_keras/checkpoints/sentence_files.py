"""The small files that make an encoder's folder a sentence-transformers model.

`modules.json` lists the steps after the encoder: `1_Pooling/config.json` describes how
tokens become one vector, a folder `2_Dense` holds a layer on it, `2_Normalize` scales
it to length 1; `sentence_bert_config.json` holds the maximum text length, and
`config_sentence_transformers.json` the prompts. The encoder is in the folder itself or,
in older ones, in a subfolder such as `0_Transformer`. A cross-encoder has an entry in
its `config.json`, or a `modules.json` with the encoder alone. Read and written as by
sentence-transformers 2 to 6.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints.checkpoint import KEY, StoredTensor, choose
from bert_keras.checkpoints.safetensors_file import stored_tensors, write_tensors
from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.json_file import read_json
from bert_keras.settings import POOLINGS

CONFIG = "config.json"
MODULES = "modules.json"
SETTINGS = "sentence_bert_config.json"
MODEL_SETTINGS = "config_sentence_transformers.json"
POOLING = "1_Pooling"
DENSE_SCOPE = "dense_"  # of the canonical names of `Dense`, such as `dense_0/kernel`
DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # in `encode_document`'s order
# sentence-transformers' older names of poolings.
_OLD_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Softmax": "softmax",
}
_TORCH = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
_DENSE_ACTIVATIONS = tuple(name for name in _TORCH if name != "softmax")
_SCORE_ACTIVATIONS = ("linear", "sigmoid")  # the softmax of one output is always 1
_CLASS_ACTIVATIONS = (*_SCORE_ACTIVATIONS, "softmax")
_SPARSE_ENCODER, _SPLADE = "MLMTransformer", "SpladePooling"
# `BERT` up to sentence-transformers 0.2.
_ENCODERS = ("Transformer", "BERT", _SPARSE_ENCODER)
_NO_LIMIT = 1 << 20  # tokenizers without one say 1e30
_LENGTHS = ((SETTINGS, "max_seq_length"), ("tokenizer_config.json", "model_max_length"))


def encoder_folder(folder: Path) -> Path:
    """Return where a folder's encoder is: the folder itself, or one that it names."""
    if not (folder / MODULES).is_file():
        return folder
    with contextlib.suppress(CheckpointError):  # `read_sentence_files` raises it
        for kind, place in _steps(folder / MODULES)[:1]:
            if kind in _ENCODERS and (folder / place / CONFIG).is_file():
                return folder / place
    return folder


def pair_activation(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return what a cross-encoder applies to its outputs; `None` for other folders.

    It is `sigmoid`, `linear` or, for several outputs, `softmax`; without a name,
    `sigmoid` for a single output.

    Args:
        folder: may hold the files of sentence-transformers 5 and later.
        config: its parsed `config.json`.

    Raises:
        CheckpointError: it applies another function, or puts a prompt before texts.
    """
    entry, files = config.get("sentence_transformers"), _settings(folder)
    places = (
        (files, "activation_fn") if files.get("model_type") == "CrossEncoder" else None,
        (entry, "activation_fn") if isinstance(entry, dict) else None,
        (config, "sbert_ce_default_activation_function"),
    )
    held = [place for place in places if place is not None]
    found = [str(values[key]) for values, key in held if values.get(key) is not None]
    if not found and len(held) == 1:
        return None
    prompt = _pair_prompts(folder).get("default_prompt")
    if prompt is not None:
        raise CheckpointError(
            f"{folder / MODEL_SETTINGS}: `default_prompt_name` of a cross-encoder must "
            "be null, since no prompt is put before its texts here; received "
            f"{one_line(prompt)}"
        )
    names = config.get("id2label")
    is_single = isinstance(names, dict) and len(names) == 1
    if not found:
        return "sigmoid" if is_single else "linear"
    allowed = _SCORE_ACTIVATIONS if is_single else _CLASS_ACTIVATIONS
    return _activation(folder, found[0], allowed)


def unused_prompts(folder: Path) -> list[str]:
    """Return the names of a cross-encoder's prompts."""
    found = _pair_prompts(folder).get("prompts", {})
    return [name for name, text in found.items() if text]


def _pair_prompts(folder: Path) -> dict[str, Any]:
    """Return what `_prompts` finds in a cross-encoder's folder; empty for others."""
    is_pairs = _settings(folder).get("model_type") == "CrossEncoder"
    return _prompts(folder) if is_pairs else {}


def pair_scores(config: Mapping[str, Any]) -> str | None:
    """Return what `pair_activation` found, from a config with our entry."""
    found: str | None = (config.get(KEY) or {}).get("cross_encoder")
    return found


def sentence_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `read_sentence_files` found, from a config with our entry."""
    found: dict[str, Any] = (config.get(KEY) or {}).get("sentence") or {}
    return found


def pair_entry(activation: str) -> dict[str, Any]:
    """Return the entry of `config.json` that gives `CrossEncoder` its activation."""
    return {"sentence_transformers": {"activation_fn": _TORCH[activation]}}


def read_sentence_files(folder: Path) -> dict[str, Any]:
    """Return how a text becomes a vector, according to a folder's files.

    Returns:
        `kind` sparse for a `SparseEncoder`; `pooling`, modes with `+` between;
        `normalize`; and if given `max_length`,
        `dense` (for each layer `units`, `activation` and `use_bias`), `prompts` by
        name, `default_prompt`, `truncate_dim`, and `include_prompt` if it is false: the
        tokens of prompts are not pooled. Empty if the folder holds only an encoder,
        without `modules.json` or with the `modules.json` of a cross-encoder.

    Raises:
        CheckpointError: a file is broken, or requires a step that is not supported.
    """
    if not (folder / MODULES).is_file():
        return {}
    steps = _steps(folder / MODULES)
    kinds = ["Transformer" if kind in _ENCODERS else kind for kind, _ in steps]
    if kinds[1:] == [_SPLADE]:
        return _sparse(folder, folder / steps[1][1] / CONFIG)
    if _settings(folder).get("model_type") == "CrossEncoder":
        return {}
    dense = kinds[2:-1] if kinds[-1:] == ["Normalize"] else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or set(dense) - {"Dense"}:
        raise CheckpointError(
            f"{folder / MODULES}: must name the steps Transformer, Pooling and perhaps "
            f"Dense and Normalize; names {one_line(', '.join(kinds)) or 'none'}"
        )
    found: dict[str, Any] = {
        "pooling": _pooling(folder / steps[1][1] / "config.json"),
        "normalize": kinds[-1] == "Normalize",
    }
    _check_texts_are_unchanged(folder)
    layers = tuple(_dense(folder / steps[2 + i][1]) for i in range(len(dense)))
    found |= {"dense": layers} if layers else {}
    found |= _prompts(folder)
    short = _settings(folder).get("truncate_dim")
    if short is not None:
        if type(short) is not int or short < 1:
            raise CheckpointError(
                f"{folder / MODEL_SETTINGS}: `truncate_dim` must be a whole number of "
                f"at least 1; received {one_line(short)}"
            )
        found["truncate_dim"] = short
    if _entry(folder / steps[1][1] / "config.json", "include_prompt") is False:
        found["include_prompt"] = False
    length = text_length(folder)
    return found if length is None else {**found, "max_length": length}


def _sparse(folder: Path, path: Path) -> dict[str, Any]:
    """Return the settings of a `SparseEncoder` with a masked-LM head."""
    for key, used in (("pooling_strategy", "max"), ("activation_function", "relu")):
        given = _entry(path, key)
        if given not in (None, used):
            raise CheckpointError(
                f"{path}: `{key}` must be {used}; received {one_line(given)}"
            )
    _check_texts_are_unchanged(folder)
    found = {"kind": "sparse", "pooling": "max", "normalize": False}
    length = text_length(folder)
    found |= {} if length is None else {"max_length": length}
    return {**found, **_prompts(folder)}


def unused_similarity(folder: Path, sentence: Mapping[str, Any]) -> str | None:
    """Return the measure of a folder unless its vectors are compared by it.

    Sparse ones are compared by dot product, others by cosine, which the dot product of
    normalized vectors is. `sentence` is what `read_sentence_files` returned.
    """
    measure = similarity(folder)
    if sentence.get("kind") == "sparse":
        return None if measure in (None, "dot") else one_line(measure)
    is_cosine = (
        measure in (None, "cosine") or measure == "dot" and sentence.get("normalize")
    )
    return None if is_cosine else one_line(measure)


def similarity(folder: Path) -> Any:
    """Return the measure by which a folder's vectors are compared, if it names one."""
    return _settings(folder).get("similarity_fn_name")


def text_length(folder: Path) -> int | None:
    """Return the longest text of a folder of sentence-transformers, in tokens."""
    for name, key in _LENGTHS:
        length = _entry(encoder_folder(folder) / name, key)
        if type(length) is int and 3 <= length < _NO_LIMIT:
            return length
    return None


def dense_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return the weights of a folder's `Dense` layers under canonical names."""
    chosen: dict[str, StoredTensor] = {}
    places = [place for kind, place in _steps(folder / MODULES) if kind == "Dense"]
    for number, place in enumerate(places):
        for name, tensor in _stored(folder / place).items():
            ours = {"linear.weight": "kernel", "linear.bias": "bias"}.get(name)
            if ours is None:
                raise CheckpointError(
                    f"{folder / place}: must hold linear.weight and linear.bias; "
                    f"holds {one_line(name)}"
                )
            scope = f"{DENSE_SCOPE}{number}/{ours}"
            choose(chosen, scope, tensor, transpose=ours == "kernel")
    return chosen


def _stored(folder: Path) -> dict[str, StoredTensor]:
    if (folder / "model.safetensors").is_file():
        return stored_tensors(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").is_file():
        from bert_keras.checkpoints import pickled_file  # needs torch

        return pickled_file.stored_tensors(folder / "pytorch_model.bin")
    raise CheckpointError(f"{folder}: contains no model.safetensors")


def write_sentence_files(
    folder: Path,
    *,
    hidden_size: int,
    pooling: str,
    normalize: bool,
    max_length: int,
    dense: Sequence[Mapping[str, Any]] = (),
    prompts: Mapping[str, str] | None = None,
    default_prompt: str = "",
    include_prompt: bool = True,
    truncate_dim: int = 0,
    kind: str = "dense",
    measure: str | None = None,
) -> None:
    """Write the files next to an encoder, so that sentence-transformers can open it.

    The arguments are what `read_sentence_files` returns, and `measure`, by which
    vectors are compared: by default the dot product of sparse ones, else cosine. A
    prompt `passage` or `corpus` is written as `document`, too: since version 5, they
    read no other.
    """
    count = len(dense)
    kinds = ["Transformer", "Pooling", *["Dense"] * count, "Normalize"]
    kinds = kinds if normalize else kinds[:-1]
    is_sparse = kind == "sparse"
    module = "sentence_transformers.models"
    if is_sparse:
        kinds = [_SPARSE_ENCODER, _SPLADE]
        module = "sentence_transformers.sparse_encoder.models"
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{name}" if index else "",
            "type": f"{module}.{name}",
        }
        for index, name in enumerate(kinds)
    ]
    modes = pooling.split("+")
    pooled: dict[str, Any] = {"word_embedding_dimension": hidden_size}
    pooled |= {key: mode in modes for key, mode in _OLD_KEYS.items()}
    if modes != [mode for mode in _OLD_KEYS.values() if mode in modes]:
        pooled = {"word_embedding_dimension": hidden_size, "pooling_mode": modes}
    pooled |= {} if include_prompt else {"include_prompt": False}
    settings = {"max_seq_length": max_length, "do_lower_case": False}
    _write(folder / MODULES, modules)
    _write(folder / SETTINGS, settings)
    texts = dict(prompts or {})
    for name in DOCUMENT_PROMPTS:
        if name in texts:
            texts.setdefault("document", texts[name])
    prompting: dict[str, Any] = {"prompts": texts}
    prompting |= {"default_prompt_name": default_prompt} if default_prompt else {}
    prompting |= {"truncate_dim": truncate_dim} if truncate_dim else {}
    prompting |= {"model_type": "SparseEncoder"} if is_sparse else {}
    measure = measure or ("dot" if is_sparse else "cosine")
    _write(folder / MODEL_SETTINGS, {**prompting, "similarity_fn_name": measure})
    if is_sparse:
        how = {"pooling_strategy": "max", "activation_function": "relu"}
        _write(folder / f"1_{_SPLADE}" / CONFIG, how)
        return
    _write(folder / POOLING / "config.json", pooled)
    width = hidden_size * len(modes)
    for number, layer in enumerate(dense):
        values = {
            "in_features": width,
            "out_features": layer["units"],
            "bias": layer["use_bias"],
            "activation_function": _TORCH[layer["activation"]],
        }
        width = layer["units"]
        _write(folder / _dense_place(number) / "config.json", values)


def write_dense(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the weights of `Dense` layers, by canonical name, beside their configs."""
    for number in range(len({name.split("/")[0] for name in arrays})):
        scope, place = f"{DENSE_SCOPE}{number}/", folder / _dense_place(number)
        values = {"linear.weight": np.ascontiguousarray(arrays[f"{scope}kernel"].T)}
        if f"{scope}bias" in arrays:
            values["linear.bias"] = arrays[f"{scope}bias"]
        write_tensors(place / "model.safetensors", values)


def _dense_place(number: int) -> str:
    return f"{number + 2}_Dense"


def _dense(folder: Path) -> dict[str, Any]:
    """Return the settings of a `Dense` layer."""
    path = folder / "config.json"
    config = read_json(path)
    units, has_bias = config.get("out_features"), config.get("bias", True)
    if type(units) is not int or not 0 < units < 1 << 16 or type(has_bias) is not bool:
        raise CheckpointError(f"{path}: must hold `out_features` and `bias`")
    names = [config.get(key) for key in ("module_input_name", "module_output_name")]
    if config.get("use_residual") or set(names) - {None, "sentence_embedding"}:
        raise CheckpointError(f"{path}: must be a plain layer on the text's vector")
    name = config.get("activation_function", _TORCH["tanh"])
    return {
        "units": units,
        "activation": _activation(path, str(name), _DENSE_ACTIVATIONS),
        "use_bias": has_bias,
    }


def _activation(place: Path, name: str, allowed: Sequence[str]) -> str:
    """Return our name of an activation of torch."""
    names = {theirs.rpartition(".")[2]: ours for theirs, ours in _ACTIVATIONS.items()}
    ours = names.get(name.rpartition(".")[2]) if name.startswith("torch.") else None
    if ours is None or ours not in allowed:
        known = ", ".join(_TORCH[each].rpartition(".")[2] for each in allowed)
        raise CheckpointError(
            f"{place}: the activation must be {known} of torch.nn; received "
            f"{one_line(name)}"
        )
    return ours


def _prompts(folder: Path) -> dict[str, Any]:
    """Return `prompts` and `default_prompt`, where a folder has some.

    An empty prompt is kept beside others: an empty `document` is not `passage`.
    """
    settings, path = _settings(folder), folder / MODEL_SETTINGS
    prompts, default = (
        settings.get("prompts") or {},
        settings.get("default_prompt_name"),
    )
    if not isinstance(prompts, dict) or not all(
        text is None or isinstance(text, str) for text in prompts.values()
    ):
        raise CheckpointError(f"{path}: `prompts` must map names to texts")
    used = {name: text or "" for name, text in prompts.items()}
    if default is not None and default not in prompts:
        raise CheckpointError(
            f"{path}: `default_prompt_name` must be one of `prompts`, "
            f"{one_line(', '.join(prompts)) or 'none'}; received {one_line(default)}"
        )
    found: dict[str, Any] = {"prompts": used} if any(used.values()) else {}
    return {**found, "default_prompt": default} if used.get(default) else found


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / MODEL_SETTINGS
    return read_json(path) if path.is_file() else {}


def _steps(path: Path) -> list[tuple[str, str]]:
    """Return kind and folder of each step, in order."""
    rows = read_json(path, kind=list)
    try:
        steps = [
            (row["type"].rpartition(".")[2], row["path"])
            for row in sorted(rows, key=lambda row: row["idx"])
        ]
    except (TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{path}: must be a JSON list of steps with `idx`, `path` and `type`: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from None
    for _, place in steps:
        if not isinstance(place, str) or "/" in place or "\\" in place or place == "..":
            raise CheckpointError(
                f"{path}: `path` must be an adjacent folder; received {one_line(place)}"
            )
    return steps


def _pooling(path: Path) -> str:
    """Return the pooling that a config enables; several have `+` between."""
    config = read_json(path)
    modes = config.get("pooling_mode")
    if modes is None:
        old = [key for key in config if key.startswith("pooling_mode_") and config[key]]
        known = [mode for key, mode in _OLD_KEYS.items() if key in old]
        modes = known + [key for key in old if key not in _OLD_KEYS] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    if (
        not isinstance(modes, list | tuple)
        or not all(isinstance(mode, str) and mode in POOLINGS for mode in modes)
        or not modes
    ):
        raise CheckpointError(
            f"{path}: the pooling must be of {', '.join(POOLINGS)}; "
            f"received {one_line(modes)}"
        )
    return "+".join(modes)


def _check_texts_are_unchanged(folder: Path) -> None:
    """Raise if texts are lower-cased though their tokenizer is not."""
    folder = encoder_folder(folder)
    path = folder / SETTINGS
    cased = _entry(folder / "tokenizer_config.json", "do_lower_case") is False
    if cased and _entry(path, "do_lower_case"):
        raise CheckpointError(
            f"{path}: `do_lower_case` must be false where the tokenizer keeps capital "
            "letters; received true"
        )


def _entry(path: Path, key: str) -> Any:
    """Return an entry of a JSON file, `None` where there is no file."""
    return read_json(path).get(key) if path.is_file() else None


def _write(path: Path, values: Mapping[str, Any] | list[Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
