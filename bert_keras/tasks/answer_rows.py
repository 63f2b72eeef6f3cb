"""Answers as rows: the outputs of a graph in the form of `predict`.

Each task declares the form of its rows, light, in its `TaskHelp`. The names of the
outputs select it, so that a client of a server, which does not know the task, returns
the same rows. Imports nothing heavy.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from bert_keras.tasks.catalog import TASKS
from bert_keras.tasks.declaration import Row, RowForm


def rows_of(outputs: Mapping[str, Any], task: str = "") -> list[Row]:
    """Return the outputs for N texts as one JSON-serializable dict per text.

    Args:
        outputs: arrays [N, …], or lists of N plain values, by name, in any order.
            Names that no task of the package declares, such as a custom task's, are
            unchanged.
        task: the name of the task whose outputs these are, if it is known: the others
            need not be imported.
    """
    fitting = (form for form in _forms(task) if outputs.keys() >= {*form.outputs})
    form = max(fitting, key=lambda each: len(each.outputs), default=RowForm(()))
    outputs = form.ordered(outputs)
    plain = [plain_values(values) for values in outputs.values()]
    rows = zip(*plain, strict=True)
    return [form.row(dict(zip(outputs, row, strict=True))) for row in rows]


_LISTS = ("sequences", "n_best", "texts")  # alternatives, the best first
# Outputs whose rows have alternatives.
_ALTERNATIVES = {"classes", "sequences", "n_best_answers", "texts"}


def has_alternatives(task: str) -> bool:
    """Return whether `with_top` may shorten the answers of a task, by its name."""
    return any(_ALTERNATIVES.intersection(form.outputs) for form in _forms(task))


def with_top(row: Mapping[str, Any], count: int) -> Row:
    """Return a row with the best `count` of the alternatives to its answer.

    They are classes by their probability, the words of each mask with the sequences,
    the further answers to a question, and the texts of a decoder with their scores;
    whatever else is in the row is kept.
    """
    found = dict(row)
    classes, masks = row.get("probabilities"), row.get("masks")
    if isinstance(classes, Mapping) and len(classes) > count:
        best = sorted(classes.items(), key=lambda each: -each[1])
        found["probabilities"] = dict(best[:count])
    if masks:
        found["masks"] = [words[:count] for words in masks]
    for name in _LISTS:
        if isinstance(row.get(name), list):
            found[name] = row[name][:count]
    if isinstance(row.get("texts"), list) and isinstance(row.get("scores"), list):
        found["scores"] = row["scores"][:count]
    return found


@functools.cache  # reading the tasks takes longer than the row of one text
def _forms(task: str) -> list[RowForm]:
    tasks = [TASKS[task]] if task in TASKS else TASKS.values()
    return [form for each in tasks for form in each.row_forms]


def plain_values(values: Any) -> list[Any]:
    """Return an array as Python values, its bytes as `str`; a list is unchanged."""
    if isinstance(values, list):
        return values
    plain: list[Any] = values.tolist()
    return _decoded(plain, {}) if values.dtype == object else plain


def _decoded(value: Any, known: dict[bytes, str]) -> Any:
    """Return nested lists of bytes as strings; equal ones are decoded once."""
    if isinstance(value, list):
        return [_decoded(each, known) for each in value]
    if value not in known:
        known[value] = value.decode("utf-8", "replace")
    return known[value]
