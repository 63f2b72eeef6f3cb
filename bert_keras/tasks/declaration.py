"""What a task declares beside its settings: `TaskHelp`, `RowForm`; nothing heavy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]  # the plain values of one text by name


@dataclasses.dataclass(frozen=True)
class RowForm:
    """How outputs of a graph for one text become a row of `predict`.

    Args:
        outputs: names by which a client, too, recognizes these outputs.
        row: returns the row from their plain values.
    """

    outputs: frozenset[str]
    row: Callable[[Row], Row]


def records(row: Row, keys: Mapping[str, str]) -> list[Row]:
    """Return some lists of a row as one list of dicts, without padding.

    `keys` maps the keys of a dict to lists of the row; padding is empty in the first.
    """
    columns = [row[key] for key in keys.values()]
    values = zip(*columns, strict=True)
    return [dict(zip(keys, each, strict=True)) for each in values if each[0]]


@dataclasses.dataclass(frozen=True)
class TaskHelp:
    """What a user has to know about a task.

    `bert-keras tasks NAME`, `bert-keras train NAME --help`, the model card and the
    tables of the documentation are generated from it and from the settings.

    Args:
        place: module and class of the task.
        settings: dataclass of its settings, each declared with `option`.
        summary: one line.
        data: the files and columns that it reads.
        file: the name of such a file.
        rows: its first lines.
        scores: what `evaluate` returns.
        answers: what `predict` and the SavedModel return.
        row_forms: how `predict` shows outputs of the graph; others are shown by name.
        columns: role to usual name of the columns that each table for training has.
    """

    place: str
    settings: type
    summary: str
    data: str
    file: str
    rows: str
    scores: str
    answers: str
    row_forms: tuple[RowForm, ...] = ()
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
