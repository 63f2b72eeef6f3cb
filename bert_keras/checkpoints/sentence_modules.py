"""The modules that sentence-transformers 2 to 6 write: what is read of each.

`modules.json` lists the modules of a model; each has its settings in a folder. A module
reads one named feature of a text and writes one, such as `token_embeddings`, so what
reaches `sentence_embedding` is a chain. `MODULES` is the one table of modules and of
their settings: a setting that is not in it, or that has another value, is refused, and
so is a module that would change the vector and is not computed here.

Source: sentence-transformers 6.2, `config_keys` of the modules.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_keras.checkpoints.checkpoint import listed
from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.json_file import read_json

CONFIG = "config.json"
MODULES_FILE = "modules.json"
SETTINGS = "sentence_bert_config.json"
DENSE, VECTORS, SPARSE, PAIRS = (
    "Dense",
    "SentenceTransformer",
    "SparseEncoder",
    "CrossEncoder",
)
LATE_INTERACTION = "MultiVectorEncoder"
PYLATE = "ColBERT"  # PyLate's name of the same kind of model
MASK = "MultiVectorMask"
EXPANSIONS = ("fixed", "min")  # of queries: `fixed` truncates them to the length, too
SPLADE, MASKED_LM = "SpladePooling", "MLMTransformer"
ENCODERS = ("Transformer", "BERT", MASKED_LM)  # `BERT` up to version 0.2
TOKENS, TEXT = "token_embeddings", "sentence_embedding"
_ROUTERS = {"Router": "router_config.json", "Asym": CONFIG}  # `Asym` up to version 4
# What a module cannot write: other modules read it.
_TAKEN = ("input_ids", "attention_mask", "token_type_ids", "prompt_length", "modality")
_LEAST_LENGTH = 3  # [CLS], a token and [SEP]
# `transformer_task`, the output and the feature of each kind of model.
_TASKS = {
    VECTORS: ("feature-extraction", "last_hidden_state", TOKENS),
    SPARSE: ("fill-mask", "logits", TOKENS),
    LATE_INTERACTION: ("feature-extraction", "last_hidden_state", TOKENS),
    PAIRS: ("sequence-classification", "logits", "scores"),
}
# Of transformers' `from_pretrained`: where and in which precision weights are read.
_LOADING = {
    *("add_pooling_layer", "attn_implementation", "device_map", "dtype"),
    *("low_cpu_mem_usage", "torch_dtype", "trust_remote_code", "use_safetensors"),
}

# A rule returns what a value must be, or "" where the value is honoured.
Rule = Callable[[Any], str]


def _any(value: Any) -> str:
    """Honour any value: it is read, or has no effect on the answers for texts."""
    return ""


def _one_of(*allowed: Any) -> Rule:
    words = " or ".join("null" if each is None else str(each) for each in allowed)
    return lambda value: (
        "" if value in allowed and type(value) in map(type, allowed) else words
    )


def _name(value: Any) -> str:
    is_name = value is None or isinstance(value, str) and value not in _TAKEN
    return "" if is_name else f"a name other than {', '.join(_TAKEN)}"


def _boolean(value: Any) -> str:
    return "" if type(value) is bool else "true or false"


def _length(value: Any) -> str:
    is_length = value is None or type(value) is int and value >= _LEAST_LENGTH
    return "" if is_length else f"null or a whole number of at least {_LEAST_LENGTH}"


def _expansion(value: Any) -> str:
    """Honour the padding of queries with `[MASK]`, see `LateInteraction`."""
    keys = {"strategy", "attend", "token", "length"}
    is_one = value is None or (
        isinstance(value, dict)
        and set(value) <= keys
        and value.get("strategy") in EXPANSIONS
        and type(value.get("length")) is int
        and value["length"] >= _LEAST_LENGTH
        and value.get("token") in (None, "[MASK]")
    )
    return "" if is_one else "null, or an object of strategy, length, attend, [MASK]"


def _words(value: Any) -> str:
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return "" if value is None or is_list else "a list of words"


def _text(value: Any) -> str:
    return "" if value is None or isinstance(value, str) else "a text"


def _only(*names: str) -> Rule:
    """Honour an object with these keys alone."""
    words = f"an object of {', '.join(sorted(names))} alone"

    def rule(value: Any) -> str:
        is_object = value is None or isinstance(value, dict)
        return "" if is_object and set(value or ()) <= set(names) else words

    return rule


def _of_text(output: str) -> Rule:
    """Honour a `modality_config` by which texts have this output of the model."""
    wanted = {"method": "forward", "method_output_name": output}

    def rule(value: Any) -> str:
        found = value.get("text") if isinstance(value, dict) else None
        if not isinstance(found, dict):
            return "an object with text"
        name = found.get("method_output_name")
        name = name[0] if isinstance(name, list) and len(name) == 1 else name
        is_it = found.get("method") == "forward" and name == output
        return "" if is_it else f"{json.dumps(wanted)} for text"

    return rule


def _transformer(kind: str) -> dict[str, Rule]:
    task, output, feature = _TASKS[kind]
    lengths = _any if kind == PAIRS else _length  # `predict` names no task
    return {
        "transformer_task": _one_of(task),
        "modality_config": _of_text(output),
        "module_output_name": _one_of(feature),
        "processing_kwargs": _only("audio", "chat_template", "image", "video"),
        "unpad_inputs": _any,  # the same values without padding
        "query_length": lengths,
        "document_length": lengths,
        "query_expansion": _expansion if kind == LATE_INTERACTION else _one_of(None),
        # Of the constructor, and of earlier versions.
        "max_seq_length": _any,
        "do_lower_case": _any,  # checked with the tokenizer
        **dict.fromkeys(("model_args", "model_kwargs"), _only(*_LOADING)),
        **dict.fromkeys(
            ("tokenizer_args", "processor_kwargs", "config_args", "config_kwargs"),
            _only("trust_remote_code"),
        ),
    }


ENCODER_KEYS = {kind: _transformer(kind) for kind in _TASKS}


@dataclasses.dataclass(frozen=True)
class Module:
    """What is read of a module of a name.

    Args:
        keys: the rule of each of its settings.
        without: what a module that is not computed does; empty for the others.
    """

    keys: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    without: str = ""


_NAMES: dict[str, Rule] = {"module_input_name": _name, "module_output_name": _name}
MODULES: dict[str, Module] = {
    **dict.fromkeys(("Transformer", "BERT"), Module(ENCODER_KEYS[VECTORS])),
    MASKED_LM: Module(ENCODER_KEYS[SPARSE]),
    "Pooling": Module(
        {
            # The width of the tokens' vectors; it is not used to compute.
            **dict.fromkeys(("embedding_dimension", "word_embedding_dimension"), _any),
            "pooling_mode": _any,  # the poolings are checked where they are read
            "include_prompt": _boolean,
        }
    ),
    DENSE: Module(
        {
            "in_features": _any,  # as the weights say
            "out_features": lambda value: (
                "" if type(value) is int and 0 < value < 1 << 16 else "from 1 to 65,535"
            ),
            "bias": _boolean,
            "activation_function": _any,  # checked where it is read
            "use_residual": _boolean,
            **_NAMES,
        }
    ),
    "Normalize": Module(_NAMES),
    "Dropout": Module({"dropout": _any}),  # of training
    SPLADE: Module(
        {
            "pooling_strategy": _one_of("max"),
            "activation_function": _one_of("relu"),
            **dict.fromkeys(("embedding_dimension", "word_embedding_dimension"), _any),
        }
    ),
    MASK: Module(
        {
            "skiplist_words": _words,
            "skiplist_tasks": lambda value: (
                "" if value in (None, "document", ["document"]) else '["document"]'
            ),
            "keep_only_token_ids": _one_of(None),
        }
    ),
    **{
        name: Module(without=what)
        for name, what in {
            "Router": "has an encoder for each kind of text",
            "Asym": "has an encoder for each kind of text",
            "LayerNorm": "normalizes the text's vector by mean and variance",
            "WeightedLayerPooling": "takes the weighted mean of the encoder's layers",
            "CNN": "is a convolution over the tokens",
            "LSTM": "is a recurrent network over the tokens",
            "WordEmbeddings": "has a table of words instead of an encoder",
            "WordWeights": "weights the tokens, as by their rarity",
            "BoW": "counts words instead of an encoder",
            "StaticEmbedding": "has a table of tokens instead of an encoder",
            "SparseStaticEmbedding": "has a table of tokens instead of an encoder",
            "SparseAutoEncoder": "makes dense vectors sparse",
            "BaseTokenPooling": "keeps a vector for each group of tokens",
            "HierarchicalTokenPooling": "keeps a vector for each group of tokens",
            "LambdaTokenPooling": "keeps a vector for each group of tokens",
            "LogitScore": "scores pairs by a language model's next token",
            "CLIPModel": "is an encoder of images and texts",
        }.items()
    },
}
_TOKEN_MODULES = {name for name in MODULES if "Token" in name or "MultiVector" in name}
# The settings of a whole model, in `config_sentence_transformers.json`.
MODEL_KEYS: dict[str, Rule] = {
    # Read, or checked, where they are used.
    "model_type": _any,
    "prompts": _any,
    "default_prompt_name": _any,
    "similarity_fn_name": _any,
    "truncate_dim": _any,
    "activation_fn": _any,
    # Without an effect on values in float32.
    "__version__": _any,
    "keep_in_fp32_modules": _any,
    "max_active_dims": _one_of(None),
}


# What PyLate has there, in place of settings of modules.
PYLATE_KEYS: dict[str, Rule] = {
    "query_prefix": _text,
    "document_prefix": _text,
    "query_length": _length,
    "document_length": _length,
    "query_expansion": _expansion,
    "skiplist_words": _words,
}


@dataclasses.dataclass(frozen=True)
class Step:
    """A module of a folder: its name, its folder, and its settings."""

    kind: str
    path: Path
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Chain:
    """What is computed from the tokens' vectors of the encoder to the text's vector.

    Args:
        pooling: the module that pools the tokens.
        dense: the `Dense` modules, in order; the first `on_tokens` of them are applied
            to the tokens, before the pooling.
        normalize: whether the text's vector is normalized at last.
        unused: lines about modules that have no effect on it.
        head: the `Dense` of a task's outputs on this vector, see `chain_of`.
    """

    pooling: Step
    dense: tuple[Step, ...]
    on_tokens: int
    normalize: bool
    unused: tuple[str, ...]
    head: Step | None = None


def steps_of(folder: Path) -> list[Step]:
    """Return the modules of `modules.json`, in order, without their settings."""
    path = folder / MODULES_FILE
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
    return [Step(kind, folder / place) for kind, place in steps]


def chain_of(folder: Path, *, has_head: bool = False) -> Chain:
    """Return the chain of a folder's modules.

    With `has_head`, the last step, a `Dense`, is the head of a task.

    Raises:
        CheckpointError: a module, or a setting of one, is not computed here.
    """
    steps = steps_of(folder)
    kinds = ["Transformer" if step.kind in ENCODERS else step.kind for step in steps]
    if kinds[:1] != ["Transformer"] or "Pooling" not in kinds:
        raise _unsupported(folder, steps)
    check_encoder_module(steps[0], VECTORS)
    features: dict[str, tuple[Step, ...]] = {TOKENS: ()}
    unused = []
    for step in steps[1:]:
        step = _checked(folder, step, steps)
        source, target = _names_of(step)
        if source not in features:
            if step.kind == "Normalize":  # as there
                continue
            raise CheckpointError(
                f"{step.path / CONFIG}: `module_input_name` of {step.kind} must be a "
                f"feature of an earlier module, {', '.join(features)}; received "
                f"{one_line(source)}"
            )
        if step.kind == "Dropout":
            rate = step.config.get("dropout")
            unused.append(f"the dropout {rate} of {step.path.name} is not used")
        else:
            features[target] = (*features[source], step)
    chain = _without_repeats(features.get(TEXT, ()))
    in_use = {id(step) for step in chain}
    for target, found in features.items():
        others = [step for step in found if id(step) not in in_use]
        in_use |= {id(step) for step in others}
        unused += [
            f"{step.path.name} is not used: no step reads its {target} to make the "
            "text's vector"
            for step in others
            if step.kind != "Pooling"
        ]
    if not has_head:
        return _parts(folder, steps, chain, unused)
    if not chain or chain[-1].kind != DENSE:
        raise CheckpointError(
            f"{folder / MODULES_FILE}: the last step must be the {DENSE} of the task's "
            f"outputs; names {listed([step.kind for step in steps])}"
        )
    below = _parts(folder, steps, chain[:-1], unused)
    return dataclasses.replace(below, head=chain[-1])


def _parts(
    folder: Path, steps: Sequence[Step], chain: Sequence[Step], unused: Sequence[str]
) -> Chain:
    """Return a chain whose order is one that is computed here."""
    kinds = [step.kind for step in chain]
    normalize = kinds[-1:] == ["Normalize"]
    dense = [step for step in chain if step.kind == DENSE]
    for step, kind in zip(chain[:-1], kinds[:-1], strict=True):
        if kind == "Normalize":
            source, target = _names_of(step)
            raise CheckpointError(
                f"{step.path / CONFIG}: Normalize must be the last step on the text's "
                f"vector; received `module_input_name` {one_line(source)} and "
                f"`module_output_name` {one_line(target)} before {kinds[-1]}"
            )
    if kinds.count("Pooling") != 1:
        raise _unsupported(folder, steps)
    place = kinds.index("Pooling")
    return Chain(chain[place], tuple(dense), place, normalize, tuple(unused))


@dataclasses.dataclass(frozen=True)
class TokenChain:
    """What is computed from the tokens' vectors of an encoder to those that count.

    Args:
        dense: the `Dense` modules on the tokens, in order.
        mask: the module that says which tokens count; `None` without one.
        normalize: whether each vector is normalized at last.
        unused: lines about modules that have no effect on them.
    """

    dense: tuple[Step, ...]
    mask: Step | None
    normalize: bool
    unused: tuple[str, ...]


def token_chain_of(folder: Path) -> TokenChain:
    """Return the chain of a model with a vector for each token.

    Raises:
        CheckpointError: a module, or a setting of one, is not computed here.
    """
    steps = steps_of(folder)
    if not steps or steps[0].kind not in ENCODERS:
        raise _unsupported(folder, steps)
    check_encoder_module(steps[0], LATE_INTERACTION)
    found: dict[str, list[Step]] = {DENSE: [], MASK: [], "Normalize": []}
    unused = []
    for step in steps[1:]:
        if step.kind not in (*found, "Dropout"):
            raise _unsupported(folder, steps)
        step = _checked(folder, step, steps)
        if step.kind == "Dropout":
            rate = step.config.get("dropout")
            unused.append(f"the dropout {rate} of {step.path.name} is not used")
            continue
        # Other names than there: of PyLate and of earlier versions, as they are read.
        source = step.config.get("module_input_name")
        source = str(source or (TEXT if step.kind == "Normalize" else TOKENS))
        target = str(step.config.get("module_output_name") or source)
        if step.kind == "Normalize" and source == TEXT:  # there is none: as there
            continue
        if (source, target) != (TOKENS, TOKENS) or (
            step.kind == DENSE and found["Normalize"]
        ):
            raise CheckpointError(
                f"{step.path / CONFIG}: {step.kind} must read and write {TOKENS}, and "
                f"Normalize be the last; received {one_line(source)} and "
                f"{one_line(target)}"
            )
        found[step.kind].append(step)
    if len(found[MASK]) > 1:
        raise _unsupported(folder, steps)
    return TokenChain(
        tuple(found[DENSE]),
        next(iter(found[MASK]), None),
        bool(found["Normalize"]),
        tuple(unused),
    )


def _without_repeats(chain: Sequence[Step]) -> tuple[Step, ...]:
    """Return a chain in which no Normalize follows another."""
    found: list[Step] = []
    for step in chain:
        if step.kind != "Normalize" or not found or found[-1].kind != "Normalize":
            found.append(step)
    return tuple(found)


def _names_of(step: Step) -> tuple[str, str]:
    """Return the feature that a module reads, and the one that it writes."""
    if step.kind == "Pooling":
        return TOKENS, TEXT
    source = str(step.config.get("module_input_name") or TEXT)
    return source, str(step.config.get("module_output_name") or source)


def _checked(folder: Path, step: Step, steps: Sequence[Step]) -> Step:
    """Return a module with its settings, all of them honoured."""
    known = MODULES.get(step.kind)
    if known is None or known.without or step.kind in (*ENCODERS, SPLADE):
        raise _unsupported(folder, steps)
    path = step.path / CONFIG
    # `Normalize` has no file up to version 5.
    config = read_json(path) if step.kind != "Normalize" or path.is_file() else {}
    old = {key: _boolean for key in config if key.startswith("pooling_mode_")}
    check_keys(path, step.kind, config, {**known.keys, **old})
    return dataclasses.replace(step, config=config)


def check_keys(
    path: Path, kind: str, config: Mapping[str, Any], keys: Mapping[str, Rule]
) -> None:
    """Raise CheckpointError if a setting of a module is not honoured."""
    for key, value in config.items():
        if key not in keys:
            raise CheckpointError(
                f"{path}: `{one_line(key)}` is no known setting of {kind}, so the "
                f"answers may differ; received {one_line(json.dumps(value))}"
            )
        if rule := keys[key](value):
            raise CheckpointError(
                f"{path}: `{key}` of {kind} must be {rule}; received "
                f"{one_line(json.dumps(value))}"
            )


def check_encoder_module(step: Step, kind: str) -> None:
    """Raise CheckpointError if a setting of a model's encoder is not honoured.

    `kind` is the kind of the model, such as `SentenceTransformer`.
    """
    path = step.path / SETTINGS
    config = read_json(path) if path.is_file() else {}
    if step.kind == MASKED_LM:
        config = {"transformer_task": "fill-mask", **config}
    elif kind != PAIRS:  # its folders of earlier versions have no such file
        config = {"transformer_task": "feature-extraction", **config}
    check_keys(path, step.kind, config, ENCODER_KEYS[kind])


def _unsupported(folder: Path, steps: Sequence[Step]) -> CheckpointError:
    """Return the error of modules that are not computed here."""
    path = folder / MODULES_FILE
    kinds = [step.kind for step in steps]
    others = []
    for kind in kinds:
        known = MODULES.get(kind)
        if known is None and kind not in ENCODERS:
            others.append(f"{kind} is not known")
        elif known is not None and known.without:
            others.append(f"{kind} {known.without}")
    names = one_line(", ".join(kinds)) or "none"
    wanted = "Transformer, Pooling and perhaps Dense and Normalize"
    if _TOKEN_MODULES & set(kinds):
        wanted = f"Transformer, {MASK} and perhaps Dense and Normalize"
    reasons = f": {listed(others)}" if others else ""
    return CheckpointError(
        f"{path}: must name the steps {wanted}; names {names}{reasons}"
    )


def is_late_interaction(kinds: Sequence[str], settings: Mapping[str, Any]) -> bool:
    """Return whether a model has a vector for each token: ColBERT, PyLate.

    `settings` are of `config_sentence_transformers.json`.
    """
    named = settings.get("model_type") in (LATE_INTERACTION, PYLATE)
    return named or "query_prefix" in settings or bool(_TOKEN_MODULES & set(kinds))


def check_no_router(folder: Path) -> None:
    """Raise CheckpointError, which names the folders inside, if a folder is a Router.

    A Router has modules for each kind of text, such as queries and documents.
    """
    if not (folder / MODULES_FILE).is_file():
        return
    try:
        step = steps_of(folder)[0]
    except (CheckpointError, IndexError):  # `read_sentence_files` raises it
        return
    if step.kind not in _ROUTERS:
        return
    path = step.path / _ROUTERS[step.kind]
    path = path if path.is_file() else path.with_name(CONFIG)  # of version 5.0
    held = read_json(path)
    types, routes = held.get("types"), held.get("structure")
    if not (
        isinstance(types, dict)
        and isinstance(routes, dict)
        and all(isinstance(each, list) and each for each in routes.values())
    ):
        raise CheckpointError(f"{path}: must hold `types` and `structure`")
    found, is_any = [], False
    for route, (first, *_) in routes.items():
        name, inside = (
            str(types.get(first)).rpartition(".")[2],
            path.parent / str(first),
        )
        is_read = name in ENCODERS and (inside / CONFIG).is_file()
        is_any = is_any or is_read
        found.append(f"{route}: {inside if is_read else f'{name}, which is not read'}")
    can = ": open one of these folders, an encoder without the steps behind it"
    raise CheckpointError(
        f"{folder}: is a {step.kind} of sentence-transformers, with modules for each "
        f"kind of text ({one_line('; '.join(found), longest=900)})"
        f"{can if is_any else ''}"
    )
