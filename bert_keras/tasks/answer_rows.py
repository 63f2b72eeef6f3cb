"""Answers as rows: the outputs of a graph for one text, in the form of `predict`.

Each function takes the plain values of one text by output name; `row_of` chooses it by
the names of the outputs, also for clients of a server, which do not know the task.
Nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]


def of_class(row: Row) -> Row:
    """Return `label`, `score` and `probabilities`, by class."""
    shown = {key: value for key, value in row.items() if key != "classes"}
    return {**shown, "probabilities": _by_class(row)}


def of_labels(row: Row) -> Row:
    """Return `labels`, a list, and `probabilities`, by class."""
    labels = [name for name in row["labels"] if name]
    return {**of_class(row), "labels": labels}


def _by_class(row: Row) -> dict[str, float]:
    """Return the probabilities by class; padding is no class."""
    named = zip(row["classes"], row["probabilities"], strict=True)
    return {name: number for name, number in named if name}


def of_choice(row: Row) -> Row:
    """Return the answers with as many probabilities as there are choices."""
    return {**row, "probabilities": [p for p in row["probabilities"] if p]}


def of_masks(row: Row) -> Row:
    """Return `masks`, a list of `token` and `probability` for each mask of the text,
    and `sequences`; both empty where the text has no mask.
    """
    masks = [
        [
            {"token": word, "probability": number}
            for word, number in zip(words, numbers, strict=True)
        ]
        for words, numbers in zip(row["tokens"], row["probabilities"], strict=True)
        if words[0]
    ]
    return {"masks": masks, "sequences": row["sequences"] if masks else []}


def of_entities(row: Row) -> Row:
    """Return `entities`: `text`, `type`, `start`, `end` and `score` each."""
    keys = {"text": "entities", "type": "types", "start": "starts"}
    return {"entities": _records(row, {**keys, "end": "ends", "score": "scores"})}


def of_words(row: Row) -> Row:
    """Return the lists of a sentence, such as `tags`, one value for each word."""
    count = sum(map(bool, row["tags"]))
    return {key: values[:count] for key, values in row.items()}


def of_span(row: Row) -> Row:
    """Return `answer`, `start`, `end`, `score`, `null_score`, and a list `n_best`."""
    keys = ("answer", "start", "end", "score")
    lists = {key: f"n_best_{key}s" for key in keys}
    shown = {key: value for key, value in row.items() if key not in lists.values()}
    return {**shown, "n_best": _records(row, lists)}


def of_summary(row: Row) -> Row:
    """Return `summary` and `sentences`: `text`, `start`, `end` and `score` each."""
    keys = {"text": "sentences", "start": "starts", "end": "ends", "score": "scores"}
    return {"summary": row["summary"], "sentences": _records(row, keys)}


def of_ranking(row: Row) -> Row:
    """Return `scores` and `places` of the documents, without padding."""
    count = sum(place >= 0 for place in row["places"])
    return {key: values[:count] for key, values in row.items()}


def _records(row: Row, keys: Mapping[str, str]) -> list[Row]:
    """Return some lists of a row as one list of dicts, without padding.

    `keys` maps the keys of a dict to lists of the row; padding is empty in the first.
    """
    columns = [row[key] for key in keys.values()]
    values = zip(*columns, strict=True)
    return [dict(zip(keys, each, strict=True)) for each in values if each[0]]


# The outputs that identify the kind of answer.
_FORMS: tuple[tuple[set[str], Callable[[Row], Row]], ...] = (
    ({"label", "probabilities", "classes"}, of_class),
    ({"labels", "probabilities", "classes"}, of_labels),
    ({"choice", "index", "probabilities"}, of_choice),
    ({"tokens", "probabilities", "sequences"}, of_masks),
    ({"entities", "types", "starts", "ends", "scores"}, of_entities),
    ({"tags", "scores"}, of_words),
    ({"answer", "n_best_answers", "n_best_scores"}, of_span),
    ({"scores", "places"}, of_ranking),
    ({"summary", "sentences", "starts", "ends", "scores"}, of_summary),
)


def row_of(row: Row) -> Row:
    """Return the plain values of one text as `predict` returns them.

    Values with other names, such as a custom task's, are unchanged.
    """
    for names, form in _FORMS:
        if names <= row.keys():
            return form(row)
    return row
