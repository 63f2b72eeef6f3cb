"""The errors that a user of bert_keras meets: one line, argument, rule and value."""

from __future__ import annotations

import os


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


def one_line(value: object, *, longest: int = 300) -> str:
    """Return text from a file or a library, fit for a message: one short line."""
    text = " ".join(str(value).split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def shown(value: object, *, longest: int = 80) -> str:
    """Return a value that was received, fit for a message."""
    try:
        return one_line(repr(value), longest=longest)
    except (ValueError, RecursionError):  # a number of thousands of digits, a deep list
        return f"{type(value).__name__} too large to show"
