"""The errors that a user of bert_keras meets: one line, argument, rule and value."""

from __future__ import annotations

import os
from collections.abc import Sequence


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


class WorkerLostError(RuntimeError):
    """Another worker of a run on several machines has ended; what was saved stays.

    The command line prints the message alone and exits 69, EX_UNAVAILABLE.
    """


class ServerError(BertKerasError):
    """A server is out of reach, refuses a request, or answers in another form."""


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


def received(value: object) -> str:
    """Return the end of an error: `received` and the value, cut short."""
    return f"received {shown(value)}"


def first_of(items: Sequence[object], *, most: int = 10, between: str = ", ") -> str:
    """Return the first items, and how many more there are.

    Example:
        >>> first_of(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    first = between.join(map(str, items[:most]))
    more = len(items) - most
    return f"{first}{between.rstrip(', ')} and {more:,} more" if more > 0 else first


def one_line(value: object, *, longest: int = 300) -> str:
    """Return text from a file or a library, fit for a message: one short line."""
    text = " ".join(str(value).split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def shown(value: object, *, longest: int = 80) -> str:
    """Return a value as Python writes it, fit for a message: one short line."""
    try:
        if isinstance(value, str):
            value = value[: longest + 1]
        text = "".join(c if c.isprintable() else "?" for c in repr(value))
    except (ValueError, RecursionError):  # a number of thousands of digits, a deep list
        return f"a value of type {type(value).__name__} too large to show"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
