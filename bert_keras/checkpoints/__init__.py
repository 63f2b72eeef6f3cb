"""Files to {canonical name: array}: find what a folder or a hub name holds, read it.

`read_checkpoint` knows a format by the files that are there; `match` compares names
and shapes with those a model wants. Nothing here knows a model class, and TensorFlow is
imported for the formats of TensorFlow alone.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bert_keras.checkpoints import (
    google,
    huggingface,
    keras_hub,
    model_garden,
    pickled_file,
    tf_hub,
)
from bert_keras.checkpoints.architecture import head_config
from bert_keras.checkpoints.base import Checkpoint, LazyArrays, listed, one_line
from bert_keras.checkpoints.google import read_google, write_google
from bert_keras.checkpoints.huggingface import read_huggingface
from bert_keras.checkpoints.huggingface_writer import write_huggingface
from bert_keras.checkpoints.keras_hub import read_keras_hub
from bert_keras.checkpoints.matching import (
    MismatchError,
    assign,
    check_encoder,
    check_head,
    has_pooler,
    match,
)
from bert_keras.checkpoints.model_garden import read_model_garden
from bert_keras.checkpoints.sentence_files import POOLING
from bert_keras.checkpoints.tf_hub import read_tf_hub
from bert_keras.errors import CheckpointError

__all__ = [
    "Checkpoint",
    "LazyArrays",
    "MismatchError",
    "assign",
    "check_encoder",
    "check_head",
    "has_pooler",
    "head_config",
    "match",
    "one_revision",
    "read_checkpoint",
    "read_google",
    "read_huggingface",
    "read_keras_hub",
    "read_model_garden",
    "read_tf_hub",
    "resolve",
    "write_google",
    "write_huggingface",
]

HUB_FILES = (
    "config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "*/config.json",
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
# Fetched only where there are no others: most repositories that have both hold each
# weight twice.
HUB_PICKLES = ("pytorch_model*.bin", huggingface.PICKLE_INDEX)
_HUB = "hf://"
_REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_RESOLVED: contextvars.ContextVar[dict[str, Path] | None] = contextvars.ContextVar(
    "resolved", default=None
)
_HUB_NAME = re.compile(rf"({_REPOSITORY})(?:@([\w][\w./-]*))?", re.ASCII)


def read_checkpoint(path: str | os.PathLike[str] | Checkpoint) -> Checkpoint:
    """Open the checkpoint at a path; the files that are there tell the format.

    A hub name is resolved to one revision: pass on the checkpoint, not the name, so
    that all that is read of it is of that revision.

    Args:
        path: a Hugging Face folder; a folder with `bert_config.json` and one
            `*.ckpt*.index`, or the path of that checkpoint without `.index`; one of TF
            Model Garden; a preset folder of KerasHub; a SavedModel of Model Garden's or
            TF-Hub's kind, or the folder of an `encoder` and its `preprocess`; a hub
            name `hf://owner/name[@revision]`; or a checkpoint, returned as it is.

    Raises:
        CheckpointError: there is no checkpoint, or it is broken or no BERT.
        ConfigError: a size in its config is out of its range.
    """
    if isinstance(path, Checkpoint):
        return path
    folder = resolve(path)
    prefix = None if os.path.isdir(path) else _given_prefix(os.fspath(path))
    if prefix is None and not os.path.isfile(folder / huggingface.CONFIG):
        saved_model = tf_hub.find_encoder(folder)
        if saved_model is not None and not model_garden.is_saved_model(saved_model):
            return read_tf_hub(saved_model)
    if prefix is None and not _has_safetensors(folder):
        if os.path.isfile(folder / model_garden.SAVED_MODEL):
            return read_model_garden(folder)
        prefix = google.find_prefix(folder)
    if prefix is not None:
        object_based = model_garden.is_object_based(prefix)
        return (read_model_garden if object_based else read_google)(prefix)
    if not _has_safetensors(folder) and any(
        os.path.isfile(folder / name) for name in (keras_hub.WEIGHTS, keras_hub.SHARDS)
    ):
        return read_keras_hub(folder)
    if not any(
        os.path.isfile(folder / name)
        for name in (huggingface.CONFIG, huggingface.WEIGHTS, huggingface.INDEX)
    ):
        raise CheckpointError(
            f"{folder}: holds no checkpoint: neither {huggingface.CONFIG} with "
            f"{huggingface.WEIGHTS} nor {google.CONFIG} with {google.PREFIX}.index nor "
            f"{keras_hub.WEIGHTS} nor {tf_hub.GRAPH} of a BERT{_hint(folder)}"
        )
    return read_huggingface(folder)


def resolve(path: str | os.PathLike[str]) -> Path:
    """Return the local folder of a path or hub name; fetches from the hub if need be.

    Args:
        path: as in `read_checkpoint`; of a checkpoint prefix, the folder it stands in.

    Raises:
        CheckpointError: there is no such folder, or the hub cannot give it.
    """
    text = os.fspath(path)
    if text.startswith(_HUB):
        return _fetch(text)
    if os.path.isdir(text):
        return Path(text)
    if _given_prefix(text) is not None:
        return Path(text).parent
    if os.path.exists(text):
        raise CheckpointError(
            f"{text}: must be a folder or the prefix of a checkpoint; is a file"
        )
    hint = f"; on the Hugging Face hub it would be {_HUB}{text}"
    raise CheckpointError(
        f"{one_line(text)}: no such folder{hint if _HUB_NAME.fullmatch(text) else ''}"
    )


def _given_prefix(text: str) -> Path | None:
    """Return the checkpoint prefix that a path spells, with or without `.index`."""
    text = text.removesuffix(".index")
    return Path(text) if os.path.isfile(f"{text}.index") else None


def _has_safetensors(folder: Path) -> bool:
    return any(
        os.path.isfile(folder / name)
        for name in (huggingface.WEIGHTS, huggingface.INDEX)
    )


def _hint(folder: Path) -> str:
    """Return which folders below hold one, as in old ones of sentence-transformers."""
    found = sorted(path.parent.name for path in folder.glob(f"*/{huggingface.CONFIG}"))
    found = [name for name in found if name != POOLING]
    return f"; a folder in it may: {listed(found)}" if found else ""


@contextlib.contextmanager
def one_revision() -> Iterator[None]:
    """Resolve each hub name once within, so that several runs start from the same."""
    token = _RESOLVED.set({})
    try:
        yield
    finally:
        _RESOLVED.reset(token)


def _fetch(name: str) -> Path:
    """Return the local snapshot of a hub repository: config, weights and tokenizer."""
    known = _RESOLVED.get()
    if known is None:
        return _fetched(name)
    if name not in known:
        known[name] = _fetched(name)
    return known[name]


def _fetched(name: str) -> Path:
    named = _HUB_NAME.fullmatch(name.removeprefix(_HUB))
    if named is None or ".." in name:
        raise CheckpointError(
            f"a hub name must be {_HUB}owner/name or {_HUB}owner/name@revision; "
            f"received {one_line(name)}"
        )
    repository, revision = named.groups()
    folder = _snapshot(name, repository, revision, HUB_FILES)
    if _holds_weights(folder):
        return folder
    pickled_file.check_torch(
        f"{name}: has no weights but perhaps {huggingface.PICKLE}, which"
    )
    # The hub's cache names a snapshot after its commit: the weights are of the same.
    if _COMMIT.fullmatch(folder.name):
        revision = folder.name
    return _snapshot(name, repository, revision, (*HUB_FILES, *HUB_PICKLES))


def _snapshot(
    name: str, repository: str, revision: str | None, files: tuple[str, ...]
) -> Path:
    """Return the local snapshot of a hub repository with these files of it."""
    from huggingface_hub import snapshot_download  # only for hub names: it is slow

    try:
        folder = snapshot_download(
            repository, revision=revision, allow_patterns=list(files)
        )
    except Exception as error:  # of the hub, its HTTP library or the disk
        raise CheckpointError(
            f"{name}: cannot be fetched from the Hugging Face hub: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from None
    return Path(folder)


def _holds_weights(folder: Path) -> bool:
    """Say whether a folder holds weights in a form that is no pickle."""
    files = (keras_hub.WEIGHTS, keras_hub.SHARDS, tf_hub.GRAPH)
    return _has_safetensors(folder) or any(
        os.path.isfile(folder / name) for name in files
    )
