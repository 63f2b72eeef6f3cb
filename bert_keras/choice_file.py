"""Rows of a context and its choices from a user's file: `read_choices`.

The layouts that are known by their names: one list of choices in JSONL; SWAG (Zellers
et al. 2018, arXiv:1808.05326); COPA and XCOPA (Ponti et al. 2020, arXiv:2005.00333).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bert_keras.errors import ConfigError
from bert_keras.rows import (
    bad_lines,
    csv_rows,
    format_of,
    json_cell,
    json_rows,
    read_text,
    tsv_rows,
)
from bert_keras.table import Columns, read_columns

# Several columns that hold a choice each have commas between.
LAYOUTS: tuple[dict[str, str], ...] = (
    {
        "context": "context",
        "question": "question",
        "choices": "choices",
        "label": "label",
    },
    {
        "context": "sent1",
        "question": "sent2",
        "choices": "ending0,ending1,ending2,ending3",
        "label": "label",
    },
    {
        "context": "premise",
        "question": "question",
        "choices": "choice1,choice2",
        "label": "label",
    },
)


def read_choices(
    path: str | os.PathLike[str],
    columns: Mapping[str, str | int | None],
    *,
    header: str = "auto",
) -> Columns:
    """Return the rows of a file: `context`, `choices`, a list each, and `label`.

    The layout is the first of `LAYOUTS` whose column of contexts the file has. Where a
    row has a question (SWAG's second sentence, COPA's `cause` or `effect`), each of its
    choices begins with it.

    Args:
        path: TSV, CSV or JSONL.
        columns: overrides columns by role: `context`, `question`, `choices`, `label`.
            `choices` is the name of a list in JSONL, or the names or numbers of several
            columns with commas between; a role of `None` is left out.
        header: as in `read_columns`.

    Raises:
        ConfigError: an argument is wrong.
        DataError: the file is broken or lacks a column; bad rows are named by line.
    """
    unknown = sorted(set(columns) - set(LAYOUTS[0]))
    if unknown:
        raise ConfigError(
            f"`columns` must be of {', '.join(LAYOUTS[0])}; received {unknown[0]}"
        )
    place = os.fspath(path)
    text = read_text(place)
    names = _names(place, text)
    layout = next((each for each in LAYOUTS if each["context"] in names), LAYOUTS[0])
    wanted: dict[str, Any] = {**layout, **columns}
    optional = [] if columns.get("question") is not None else ["question"]
    spelled = str(wanted.pop("choices"))
    lists: list[list[str]] | None = None
    if format_of(place, text) == "jsonl" and "," not in spelled:
        lists = _lists(place, text, spelled)
        roles = []
    else:
        parts = [part.strip() for part in spelled.split(",")]
        roles = [f"choices {number}" for number in range(len(parts))]
        wanted |= dict(zip(roles, parts, strict=True))
    found = read_columns(place, wanted, optional=optional, header=header)
    if lists is None:
        cells = zip(*(found[role] for role in roles), strict=True)
        lists = [list(row) for row in cells]
    if "question" in found:
        lists = [
            [f"{question} {choice}" for choice in row]
            for question, row in zip(found["question"], lists, strict=True)
        ]
    kept: dict[str, Any] = {"context": found["context"], "choices": lists}
    if "label" in found:
        kept["label"] = found["label"]
    return Columns(place, kept, found.lines)


def _names(path: str, text: str) -> list[str]:
    """Return the names of a file's columns: its first row, or its first object's."""
    kind = format_of(path, text)
    first = text.partition("\n")[0]
    if kind == "jsonl":
        return list(json_rows(path, first)[0][1])
    rows = csv_rows(path, text) if kind == "csv" else tsv_rows(first)
    return [name.strip() for name in next(iter(rows))[1]]


def _lists(path: str, text: str, key: str) -> list[list[str]]:
    """Return the list of choices of each JSON object.

    Raises:
        DataError: a row has no list, or one with an empty choice.
    """
    lists, problems = [], []
    for line, row in json_rows(path, text):
        value = row.get(key)
        if not isinstance(value, list) or not value:
            shown = "none" if value is None else type(value).__name__
            problems.append((line, f"`{key}` must be a list of texts; is {shown}"))
            continue
        cells = [json_cell(choice) for choice in value]
        problems += [
            (line, f"`{key}` {number} {reason}")
            for number, (_, reason) in enumerate(cells)
            if reason
        ]
        lists.append([cell for cell, _ in cells])
    if problems:
        raise bad_lines(path, problems)
    return lists
