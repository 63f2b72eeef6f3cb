"""The folder of an export: the versions of a SavedModel. Needs no TensorFlow."""

from __future__ import annotations

import os
import re
from pathlib import Path

GRAPH = "saved_model.pb"
EXTRA = "assets.extra"
ANSWERS = "answers.json"  # in EXTRA: the task of the answers


def versions(output: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of the versions in a folder, in order."""
    folder = Path(output)
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if re.fullmatch(r"[1-9]\d*", name))


def saved_versions(folder: Path) -> list[int]:
    """Return the numbers of the versions that hold a SavedModel, in order."""
    found = versions(folder)
    return [number for number in found if (folder / str(number) / GRAPH).is_file()]


def find_saved_model(path: str | os.PathLike[str]) -> Path | None:
    """Return the SavedModel at a path, the newest of several versions, or `None`."""
    folder = Path(path)
    if (folder / GRAPH).is_file():
        return folder
    found = saved_versions(folder)
    return folder / str(found[-1]) if found else None


def is_exported(folder: Path) -> bool:
    """Return whether a SavedModel names the task of its answers."""
    return (folder / EXTRA / ANSWERS).is_file()
