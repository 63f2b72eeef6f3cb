"""The folder in which fine-tuning keeps its state until its model stands: `open_run`.

It lies beside the model folder, hidden: `.NAME.run` for `NAME`. So a model that stands
there is as it was until the new one is whole, and a finished model folder holds nothing
of the run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from bert_keras.data.table import Columns
from bert_keras.errors import ConfigError
from bert_keras.runs.run_folder import SETTINGS, RunFolder, what_differs
from bert_keras.settings import RESUME, check_choice
from bert_keras.tasks.base import Task
from bert_keras.tasks.task_model import TaskModel
from bert_keras.text.tokenizer_files import vocabulary_hash
from bert_keras.training.config import TrainConfig

FINISHED = ".finished.json"  # ends the names of what is told of runs that are over
# What may differ when a run resumes: the weights do not depend on it.
_FREE = ("save_every", "keep", "tensorboard", "on_nonfinite", "restarts", "strategy")


def run_path(output: str | os.PathLike[str], name: str = "run") -> Path:
    """Return the folder of the run that writes a model folder."""
    target = Path(os.path.realpath(output))
    return target.with_name(f".{target.name}.{name}")


def open_run(path: Path, settings: Mapping[str, Any], *, resume: str) -> RunFolder:
    """Return the folder of a run: that of the same run, stopped, or a new one.

    Args:
        path: as `run_path` gives it.
        settings: what the weights follow from.
        resume: `auto` resumes the same run; `never` deletes what is there.

    Raises:
        ConfigError: an unfinished run of other settings stands there.
        CheckpointError: another process has it, or the disk refuses.
    """
    check_choice("resume", resume, RESUME)
    found = _settings_of(path)
    if found is not None:
        wanted = json.loads(json.dumps(settings))
        with RunFolder(path, found) as old:
            # Checkpoints of its own, and what several runs have in there.
            kept = (f"*{FINISHED}", ".*.run*/checkpoints/step-*")
            holds = old.steps or any(list(path.glob(pattern)) for pattern in kept)
            difference = what_differs(found, wanted)
            if holds and difference and resume == "auto":
                raise ConfigError(
                    f"{path}: holds an unfinished run with another {difference}: give "
                    "the same to go on, or `--resume never` to start anew"
                )
            if difference or resume == "never":
                remove_run(old)
    return RunFolder(path, settings)


def remove_run(run: RunFolder) -> None:
    """Take a run's folder away, in one step, while its lock is held."""
    gone = run.path.with_name(f"{run.path.name}-gone")
    shutil.rmtree(gone, ignore_errors=True)  # of a process that was killed here
    run.path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def discard_run(path: Path, settings: Mapping[str, Any]) -> None:
    """Take a run's folder away, if there is one.

    Args:
        path: as `run_path` gives it.
        settings: a run of other settings stays.

    Raises:
        CheckpointError: another process has it.
    """
    found = _settings_of(path)
    if found is None:
        return
    wanted = json.loads(json.dumps(settings))
    if all(found.get(name) == value for name, value in wanted.items()):
        with RunFolder(path, found) as run:
            remove_run(run)


def told_settings(
    task: Task,
    encoder: str | os.PathLike[str],
    config: TrainConfig,
    data: Mapping[str, Columns],
) -> dict[str, Any]:
    """Return what a person has said of a run, data included, fit for JSON."""
    told = {k: v for k, v in dataclasses.asdict(config).items() if k not in _FREE}
    return {
        "task": task.name,
        "encoder": os.fspath(encoder),
        **{f"{name} rows": _digest(columns) for name, columns in data.items()},
        **told,
        "task settings": json.loads(json.dumps(task.settings(), default=str)),
    }


def model_settings(model: TaskModel) -> dict[str, Any]:
    """Return what else the weights at the end follow from."""
    found = hashlib.blake2b(digest_size=16)
    for weight in model.backbone.weights:
        found.update(weight.path.encode())
        found.update(keras.ops.convert_to_numpy(weight).tobytes())
    return {
        "preprocessing": model.preprocessor.settings(),
        "vocabulary": vocabulary_hash(model.preprocessor.tokenizer.vocabulary),
        "weights of the encoder": found.hexdigest(),
    }


def _settings_of(path: Path) -> dict[str, Any] | None:
    """Return the settings of the run in a folder; `None` where there is none."""
    try:
        found = json.loads((path / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # RunFolder says what is wrong with it
    if not isinstance(found, dict):
        return None
    return {name: value for name, value in found.items() if name != "format"}


def _digest(columns: Columns) -> str:
    """Return what tells rows apart, whatever file they stand in."""
    found = hashlib.blake2b(digest_size=8)
    for role in sorted(columns.cells):
        cells = json.dumps([role, columns[role]], ensure_ascii=True, default=str)
        found.update(cells.encode())
    return f"{len(columns):,} rows, {found.hexdigest()}"
