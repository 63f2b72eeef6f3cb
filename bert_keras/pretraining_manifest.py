"""What a folder of pretraining data says of itself: its manifest and its journal.

`manifest.json` is written last and says how the shards were made and what they hold.
Until then `unfinished.jsonl` has the settings in its first line and then a line for
each finished shard, so that a run that was killed goes on where it stood.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_keras import __version__
from bert_keras.errors import DataError
from bert_keras.function_name import name_of
from bert_keras.pretraining_data_config import PretrainingDataConfig
from bert_keras.vocabulary import vocabulary_hash
from bert_keras.whole_file import written_beside

if TYPE_CHECKING:  # this module does not need TensorFlow
    from bert_keras.tokenizer import WordPieceTokenizer

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


class Journal:
    """The shards of a job that are finished; written down as each of them is.

    Args:
        folder: where the shards are.
        job: see `job_of`.

    Attributes:
        shards: number to what is known of a finished shard, from an earlier run too.
        manifest: that of an earlier run that finished, or `None`.

    Raises:
        DataError: the folder holds another job's data or other files, or cannot be
            written.
    """

    def __init__(self, folder: str | os.PathLike[str], job: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.job = dict(job)
        self.shards: dict[int, dict[str, Any]] = {}
        self.manifest = read_manifest(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_folder()
            if self.manifest is not None:
                check_job(self.folder, self.manifest, self.job)
                self._keep(self.manifest["shards"])
            else:
                self._resume()
        except OSError as error:
            raise _unwritable(self.folder, error) from None

    def _check_folder(self) -> None:
        """Raise where there is anything else; drop what a killed run left half done."""
        names = os.listdir(self.folder)
        for name in filter(is_partial, names):
            (self.folder / name).unlink()
        check_names(self.folder, names)

    def _resume(self) -> None:
        """Read the journal of an unfinished run, if any, and begin a whole one."""
        lines = []
        path = self.folder / JOURNAL
        if path.exists():
            lines = whole_lines(path.read_bytes())
        if lines:
            check_job(self.folder, lines[0], self.job)
            self._keep(lines[1:])
        rows = [self.job, *(self.shards[number] for number in sorted(self.shards))]
        _replace(path, "".join(json.dumps(row) + "\n" for row in rows))

    def _keep(self, shards: list[dict[str, Any]]) -> None:
        """Take over those shards whose files are there, as large as they were."""
        for shard in shards:
            path = self.folder / shard["file"]
            if path.is_file() and path.stat().st_size == shard["bytes"]:
                self.shards[shard["number"]] = shard

    def holds(self, number: int, text_hash: str) -> bool:
        """Say whether the shard of a block is finished.

        Raises:
            DataError: it is, but was made of other text.
        """
        shard = self.shards.get(number)
        if shard is None:
            return False
        check_text(self.folder, shard, text_hash)
        return True

    def add(self, shard: Mapping[str, Any]) -> None:
        """Write down that a shard is finished; its file is in its place.

        Raises:
            DataError: the disk refuses.
        """
        self.shards[shard["number"]] = dict(shard)
        if self.manifest is not None:  # one of its shards was lost and made anew
            return
        try:
            with open(self.folder / JOURNAL, "a", encoding="utf-8") as file:
                file.write(json.dumps(shard) + "\n")
        except OSError as error:
            raise _unwritable(self.folder / JOURNAL, error) from None

    def finish(self, count: int, totals: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest of `count` shards and return it.

        Raises:
            DataError: an earlier run made more shards; the disk refuses.
        """
        check_none_left(self.folder, map(shard_name, self.shards), count)
        shards = [self.shards[number] for number in range(count)]
        manifest = {**self.job, **totals, "shards": shards}
        try:
            path = self.folder / MANIFEST
            _replace(path, as_text(manifest))
            (self.folder / JOURNAL).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(path, error) from None
        return manifest


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


def whole_lines(data: bytes) -> list[dict[str, Any]]:
    """Return the objects of a journal up to a line that was not written wholly."""
    rows: list[dict[str, Any]] = []
    for line in data.split(b"\n")[:-1]:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _replace(path: Path, text: str) -> None:
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(f"cannot be written: {error.strerror or error}", path=path)
