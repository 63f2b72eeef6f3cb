"""Pairs of a source and a target: parallel files, and pairs with an empty side."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator

from bert_keras.data.columns import Columns
from bert_keras.data.rows import (
    FORMATS,
    batched,
    ending_of,
    start_of,
    whole_lines,
    without_break,
)
from bert_keras.errors import DataError, NoRowsError
from bert_keras.files.parquet import is_stored
from bert_keras.files.streams import lines_of, text_of
from bert_keras.runs.notes import say


def read_parallel(
    source: str | os.PathLike[str], target: str | os.PathLike[str]
) -> Columns:
    """Return two files with one text per line as the columns `source` and `target`.

    Pairs with an empty side are left out, and named by file and line.

    Raises:
        DataError: a file is missing, is not UTF-8 text, or they differ in length.
    """
    places = os.fspath(source), os.fspath(target)
    texts = [_lines(place) for place in places]
    if len(texts[0]) != len(texts[1]):
        raise DataError(
            f"must have as many lines as {places[1]}, {len(texts[1]):,}; "
            f"has {len(texts[0]):,}",
            path=places[0],
        )
    cells = {
        role: [line.removesuffix("\r") for line in lines]
        for role, lines in zip(("source", "target"), texts, strict=True)
    }
    return without_empty(Columns(places[0], cells, list(range(1, len(texts[0]) + 1))))


def stream_sources(
    path: str | os.PathLike[str], rows_at_once: int, *, column: str
) -> Iterator[Columns] | None:
    """Yield a file with one text per line as the column `source`; `None` for a table.

    A table has the ending of its format, or its first line holds a tab, a JSON object
    or the name of the column.
    """
    place = os.fspath(path)
    if is_stored(place) or ending_of(place) in FORMATS.keys() - {".txt"}:
        return None
    if not start_of(place).strip():
        raise NoRowsError("is empty", path=place)
    lines = whole_lines(part for _, part in lines_of(place))
    first = next(lines)
    text = without_break(first)
    if "\t" in text or text.startswith("{") or column in text.split(","):
        return None
    numbered = enumerate(itertools.chain([first], lines), 1)
    return stream_texts(place, numbered, rows_at_once, role="source")


def stream_texts(
    path: str, lines: Iterable[tuple[int, str]], rows_at_once: int, *, role: str
) -> Iterator[Columns]:
    """Yield numbered lines, each a text of a role, in parts."""
    for part in batched(lines, rows_at_once):
        texts = [without_break(line) for _, line in part]
        yield Columns(path, {role: texts}, [number for number, _ in part])


def _lines(path: str) -> list[str]:
    """Return the lines of a file, also the empty ones at its end: halves of a pair."""
    text = text_of(path)
    if not text.strip():
        raise NoRowsError("is empty", path=path)
    return text.removesuffix("\n").split("\n")


def without_empty(pairs: Columns) -> Columns:
    """Return the pairs with a source and a target; report the others."""
    sides = zip(pairs["source"], pairs["target"], strict=True)
    kept = [row for row, pair in enumerate(sides) if all(map(str.strip, pair))]
    left_out = sorted(set(range(len(pairs))) - set(kept))
    if not left_out:
        return pairs
    if not kept:
        raise NoRowsError(
            "contains no pair with a source and a target", path=pairs.path
        )
    say(
        f"{pairs.path}: left out {len(left_out):,} of {len(pairs):,} pairs with an "
        f"empty source or target: {pairs.places(left_out)}"
    )
    return pairs.take(kept)
