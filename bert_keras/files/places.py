"""Paths of outputs, which must not overwrite or contain inputs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras.errors import ConfigError


def check_path(name: str, path: str | os.PathLike[str]) -> None:
    """Raise ConfigError if a path is empty: Python takes it for the current folder."""
    if not os.fspath(path):
        raise ConfigError(f"`{name}` must be a path; received ''")


def check_output_place(
    name: str,
    output: str | os.PathLike[str],
    inputs: Mapping[str, Any],
    *,
    around: bool = False,
    inside: bool = False,
) -> None:
    """Raise if writing an output would overwrite an input or mix with it.

    The output must not be an input, also not through links, contain an input, or
    already exist inside the folder of one.

    Args:
        name: the output's argument, for errors.
        output: the file or folder to write; need not exist.
        inputs: argument to its value or values. Values that are no local path, such as
            a hub name or a model in memory, are ignored.
        around: whether the output may be a folder that contains an input, since other
            files in it stay.
        inside: whether all of an input's folder is read, so that even a new output in
            it would be an input of the next run.

    Raises:
        ConfigError: the output is such a place, or empty.
    """
    check_path(name, output)
    if "://" in os.fspath(output):
        return
    target = Path(os.path.realpath(output))
    for argument, value in inputs.items():
        for path in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(path, str | os.PathLike) or "://" in os.fspath(path):
                continue
            source = Path(os.path.realpath(path))
            relation = ""
            if _is_same(target, source):
                relation = "is the same place"
            elif not around and any(_is_same(target, up) for up in source.parents):
                relation = "holds it"
            elif inside or target.exists():
                if any(_is_same(source, up) for up in target.parents):
                    relation = "is inside it"
            if relation and os.fspath(path):
                raise ConfigError(
                    f"`{name}` must be another place than `{argument}`, "
                    f"{os.fspath(path)}; received {os.fspath(output)}, which {relation}"
                )


def _is_same(first: Path, second: Path) -> bool:
    """Return whether two paths are the same place, even if nothing exists there."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return first == second
