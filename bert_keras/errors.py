"""The errors that a user of bert_keras meets: one line, argument, rule and value."""

from __future__ import annotations

import os
from typing import Any


def reason_of(error: BaseException) -> str:
    """Return in one line what the system or TensorFlow says is wrong.

    Without `[Errno N]` and the file, which the message names already.
    """
    said = getattr(error, "strerror", None) or getattr(error, "message", None) or error
    return (str(said).splitlines() or [type(error).__name__])[0]


class BertKerasError(ValueError):
    """Something given by the user is wrong; the message is one clear line.

    The command line prints the message alone, without a traceback, and exits 2.
    """


class ConfigError(BertKerasError):
    """A setting is missing, unknown or out of its range."""


class CheckpointError(BertKerasError):
    """A model folder or checkpoint is missing, broken or does not fit."""


class TrainingError(BertKerasError):
    """Training cannot go on, as where a loss is not finite; what was saved stays."""


class DataError(BertKerasError):
    """A data file cannot be read as asked; names the file and, if known, the line.

    Args:
        message: what is wrong, without the place.
        path: the file.
        line: the line in the file, counted from 1.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
    ) -> None:
        self.path = None if path is None else os.fspath(path)
        self.line = line
        place = "" if self.path is None else self.path
        if line is not None:
            place += f":{line}"
        super().__init__(f"{place}: {message}" if place else message)


class NoRowsError(DataError):
    """A data file is well-formed and holds no row."""


def received(value: Any) -> str:
    """Return the end of an error: `received` and the value, cut short."""
    return f"received {shown(value)}"


def shown(value: Any, most: int = 80) -> str:
    """Return a value as Python writes it, cut to so many characters, for an error."""
    try:
        text = repr(value[: most + 1] if isinstance(value, str) else value)
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return f"a value of type {type(value).__name__} too long to show"
    return text if len(text) <= most else text[: most - 1] + "…"
