"""The manifest of a folder of pretraining data.

`manifest.json` is written last and records how the shards were made and what they
contain; until then there is a journal, see `data.Journal`. Both are checked here when
they are read: every key, its type and its range.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_keras import __version__
from bert_keras.corpus.documents import name_of
from bert_keras.errors import ConfigError, DataError, shown
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.settings import is_whole_number
from bert_keras.text.tokenizer_files import vocabulary_hash

if TYPE_CHECKING:  # this module does not need TensorFlow
    from bert_keras.text.tokenizer import WordPieceTokenizer

MANIFEST = "manifest.json"
JOURNAL = "unfinished.jsonl"
_OURS = re.compile(r"part-\d{5,}\.tfrecord\.gz|manifest\.json|unfinished\.jsonl")
_PARTIAL = re.compile(rf"\.({_OURS.pattern})\.\d+\.partial")
_FORMAT = "bert_keras pretraining data 1"

# A rule: the condition on a key's value, as text and as a function.
_Rule = tuple[str, Callable[[Any], bool]]


def _count(least: int = 0) -> _Rule:
    return f"a whole number of at least {least}", lambda v: is_whole_number(v, least)


def _hex(digits: int) -> _Rule:
    pattern = re.compile(rf"[0-9a-f]{{{digits}}}")
    return (
        f"{digits} hexadecimal digits",
        lambda v: _is(v, str) and bool(pattern.fullmatch(v)),
    )


def _one_of(*values: Any) -> _Rule:
    words = ", ".join(json.dumps(value) for value in values)
    # 1 is not true, and 0 is not false.
    return f"one of {words}", lambda v: any(v is w or _equal(v, w) for w in values)


def _equal(value: Any, wanted: Any) -> bool:
    return type(value) is type(wanted) and value == wanted


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind)


_TEXT: _Rule = ("a string", lambda v: _is(v, str))
_OBJECT: _Rule = ("an object", lambda v: _is(v, dict))
_SHARE: _Rule = (
    "a number from 0 to 1",
    lambda v: _is(v, int | float) and not _is(v, bool) and 0 <= v <= 1,
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
        lambda v: _is(v, list) and bool(v),
    ),
}


def job_of(
    config: PretrainingDataConfig,
    tokenizer: WordPieceTokenizer,
    to_sentences: Callable[..., Any],
) -> dict[str, Any]:
    """Return everything that determines the shards, except the documents."""
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
    _check_keys(path, None, "", manifest, _MANIFEST)
    _check_job_values(path, None, manifest)
    for number, shard in enumerate(manifest["shards"]):
        check_shard(path, shard, place=f"shards[{number}]")
        if shard["number"] != number:
            raise _wrong(path, None, f"shards[{number}].number", f"{number}", shard)
    for name in SUMMED:
        total = sum(shard[name] for shard in manifest["shards"])
        if manifest[name] != total:
            rule = f"{total}, the sum over the shards"
            raise _wrong(path, None, name, rule, manifest)
    return manifest


def check_journal(path: str | os.PathLike[str], rows: Iterable[Any]) -> None:
    """Raise DataError unless the rows of a journal are a job and finished shards."""
    for line, row in enumerate(rows, 1):
        if line == 1:
            _check_keys(path, line, "", row, _JOB)
            _check_job_values(path, line, row)
        else:
            check_shard(path, row, line=line)


def check_shard(
    path: str | os.PathLike[str],
    shard: Any,
    *,
    line: int | None = None,
    place: str = "",
) -> None:
    """Raise DataError unless an object, at a place of a file, describes a shard."""
    _check_keys(path, line, place, shard, _SHARD)
    name = shard_name(shard["number"])
    if shard["file"] != name:
        raise _wrong(path, line, _inside(place, "file"), name, shard)


def _check_job_values(
    path: str | os.PathLike[str], line: int | None, job: Mapping[str, Any]
) -> None:
    """Check the two objects of a job."""
    _check_keys(path, line, "tokenizer", job["tokenizer"], _TOKENIZER)
    names = [field.name for field in dataclasses.fields(PretrainingDataConfig)]
    rules: dict[str, _Rule] = {name: ("", lambda v: True) for name in names}
    # `None` is allowed from a user; its resolved value is recorded.
    rules |= {"max_predictions": _count(1), "dupe_factor": _count(1)}
    _check_keys(path, line, "settings", job["settings"], rules)
    try:
        PretrainingDataConfig(**job["settings"])
    except ConfigError as error:
        raise DataError(f"`settings`: {error}", path=path, line=line) from None


def _check_keys(
    path: str | os.PathLike[str],
    line: int | None,
    place: str,
    values: Any,
    rules: Mapping[str, _Rule],
) -> None:
    """Raise unless an object has exactly these keys, with allowed values.

    Args:
        path, line: of the file.
        place: of the object in the file; empty for the whole.
        values: the object.
        rules: key to rule.
    """
    if not isinstance(values, dict):
        what = f"`{place}` must be" if place else "must be"
        raise DataError(
            f"{what} an object; received {shown(values)}", path=path, line=line
        )
    for name, (rule, holds) in rules.items():
        if name not in values:
            raise DataError(f"lacks `{_inside(place, name)}`", path=path, line=line)
        if not holds(values[name]):
            raise _wrong(path, line, _inside(place, name), rule, values)
    more = sorted(set(values) - set(rules))
    if more:
        raise DataError(
            f"has the unknown key {shown(_inside(place, more[0]))}",
            path=path,
            line=line,
        )


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _wrong(
    path: str | os.PathLike[str],
    line: int | None,
    name: str,
    rule: str,
    values: Mapping[str, Any],
) -> DataError:
    """Return the error of a key, whose name ends with the key of `values`."""
    value = shown(values[name.rpartition(".")[2]])
    return DataError(f"`{name}` must be {rule}; received {value}", path=path, line=line)


def as_text(manifest: Mapping[str, Any]) -> str:
    """Return the text of a manifest."""
    return json.dumps(manifest, indent=2) + "\n"


def is_partial(name: str) -> bool:
    """Return whether a file is one that a killed run left incomplete."""
    return _PARTIAL.fullmatch(name) is not None


def check_names(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Raise DataError unless the files of a folder are those of pretraining data."""
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
