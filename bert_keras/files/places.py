"""Where a command writes is no place that it reads: `check_output_place`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras.errors import ConfigError


def check_path(name: str, path: str | os.PathLike[str]) -> None:
    """Raise ConfigError where a path is empty: to Python the current folder."""
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
    """Raise where writing an output would destroy, or mix with, what is read.

    An output must not be an input, through whatever links; hold an input; or stand in
    the folder of one already.

    Args:
        name: of the output's argument.
        output: the file or folder to write; may be absent.
        inputs: name of the argument to its value, or to several. What is no path of
            this machine, as a hub name or a model in memory, is passed over.
        around: whether the output may be a folder that holds an input, since what
            stands there stays.
        inside: whether all of an input's folder is read, so that even a new output
            would be an input of the next time.

    Raises:
        ConfigError: it is such a place, or empty.
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
    """Say whether two paths are one place, be it absent."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return first == second
