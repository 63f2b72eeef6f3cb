"""Locate a checkpoint, find its format, and describe what that format's code computes.

`read_checkpoint` uses the first format that recognizes the folder, and imports only the
module of that format. A model is written in a format only if that format's own code can
compute it (`Dialect`).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_keras.checkpoints.checkpoint import Checkpoint, listed
from bert_keras.checkpoints.names import DISCRIMINATOR
from bert_keras.checkpoints.sentence_files import encoder_folder
from bert_keras.checkpoints.sentence_modules import check_no_router
from bert_keras.checkpoints.unread_files import (
    ADAPTER,
    EXPORTED,
    hub_owner,
    unread_file,
    unread_weights,
)
from bert_keras.config import KEY, BertConfig
from bert_keras.errors import CheckpointError, ConfigError, one_line
from bert_keras.files.atomic import check_path

_CONFIG = "config.json"
_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
_GRAPH = "saved_model.pb"
_PRESET = ("model.weights.h5", "model.weights.json")
_POOLING = "1_Pooling"


def read_checkpoint(
    path: str | os.PathLike[str] | Checkpoint, *, part: str | None = None
) -> Checkpoint:
    """Open the checkpoint at a path; the files present determine the format.

    A hub name is resolved to one revision: pass on the checkpoint, not the name, so
    that everything is read from that revision.

    Args:
        path: a Hugging Face folder; a folder with `bert_config.json` and one
            `*.ckpt*.index`, or the path of that checkpoint without `.index`; one of
            Google's ELECTRA, with or without a config; one of TF Model Garden; a preset
            folder of KerasHub; a SavedModel of Model Garden or of TF-Hub, or the folder
            of an `encoder` and its `preprocess`; a folder of sentence-transformers,
            with its encoder in a subfolder or not; a hub name
            `hf://owner/name[@revision]`; or a checkpoint, returned unchanged.
        part: as in `read_google`, of a TensorFlow 1 checkpoint of ELECTRA.

    Raises:
        CheckpointError: there is no checkpoint, or it is broken or not a BERT.
        ConfigError: a size in its config is out of range, or it has no parts.
    """
    if isinstance(path, Checkpoint):
        check_no_part(part, place=path.path)
        return path
    check_path("path", path)
    folder = resolve(path)
    prefix = None if os.path.isdir(path) else given_prefix(os.fspath(path))
    if prefix is None:
        check_no_router(folder)
    place = prefix or encoder_folder(folder)
    for find, module in FORMATS:
        found = find(place)
        if found is None:
            continue
        read = getattr(_module(module), f"read_{module}")
        if module == "google":
            read = functools.partial(read, part=part)
        else:
            check_no_part(part, place=place)
        checkpoint: Checkpoint = read(found)
        if not checkpoint.shapes:
            names = listed(list(checkpoint.unrecognized)) or "nothing"
            raise CheckpointError(
                f"{checkpoint.path}: contains no weights with the names of a BERT: "
                f"{names}"
            )
        if place in (prefix, folder):
            return checkpoint
        return dataclasses.replace(checkpoint, home=folder)
    raise CheckpointError(
        f"{place}: contains no checkpoint: neither {_CONFIG} with {_SAFETENSORS[0]} "
        f"nor bert_config.json with bert_model.ckpt.index nor {_PRESET[0]} nor "
        f"{_GRAPH} of a BERT{unread_weights(place) or _hint(place)}"
    )


def check_no_part(part: str | None, *, place: Path) -> None:
    """Raise a ConfigError if a part is asked of a checkpoint that has none."""
    if part is not None:
        raise ConfigError(
            "`part` is for Google's TensorFlow 1 checkpoints of ELECTRA; received "
            f"{one_line(part)} for {place}"
        )


def _module(name: str) -> Any:
    return importlib.import_module(f"bert_keras.checkpoints.{name}")


def _hub_encoder(folder: Path) -> Path | None:
    """Return the TF-Hub SavedModel in a folder: the folder itself or its `encoder`."""
    if _holds(folder, _CONFIG) or not _holds(folder, _GRAPH, f"encoder/{_GRAPH}"):
        return None
    saved_model: Path | None = _module("tf_hub").find_encoder(folder)
    if saved_model is None or _module("model_garden").is_saved_model(saved_model):
        return None
    return saved_model


def _with(*files: str) -> Callable[[Path], Path | None]:
    """Return a function that returns a folder if it holds one of these files."""
    return lambda folder: folder if _holds(folder, *files) else None


def _saved_model(folder: Path) -> Path | None:
    """Return a folder if it holds a SavedModel other than an export of this package."""
    return folder if _holds(folder, _GRAPH) and not _holds(folder, EXPORTED) else None


def _object_based(place: Path) -> Path | None:
    """Return the prefix of a TensorFlow 2 checkpoint."""
    prefix = _variables(place)
    if prefix is None or not _module("model_garden").is_object_based(prefix):
        return None
    return prefix


def _variables(place: Path) -> Path | None:
    """Return the prefix of a TensorFlow checkpoint: as given, or found in a folder."""
    if not os.path.isdir(place):
        return place
    if not any(place.glob("*.index")):
        return None
    prefix: Path | None = _module("google").find_prefix(place)
    return prefix


# For each format what returns the path to read in a folder, or for a prefix of a
# TensorFlow checkpoint, `None` if it has another format; and the module that reads it,
# by its function `read_<module>`. In this order: other formats next to safetensors are
# ignored.
FORMATS: tuple[tuple[Callable[[Path], Path | None], str], ...] = (
    (_hub_encoder, "tf_hub"),
    (_with(*_SAFETENSORS), "huggingface"),
    (_saved_model, "model_garden"),
    (_object_based, "model_garden"),
    (_variables, "google"),
    (_with(*_PRESET), "keras_hub"),
    (_with(_CONFIG), "huggingface"),
)


def _holds(folder: Path, *files: str) -> bool:
    return any(os.path.isfile(folder / name) for name in files)


def _hint(folder: Path) -> str:
    """Return a hint at subfolders with a config, as in old sentence-transformers."""
    found = sorted(path.parent.name for path in folder.glob(f"*/{_CONFIG}"))
    found = [name for name in found if name != _POOLING]
    return f"; a folder in it may: {listed(found)}" if found else ""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """What one format's own code computes.

    Args:
        code: whose code, for messages.
        activations: our name of each activation to the format's name.
        heads: scope and task of the heads that the format has.
        left_out: scope and description of what is dropped with a note; other heads are
            refused.
        epsilon: LayerNorm's, which no config of these formats can change.
        gelu: the form that it computes for both of ours; the other is written with a
            note.
        model_type: the encoders that it computes.
    """

    code: str
    activations: Mapping[str, str]
    heads: Mapping[str, str]
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    epsilon: float = 1e-12
    gelu: str = "gelu_new"
    model_type: str = "bert"

    def check(self, sizes: BertConfig) -> list[str]:
        """Return notes on what this code computes differently."""
        if sizes.model_type != self.model_type:
            raise CheckpointError(
                f"{self.code} has the weights of a BERT; received a model of the type "
                f"{sizes.model_type}, which only the formats huggingface and keras-hub "
                "can hold"
            )
        is_projected = self.model_type == "bert" and sizes.embedding_size
        is_plain = self.model_type != "distilbert" and not sizes.type_vocab_size
        if is_projected or is_plain:
            raise CheckpointError(
                f"{self.code} has segments, and embeddings as wide as the hidden "
                f"states; received `type_vocab_size` {sizes.type_vocab_size} and "
                f"`embedding_size` {sizes.embedding_size}"
            )
        if sizes.is_decoder:
            raise CheckpointError(f"{self.code} has no causal attention (`is_decoder`)")
        if sizes.hidden_act not in self.activations:
            raise CheckpointError(
                f"{self.code} has no activation {sizes.hidden_act}; "
                f"it has {', '.join(sorted(set(self.activations.values())))}"
            )
        notes = []
        if sizes.hidden_act in _GELUS and sizes.hidden_act != self.gelu:
            notes.append(
                f"{self.code} computes gelu by {_GELUS[self.gelu]}, this model by "
                f"{_GELUS[sizes.hidden_act]}: there its outputs differ slightly"
            )
        if sizes.layer_norm_eps != self.epsilon:
            notes.append(
                f"{self.code} computes LayerNorm with epsilon {self.epsilon:g}, this "
                f"model with {sizes.layer_norm_eps:g}: there its outputs differ"
            )
        return notes

    def check_heads(self, weights: Iterable[str], config: Mapping[str, Any]) -> None:
        """Raise if a weight is of a head that this code does not have.

        `config` is a whole `config.json`, whose task or class the error names.
        """
        known = ("bert/", *self.heads, *self.left_out)
        others = sorted(name for name in weights if not name.startswith(known))
        if others:
            task = (config.get(KEY) or {}).get("task")
            task = task or next(iter(config.get("architectures") or ()), None)
            found = listed(others)
            tasks = ", ".join(self.heads.values())
            raise CheckpointError(
                self.code
                + (f" has only the heads of {tasks}; " if tasks else " has no heads; ")
                + "received "
                + (f"a model of {one_line(task)} ({found})" if task else found)
            )

    def kept(self, weights: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the names of the weights to write, and notes on heads left out."""
        weights = list(weights)
        lost = [s for s in self.left_out if any(n.startswith(s) for n in weights)]
        notes = [
            f"left out: the {self.left_out[s]}, which {self.code} does not have"
            for s in lost
        ]
        return [n for n in weights if not n.startswith(tuple(lost))], notes


_GELUS = {"gelu_new": "its tanh form", "gelu": "erf"}
_PRETRAINING = {
    "cls/predictions/": "masked-lm",
    "cls/seq_relationship/": "next-sentence",
}
GOOGLE = Dialect(
    "Google's code",
    {"gelu": "gelu", "gelu_new": "gelu", "relu": "relu", "tanh": "tanh"},
    heads={
        **_PRETRAINING,
        "classifier/": "classification",
        "qa_outputs/": "question-answering",
    },
)
MODEL_GARDEN = Dialect(
    "TF Model Garden", {**GOOGLE.activations, "silu": "swish"}, heads=_PRETRAINING
)
KERAS_HUB = Dialect(
    "KerasHub",
    {"gelu": "gelu", "gelu_new": "gelu"},
    heads={"cls/predictions/": "masked-lm", "classifier/": "classification"},
    left_out={"cls/seq_relationship/": "next-sentence head"},
)
KERAS_HUB_TYPES = {  # by `model_type`
    "bert": KERAS_HUB,
    "distilbert": dataclasses.replace(KERAS_HUB, model_type="distilbert", gelu="gelu"),
    "electra": Dialect(
        "KerasHub's ELECTRA",
        KERAS_HUB.activations,
        heads={},
        left_out={
            "bert/pooler/": "layer on [CLS] with gelu",
            f"{DISCRIMINATOR}/": "head for replaced tokens",
        },
        model_type="electra",
    ),
}


_ENCODER_FILES = (
    "config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "sentence_bert_config.json",
)
HUB_FILES = (
    *_ENCODER_FILES,
    *(f"0_*/{name}" for name in _ENCODER_FILES),  # of old sentence-transformers
    "modules.json",
    "router_config.json",
    "generation_config.json",
    "config_sentence_transformers.json",
    "*/config.json",
    ADAPTER,
    "*_Dense/model.safetensors",
    "*_Dense/pytorch_model.bin",
    # Of KerasHub.
    "bert_keras.json",
    "metadata.json",
    "model.weights.h5",
    "preprocessor.json",
    "task.json",
    "task.weights.h5",
    "assets/tokenizer/vocabulary.txt",
    # Of TF-Hub.
    "saved_model.pb",
    "variables/variables.*",
    "assets/vocab.txt",
    "assets.extra/*",
)
# Fetched only if there are no others: repositories that have both usually hold each
# weight twice.
HUB_PICKLES = (
    "pytorch_model*.bin",
    "pytorch_model.bin.index.json",
    "0_*/pytorch_model*.bin",
)
HUB_H5 = ("tf_model*.h5", "tf_model.h5.index.json")
HUB = "hf://"
_REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_RESOLVED: contextvars.ContextVar[dict[str, Path] | None] = contextvars.ContextVar(
    "resolved", default=None
)
_HUB_NAME = re.compile(rf"({_REPOSITORY})(?:@([\w][\w./-]*))?", re.ASCII)


def resolve(path: str | os.PathLike[str]) -> Path:
    """Return the local folder of a path or hub name; fetches from the hub if needed.

    `path` is as in `read_checkpoint`; for a checkpoint prefix, its folder is returned.

    Raises:
        CheckpointError: the folder does not exist, or the hub cannot provide it.
    """
    text = os.fspath(path)
    if text.startswith(HUB):
        known = _RESOLVED.get()
        if known is None:
            return _fetched(text)
        if text not in known:
            known[text] = _fetched(text)
        return known[text]
    if os.path.isdir(text):
        return Path(text)
    if given_prefix(text) is not None:
        return Path(text).parent
    if os.path.exists(text):
        raise CheckpointError(
            f"{text}: must be a folder or the prefix of a checkpoint; is a file"
            f"{unread_file(Path(text))}"
        )
    raise CheckpointError(f"{one_line(text)}: no such folder{_hub_hint(text)}")


_HUB_PAGE = "https://huggingface.co/"


def _hub_hint(text: str) -> str:
    """Return a hint at the hub's name of a model, or an empty string."""
    text = text.removeprefix(_HUB_PAGE)
    name, at, revision = text.partition("@")
    owner = hub_owner(name)
    if owner is not None:
        text = f"{owner}/{name}{at}{revision}"
    if not _HUB_NAME.fullmatch(text):
        return ""
    return f"; on the Hugging Face hub it would be {HUB}{text}"


def given_prefix(text: str) -> Path | None:
    """Return the checkpoint prefix that a path names, with or without `.index`."""
    text = text.removesuffix(".index")
    return Path(text) if os.path.isfile(f"{text}.index") else None


@contextlib.contextmanager
def one_revision() -> Iterator[None]:
    """Resolve each hub name once in the block, so that runs share one revision."""
    token = _RESOLVED.set({})
    try:
        yield
    finally:
        _RESOLVED.reset(token)


def _fetched(name: str) -> Path:
    """Return the local snapshot of a hub repository: config, weights and tokenizer."""
    named = _HUB_NAME.fullmatch(name.removeprefix(HUB))
    if named is None or ".." in name:
        raise CheckpointError(
            f"a hub name must be {HUB}owner/name or {HUB}owner/name@revision; "
            f"received {one_line(name)}{_hub_hint(name.removeprefix(HUB))}"
        )
    repository, revision = named.groups()
    folder = _snapshot(name, repository, revision, HUB_FILES)
    if _holds(encoder_folder(folder), *_SAFETENSORS, *_PRESET, _GRAPH):
        return folder
    from bert_keras.checkpoints.pickled_file import check_torch, is_readable

    # The hub's cache names a snapshot after its commit: take the weights of that one.
    if _COMMIT.fullmatch(folder.name):
        revision = folder.name
    if is_readable():
        found = _snapshot(name, repository, revision, (*HUB_FILES, *HUB_PICKLES))
        if any(encoder_folder(found).glob("pytorch_model*")):
            return found
    found = _snapshot(name, repository, revision, (*HUB_FILES, *HUB_H5))
    if not any(found.glob("tf_model*")):
        check_torch(f"{name}: has no weights except perhaps pytorch_model.bin, which")
    return found


def _snapshot(
    name: str, repository: str, revision: str | None, files: tuple[str, ...]
) -> Path:
    from huggingface_hub import snapshot_download  # only for hub names: it is slow

    try:
        folder = snapshot_download(
            repository, revision=revision, allow_patterns=list(files)
        )
    except Exception as error:  # from the hub, its HTTP library or the disk
        raise CheckpointError(
            f"{name}: cannot be fetched from the Hugging Face hub: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from None
    return Path(folder)
