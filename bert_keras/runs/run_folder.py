"""The folder of a long run: its settings, its checkpoints and its curves.

A checkpoint is written under another name, synced and renamed, so that a run killed at
any moment leaves only complete ones. A run with other settings is rejected before
anything is changed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.errors import CheckpointError, ConfigError, reason_of, shown
from bert_keras.files.atomic import (
    FILES,
    locked_file,
    replaced_file,
    replaced_folder,
    sync,
)
from bert_keras.settings import RESUME, check_choice

SETTINGS, CURVES = "run.json", "curves.jsonl"
CHECKPOINTS, MODEL = "checkpoints", "model"
NONFINITE = "nonfinite.json"  # written when a run stops at a non-finite value
EPOCH = "epoch.json"  # which epoch a model inside a run folder is of
FINISHED = ".finished.json"  # suffix of the notes about finished runs
# How a run chooses what the user does not: a run of other defaults is not resumed.
CHOICES, DEFAULTS = "defaults", 2
_FORMAT = 1
_LOCK = ".lock"
# What a killed run may leave incomplete.
_LEFT = (
    ".*.partial",
    ".best-*",
    ".model-*",
    f"{CHECKPOINTS}/.new-*",
    f"{CHECKPOINTS}/.old-*",
)
_NAME = re.compile(r"step-([0-9]{9,})")
_SHOWN, _BEFORE = 60, 10  # characters of a long text, and before a difference


class RunFolder:
    """Opens or creates the folder of a run; the end of a `with` block closes it.

    Only one process at a time can open it. Closing waits for the checkpoint that is
    being written. `settings` are everything that determines the result, as JSON values.
    Those that `may_lack` names are compared only if the run has them too, such as
    held-out data; a run that lacks them gets them.

    Raises:
        ConfigError: the folder holds a run with other settings; the error names the
            first one.
        CheckpointError: it holds something else, another process has it open, or
            writing fails.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, Any],
        *,
        may_lack: Collection[str] = (),
    ) -> None:
        self.path = Path(path)
        self._writer = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._writing: concurrent.futures.Future[None] | None = None
        with self._writes():
            wanted, found = _same_run(self.path, settings, may_lack)
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = contextlib.ExitStack()
            try:
                self._lock.enter_context(locked_file(self.path / _LOCK))
            except BlockingIOError:
                raise CheckpointError(
                    f"{self.path}: another process trains here: wait for it, or stop it"
                ) from None
            self._clean()
            whole = {**found, **wanted}
            if whole != found:
                self.add_note(SETTINGS, whole)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # If another error occurred, that one is reported.
        quiet = (
            contextlib.suppress(CheckpointError) if kind else contextlib.nullcontext()
        )
        with quiet:
            try:
                self.wait()
            finally:
                self._writer.shutdown()
                self._lock.close()

    @property
    def steps(self) -> list[int]:
        """The steps of the existing checkpoints, in order."""
        return _steps_in(self.path)

    def checkpoint(self, step: int) -> Path:
        """Return the folder of a step's checkpoint."""
        return self.path / CHECKPOINTS / f"step-{step:09d}"

    def save(
        self,
        step: int,
        write: Callable[[Path], object],
        *,
        keep: int,
        before: Mapping[str, Callable[[Path], object]] | None = None,
    ) -> None:
        """Write a checkpoint in the background, after waiting for an earlier one.

        Args:
            step: names the checkpoint; an existing one is kept.
            write: fills the folder that it receives.
            keep: number of the newest checkpoints to keep.
            before: other folders inside the run's by name, such as a model, which are
                written first; each replaces an existing one once it is complete.

        Raises:
            CheckpointError: writing failed, now or for the previous checkpoint.
        """
        self.wait()
        self._writing = self._writer.submit(self._save, step, write, keep, before or {})

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is complete."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Append a row to the curves."""
        with self._writes(), open(self.path / CURVES, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def add_note(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a JSON file in the folder, replacing one of the same name."""
        with self._writes(), replaced_file(self.path / name) as temporary:
            temporary.write_text(json.dumps(values, indent=2) + "\n", "utf-8")
            sync(temporary)

    def add_array(self, name: str, array: np.ndarray) -> None:
        """Write an array as a `.npy` file in the folder."""
        with self._writes(), replaced_file(self.path / name) as temporary:
            with open(temporary, "wb") as file:
                np.save(file, array)
            sync(temporary)

    def array(self, name: str) -> np.ndarray | None:
        """Return the array of a `.npy` file in the folder; `None` without one."""
        path = self.path / name
        return np.load(path) if path.is_file() else None

    def rows(
        self, last_step: int, wanted: Callable[[Mapping[str, Any]], bool] = bool
    ) -> list[dict[str, Any]]:
        """Return the curves up to a step, without unwanted rows; others are deleted."""
        path = self.path / CURVES
        rows: list[dict[str, Any]] = []
        with self._writes():
            lines = path.read_bytes().splitlines() if path.exists() else []
            for line in lines:
                try:
                    row = json.loads(line)
                except ValueError:  # the last line of a killed run
                    break
                step = row.get("step") if isinstance(row, dict) else None
                if not isinstance(step, int):
                    break
                if step <= last_step and wanted(row):
                    rows.append(row)
            with replaced_file(path) as temporary:
                temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return rows

    def _save(
        self,
        step: int,
        write: Callable[[Path], object],
        keep: int,
        before: Mapping[str, Callable[[Path], object]],
    ) -> None:
        target = self.checkpoint(step)
        with self._writes():
            for name, write_other in before.items():
                self._put(self.path / name, write_other)
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                new = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
                try:
                    write(new)
                    new.chmod(0o755)
                    sync(*new.iterdir(), new)
                    new.rename(target)
                    sync(target.parent)
                finally:
                    shutil.rmtree(new, ignore_errors=True)
            for old in self.steps[:-keep]:
                # In one step: an incomplete checkpoint never has a checkpoint's name.
                gone = target.with_name(f".old-{old}")
                self.checkpoint(old).rename(gone)
                shutil.rmtree(gone, ignore_errors=True)

    def _put(self, target: Path, write: Callable[[Path], object]) -> None:
        with replaced_folder(target, files=FILES | {EPOCH}) as new:
            write(new)
            sync(*new.rglob("*"), new)
        sync(target.parent)

    def _clean(self) -> None:
        """Delete what a killed run has left incomplete."""
        for pattern in _LEFT:
            for left in self.path.glob(pattern):
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _writes(self) -> Iterator[None]:
        """Turn an error of the file system into a CheckpointError."""
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: cannot be written: {reason_of(error)}; "
                "finished checkpoints are kept"
            ) from None


def checked_steps(
    path: str | os.PathLike[str],
    settings: Mapping[str, Any],
    *,
    may_lack: Collection[str] = (),
) -> list[int]:
    """Return the steps of the checkpoints that a run with some settings resumes from.

    Nothing is written. The arguments and errors are those of `RunFolder`.
    """
    _same_run(Path(path), settings, may_lack)
    return _steps_in(Path(path))


def _steps_in(path: Path) -> list[int]:
    """Return the steps of the checkpoints in the folder of a run, in order."""
    folder = path / CHECKPOINTS
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(m[1]) for name in names if (m := _NAME.fullmatch(name)))


def _same_run(
    path: Path, settings: Mapping[str, Any], may_lack: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings as JSON values, and those of the run in a folder, if any.

    Raises:
        ConfigError: they differ.
        CheckpointError: the folder holds something else.
    """
    wanted = json.loads(json.dumps({"format": _FORMAT, **settings}))
    if not (path / SETTINGS).is_file():
        _check_new(path)
        return wanted, {}
    try:
        found = json.loads((path / SETTINGS).read_text(encoding="utf-8"))
    except ValueError:
        raise CheckpointError(f"{path / SETTINGS}: is not JSON") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path / SETTINGS}: must hold an object")
    lacking = (found.keys() ^ wanted.keys()) & set(may_lack)
    old, new = (
        {k: v for k, v in each.items() if k not in lacking} for each in (found, wanted)
    )
    if difference := what_differs(old, new):
        raise ConfigError(
            f"{path}: holds a run with another {difference}: "
            "choose a new folder, or the same settings to resume"
        )
    return wanted, found


def _check_new(path: Path) -> None:
    """Raise CheckpointError unless a folder is absent or empty."""
    if path.is_dir():
        found = {entry.name for entry in path.iterdir()} - {_LOCK}
        if all(name.endswith(".partial") for name in found):
            return
    elif not path.exists():
        return
    raise CheckpointError(
        f"{path}: must be a new folder or a run's folder; contains no {SETTINGS}"
    )


def digest_of(weights: Iterable[tuple[str, Any]]) -> str:
    """Return a digest of names and arrays, as a setting of a run."""
    found = hashlib.blake2b(digest_size=16)
    for name, array in weights:
        found.update(name.encode())
        found.update(array.tobytes())
    return found.hexdigest()


def what_differs(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Describe where settings differ: the first key, its values, further keys.

    Empty if they do not differ; `None` stands for a key that one of them lacks.

    Example:
        >>> what_differs({"task settings": {"top": 3}}, {"task settings": {"top": 5}})
        '`task settings.top`: 3; received 5'
    """
    differences = _differences("", old, new)
    if not differences:
        return ""
    (name, first, second), *more = differences
    words = f"`{name}`: {first}; received {second}"
    if more:
        names = ", ".join(f"`{each[0]}`" for each in more[:3])
        words += f" (and {names}{' …' if len(more) > 3 else ''})"
    return words


def _differences(name: str, old: Any, new: Any) -> list[tuple[str, str, str]]:
    """Return the keys of values that differ, and both values as text."""
    if old == new:
        return []
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        # In the order of the new settings, then keys that these lack.
        pairs = [
            (f"{name}.{key}" if name else key, old.get(key), new.get(key))
            for key in {**new, **old}
        ]
    elif isinstance(old, list) and isinstance(new, list):
        both = itertools.zip_longest(old, new)
        pairs = [(f"{name}[{n}]", *each) for n, each in enumerate(both)]
    else:
        return [(name, *_shown_apart(old, new))]
    return [found for pair in pairs for found in _differences(*pair)]


def _shown_apart(old: Any, new: Any) -> tuple[str, str]:
    """Return two values as shown in a message; of long texts, where they differ."""
    if isinstance(old, str) and isinstance(new, str):
        start = max(len(os.path.commonprefix([old, new])) - _BEFORE, 0)
        if start and max(len(old), len(new)) > _SHOWN:
            return f"…{shown(old[start:])}", f"…{shown(new[start:])}"
    return shown(old), shown(new)


def run_path(output: str | os.PathLike[str], name: str = "run") -> Path:
    """Return the run folder that belongs to a model folder."""
    target = Path(os.path.realpath(output))
    return target.with_name(f".{target.name}.{name}")


def replacement_note(output: str | os.PathLike[str]) -> str:
    """Return a line if a run will replace a folder, else an empty string."""
    if not os.path.lexists(output):
        return ""
    return f"{os.fspath(output)} exists, and is replaced when the run is complete"


def open_run(path: Path, settings: Mapping[str, Any], *, resume: str) -> RunFolder:
    """Return the folder of the same interrupted run, or else a new run folder.

    `settings` determine the weights. `resume` is `auto`, which resumes the same run, or
    `never`, which deletes an existing run.

    Raises:
        ConfigError: there is an unfinished run with other settings.
        CheckpointError: another process uses the folder, or writing fails.
    """
    check_choice("resume", resume, RESUME)
    found = settings_of(path)
    if found is not None:
        wanted = json.loads(json.dumps(settings))
        with RunFolder(path, found) as old:
            # Its own checkpoints, and the entries of several runs.
            kept = (f"*{FINISHED}", ".*.run*/checkpoints/step-*")
            holds = old.steps or any(list(path.glob(pattern)) for pattern in kept)
            difference = what_differs(found, wanted)
            if holds and difference and resume == "auto":
                raise ConfigError(
                    f"{path}: holds an unfinished run with another {difference}: "
                    "use the same to resume it, or `--resume never` to start over"
                )
            if difference or resume == "never":
                remove_run(old)
    return RunFolder(path, settings)


def remove_run(run: RunFolder) -> None:
    """Remove a run folder atomically, while its lock is held."""
    gone = run.path.with_name(f"{run.path.name}-gone")
    shutil.rmtree(gone, ignore_errors=True)  # left by a process that was killed here
    run.path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def discard_run(path: Path, settings: Mapping[str, Any]) -> None:
    """Remove a run folder if it exists and is of these settings.

    Raises:
        CheckpointError: another process uses the folder.
    """
    found = settings_of(path)
    if found is None:
        return
    wanted = json.loads(json.dumps(settings))
    if all(found.get(name) == value for name, value in wanted.items()):
        with RunFolder(path, found) as run:
            remove_run(run)


def settings_of(path: Path) -> dict[str, Any] | None:
    """Return the settings of the run in a folder, or `None` if there is no run."""
    try:
        found = json.loads((path / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # RunFolder reports the error
    if not isinstance(found, dict):
        return None
    return {k: v for k, v in found.items() if k != "format"}
