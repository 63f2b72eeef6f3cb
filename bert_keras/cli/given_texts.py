"""The input texts of a command: from the command line, a file or standard input.

Everything streams: piped lines are answered as they arrive, a large file in batches.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from bert_keras.cli.arguments import chosen_columns, refuse_columns
from bert_keras.data.rows import quote
from bert_keras.errors import ConfigError, DataError
from bert_keras.runs.notes import say_once

if TYPE_CHECKING:
    from bert_keras.inference.answered_rows import Given
    from bert_keras.tasks.base import Task

_BYTES_AT_ONCE = 1 << 16  # what a pipe holds


def given_texts(
    options: argparse.Namespace, task: Task, piped: Iterable[str]
) -> Iterator[Given]:
    """Yield the texts from the command line, a file, or standard input.

    Each comes with its `id` if the file has one, and with its line there. On standard
    input, each line is a row; its texts are separated by tabs. If a row ends with a
    list, the list takes the rest of the line. On the command line, a row may also be
    separated by tabs, or spread over several texts; a row with a list then takes all of
    them.

    Args:
        options: the parsed command line.
        task: defines the roles of a row.
        piped: the lines of standard input.
    """
    keeps = getattr(options, "on_empty", "error") == "null"  # of `predict` alone
    if options.texts and options.input:
        raise ConfigError("`TEXT` and `--input` cannot both be given")
    if options.input:
        from bert_keras.data.row_source import RowSource
        from bert_keras.inference.answered_rows import read_rows

        bad_rows = "keep" if keeps else "error"
        columns = chosen_columns(options)
        source = RowSource(options.input, columns, options.header, bad_rows)
        yield from read_rows(task, source)
        return
    refuse_columns(options, "columns need `--input`, which is not given")
    for text in filter(os.path.isfile, options.texts):
        say_once(f"TEXT {quote(text)} is read as a text; --input reads a file")
    given = _row_words(words(options.texts), task) if options.texts else None
    items = _rows(piped, task, "stdin") if given is None else given
    yield from ((None, item, None) for item in items)


def _row_words(texts: list[str], task: Task) -> list[Any]:
    """Return the rows of the texts on the command line."""
    count, has_list = len(task.roles), _ends_in_list(task)
    if count == 1 and not has_list or all("\t" in text for text in texts):
        return list(_rows(texts, task, "TEXT"))
    if has_list:
        row = _row(texts, task)
        if row is not None:
            return [row]
    elif len(texts) % count == 0:
        groups = [texts[start::count] for start in range(count)]
        return list(zip(*groups, strict=True)) if count > 1 else texts
    number = "an even number of" if count == 2 else f"a multiple of {count}"
    raise ConfigError(
        f"the model reads {' and '.join(task.roles)}: give "
        f"{f'at least {count}' if has_list else number} texts, or each row as one "
        f"text separated by tabs; received {len(texts)}"
    )


def _ends_in_list(task: Task) -> bool:
    """Return whether the last role of a row is a list of texts."""
    from bert_keras.tasks.protocols import text_specs

    return text_specs(task)["serving_default"][-1].rank == 2


def _row(parts: list[str], task: Task) -> tuple[Any, ...] | None:
    """Return the parts of a row, the last perhaps a list; `None` if they do not fit."""
    count = len(task.roles)
    if _ends_in_list(task) and len(parts) >= count:
        return (*parts[: count - 1], parts[count - 1 :])
    return tuple(parts) if len(parts) == count else None


def words(words: list[str]) -> list[str]:
    """Return words of the command line as text.

    Bytes that are not UTF-8 arrive from the shell as lone surrogates.
    """
    return [os.fsencode(word).decode("utf-8", "replace") for word in words]


def piped_lines() -> Lines:
    """Return the lines of standard input."""
    return Lines(getattr(sys.stdin, "buffer", io.BytesIO()))


class Lines:
    """The text of each line of standard input.

    Args:
        stream: the input; one without a file descriptor, as in a test, never waits.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._whole: deque[bytes] = deque()  # lines that have been read
        self._parts: list[bytes] = []  # what has been read of the next one
        self._file: int | None = None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._file = stream.fileno()

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines(), 1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                message = f"must be UTF-8; byte 0x{line[error.start]:02x} is not"
                raise DataError(message, path="stdin", line=number) from None

    def wait(self) -> bool:
        """Return whether the next line has yet to arrive; reads what has arrived."""
        while not self._whole and self._file is not None:
            if not select.select([self._file], [], [], 0)[0]:
                return True
            self._read(self._file)
        return False

    def _lines(self) -> Iterator[bytes]:
        if self._file is None:
            yield from self._stream
        while self._whole or self._file is not None:
            if self._whole:
                yield self._whole.popleft()
            elif self._file is not None:
                self._read(self._file)

    def _read(self, file: int) -> None:
        """Read the bytes that have arrived, or wait for some."""
        data = os.read(file, _BYTES_AT_ONCE)
        first, *lines = data.split(b"\n")
        self._parts.append(first)
        if lines or not data:  # the line or the input ends
            whole = b"".join(self._parts)
            *more, last = [whole, *lines]
            self._whole.extend(more)
            self._parts = [last]
        if not data:
            self._file = None
            self._whole.extend([last] if last else [])


def _rows(texts: Iterable[str], task: Task, place: str) -> Iterator[Any]:
    """Yield one row per line; its texts are separated by tabs."""
    count = len(task.roles)
    may_be_pairs = any(len(form) > count for form in task.forms)
    for number, text in enumerate(texts, 1):
        if count == 1:
            first, tab, second = text.partition("\t")
            is_pair = may_be_pairs and tab and "\t" not in second
            if tab and not is_pair:
                say_once(f"{place}: a tab within a text is read as a space")
            yield (first, second) if is_pair else text
            continue
        parts = text.split("\t")
        row = _row(parts, task)
        if row is None:
            least = "at least " if _ends_in_list(task) else ""
            words = "two texts separated by a tab"
            if count > 2:
                words = f"{count} texts separated by tabs"
            message = f"must hold {least}{words}; holds {len(parts)}"
            raise DataError(message, path=place, line=number)
        yield row


def batches(
    texts: Iterable[Any], size: int, wait: Callable[[], bool] = lambda: False
) -> Iterator[list[Any]]:
    """Yield lists of texts.

    Args:
        texts: the texts.
        size: maximum length of a list.
        wait: returns whether the next text has yet to arrive; a list does not wait for
            it.
    """
    batch: list[Any] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size or wait():
            yield batch
            batch = []
    if batch:
        yield batch
