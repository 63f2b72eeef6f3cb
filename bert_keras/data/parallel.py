"""Pairs of a source and a target: parallel files, and pairs with an empty side."""

from __future__ import annotations

import os

from bert_keras.data.columns import Columns
from bert_keras.data.rows import FORMATS, ending_of
from bert_keras.errors import DataError, NoRowsError, first_of
from bert_keras.files.parquet import is_stored
from bert_keras.files.streams import text_of
from bert_keras.runs.progress import say


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


def read_sources(path: str | os.PathLike[str], *, column: str) -> Columns | None:
    """Return a file with one text per line as the column `source`; `None` for a table.

    A table has the ending of its format, or its first line holds a tab, a JSON object
    or the name of the column.
    """
    place = os.fspath(path)
    if is_stored(place) or ending_of(place) in FORMATS.keys() - {".txt"}:
        return None
    lines = [line.removesuffix("\r") for line in _lines(place)]
    first = lines[0]
    if "\t" in first or first.startswith("{") or column in first.split(","):
        return None
    return Columns(place, {"source": lines}, list(range(1, len(lines) + 1)))


def _lines(path: str) -> list[str]:
    """Return the lines of a file, also the empty ones at its end: halves of a pair."""
    text = text_of(path)
    if not text.strip():
        raise NoRowsError("is empty", path=path)
    return text.removesuffix("\n").split("\n")


def without_empty(pairs: Columns) -> Columns:
    """Return the pairs with a source and a target; report the others."""
    sides = zip(pairs["source"], pairs["target"], strict=True)
    is_whole = [all(side.strip() for side in pair) for pair in sides]
    if all(is_whole):
        return pairs
    kept = [row for row, whole in enumerate(is_whole) if whole]
    left_out = [row for row, whole in enumerate(is_whole) if not whole]
    named = first_of([pairs.lines[row] for row in left_out], most=8)
    if not kept:
        raise NoRowsError(
            "contains no pair with a source and a target", path=pairs.path
        )
    say(
        f"{pairs.path}: left out {len(left_out):,} of {len(pairs):,} pairs with an "
        f"empty source or target: line{'s' * (len(left_out) > 1)} {named}"
    )
    return pairs.take(kept)
