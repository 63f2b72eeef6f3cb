"""The manifest of a folder of pretraining data.

`manifest.json` is written last and records how the shards were made and what they
contain, with a hash of its own content; until then there is a journal, see
`data.Journal`. Both are checked when they are read: a hash tells that a manifest was
changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from bert_keras.corpus.documents import name_of
from bert_keras.errors import ConfigError, DataError, shown
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.runs.run_folder import what_differs
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


@dataclasses.dataclass(frozen=True)
class Job:
    """Everything that determines the shards, except the documents."""

    format: str
    bert_keras: str
    settings: dict
    tokenizer: dict
    vocabulary_size: int
    vocabulary_sha256: str
    sentences_by: str


@dataclasses.dataclass(frozen=True)
class Shard:
    """The facts about a shard."""

    number: int
    file: str
    bytes: int
    text_blake2b: str
    documents: int
    characters: int
    sentences: int
    tokens: int
    unknown_tokens: int
    instances: int
    not_next: int
    real_tokens: int
    masked_tokens: int


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
    job = Job(
        format=_FORMAT,
        bert_keras=__version__,
        settings=settings,
        tokenizer=text,
        vocabulary_size=tokenizer.vocab_size,
        vocabulary_sha256=vocabulary_hash(tokenizer.vocabulary),
        sentences_by=name_of(to_sentences),
    )
    return dataclasses.asdict(job)


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
    written = manifest.pop(_HASH, None)
    if written != _hash_of(manifest) or not _is_consistent(manifest):
        raise DataError(
            "was changed after it was written: restore it, or delete it and run "
            "`pretraining-data` again",
            path=path,
        )
    try:  # a setting that the writer did not know yet has its default
        settings = PretrainingDataConfig(**manifest["settings"])
    except (ConfigError, TypeError) as error:
        raise DataError(f"`settings`: {error}", path=path) from None
    return {**manifest, "settings": dataclasses.asdict(settings)}


def _is_consistent(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest has a job, its shards in order, and their sums."""
    names = {field.name for field in dataclasses.fields(Job)}
    job = {name: value for name, value in manifest.items() if name in names}
    shards = manifest.get("shards")
    if not (_has_fields(job, Job) and isinstance(shards, list)):
        return False
    return all(is_shard(each, number) for number, each in enumerate(shards)) and all(
        manifest.get(name) == sum(each[name] for each in shards) for name in SUMMED
    )


def is_shard(values: Any, number: int | None = None) -> bool:
    """Return whether a JSON value describes a shard, this one if `number` is given.

    Its file is opened: it is never a path out of the folder.
    """
    return (
        _has_fields(values, Shard)
        and values["number"] == (values["number"] if number is None else number)
        and values["file"] == shard_name(values["number"])
    )


def _has_fields(values: Any, kind: type) -> bool:
    """Return whether a JSON value is an object with exactly the fields of a class."""
    types = get_type_hints(kind)
    return (
        isinstance(values, dict)
        and values.keys() == types.keys()
        and all(isinstance(values[name], types[name]) for name in types)
    )


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
    for number, row in enumerate(rows, 1):
        if not (_has_fields(row, Job) if number == 1 else is_shard(row)):
            message = f"must be a line that bert_keras wrote; received {shown(row)}"
            raise DataError(message, path=path, line=number)
    check_job(folder, rows[0], job)
    return rows[1:]


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
    old = {name: found.get(name) for name in job}
    difference = what_differs(_by_options(old), _by_options(job))
    if difference:
        raise DataError(
            f"holds data of another job, {difference}: give another folder, or delete "
            "this one",
            path=folder,
        )


def _by_options(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job with its settings beside the rest, by the names of the options."""
    others = {name: value for name, value in job.items() if name != "settings"}
    return {**job["settings"], **others}


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
