"""The folder of a long run: what it was told, its checkpoints and its curves.

A checkpoint is written beside, synced and renamed, so that a run that is killed at any
moment finds whole ones. A run of other settings is refused before anything is touched.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.whole_file import written_beside

SETTINGS, CURVES, CHECKPOINTS, MODEL = (
    "run.json",
    "curves.jsonl",
    "checkpoints",
    "model",
)
_FORMAT = 1
_NAME = re.compile(r"step-([0-9]{9,})")


class RunFolder:
    """Opens the folder of a run, or makes it.

    Args:
        path: a new folder, an empty one, or that of a run with the same settings.
        settings: what the result follows from, fit for JSON.

    Raises:
        ConfigError: the folder holds a run with other settings; names the first.
        CheckpointError: it holds something else, or the disk refuses.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any]
    ) -> None:
        self.path = Path(path)
        self._writer = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._writing: concurrent.futures.Future[None] | None = None
        wanted = json.loads(json.dumps({"format": _FORMAT, **settings}))
        try:
            if (self.path / SETTINGS).is_file():
                self._compare(wanted)
                self._clean()
                return
            if self.path.exists() and (
                not self.path.is_dir() or any(self.path.iterdir())
            ):
                raise CheckpointError(
                    f"{self.path}: must be a new folder or that of a run; holds no "
                    f"{SETTINGS}"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            with written_beside(self.path / SETTINGS) as beside:
                beside.write_text(json.dumps(wanted, indent=2) + "\n", "utf-8")
        except OSError as error:
            raise self._refused(error) from None

    @property
    def steps(self) -> list[int]:
        """The steps of the checkpoints that are there, in order."""
        folder = self.path / CHECKPOINTS
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(m[1]) for name in names if (m := _NAME.fullmatch(name)))

    def checkpoint(self, step: int) -> Path:
        """Return the folder of a step's checkpoint."""
        return self.path / CHECKPOINTS / f"step-{step:09d}"

    def save(self, step: int, write: Callable[[Path], object], *, keep: int) -> None:
        """Write a checkpoint in the background; an earlier one is waited for.

        Args:
            step: names the checkpoint; one that is there already stays.
            write: fills the folder that it is given.
            keep: so many of the newest stay.

        Raises:
            CheckpointError: the disk refused, now or when the one before was written.
        """
        self.wait()
        self._writing = self._writer.submit(self._save, step, write, keep)

    def wait(self) -> None:
        """Return when the checkpoint that is being written stands."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Append a row to the curves."""
        try:
            with open(self.path / CURVES, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise self._refused(error) from None

    def rows(self, last_step: int) -> list[dict[str, Any]]:
        """Return the curves up to a step; what stands behind it is taken away."""
        path = self.path / CURVES
        rows = []
        try:
            if path.exists():
                for line in path.read_text(encoding="utf-8").splitlines():
                    try:
                        rows.append(json.loads(line))
                    except ValueError:  # the last line of a run that was killed
                        break
            rows = [row for row in rows if row["step"] <= last_step]
            with written_beside(path) as beside:
                beside.write_text("".join(json.dumps(row) + "\n" for row in rows))
        except OSError as error:
            raise self._refused(error) from None
        return rows

    def _save(self, step: int, write: Callable[[Path], object], keep: int) -> None:
        target = self.checkpoint(step)
        try:
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                new = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
                try:
                    write(new)
                    new.chmod(0o755)
                    for path in [*new.iterdir(), new]:
                        _sync(path)
                    new.rename(target)
                    _sync(target.parent)
                finally:
                    shutil.rmtree(new, ignore_errors=True)
            for old in self.steps[:-keep]:
                shutil.rmtree(self.checkpoint(old))
        except OSError as error:
            raise self._refused(error) from None

    def _compare(self, wanted: Mapping[str, Any]) -> None:
        path = self.path / SETTINGS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise CheckpointError(f"{path}: is no JSON") from None
        if not isinstance(found, dict):
            raise CheckpointError(f"{path}: must hold an object")
        for name in {**wanted, **found}:
            old, new = found.get(name), wanted.get(name)
            if old != new:
                raise ConfigError(
                    f"{self.path}: holds a run with another `{name}`: "
                    f"{str(old)[:60]}; received {str(new)[:60]}: "
                    "choose a new folder, or the same settings to go on"
                )

    def _clean(self) -> None:
        """Take away what a run that was killed has left half written."""
        for left in (self.path / CHECKPOINTS).glob(".new-*"):
            shutil.rmtree(left, ignore_errors=True)

    def _refused(self, error: OSError) -> CheckpointError:
        reason = error.strerror or error
        return CheckpointError(
            f"{self.path}: cannot be written: {reason}; finished checkpoints stay"
        )


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
