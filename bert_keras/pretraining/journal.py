"""The shards of pretraining data that are finished: `Journal`.

Until there is a manifest, `unfinished.jsonl` has the settings in its first line and
then a line for each finished shard, so that a run that was killed goes on where it
stood.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras.errors import DataError
from bert_keras.files.atomic import check_path, written_beside
from bert_keras.pretraining.manifest import (
    JOURNAL,
    MANIFEST,
    as_text,
    check_job,
    check_journal,
    check_names,
    check_none_left,
    check_text,
    is_partial,
    read_manifest,
    shard_name,
)


class Journal:
    """The shards of a job that are finished; written down as each of them is.

    Args:
        folder: where the shards are.
        job: see `pretraining_manifest.job_of`.

    Attributes:
        shards: number to what is known of a finished shard, from an earlier run too.
        manifest: that of an earlier run that finished, or `None`.

    Raises:
        DataError: the folder holds another job's data or other files, or cannot be
            written.
    """

    def __init__(self, folder: str | os.PathLike[str], job: Mapping[str, Any]) -> None:
        check_path("output", folder)
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
            check_journal(path, lines)
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


def whole_lines(data: bytes) -> list[Any]:
    """Return the values of a journal up to a line that was not written wholly."""
    rows: list[Any] = []
    for line in data.split(b"\n")[:-1]:
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            break
    return rows


def _replace(path: Path, text: str) -> None:
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(f"cannot be written: {error.strerror or error}", path=path)
