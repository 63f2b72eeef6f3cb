"""Where a checkpoint lies on this machine: a path, or a name of the Hugging Face hub.

`resolve` returns the local folder; within `one_revision` each name is resolved once.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bert_keras.errors import CheckpointError, one_line

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
HUB_PICKLES = ("pytorch_model*.bin", "pytorch_model.bin.index.json")
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "model.weights.h5",
    "model.weights.json",
    "saved_model.pb",
)
_HUB = "hf://"
_REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_RESOLVED: contextvars.ContextVar[dict[str, Path] | None] = contextvars.ContextVar(
    "resolved", default=None
)
_HUB_NAME = re.compile(rf"({_REPOSITORY})(?:@([\w][\w./-]*))?", re.ASCII)


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
    if given_prefix(text) is not None:
        return Path(text).parent
    if os.path.exists(text):
        raise CheckpointError(
            f"{text}: must be a folder or the prefix of a checkpoint; is a file"
        )
    hint = f"; on the Hugging Face hub it would be {_HUB}{text}"
    raise CheckpointError(
        f"{one_line(text)}: no such folder{hint if _HUB_NAME.fullmatch(text) else ''}"
    )


def given_prefix(text: str) -> Path | None:
    """Return the checkpoint prefix that a path spells, with or without `.index`."""
    text = text.removesuffix(".index")
    return Path(text) if os.path.isfile(f"{text}.index") else None


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
    from bert_keras.checkpoints.pickled_file import check_torch

    check_torch(f"{name}: has no weights but perhaps pytorch_model.bin, which")
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
    """Say whether a folder holds weights that are not a pickle."""
    return any(os.path.isfile(folder / name) for name in _WEIGHTS)
