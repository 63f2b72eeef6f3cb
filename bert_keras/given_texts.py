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

from bert_keras.errors import ConfigError, DataError

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task


def given_texts(
    options: argparse.Namespace, task: Task, columns: Mapping[str, str]
) -> Iterator[tuple[str | None, Any]]:
    """Yield the texts on the command line, of a file, or of standard input.

    Each comes with its `id` where the file has one. Of standard input, each line is a
    text; a pair is two texts with a tab between.
    """
    count = len(task.roles)
    names: Iterable[str | None] = itertools.repeat(None)
    items: Iterable[Any]
    if options.texts and options.input:
        raise ConfigError("`TEXT` and `--input` cannot both be given")
    if options.texts:
        texts = words(options.texts)
        if len(texts) % count:
            number = "an even number" if count == 2 else f"a multiple of {count}"
            raise ConfigError(
                f"the model reads {' and '.join(task.roles)}: give {number} of texts; "
                f"received {len(texts)}"
            )
        groups = [texts[start::count] for start in range(count)]
        items = zip(*groups, strict=True) if count > 1 else texts
    elif options.input:
        rows = task.read_texts(options.input, columns=columns, header=options.header)
        parts = task.texts(rows)
        items = zip(*parts, strict=True) if count > 1 else parts[0]
        names = rows["id"] if "id" in rows else names
    else:
        items = lines(sys.stdin.buffer, count)
    yield from zip(names, items)  # noqa: B905  # names without end, or one an item


def words(words: list[str]) -> list[str]:
    """Return words of the command line as text.

    Bytes that are not UTF-8 come from the shell as halves of surrogate pairs.
    """
    return [os.fsencode(word).decode("utf-8", "replace") for word in words]


def lines(stream: Iterable[bytes], count: int) -> Iterator[Any]:
    """Yield the texts of each line; `count` texts with tabs between."""
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            message = f"must be UTF-8: {error}"
            raise DataError(message, path="stdin", line=number) from None
        if count == 1:
            yield text
            continue
        parts = text.split("\t")
        if len(parts) != count:
            words = "two texts with a tab" if count == 2 else f"{count} texts with tabs"
            raise DataError(
                f"must hold {words} between; holds {len(parts)}",
                path="stdin",
                line=number,
            )
        yield tuple(parts)


def batches(texts: Iterator[Any], size: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
