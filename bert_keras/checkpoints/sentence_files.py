"""The small files that make an encoder's folder a sentence-transformers model.

`modules.json` lists the steps after the encoder: `1_Pooling/config.json` describes how
tokens become one vector, a folder `2_Dense` holds a layer on it, `2_Normalize` scales
it to length 1; the last `Dense` may be the head of a task; `sentence_bert_config.json`
holds the maximum text length, and `config_sentence_transformers.json` the prompts. The
encoder is in the folder itself or, in older ones, in a subfolder such as
`0_Transformer`. A cross-encoder has an entry in its `config.json`, or a `modules.json`
with the encoder alone. Read and written as by sentence-transformers 2 to 6.
"""

from __future__ import annotations

import contextlib
import json
import string
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints.checkpoint import StoredTensor, choose
from bert_keras.checkpoints.safetensors_file import stored_tensors, write_tensors
from bert_keras.checkpoints.sentence_modules import (
    CONFIG,
    DENSE,
    ENCODERS,
    LATE_INTERACTION,
    MASK,
    MASKED_LM,
    MODEL_KEYS,
    PAIRS,
    PYLATE,
    PYLATE_KEYS,
    SETTINGS,
    SPARSE,
    SPLADE,
    TOKENS,
    Step,
    chain_of,
    check_encoder_module,
    check_keys,
    is_late_interaction,
    steps_of,
    token_chain_of,
)
from bert_keras.checkpoints.sentence_modules import MODULES as MODULE_TABLE
from bert_keras.checkpoints.sentence_modules import MODULES_FILE as MODULES
from bert_keras.config import DENSE_SCOPE, KEY
from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.json_file import read_json
from bert_keras.settings import DOCUMENT_PROMPTS, OWN_LENGTHS, POOLINGS

MODEL_SETTINGS = "config_sentence_transformers.json"
_HEAD_SCOPE = "classifier"  # of a `Dense` that is the head of a task
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
# The weights of a `Dense` there and here.
_DENSE_NAMES = {
    "linear.weight": "kernel",
    "linear.bias": "bias",
    "residual.weight": "residual",
}
_MODEL_TYPES = {"sparse": SPARSE, "tokens": LATE_INTERACTION}
_MEASURES = {"sparse": "dot", "tokens": "maxsim"}
_OWN = {"Dense": "pylate.models.Dense"}  # the places of PyLate's modules
_BASE = {  # the places of the modules of all kinds of models, since version 6
    "Transformer": "sentence_transformers.base.modules.transformer",
    DENSE: "sentence_transformers.base.modules.dense",
    "Normalize": "sentence_transformers.base.modules.normalize",
}
_NO_LIMIT = 1 << 20  # tokenizers without one say 1e30
_LENGTHS = ((SETTINGS, "max_seq_length"), ("tokenizer_config.json", "model_max_length"))


def encoder_folder(folder: Path) -> Path:
    """Return where a folder's encoder is: the folder itself, or one that it names."""
    if not (folder / MODULES).is_file():
        return folder
    with contextlib.suppress(CheckpointError):  # `read_sentence_files` raises it
        for step in steps_of(folder)[:1]:
            if step.kind in ENCODERS and (step.path / CONFIG).is_file():
                return step.path
    return folder


def pair_activation(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return what a cross-encoder applies to its outputs; `None` for other folders.

    It is `sigmoid`, `linear` or, for several outputs, `softmax`; without a name,
    `sigmoid` for a single output.

    Args:
        folder: may hold the files of sentence-transformers 5 and later.
        config: its parsed `config.json`.

    Raises:
        CheckpointError: it applies another function, puts a prompt before texts, or
            has other modules than the encoder with its head.
    """
    entry, files = config.get("sentence_transformers"), _settings(folder)
    places = (
        (files, "activation_fn") if files.get("model_type") == PAIRS else None,
        (entry, "activation_fn") if isinstance(entry, dict) else None,
        (config, "sbert_ce_default_activation_function"),
    )
    if places[0] is not None:
        _check_pair_modules(folder)
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
    is_pairs = _settings(folder).get("model_type") == PAIRS
    return _prompts(folder) if is_pairs else {}


def _check_pair_modules(folder: Path) -> None:
    """Raise unless a cross-encoder's modules are the encoder with its head alone."""
    if not (folder / MODULES).is_file():
        return
    steps = steps_of(folder)
    kinds = [step.kind for step in steps]
    if len(kinds) != 1 or kinds[0] not in ENCODERS:
        raise CheckpointError(
            f"{folder / MODULES}: must name the step Transformer alone for a "
            f"cross-encoder; names {one_line(', '.join(kinds)) or 'none'}"
        )
    check_encoder_module(steps[0], PAIRS)


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


def read_sentence_files(folder: Path, *, head: int = 0) -> dict[str, Any]:
    """Return how a text becomes a vector, according to a folder's files.

    Args:
        folder: the folder.
        head: above 0: the last `Dense` is the head of a task with so many outputs, and
            no part of the vector.

    Returns:
        `kind` sparse for a `SparseEncoder`, tokens for a `MultiVectorEncoder`, which
        may have `skip_words`, `query_expansion`, `attend_expansion` and `marks`, texts
        that PyLate reads as one token; `pooling`, modes with `+` between;
        `normalize`; and if given `max_length`, `query_length` and `document_length`,
        `dense` (for each layer what `Embedding` takes), `prompts` by name,
        `default_prompt`, `truncate_dim`, `include_prompt` if it is false: the tokens of
        prompts are not pooled; `head`; and `unused`, lines about modules without an
        effect.
        Empty if the folder holds only an encoder, without `modules.json` or with the
        `modules.json` of a cross-encoder.

    Raises:
        CheckpointError: a file is broken, or requires a step that is not supported.
    """
    if not (folder / MODULES).is_file():
        return {}
    kinds, settings = [step.kind for step in steps_of(folder)], _settings(folder)
    if settings.get("model_type") == PAIRS:
        return {}
    if is_late_interaction(kinds, settings):
        return _token_vectors(folder)
    is_sparse = len(kinds) == 2 and kinds[0] in ENCODERS and kinds[1] == SPLADE
    found = _sparse(folder) if is_sparse else _dense_vectors(folder, head)
    _check_texts_are_unchanged(folder)
    return found | _prompts(folder) | _lengths(folder) | _longest(folder)


def _longest(folder: Path) -> dict[str, int]:
    length = text_length(folder)
    return {} if length is None else {"max_length": length}


def _dense_vectors(folder: Path, head: int) -> dict[str, Any]:
    """Return the settings of a `SentenceTransformer`, but prompts and lengths."""
    chain = chain_of(folder, has_head=head > 0)
    pooled = chain.pooling
    found: dict[str, Any] = {
        "pooling": _pooling(pooled.path / CONFIG),
        "normalize": chain.normalize,
    }
    layers = tuple(
        _dense(step, on_tokens=number < chain.on_tokens)
        for number, step in enumerate(chain.dense)
    )
    found |= {"dense": layers} if layers else {}
    if chain.head is not None:
        layer = _dense(chain.head, on_tokens=False)
        if layer != _head_layer(head):
            raise CheckpointError(
                f"{chain.head.path / CONFIG}: must be the linear head of the task, "
                f"with a bias and {head:,} outputs; received {one_line(layer)}"
            )
        found["head"] = head
    short = _settings(folder).get("truncate_dim")
    if short is not None:
        if type(short) is not int or short < 1:
            raise CheckpointError(
                f"{folder / MODEL_SETTINGS}: `truncate_dim` must be a whole number of "
                f"at least 1; received {one_line(short)}"
            )
        found["truncate_dim"] = short
    found |= (
        {} if pooled.config.get("include_prompt", True) else {"include_prompt": False}
    )
    return found | ({"unused": chain.unused} if chain.unused else {})


def _sparse(folder: Path) -> dict[str, Any]:
    """Return the settings of a `SparseEncoder` with a masked-LM head."""
    encoder, pooling = steps_of(folder)
    check_encoder_module(encoder, SPARSE)
    path = pooling.path / CONFIG
    check_keys(path, SPLADE, read_json(path), MODULE_TABLE[SPLADE].keys)
    most = {"max_active_dims": _settings(folder).get("max_active_dims")}
    check_keys(folder / MODEL_SETTINGS, SPARSE, most, MODEL_KEYS)
    return {"kind": "sparse", "pooling": "max", "normalize": False}


def _token_vectors(folder: Path) -> dict[str, Any]:
    """Return the settings of a `MultiVectorEncoder`, or of a model of PyLate."""
    chain, settings = token_chain_of(folder), _settings(folder)
    _check_texts_are_unchanged(folder)
    encoder = encoder_folder(folder) / SETTINGS
    found = {"kind": "tokens", "pooling": "mean", "normalize": chain.normalize}
    found |= {"unused": chain.unused} if chain.unused else {}
    dense = tuple(_dense(step, on_tokens=True) for step in chain.dense)
    found |= {"dense": dense} if dense else {}
    words = chain.mask.config.get("skiplist_words") if chain.mask else None
    lengths, expansion = _lengths(folder), _entry(encoder, "query_expansion")
    prompts = _prompts(folder)
    is_pylate = settings.get("model_type") == PYLATE or "query_prefix" in settings
    if is_pylate:
        own = {key: each for key, each in settings.items() if key in PYLATE_KEYS}
        check_keys(folder / MODEL_SETTINGS, PYLATE, own, PYLATE_KEYS)
        found["normalize"], words = True, settings.get("skiplist_words")
        words = list(string.punctuation) if words is None else words
        held = {n: settings.get(n) for n in OWN_LENGTHS}
        # PyLate has both lengths; one that is the longest text's says nothing.
        none = (None, _longest(folder).get("max_length"))
        lengths |= {name: each for name, each in held.items() if each not in none}
        expansion = settings.get("query_expansion")
        if "query_expansion" not in settings and (
            settings.get("do_query_expansion") is not False
        ):
            expansion = {
                "strategy": "fixed",
                "attend": bool(settings.get("attend_to_expansion_tokens")),
                "length": held["query_length"] or 32,
            }
        prefixes = {
            name: settings.get(f"{name}_prefix") or "" for name in ("query", "document")
        }
        texts = prompts.get("prompts", {})
        for name, each in prefixes.items():
            if each:
                texts[name] = each + texts.get(name, "").removeprefix(each)
        prompts |= {"prompts": texts} if any(texts.values()) else {}
        found["marks"] = [each for each in prefixes.values() if each]
    elif expansion and chain.mask is None:
        raise CheckpointError(
            f"{folder / MODULES}: must name {MASK} where {SETTINGS} has "
            "`query_expansion`, whose vectors count by it"
        )
    if expansion:
        most = expansion["length"]
        found |= {"query_expansion": most}
        found |= {"attend_expansion": True} if expansion.get("attend") else {}
        if expansion["strategy"] == "fixed":
            lengths["query_length"] = most
    found |= {"skip_words": tuple(words)} if words else {}
    return found | prompts | lengths | _longest(folder)


def _lengths(folder: Path) -> dict[str, int]:
    """Return the lengths of queries and of documents, where a folder has some."""
    path = encoder_folder(folder) / SETTINGS
    found = {name: _entry(path, name) for name in OWN_LENGTHS}
    return {name: length for name, length in found.items() if length is not None}


def unused_similarity(folder: Path, sentence: Mapping[str, Any]) -> str | None:
    """Return the measure of a folder unless its vectors are compared by it.

    Sparse ones are compared by dot product, others by cosine, which the dot product of
    normalized vectors is. `sentence` is what `read_sentence_files` returned.
    """
    measure = similarity(folder)
    if sentence.get("kind") == "sparse":
        return None if measure in (None, "dot") else one_line(measure)
    if sentence.get("kind") == "tokens":
        is_mean = str(measure).casefold() == "meanmaxsim"
        return one_line(measure) if is_mean else None
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
    for number, step in enumerate(_dense_steps(folder)):
        chosen |= _layer_tensors(step, f"{DENSE_SCOPE}{number}")
    return chosen


def _dense_steps(folder: Path) -> tuple[Step, ...]:
    """Return the `Dense` modules on the tokens or on the text's vector."""
    kinds = [step.kind for step in steps_of(folder)]
    if is_late_interaction(kinds, _settings(folder)):
        return token_chain_of(folder).dense
    return chain_of(folder).dense


def head_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return the weights of the `Dense` that is a task's head under canonical names."""
    step = chain_of(folder, has_head=True).head
    return {} if step is None else _layer_tensors(step, _HEAD_SCOPE)


def _layer_tensors(step: Step, scope: str) -> dict[str, StoredTensor]:
    chosen: dict[str, StoredTensor] = {}
    for name, tensor in _stored(step.path).items():
        ours = _DENSE_NAMES.get(name)
        if ours is None:
            raise CheckpointError(
                f"{step.path}: must hold {', '.join(_DENSE_NAMES)} alone; holds "
                f"{one_line(name)}"
            )
        choose(chosen, f"{scope}/{ours}", tensor, transpose=ours != "bias")
    return chosen


def _head_layer(units: int) -> dict[str, Any]:
    """Return the settings of the `Dense` of a task's outputs, which are logits."""
    return {"units": units, "activation": "linear", "use_bias": True}


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
    query_length: int = 0,
    document_length: int = 0,
    skip_words: Sequence[str] = (),
    query_expansion: int = 0,
    attend_expansion: bool = False,
    head: int = 0,
    measure: str | None = None,
    vocabulary: Collection[str] = (),
    marks: Collection[str] = (),
) -> None:
    """Write the files next to an encoder, so that sentence-transformers can open it.

    The arguments are what `read_sentence_files` returns, and `measure`, by which
    vectors are compared: by default the dot product of sparse ones, MaxSim of tokens,
    else cosine. A prompt `passage` or `corpus` is written as `document`, too: since
    version 5, they read no other. Vectors of tokens are written in PyLate's form, which
    both read, if it has these settings, the `vocabulary` has the words that are left
    out, and the prompts are among the `marks`, tokens that are found in any text.
    """
    if head:
        dense = [*dense, _head_layer(head)]
    for_pylate = None
    if (
        kind == "tokens"
        and {*skip_words} <= {*vocabulary}
        and {text.strip() for text in (prompts or {}).values()} <= {"", *marks}
        and normalize
        and dense
        and not default_prompt
    ):
        for_pylate = _pylate_settings(
            prompts or {},
            skip_words=skip_words,
            query_length=query_length or max_length,
            document_length=document_length or max_length,
            query_expansion=query_expansion,
            attend_expansion=attend_expansion,
        )
    lengths: dict[str, Any] = {"max_seq_length": max_length, "do_lower_case": False}
    if for_pylate is not None:
        settings = for_pylate
        modules = _entries(["Transformer", *[DENSE] * len(dense)], _OWN)
        dense = [{**layer, "on_tokens": False} for layer in dense]  # there all are
    else:
        modules = _modules(kind, dense, normalize=normalize, head=bool(head))
        lengths |= {"query_length": query_length} if query_length else {}
        lengths |= {"document_length": document_length} if document_length else {}
        if query_expansion:
            is_fixed = query_length == query_expansion
            lengths["query_expansion"] = {
                "strategy": "fixed" if is_fixed else "min",
                "attend": attend_expansion,
                "token": None,
                "length": query_expansion,
            }
        texts = dict(prompts or {})
        for name in DOCUMENT_PROMPTS:
            if name in texts:
                texts.setdefault("document", texts[name])
        settings = {"prompts": texts}
        settings |= {"default_prompt_name": default_prompt} if default_prompt else {}
        settings |= {"truncate_dim": truncate_dim} if truncate_dim else {}
        settings |= {"model_type": _MODEL_TYPES[kind]} if kind in _MODEL_TYPES else {}
        settings["similarity_fn_name"] = measure or _MEASURES.get(kind, "cosine")
    _write(folder / MODULES, modules)
    _write(folder / SETTINGS, lengths)
    _write(folder / MODEL_SETTINGS, settings)
    layers, width, modes = iter(dense), hidden_size, pooling.split("+")
    for step in steps_of(folder):
        found: dict[str, Any] = {}
        if step.kind == MASK:
            found = {"skiplist_words": [*skip_words]}
        elif step.kind == "Normalize" and kind == "tokens":
            found = {"module_input_name": TOKENS}
        elif step.kind == SPLADE:
            found = {"pooling_strategy": "max", "activation_function": "relu"}
        elif step.kind == "Pooling":
            found = _pooling_config(modes, width, include_prompt=include_prompt)
            width *= len(modes)
        elif step.kind == DENSE:
            layer = next(layers)
            found = _dense_config(layer, width)
            width = layer["units"]
        if found:
            _write(step.path / CONFIG, found)


def _modules(
    kind: str, dense: Sequence[Mapping[str, Any]], *, normalize: bool, head: bool
) -> list[dict[str, Any]]:
    """Return the entries of `modules.json`; with a head, the last layer is above."""
    last = [DENSE] if head else []
    on_tokens = sum(1 for layer in dense if layer.get("on_tokens"))
    above = len(dense) - on_tokens - len(last)
    normal = ["Normalize"] if normalize else []
    kinds = ["Transformer", *[DENSE] * on_tokens, "Pooling", *[DENSE] * above]
    kinds += [*normal, *last]
    module, base = "sentence_transformers.models", {}
    if kind == "sparse":
        kinds = [MASKED_LM, SPLADE]
        module = "sentence_transformers.sparse_encoder.models"
    elif kind == "tokens":
        kinds = ["Transformer", *[DENSE] * len(dense), MASK, *normal]
        module, base = "sentence_transformers.multi_vector_encoder.modules", _BASE
    return _entries(kinds, base, module)


def _entries(
    kinds: Sequence[str],
    places: Mapping[str, str],
    other: str = "sentence_transformers.models",
) -> list[dict[str, Any]]:
    """Return the entries of `modules.json` by the places of the kinds' classes."""
    return [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{name}" if index else "",
            "type": f"{places.get(name, other)}.{name}",
        }
        for index, name in enumerate(kinds)
    ]


def _pylate_settings(
    prompts: Mapping[str, str],
    *,
    skip_words: Sequence[str],
    query_length: int,
    document_length: int,
    query_expansion: int,
    attend_expansion: bool,
) -> dict[str, Any] | None:
    """Return PyLate's settings of a model; `None` if PyLate would read it otherwise.

    It expands queries to their whole length, and has no other prompts.
    """
    marks = {name: text.strip() for name, text in prompts.items() if text.strip()}
    names = marks.keys() <= {"query", "document"}
    if not names or query_expansion not in (0, query_length):
        return None
    return {
        "model_type": PYLATE,
        "prompts": dict(prompts),
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": marks.get("query", ""),
        "document_prefix": marks.get("document", ""),
        "query_length": query_length,
        "document_length": document_length,
        "do_query_expansion": bool(query_expansion),
        "attend_to_expansion_tokens": attend_expansion,
        "skiplist_words": [*skip_words],
    }


def _pooling_config(
    modes: list[str], width: int, *, include_prompt: bool
) -> dict[str, Any]:
    """Return the settings of `Pooling` on vectors of a width."""
    found: dict[str, Any] = {"word_embedding_dimension": width}
    if modes == [mode for mode in _OLD_KEYS.values() if mode in modes]:
        found |= {key: mode in modes for key, mode in _OLD_KEYS.items()}
    else:
        found["pooling_mode"] = modes
    return found if include_prompt else {**found, "include_prompt": False}


def _dense_config(layer: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return the settings of a `Dense` on vectors of a width."""
    found = {
        "in_features": width,
        "out_features": layer["units"],
        "bias": layer["use_bias"],
        "activation_function": _TORCH[layer["activation"]],
    }
    found |= {"module_input_name": TOKENS} if layer.get("on_tokens") else {}
    return found | ({"use_residual": True} if layer.get("use_residual") else {})


def write_dense(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the weights of `Dense` layers, by canonical name, beside their configs."""
    for number, step in enumerate(_dense_steps(folder) if arrays else ()):
        _write_layer(step, f"{DENSE_SCOPE}{number}", arrays)


def write_head(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the weights of a task's head, by canonical name, as a `Dense` module."""
    step = chain_of(folder, has_head=True).head
    if step is not None:
        _write_layer(step, _HEAD_SCOPE, arrays)


def _write_layer(step: Step, scope: str, arrays: Mapping[str, np.ndarray]) -> None:
    values = {
        theirs: np.ascontiguousarray(arrays[f"{scope}/{ours}"].T)  # a bias as it is
        for theirs, ours in _DENSE_NAMES.items()
        if f"{scope}/{ours}" in arrays
    }
    write_tensors(step.path / "model.safetensors", values)


def _dense(step: Step, *, on_tokens: bool) -> dict[str, Any]:
    """Return the settings of a `Dense` layer."""
    path, config = step.path / CONFIG, step.config
    if "out_features" not in config:
        raise CheckpointError(f"{path}: must hold `out_features`")
    name = config.get("activation_function", _TORCH["tanh"])
    found = {
        "units": config["out_features"],
        "activation": _activation(path, str(name), _DENSE_ACTIVATIONS),
        "use_bias": config.get("bias", True),
    }
    found |= {"use_residual": True} if config.get("use_residual") else {}
    return found | ({"on_tokens": True} if on_tokens else {})


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
    normalizer = _entry(folder / "tokenizer.json", "normalizer")
    if isinstance(normalizer, dict):
        cased = cased or normalizer.get("lowercase") is False
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
