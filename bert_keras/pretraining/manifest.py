"""The manifest of a folder of pretraining data.

`manifest.json` is written last and records how the shards were made and what they
contain, with a hash of its own content; until then there is a journal, see
`data.Journal`. Both are checked here when they are read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_keras.corpus.documents import name_of
from bert_keras.errors import ConfigError, DataError, reason_of, shown
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.text.tokenizer_files import vocabulary_hash
from bert_keras.version import __version__

if TYPE_CHECKING:  # this module does not need TensorFlow
    from bert_keras.text.tokenizer import WordPieceTokenizer

MANIFEST = "manifest.json"
JOURNAL = "unfinished.jsonl"
LOCK = ".lock"  # held by the process that writes
_OURS = re.compile(r"part-\d{5,}\.tfrecord\.gz|manifest\.json|unfinished\.jsonl")
_PARTIAL = re.compile(rf"\.({_OURS.pattern})\.\d+\.partial")
_FORMAT = "bert_keras pretraining data 1"
_HASH = "sha256"

# The types of each object's values; JSON has no others.
_Types = Mapping[str, tuple[type, ...]]
_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    dict: "an object",
    list: "a list",
    type(None): "null",
}
_JOB: _Types = {
    **dict.fromkeys(("format", "bert_keras", "vocabulary_sha256"), (str,)),
    **dict.fromkeys(("settings", "tokenizer"), (dict,)),
    "vocabulary_size": (int,),
    "sentences_by": (str,),
}
_SETTINGS: _Types = {
    field.name: (bool, int, float, str, type(None))
    for field in dataclasses.fields(PretrainingDataConfig)
}
# Their sums over the shards are also in the manifest.
SUMMED = (
    "documents",
    "characters",
    "sentences",
    "tokens",
    "instances",
    "real_tokens",
    "masked_tokens",
)
_SHARD: _Types = {
    **dict.fromkeys(("file", "text_blake2b"), (str,)),
    **dict.fromkeys(("number", "bytes", *SUMMED), (int,)),
    **dict.fromkeys(("unknown_tokens", "not_next"), (int,)),
}
_SHARES = ("real_token_share", "unknown_token_share", "not_next_share")
_MANIFEST: _Types = {
    **_JOB,
    **dict.fromkeys(SUMMED, (int,)),
    **dict.fromkeys(_SHARES, (int, float)),
    "shards": (list,),
}


def job_of(
    config: PretrainingDataConfig,
    tokenizer: WordPieceTokenizer,
    to_sentences: Callable[..., Any],
) -> dict[str, Any]:
    """Return everything that determines the shards, except the documents."""
    settings = dataclasses.asdict(config)
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
        DataError: the file exists and is not such a manifest.
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
        DataError: it is not one, or was changed after it was written.
    """
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", path=path) from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise DataError(f"must be the manifest of {_FORMAT}", path=path)
    written = manifest.pop(_HASH, None)  # version 0.1 wrote none
    if written not in (None, _hash_of(manifest)):
        raise DataError(
            "was changed after it was written: restore it, or delete it and run "
            "`pretraining-data` again",
            path=path,
        )
    _check_types(path, manifest, _MANIFEST)
    _check_settings(path, manifest)
    for number, shard in enumerate(manifest["shards"]):
        _check_shard(path, shard, place=f"shards[{number}]")
        if shard["number"] != number:
            raise _wrong(path, f"shards[{number}].number", number, shard["number"])
    for name in SUMMED:
        total = sum(shard[name] for shard in manifest["shards"])
        if manifest[name] != total:
            raise _wrong(path, name, f"{total}, as in the shards", manifest[name])
    return manifest


def journal_shards(
    folder: str | os.PathLike[str], data: bytes, job: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """Return the finished shards in the bytes of a folder's journal.

    An incomplete last line is left out; `None` if there is no complete line.

    Raises:
        DataError: a line is not the job or a shard, or the job is another one.
    """
    path = f"{os.fspath(folder)}/{JOURNAL}"
    rows: list[Any] = []
    for line in data.split(b"\n")[:-1]:
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            break
    if not rows:
        return None
    _check_types(path, rows[0], _JOB, line=1)
    for number, row in enumerate(rows[1:], 2):
        _check_shard(path, row, line=number)
    check_job(folder, rows[0], job)
    return rows[1:]


def check_shard(path: str | os.PathLike[str], shard: Any) -> None:
    """Raise DataError unless the object in a file describes a shard."""
    _check_shard(path, shard)


def _check_shard(
    path: str | os.PathLike[str],
    shard: Any,
    *,
    line: int | None = None,
    place: str = "",
) -> None:
    _check_types(path, shard, _SHARD, line=line, place=place)
    name = shard_name(shard["number"])
    if shard["file"] != name:  # it is opened: never a path out of the folder
        key = f"{place}.file" if place else "file"
        raise _wrong(path, key, name, shard["file"], line)


def _check_settings(path: str | os.PathLike[str], manifest: Mapping[str, Any]) -> None:
    settings = manifest["settings"]
    _check_types(path, settings, _SETTINGS, place="settings")
    try:
        PretrainingDataConfig(**settings)
    except ConfigError as error:
        raise DataError(f"`settings`: {error}", path=path) from None


def _check_types(
    path: str | os.PathLike[str],
    values: Any,
    types: _Types,
    *,
    line: int | None = None,
    place: str = "",
) -> None:
    """Raise unless an object of a file has exactly these keys, of these types."""
    if not isinstance(values, dict):
        what = f"`{place}` must be" if place else "must be"
        message = f"{what} an object; received {shown(values)}"
        raise DataError(message, path=path, line=line)
    for key in sorted(set(types) ^ set(values)):
        full = f"{place}.{key}" if place else key
        told = "lacks" if key in types else "has the unknown key"
        raise DataError(f"{told} {shown(full)}", path=path, line=line)
    for key, kinds in types.items():
        if type(values[key]) not in kinds:
            rule = " or ".join(_KINDS[kind] for kind in kinds)
            full = f"{place}.{key}" if place else key
            raise _wrong(path, full, rule, values[key], line)


def _wrong(
    path: str | os.PathLike[str],
    key: str,
    rule: object,
    value: Any,
    line: int | None = None,
) -> DataError:
    message = f"`{key}` must be {rule}; received {shown(value)}"
    return DataError(message, path=path, line=line)


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an error of a file system into one line."""
    try:
        yield
    except OSError as error:
        message = f"cannot be written: {reason_of(error)}"
        raise DataError(message, path=path) from None


def as_text(manifest: Mapping[str, Any]) -> str:
    """Return the text of a manifest, with the hash of its content."""
    return json.dumps({**manifest, _HASH: _hash_of(manifest)}, indent=2) + "\n"


def _hash_of(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest's values, in any order of the keys."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def is_partial(name: str) -> bool:
    """Return whether a file is one that a killed run left incomplete."""
    return _PARTIAL.fullmatch(name) is not None


def check_names(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Raise DataError unless a folder contains pretraining data only."""
    whole = sorted(n for n in names if n != LOCK and not is_partial(n))
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
    """Raise DataError unless a folder's recorded job equals the current one."""
    changes = _differences(found, job)
    if changes:
        raise DataError(
            f"holds data of another job ({'; '.join(changes[:3])}); give "
            "another folder, or delete this one",
            path=folder,
        )


def check_text(
    folder: str | os.PathLike[str], shard: Mapping[str, Any], text_hash: str
) -> None:
    """Raise DataError unless a finished shard was written from this text."""
    if shard["text_blake2b"] != text_hash:
        raise DataError(
            "was written from text other than the current documents; give "
            "another folder, or delete this one",
            path=f"{os.fspath(folder)}/{shard['file']}",
        )


def check_none_left(
    folder: str | os.PathLike[str], names: Iterable[str], count: int
) -> None:
    """Raise DataError if an earlier run wrote more shards than `count`."""
    ours = {shard_name(number) for number in range(count)}
    more = sorted(set(names) - ours)
    if more:
        raise DataError(
            "was written from more text than the current documents; give "
            "another folder, or delete this one",
            path=f"{os.fspath(folder)}/{more[0]}",
        )


def _differences(found: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """Return the differences of two jobs as text."""
    changes = []
    for key in job:
        was, now = found.get(key), job[key]
        if isinstance(now, dict) and isinstance(was, dict):
            changes += _differences(was, now)
        elif was != now:
            changes.append(f"`{key}` was {shown(was)} and is {shown(now)}")
    return changes
