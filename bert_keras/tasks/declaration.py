"""What a task declares beside its settings: `TaskHelp`, `RowForm`; nothing heavy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]  # the plain values of one text by name
# Outputs that depend on the settings of a task; they follow the others.
_FURTHER = ("abstained", "start", "end", "starts", "ends")


@dataclasses.dataclass(frozen=True)
class RowForm:
    """How outputs of a graph for one text become a row of `predict`.

    Args:
        outputs: names by which a client, too, recognizes these outputs, in the order of
            a row.
        row: returns the row from their plain values, in this order.
    """

    outputs: tuple[str, ...]
    row: Callable[[Row], Row] = dict

    def ordered(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs in the order of a row: an export has them in any order."""
        first = [name for name in (*self.outputs, *_FURTHER) if name in outputs]
        return {name: outputs[name] for name in dict.fromkeys((*first, *outputs))}


def records(row: Row, keys: Mapping[str, str]) -> list[Row]:
    """Return some lists of a row as one list of dicts, without padding.

    `keys` maps the keys of a dict to lists of the row; padding is empty in the first.
    """
    columns = [row[key] for key in keys.values()]
    values = zip(*columns, strict=True)
    return [dict(zip(keys, each, strict=True)) for each in values if each[0]]


def single_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns without names that stand for several."""
    return {
        role: name
        for role, name in columns.items()
        if role != "negative" and "," not in str(name)
    }


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
        columns: role to usual name of the columns that a table for training must have,
            for each form of it.
        labels: the roles that rows to answer lack.
        student_needs_labels: whether training rows have them with a `teacher`, too.
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
    columns: tuple[Mapping[str, str], ...] = ()
    labels: tuple[str, ...] = ("label",)
    student_needs_labels: bool = True

    def needed(
        self, chosen: Mapping[str, Any], *, labelled: bool
    ) -> list[dict[str, Any]]:
        """Return `columns` with those that a user chose, by role or usual name.

        Names that stand for several columns are left out.
        """
        unread = () if labelled else self.labels
        found = []
        for form in self.columns:
            roles = {name: role for role, name in form.items()}
            columns = {**form, **{roles.get(r, r): name for r, name in chosen.items()}}
            read = {role: columns[role] for role in columns if role not in unread}
            found.append(single_columns(read))
        return found
