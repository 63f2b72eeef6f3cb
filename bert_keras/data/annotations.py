"""Rows as annotation tools export them, in the form of other rows: `plain_rows`.

* doccano: `data` for `text`, and `labels` for `label`.
* Label Studio: tasks with `data` and `annotations`; the first annotation that was not
  cancelled gives `spans`, or `label` where it chooses classes.
* Prodigy: rows whose `answer` is reject or ignore are left out; `accept` for `label`.

What is left out is counted in a note.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bert_keras.data.memory import Row
from bert_keras.errors import NoRowsError
from bert_keras.runs.notes import say_once

_ANSWERS = ("accept", "reject", "ignore")
# Keys of tools, and the keys that readers expect.
_NAMES = {"data": "text", "labels": "label", "accept": "label"}
TOOL_KEYS = frozenset({"answer", *_NAMES})  # without one, rows are like any others


def plain_rows(
    path: str,
    rows: list[Row],
    selected: Collection[Any],
    wanted: Collection[Any] | None = None,
) -> list[Row]:
    """Return the rows that an annotation tool exported like any others.

    Args:
        path: the file, for notes.
        rows: lines and objects.
        selected: the columns that the user chose; they keep their meaning.
        wanted: the columns that are read; `None`: any.
    """
    keys = {key for _, row in rows[:100] for key in row}
    if isinstance(rows[0][1].get("data"), dict) and keys & {"annotations", "result"}:
        return _of_label_studio(path, rows)
    if "answer" in keys and "answer" not in selected:
        rows = _accepted(path, rows)
    names = usual_names(path, keys, selected, wanted)
    if not names:
        return rows
    return [(line, _renamed(row, names)) for line, row in rows]


def usual_names(
    path: str,
    keys: Collection[str],
    selected: Collection[Any],
    wanted: Collection[Any] | None = None,
) -> dict[str, str]:
    """Return the names that readers expect, by the name that a tool wrote.

    The arguments are as in `plain_rows`, with the keys of all rows; a note tells the
    names.
    """
    names = {
        old: new
        for old, new in _NAMES.items()
        if old in keys and new not in keys and old not in selected
    }
    if wanted is not None:
        names = {old: new for old, new in names.items() if new in wanted}
    if names:
        read = ", ".join(f"`{old}` as `{new}`" for old, new in names.items())
        say_once(f"{path}: {read}, as annotation tools name them")
    return names


def _renamed(row: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    others = {key: value for key, value in row.items() if key not in names}
    return others | {new: row[old] for old, new in names.items() if old in row}


def _accepted(path: str, rows: list[Row]) -> list[Row]:
    """Return the rows that an annotator of Prodigy accepted."""
    answers = [row.get("answer", "accept") for _, row in rows]
    if not all(isinstance(a, str) and a in _ANSWERS for a in answers):
        return rows  # a column with this name
    kept = [
        row for row, answer in zip(rows, answers, strict=True) if answer == "accept"
    ]
    counts = [f"{answers.count(each):,} {each}" for each in _ANSWERS[1:]]
    _report(path, rows, kept, f"`answer` is not accept: {', '.join(counts)}")
    return kept


def _of_label_studio(path: str, rows: list[Row]) -> list[Row]:
    """Return the annotated tasks of Label Studio's JSON."""
    kept, several = [], 0
    for line, task in rows:
        annotations = [
            each
            for each in task.get("annotations") or []
            if isinstance(each, dict) and not each.get("was_cancelled")
        ]
        several += len(annotations) > 1
        if annotations:
            results = annotations[0].get("result") or []
            kept.append((line, {**_data_of(task), **_labels_of(results)}))
    _report(path, rows, kept, "there is no annotation, or it was cancelled")
    if several:
        say_once(
            f"{path}: {several:,} rows have more than one annotation: the first is read"
        )
    return kept


def _data_of(task: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a task; its only text is `text`."""
    data: dict[str, Any] = task["data"] if isinstance(task.get("data"), dict) else {}
    texts = [value for value in data.values() if isinstance(value, str)]
    return data if "text" in data or len(texts) != 1 else {**data, "text": texts[0]}


def _labels_of(results: list[Any]) -> dict[str, Any]:
    """Return `spans` or `label` from the results of an annotation."""
    values: list[dict[str, Any]] = [
        each["value"]
        for each in results
        if isinstance(each, dict) and isinstance(each.get("value"), dict)
    ]
    spans = [
        {**value, "label": label}
        for value in values
        for label in value.get("labels") or []
    ]
    classes = [name for value in values for name in value.get("choices") or []]
    if classes and not spans:
        return {"label": classes}
    ratings = [value["rating"] for value in values if "rating" in value]
    if ratings and not spans:
        return {"label": ratings[0]}
    return {"spans": spans}


def _report(path: str, rows: list[Row], kept: list[Row], reason: str) -> None:
    if not kept:
        raise NoRowsError(f"contains no row to read: {reason}", path=path)
    left_out = len(rows) - len(kept)
    if left_out:
        say_once(f"{path}: left out {left_out:,} of {len(rows):,} rows: {reason}")
