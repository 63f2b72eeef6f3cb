"""The manifest of a folder of pretraining data.

`manifest.json` is written last and records how the shards were made and what they
contain; until then there is a journal, see `data.Journal`. Both are checked here when
they are read: every key, its type and its range.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_keras.corpus.documents import name_of
from bert_keras.errors import ConfigError, DataError, reason_of, shown
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.settings import LARGEST, Option
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

# A rule: the condition on a key's value, as text and as a function.
_Rule = tuple[str, Callable[[Any], bool]]


def _count(least: int = 0) -> _Rule:
    declared = Option(kind=int, least=least, most=LARGEST)
    return declared.rule(), declared.accepts


def _hex(digits: int) -> _Rule:
    pattern = re.compile(rf"[0-9a-f]{{{digits}}}")
    return (
        f"{digits} hexadecimal digits",
        lambda v: isinstance(v, str) and bool(pattern.fullmatch(v)),
    )


def _one_of(*values: Any) -> _Rule:
    words = ", ".join(json.dumps(value) for value in values)
    # 1 is not true, and 0 is not false.
    known = [(type(value), value) for value in values]
    return f"one of {words}", lambda v: (type(v), v) in known


_TEXT: _Rule = ("a string", lambda v: isinstance(v, str))
_OBJECT: _Rule = ("an object", lambda v: isinstance(v, dict))
_SHARE: _Rule = (
    "a number from 0 to 1",
    lambda v: isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1,
)
_JOB: dict[str, _Rule] = {
    "format": _one_of(_FORMAT),
    "bert_keras": _TEXT,
    "settings": _OBJECT,
    "tokenizer": _OBJECT,
    "vocabulary_size": _count(1),
    "vocabulary_sha256": _hex(64),
    "sentences_by": _TEXT,
}
_TOKENIZER: dict[str, _Rule] = {
    "lowercase": _one_of(True, False),
    "strip_accents": _one_of(True, False, None),
    "tokenize_chinese_chars": _one_of(True, False),
    "special_tokens_in_text": _one_of("literal", "parse"),
    "max_word_characters": _count(1),
}
# Their sums over the shards are also in the manifest.
SUMMED = (
    *("documents", "characters", "sentences", "tokens"),
    *("instances", "real_tokens", "masked_tokens"),
)
_SHARD: dict[str, _Rule] = {
    "number": _count(),
    "file": _TEXT,
    "bytes": _count(),
    "text_blake2b": _hex(32),
    **{name: _count() for name in (*SUMMED, "unknown_tokens", "not_next")},
}
_MANIFEST: dict[str, _Rule] = {
    **_JOB,
    **{name: _count() for name in SUMMED},
    "real_token_share": _SHARE,
    "unknown_token_share": _SHARE,
    "not_next_share": _SHARE,
    "shards": (
        "a list of at least one shard",
        lambda v: isinstance(v, list) and bool(v),
    ),
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
        DataError: it is not one; names the key, the rule and the value.
    """
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", path=path) from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise DataError(f"must be the manifest of {_FORMAT}", path=path)
    whole = _Object(path, manifest)
    whole.check(_MANIFEST)
    _check_job_values(whole)
    for number, values in enumerate(manifest["shards"]):
        shard = _Object(path, values, place=f"shards[{number}]")
        _check_shard(shard)
        if values["number"] != number:
            raise shard.wrong("number", f"{number}")
    for name in SUMMED:
        total = sum(shard[name] for shard in manifest["shards"])
        if manifest[name] != total:
            raise whole.wrong(name, f"{total}, the sum over the shards")
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
    for number, values in enumerate(rows, 1):
        row = _Object(path, values, number)
        if number == 1:
            row.check(_JOB)
            _check_job_values(row)
        else:
            _check_shard(row)
    if not rows:
        return None
    check_job(folder, rows[0], job)
    return rows[1:]


def check_shard(path: str | os.PathLike[str], shard: Any) -> None:
    """Raise DataError unless the object in a file describes a shard."""
    _check_shard(_Object(path, shard))


def _check_shard(shard: _Object) -> None:
    shard.check(_SHARD)
    name = shard_name(shard.values["number"])
    if shard.values["file"] != name:
        raise shard.wrong("file", name)


@dataclasses.dataclass(frozen=True)
class _Object:
    """An object of a file, and its place in it, for errors."""

    path: str | os.PathLike[str]
    values: Any
    line: int | None = None
    place: str = ""  # such as `shards[0]`; empty for the whole

    def inside(self, key: str) -> _Object:
        """Return the object under a key."""
        return dataclasses.replace(self, values=self.values[key], place=self._name(key))

    def check(self, rules: Mapping[str, _Rule]) -> None:
        """Raise unless the object has exactly these keys, with allowed values."""
        if not isinstance(self.values, dict):
            what = f"`{self.place}` must be" if self.place else "must be"
            raise self.error(f"{what} an object; received {shown(self.values)}")
        for key, (rule, holds) in rules.items():
            if key not in self.values:
                raise self.error(f"lacks `{self._name(key)}`")
            if not holds(self.values[key]):
                raise self.wrong(key, rule)
        more = sorted(set(self.values) - set(rules))
        if more:
            raise self.error(f"has the unknown key {shown(self._name(more[0]))}")

    def wrong(self, key: str, rule: str) -> DataError:
        """Return the error of a value that breaks a rule."""
        value = shown(self.values[key])
        return self.error(f"`{self._name(key)}` must be {rule}; received {value}")

    def error(self, message: str) -> DataError:
        return DataError(message, path=self.path, line=self.line)

    def _name(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key


def _check_job_values(job: _Object) -> None:
    """Check the two objects of a job."""
    job.inside("tokenizer").check(_TOKENIZER)
    names = [field.name for field in dataclasses.fields(PretrainingDataConfig)]
    rules: dict[str, _Rule] = {name: ("", lambda v: True) for name in names}
    # `None` is allowed from a user; its resolved value is recorded.
    rules |= {"max_predictions": _count(1), "dupe_factor": _count(1)}
    settings = job.inside("settings")
    settings.check(rules)
    try:
        PretrainingDataConfig(**settings.values)
    except ConfigError as error:
        raise job.error(f"`settings`: {error}") from None


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an error of a file system into one line."""
    try:
        yield
    except OSError as error:
        message = f"cannot be written: {reason_of(error)}"
        raise DataError(message, path=path) from None


def as_text(manifest: Mapping[str, Any]) -> str:
    """Return the text of a manifest."""
    return json.dumps(manifest, indent=2) + "\n"


def is_partial(name: str) -> bool:
    """Return whether a file is one that a killed run left incomplete."""
    return _PARTIAL.fullmatch(name) is not None


def check_names(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Raise DataError unless the files of a folder are those of pretraining data."""
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
