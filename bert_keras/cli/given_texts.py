"""The texts that a command is to answer: on its line, in a file, or piped.

Everything streams: what is piped in is answered batch by batch.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bert_keras.errors import ConfigError, DataError, NoRowsError
from bert_keras.runs.progress import say

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task


def given_texts(
    options: argparse.Namespace, task: Task, columns: Mapping[str, str]
) -> Iterator[tuple[str | None, Any]]:
    """Yield the texts on the command line, of a file, or of standard input.

    Each comes with its `id` where the file has one. Of standard input, each line is a
    text; a pair is two texts with a tab between. Where a row ends with a list, all that
    follows in the line is of it, and the texts on the command line are one row.
    """
    names: Iterable[str | None] = itertools.repeat(None)
    items: Iterable[Any]
    if options.texts and options.input:
        raise ConfigError("`TEXT` and `--input` cannot both be given")
    if options.texts:
        items = _row_words(words(options.texts), task)
    elif options.input:
        try:
            rows = task.read_texts(
                options.input, columns=columns, header=options.header
            )
        except NoRowsError as error:
            say(f"{error}: nothing to answer")
            return
        parts = task.texts(rows)
        items = zip(*parts, strict=True) if len(parts) > 1 else parts[0]
        names = rows["id"] if "id" in rows else names
    else:
        items = _rows(lines(sys.stdin.buffer), task)
    yield from zip(names, items)  # noqa: B905  # names without end, or one an item


def _row_words(texts: list[str], task: Task) -> list[Any]:
    """Return the rows of the texts on the command line."""
    count = len(task.roles)
    if task.lists_last and len(texts) >= count:
        return [_with_list(texts, count)]
    if not task.lists_last and len(texts) % count == 0:
        groups = [texts[start::count] for start in range(count)]
        return list(zip(*groups, strict=True)) if count > 1 else texts
    number = "an even number" if count == 2 else f"a multiple of {count}"
    if task.lists_last:
        number = f"at least {count}"
    raise ConfigError(
        f"the model reads {' and '.join(task.roles)}: give {number} of texts; "
        f"received {len(texts)}"
    )


def _with_list(texts: list[str], count: int) -> tuple[Any, ...]:
    """Return a row of so many parts, the last of which is a list."""
    return (*texts[: count - 1], texts[count - 1 :])


def words(words: list[str]) -> list[str]:
    """Return words of the command line as text.

    Bytes that are not UTF-8 come from the shell as halves of surrogate pairs.
    """
    return [os.fsencode(word).decode("utf-8", "replace") for word in words]


def lines(stream: Iterable[bytes]) -> Iterator[str]:
    """Yield the text of each line of standard input."""
    for number, line in enumerate(stream, 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            message = f"must be UTF-8: {error}"
            raise DataError(message, path="stdin", line=number) from None


def _rows(texts: Iterable[str], task: Task) -> Iterator[Any]:
    """Yield the row of each line: its texts have tabs between."""
    count = len(task.roles)
    for number, text in enumerate(texts, 1):
        parts = text.split("\t")
        if count == 1:
            yield text
        elif task.lists_last and len(parts) >= count:
            yield _with_list(parts, count)
        elif len(parts) == count:
            yield tuple(parts)
        else:
            words = "two texts with a tab" if count == 2 else f"{count} texts with tabs"
            more = " at least" if task.lists_last else ""
            raise DataError(
                f"must hold {words} between{more}; holds {len(parts)}",
                path="stdin",
                line=number,
            )


def batches(texts: Iterator[Any], size: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
