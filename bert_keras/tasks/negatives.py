"""Training pairs, and their hard negatives in the columns `negative`, `negative_1` …"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from bert_keras.data.columns import Columns
from bert_keras.data.rows import ColumnNames
from bert_keras.data.table import names_of, read_columns

NEGATIVE = "negative"
_NAME = re.compile(rf"{NEGATIVE}_\d+")


def read_with_negatives(
    source: Any,
    columns: ColumnNames,
    *,
    optional: Sequence[str],
    names: Sequence[str] | None = None,
    **rules: Any,
) -> Columns:
    """Return rows whose cells of `negative` are lists of texts, perhaps empty.

    They hold the negatives of the columns `negative` and `negative_N` of a row. Without
    such a column there is no entry.

    Args:
        source, columns, optional, rules: as in `read_columns`.
        names: of the columns of the source, if they are known.
    """
    names = names_of(source) if names is None else names
    more = [name for name in names if is_numbered(name)]
    roles = [NEGATIVE, *sorted(more, key=lambda name: int(name.rpartition("_")[2]))]
    found = read_columns(
        source,
        {**columns, **{name: name for name in more}},
        optional=[*optional, *more],
        empty=roles,
        lists=roles,
        nulls=roles,
        **rules,
    )
    cells = [found.cells.pop(role) for role in roles if role in found]
    if cells:
        rows = zip(*cells, strict=True)
        found.cells[NEGATIVE] = [
            [t for cell in row for t in _texts(cell)] for row in rows
        ]
    return found


def is_numbered(name: str) -> bool:
    """Return whether a column is `negative_1`, `negative_2` …"""
    return _NAME.fullmatch(name) is not None


def negatives_of(columns: Columns) -> list[list[str]]:
    """Return the negatives of each row, perhaps none."""
    if NEGATIVE not in columns:
        return [[] for _ in columns.lines]
    return [_texts(cell) for cell in columns[NEGATIVE]]


def pairs_of(columns: Columns) -> tuple[list[Any], list[Any]]:
    """Return the first and the second text of each row; a DataError if there is one."""
    columns.require("text_pair", reason="training reads pairs of texts")
    return columns["text"], columns["text_pair"]


def candidates_of(columns: Columns) -> list[str]:
    """Return the second text of each row, followed by the negatives of all rows."""
    _, second = pairs_of(columns)
    return [*second, *itertools.chain.from_iterable(negatives_of(columns))]


def without_positives(
    columns: Columns, texts: Sequence[str], pairs: Sequence[str]
) -> tuple[list[list[str]], int]:
    """Return the negatives of each row that are no positive of its text, and the count
    of the others: the text itself, and its pairs in any row.
    """
    positives: dict[str, set[str]] = {}
    for text, pair in zip(texts, pairs, strict=True):
        positives.setdefault(text, {text}).add(pair)
    given = negatives_of(columns)
    kept = [
        [each for each in some if each not in positives[text]]
        for text, some in zip(texts, given, strict=True)
    ]
    return kept, sum(map(len, given)) - sum(map(len, kept))


def _texts(cell: Any) -> list[str]:
    """Return the texts of a cell: a list, a list as JSON, one text, or nothing."""
    if isinstance(cell, str) and cell.startswith("["):
        try:
            read = json.loads(cell)
        except ValueError:
            read = cell
        is_list = isinstance(read, list) and all(isinstance(e, str) for e in read)
        cell = read if is_list else cell
    found = [cell] if isinstance(cell, str) else cell
    return [text for text in found if text.strip()]
