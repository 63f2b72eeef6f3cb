"""What a folder of pretraining data says of itself: its manifest.

`manifest.json` is written last and says how the shards were made and what they hold;
until then there is a journal, see `pretraining_journal`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_keras import __version__
from bert_keras.corpus.documents import name_of
from bert_keras.errors import DataError
from bert_keras.pretraining.data_config import PretrainingDataConfig
from bert_keras.text.vocabulary import vocabulary_hash

if TYPE_CHECKING:  # this module does not need TensorFlow
    from bert_keras.text.tokenizer import WordPieceTokenizer

MANIFEST = "manifest.json"
JOURNAL = "unfinished.jsonl"
_OURS = re.compile(r"part-\d{5,}\.tfrecord\.gz|manifest\.json|unfinished\.jsonl")
_PARTIAL = re.compile(rf"\.({_OURS.pattern})\.\d+\.partial")
_FORMAT = "bert_keras pretraining data 1"


def job_of(
    config: PretrainingDataConfig,
    tokenizer: WordPieceTokenizer,
    to_sentences: Callable[..., Any],
) -> dict[str, Any]:
    """Return all that the bytes of the shards follow from, but for the documents."""
    settings = {key: getattr(config, key) for key in config.__dataclass_fields__}
    settings["max_predictions"] = config.predictions
    settings["dupe_factor"] = config.duplicates
    text = tokenizer.get_config()
    del text["vocabulary"]
    return {
        "format": _FORMAT,
        "bert_keras": __version__,
        "settings": settings,
        "tokenizer": text,
        "vocabulary_size": tokenizer.vocab_size,
        "vocabulary_sha256": vocabulary_hash(tokenizer.vocabulary),
        "sentences_by": name_of(to_sentences),
    }


def shard_name(number: int) -> str:
    """Return the file name of a shard, counted from 0."""
    return f"part-{number:05d}.tfrecord.gz"


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the manifest of a folder, `None` if it has none.

    Raises:
        DataError: the file is there and is not such a manifest.
    """
    path = Path(folder) / MANIFEST
    if not path.exists():
        return None
    try:
        return manifest_of(path, path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from None


def manifest_of(path: str | os.PathLike[str], data: bytes) -> dict[str, Any]:
    """Return the manifest in a file's bytes.

    Raises:
        DataError: it is none.
    """
    try:
        manifest = json.loads(data)
    except ValueError as error:
        raise DataError(f"is not JSON: {error}", path=path) from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise DataError(f"must be the manifest of {_FORMAT}", path=path)
    return manifest


def as_text(manifest: Mapping[str, Any]) -> str:
    """Return what is written of a manifest."""
    return json.dumps(manifest, indent=2) + "\n"


def is_partial(name: str) -> bool:
    """Say whether a file is what a killed run left half written."""
    return _PARTIAL.fullmatch(name) is not None


def check_names(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Raise unless the files of a folder are those of pretraining data, or none.

    Raises:
        DataError: there is anything else, or shards without what tells of them.
    """
    whole = sorted(name for name in names if not is_partial(name))
    others = [name for name in whole if not _OURS.fullmatch(name)]
    if not (MANIFEST in whole or JOURNAL in whole):
        others = others or whole
    if others:
        raise DataError(
            "must be a new folder or one of pretraining data; holds other files "
            f"({', '.join(others[:3])})",
            path=folder,
        )


def check_job(
    folder: str | os.PathLike[str], found: Mapping[str, Any], job: Mapping[str, Any]
) -> None:
    """Raise unless what a folder says of its job is what it is now.

    Raises:
        DataError: a setting differs.
    """
    changes = _differences(found, job)
    if changes:
        raise DataError(
            f"holds the data of another job ({'; '.join(changes[:3])}); give "
            "another folder, or delete this one",
            path=folder,
        )


def check_text(
    folder: str | os.PathLike[str], shard: Mapping[str, Any], text_hash: str
) -> None:
    """Raise unless a finished shard was made of the text of this hash.

    Raises:
        DataError: it was made of other text.
    """
    if shard["text_blake2b"] != text_hash:
        raise DataError(
            "was made of other text than the documents that are given now; give "
            "another folder, or delete this one",
            path=f"{os.fspath(folder)}/{shard['file']}",
        )


def check_none_left(
    folder: str | os.PathLike[str], names: Iterable[str], count: int
) -> None:
    """Raise where there are more shards than `count`.

    Raises:
        DataError: an earlier run made more.
    """
    ours = {shard_name(number) for number in range(count)}
    more = sorted(set(names) - ours)
    if more:
        raise DataError(
            "was made of more text than the documents that are given now; give "
            "another folder, or delete this one",
            path=f"{os.fspath(folder)}/{more[0]}",
        )


def _differences(found: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """Return where two jobs differ, in words."""
    changes = []
    for key in job:
        was, now = found.get(key), job[key]
        if isinstance(now, dict) and isinstance(was, dict):
            changes += _differences(was, now)
        elif was != now:
            changes.append(f"`{key}` was {was!r} and is {now!r}")
    return changes
