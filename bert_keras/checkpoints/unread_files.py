"""Files of other tools that are not read, and what to do with them.

Each message names the file and the command or step that makes a readable folder of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras.errors import CheckpointError, one_line

ADAPTER = "adapter_config.json"
EXPORTED = "assets.extra/answers.json"  # of our own SavedModels
_RESAVE = "save_pretrained(NEW_FOLDER)"
_STATE = (
    "a file of torch.save: give the tensors of its state_dict to "
    "safetensors.torch.save_file as model.safetensors, with the config.json of the "
    "encoder"
)
_GRAPH_ONLY = "an export: use the model folder from which it was made"
_EXPORT = f"the task of {_GRAPH_ONLY}"
# Patterns of files of weights or graphs, and what to do; the first found is named.
_KINDS = {
    "flax_model*.msgpack": (
        "Flax weights: in transformers 4, load them with from_flax=True and "
        f"{_RESAVE}, which writes model.safetensors"
    ),
    "rust_model.ot": (
        "weights of rust-bert: use model.safetensors or pytorch_model.bin of the same "
        "model"
    ),
    "*.gguf": "weights of llama.cpp: use the folder from which they were converted",
    EXPORTED: _EXPORT,
    f"*/{EXPORTED}": _EXPORT,
    "*.onnx": _GRAPH_ONLY,
    "onnx/*.onnx": _GRAPH_ONLY,
    "openvino_model.xml": _GRAPH_ONLY,
    "openvino/*.xml": _GRAPH_ONLY,
    "*.tflite": _GRAPH_ONLY,
    "*.mlmodel": _GRAPH_ONLY,
    "*.mlpackage": _GRAPH_ONLY,
    "*.safetensors": "a file of another name than model.safetensors: rename it",
    "*.ckpt": _STATE,
    "*.pt": _STATE,
    "*.pth": _STATE,
    "*.bin": _STATE,
    "*.h5": (
        "a file of another name than tf_model.h5: rename it if save_pretrained of a "
        "TFBert class wrote it"
    ),
    "*.keras": "a file of Keras: save the weights of its BERT by save_pretrained",
}
# Files that other tools read beside the weights, and what is done without them.
_BESIDE = {
    "model_head.pkl": (
        "the classifier of SetFit, a pickle, is not read: the model answers with "
        "vectors; train a head on it with `train classification --encoder`"
    )
}
# What a training run of transformers writes beside its weights.
_STATE_OF_RUN = ("training_args.bin", "optimizer.*", "scheduler.pt", "rng_state*.pth")


def unread_weights(folder: Path) -> str:
    """Return `; FILE is KIND: what to do` for a folder, or an empty string."""
    if (folder / ADAPTER).is_file():
        return f"; {_adapter()}"
    for pattern, kind in _KINDS.items():
        for path in sorted(folder.glob(pattern)):
            if any(map(path.match, _STATE_OF_RUN)):
                continue
            return f"; {path.relative_to(folder)} is {kind}"
    return ""


def unread_beside(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """Return notes on what a folder has beside its weights, and is not used.

    `config` is its parsed `config.json`.
    """
    found = [
        f"{name}: {reason}"
        for name, reason in _BESIDE.items()
        if (folder / name).is_file()
    ]
    code = config.get("auto_map")
    if isinstance(code, dict) and code:
        found.append(
            f"config.json names code of its own (`auto_map`: "
            f"{one_line(next(iter(code.values())))}), which is not run: the model is "
            "computed as a BERT"
        )
    return found


def unread_file(path: Path) -> str:
    """Return `, KIND: what to do` for one file of weights, or an empty string."""
    if path.suffix in (".safetensors", ".bin", ".h5", ".index", ".json"):
        return ": give its folder"
    for pattern, kind in _KINDS.items():
        if path.match(pattern):
            return f", {kind}"
    return ""


def check_no_adapter(folder: Path) -> None:
    """Raise if a folder holds an adapter, which would change its answers."""
    if (folder / ADAPTER).is_file():
        raise CheckpointError(f"{folder}: {_adapter()}")


def _adapter() -> str:
    return (
        f"{ADAPTER} belongs to an adapter of PEFT, which is not read: merge it into "
        f"its model by merge_and_unload() and {_RESAVE}"
    )


# Models of BERT's authors and of the first transformers; the hub has since moved them.
_FIRST_MODELS = frozenset(
    "bert-base-uncased bert-large-uncased bert-base-cased bert-large-cased "
    "bert-base-multilingual-uncased bert-base-multilingual-cased bert-base-chinese "
    "bert-base-german-cased bert-base-german-dbmdz-cased "
    "bert-base-german-dbmdz-uncased bert-large-uncased-whole-word-masking "
    "bert-large-cased-whole-word-masking bert-base-cased-finetuned-mrpc "
    "bert-large-uncased-whole-word-masking-finetuned-squad "
    "bert-large-cased-whole-word-masking-finetuned-squad".split()
)


def hub_owner(name: str) -> str | None:
    """Return the owner of a model that people name without one, or `None`.

    Example:
        >>> hub_owner("bert-base-uncased")
        'google-bert'
    """
    if name in _FIRST_MODELS:
        return "google-bert"
    return "sentence-transformers" if name in _SENTENCE_MODELS else None


# sentence-transformers puts its own name before names without an owner.
_SENTENCE_MODELS = frozenset(
    "all-MiniLM-L6-v1 all-MiniLM-L6-v2 all-MiniLM-L12-v1 all-MiniLM-L12-v2 "
    "bert-base-nli-mean-tokens multi-qa-MiniLM-L6-cos-v1 multi-qa-MiniLM-L6-dot-v1 "
    "paraphrase-MiniLM-L3-v2 paraphrase-MiniLM-L6-v2 paraphrase-MiniLM-L12-v2 "
    "LaBSE".split()
)
