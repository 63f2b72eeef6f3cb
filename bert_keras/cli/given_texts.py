"""The texts that a command is to answer: on its line, in a file, or piped.

Everything streams: what is piped in is answered as it comes, a large file in batches.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from bert_keras.errors import ConfigError, DataError, NoRowsError
from bert_keras.runs.progress import say

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task

_BYTES_AT_ONCE = 1 << 16  # what a pipe holds


def given_texts(
    options: argparse.Namespace,
    task: Task,
    columns: Mapping[str, str],
    piped: Iterable[str],
) -> Iterator[tuple[str | None, Any]]:
    """Yield the texts on the command line, of a file, or of standard input.

    Each comes with its `id` where the file has one. Of standard input, each line is a
    text; a pair is two texts with a tab between. Where a row ends with a list, all that
    follows in the line is of it. On the command line a row may have tabs, too, or take
    several texts; a row with a list is then all of them.

    Args:
        options: of the command line.
        task: says what a row is.
        columns: roles to columns of the file.
        piped: the lines of standard input.
    """
    names: Iterable[str | None] = itertools.repeat(None)
    items: Iterable[Any]
    if options.texts and options.input:
        raise ConfigError("`TEXT` and `--input` cannot both be given")
    if options.texts:
        items = _row_words(words(options.texts), task)
    elif options.input:
        try:
            rows = task.read(
                options.input,
                columns=columns,
                header=options.header,
                roles=task.roles,
            )
        except NoRowsError as error:
            say(f"{error}: nothing to answer")
            return
        parts = task.texts(rows)
        items = zip(*parts, strict=True) if len(parts) > 1 else parts[0]
        names = rows["id"] if "id" in rows else names
    else:
        items = _rows(piped, task, "stdin")
    yield from zip(names, items)  # noqa: B905  # names without end, or one an item


def _row_words(texts: list[str], task: Task) -> list[Any]:
    """Return the rows of the texts on the command line."""
    count = len(task.roles)
    if count > 1 and all("\t" in text for text in texts):
        return list(_rows(texts, task, "TEXT"))
    if _ends_in_list(task) and len(texts) >= count:
        return [_with_list(texts, count)]
    if not _ends_in_list(task) and len(texts) % count == 0:
        groups = [texts[start::count] for start in range(count)]
        return list(zip(*groups, strict=True)) if count > 1 else texts
    number = "an even number" if count == 2 else f"a multiple of {count}"
    if _ends_in_list(task):
        number = f"at least {count}"
    raise ConfigError(
        f"the model reads {' and '.join(task.roles)}: give {number} of texts, or a "
        f"row a text with tabs between; received {len(texts)}"
    )


def _ends_in_list(task: Task) -> bool:
    """Return whether the last role of a row is a list of texts."""
    return task.signatures()["serving_default"][-1].shape.rank == 2


def _with_list(texts: list[str], count: int) -> tuple[Any, ...]:
    """Return a row of so many parts, the last of which is a list."""
    return (*texts[: count - 1], texts[count - 1 :])


def words(words: list[str]) -> list[str]:
    """Return words of the command line as text.

    Bytes that are not UTF-8 come from the shell as halves of surrogate pairs.
    """
    return [os.fsencode(word).decode("utf-8", "replace") for word in words]


class Lines:
    """The text of each line of standard input.

    Args:
        stream: the input; one without a file, as of a test, never waits.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._whole: deque[bytes] = deque()  # lines that have been read
        self._rest = b""  # what has been read of the next one
        self._file: int | None = None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._file = stream.fileno()

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines(), 1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                message = f"must be UTF-8: {error}"
                raise DataError(message, path="stdin", line=number) from None

    def wait(self) -> bool:
        """Say whether the next line is yet to come; reads what has come by now."""
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
        """Read what is there, or wait for the next of it."""
        data = os.read(file, _BYTES_AT_ONCE)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._whole.extend(lines)
        if not data:  # the end
            self._file = None
            self._whole.extend([self._rest] if self._rest else [])


def _rows(texts: Iterable[str], task: Task, place: str) -> Iterator[Any]:
    """Yield the row of each line of a place: its texts have tabs between."""
    count = len(task.roles)
    for number, text in enumerate(texts, 1):
        parts = text.split("\t")
        if count == 1:
            yield text
        elif _ends_in_list(task) and len(parts) >= count:
            yield _with_list(parts, count)
        elif len(parts) == count:
            yield tuple(parts)
        else:
            words = "two texts with a tab" if count == 2 else f"{count} texts with tabs"
            more = " at least" if _ends_in_list(task) else ""
            raise DataError(
                f"must hold {words} between{more}; holds {len(parts)}",
                path=place,
                line=number,
            )


def batches(
    texts: Iterable[Any], size: int, wait: Callable[[], bool] = lambda: False
) -> Iterator[list[Any]]:
    """Yield lists of texts.

    Args:
        texts: what they hold.
        size: most of a list.
        wait: says whether the next text is yet to come: a list is not kept for it.
    """
    batch: list[Any] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size or wait():
            yield batch
            batch = []
    if batch:
        yield batch
