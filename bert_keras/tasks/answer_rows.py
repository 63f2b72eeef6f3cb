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
    return {"labels": labels, "probabilities": _by_class(row)}


def _by_class(row: Row) -> dict[str, float]:
    return dict(zip(row["classes"], row["probabilities"], strict=True))


def of_choice(row: Row) -> Row:
    """Return the answers with as many probabilities as there are choices."""
    return {**row, "probabilities": [p for p in row["probabilities"] if p]}


def of_masks(row: Row) -> Row:
    """Return `masks`, a list of `token` and `probability` for each mask of the text,
    and `sequences`; both empty where the text has no mask.
    """
    masks = [
        _records({"token": words, "probability": numbers})
        for words, numbers in zip(row["tokens"], row["probabilities"], strict=True)
        if words[0]
    ]
    return {"masks": masks, "sequences": row["sequences"] if masks else []}


def of_entities(row: Row) -> Row:
    """Return `entities`: `text`, `type`, `start`, `end` and `score` each."""
    keys = {"text": "entities", "type": "types", "start": "starts"}
    keys |= {"end": "ends", "score": "scores"}
    found = _records({name: row[key] for name, key in keys.items()})
    return {"entities": [entity for entity in found if entity["text"]]}


def of_words(row: Row) -> Row:
    """Return the lists of a sentence, such as `tags`, one value for each word."""
    count = sum(map(bool, row["tags"]))
    return {key: values[:count] for key, values in row.items()}


def of_span(row: Row) -> Row:
    """Return `answer`, `start`, `end`, `score`, `null_score`; those of `n_best`."""
    keys = ("answer", "start", "end", "score")
    named = {f"n_best_{key}s": key for key in keys}
    found = _records({key: row[name] for name, key in named.items()})
    shown = {key: value for key, value in row.items() if key not in named}
    return {**shown, "n_best": [each for each in found if each["answer"]]}


def of_summary(row: Row) -> Row:
    """Return `summary` and `sentences`: `text`, `start`, `end` and `score` each."""
    keys = {"text": "sentences", "start": "starts", "end": "ends", "score": "scores"}
    found = _records({name: row[key] for name, key in keys.items()})
    sentences = [sentence for sentence in found if sentence["text"]]
    return {"summary": row["summary"], "sentences": sentences}


def _records(columns: Mapping[str, list[Any]]) -> list[Row]:
    """Return lists of equal length as a list of dicts."""
    values = zip(*columns.values(), strict=True)
    return [dict(zip(columns, each, strict=True)) for each in values]


# The outputs that identify the kind of answer.
_FORMS: tuple[tuple[frozenset[str], Callable[[Row], Row]], ...] = (
    (frozenset(("label", "probabilities", "classes")), of_class),
    (frozenset(("labels", "probabilities", "classes")), of_labels),
    (frozenset(("choice", "index", "probabilities")), of_choice),
    (frozenset(("tokens", "probabilities", "sequences")), of_masks),
    (frozenset(("entities", "types", "starts", "ends", "scores")), of_entities),
    (frozenset(("tags", "scores")), of_words),
    (frozenset(("answer", "n_best_answers", "n_best_scores")), of_span),
    (frozenset(("summary", "sentences", "starts", "ends", "scores")), of_summary),
)


def row_of(row: Row) -> Row:
    """Return the plain values of one text as `predict` returns them.

    Values with other names, such as those of a custom task, are unchanged.
    """
    for names, form in _FORMS:
        if names <= set(row):
            return form(row)
    return row
