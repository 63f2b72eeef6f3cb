"""The errors that users of bert_keras see: one line with argument, rule and value."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence

# TensorFlow's name of an operation, before and after the reason.
_OPERATION = re.compile(r"^\{\{function_node .*?\}\} | \[Op:\w+\](?: name: ?.*)?$")
_SYSTEM_REASONS = frozenset(map(os.strerror, errno.errorcode))
_RUNTIME = "bert_keras-runtime"  # the distribution without TensorFlow
MOST_NAMED = 10  # lines of a file, or other items, that an error names


def reason_of(error: BaseException) -> str:
    """Return the reason that the system or TensorFlow gives for an error, in one line.

    It leaves out `[Errno N]` and the file, which the message already names.
    """
    reason = (
        getattr(error, "strerror", None) or getattr(error, "message", None) or error
    )
    line = (str(reason).splitlines() or [type(error).__name__])[0]
    line = _OPERATION.sub("", line)
    last = line.rpartition("; ")[2]  # after the file, where TensorFlow names it
    return last if last in _SYSTEM_REASONS else line


class BertKerasError(ValueError):
    """Input from the user is wrong; the message is one clear line.

    The command line prints only the message, without a traceback, and exits with 2.
    """


class ConfigError(BertKerasError):
    """A setting is missing, unknown or out of range."""


class CheckpointError(BertKerasError):
    """A model folder or checkpoint is missing, broken or incompatible."""


class TrainingError(BertKerasError):
    """Training cannot continue, e.g. after a non-finite loss; checkpoints are kept."""


class WorkerLostError(RuntimeError):
    """Another worker of a run on several machines has ended; checkpoints are kept.

    The command line prints only the message and exits with 69, EX_UNAVAILABLE.
    """


class ServerError(BertKerasError):
    """A server is unreachable, rejects a request, or returns an unexpected answer."""


class DataError(BertKerasError):
    """A data file cannot be read as requested; names the file and, if known, the line.

    Args:
        message: what is wrong, without file and line.
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
        self.message = message
        self.path = None if path is None else os.fspath(path)
        self.line = line
        place = "" if self.path is None else self.path
        if line is not None:
            place += f":{line}"
        super().__init__(f"{place}: {message}" if place else message)


class NoRowsError(DataError):
    """A data file is well-formed but has no rows."""


class NoColumnError(DataError):
    """A data file lacks a column."""


class UnreadError(DataError):
    """A text has a part that the model does not read, where it must read all.

    Args:
        row: the text's place among the texts, from 0.
    """

    def __init__(self, message: str, *, row: int) -> None:
        self.row = row
        super().__init__(message, path=f"texts[{row}]")


def received(value: object) -> str:
    """Return the end of an error message: `received` and the shortened value."""
    return f"received {shown(value)}"


def first_of(
    items: Sequence[object], *, most: int = MOST_NAMED, between: str = ", "
) -> str:
    """Return the first items and the number of the others.

    Example:
        >>> first_of(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    first = between.join(map(str, items[:most]))
    more = len(items) - most
    return f"{first}{between.rstrip(', ')} and {more:,} more" if more > 0 else first


def counted(number: float, items: str) -> str:
    """Return a number with its noun, given in the plural and regular.

    Example:
        >>> counted(1, "queries"), counted(1200, "rows")
        ('1 query', '1,200 rows')
    """
    written = f"{number:,.0f}"
    if written == "1":
        items = re.sub("ies$", "y", items)
        items = re.sub("(?<=ss|ch)es$|s$", "", items)
    return f"{written} {items}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the nearest known word, or an empty string."""
    import difflib  # only after an error

    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


@contextlib.contextmanager
def needs(
    what: str, *, extra: str = "", runtime_extra: str | None = None
) -> Iterator[None]:
    """Raise a ConfigError with the install line if an import within fails.

    Args:
        what: what needs the package.
        extra, runtime_extra: as in `install_line`.
    """
    try:
        yield
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        package = f"the package {name}" if name else "a package"
        install = install_line(extra, runtime_extra=runtime_extra)
        raise ConfigError(f"{what} needs {package}: {install}") from None


def install_line(extra: str = "", *, runtime_extra: str | None = None) -> str:
    """Return the command that installs a package, for the installed distribution.

    Args:
        extra: the extra of bert_keras that installs it; empty: bert_keras requires it.
        runtime_extra: the extra of bert_keras-runtime; `None`: it has none.
    """
    from importlib import metadata  # only after an error

    name = f"'bert_keras[{extra}]'" if extra else "bert_keras"
    try:
        metadata.distribution(_RUNTIME)
    except metadata.PackageNotFoundError:
        return f"pip install {name}"
    if runtime_extra is None:
        return f"pip install {name}, instead of {_RUNTIME}"
    return f"pip install '{_RUNTIME}[{runtime_extra}]'"


def one_line(value: object, *, longest: int = 300) -> str:
    """Return text from a file or a library as one short line for a message."""
    text = " ".join(str(value).split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def shown(value: object, *, longest: int = 80) -> str:
    """Return the `repr` of a value as one short line for a message."""
    try:
        if isinstance(value, str):
            value = value[: longest + 1]
        text = "".join(c if c.isprintable() else "?" for c in repr(value))
    except (ValueError, RecursionError):  # a number of thousands of digits, a deep list
        return f"a value of type {type(value).__name__} too large to show"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
