"""Rows of answers, by hand: from the outputs of a graph for one text."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bert_keras.tasks.answer_rows import has_alternatives, rows_of, with_top
from bert_keras.tasks.catalog import TASKS

CLASSES = {"probabilities": [0.25, 0.75], "classes": ["ham", "spam"]}
BY_CLASS = {"ham": 0.25, "spam": 0.75}
PLACES = {"starts": [0, 4, -1], "ends": [3, 8, -1], "scores": [0.5, 0.75, 0.0]}
FIRST = {"start": 0, "end": 3, "score": 0.5}
SECOND = {"start": 4, "end": 8, "score": 0.75}
SPANS = {
    "n_best_answers": ["six", "at six", ""],
    "n_best_starts": [0, 4, -1],
    "n_best_ends": [3, 8, -1],
    "n_best_scores": [0.5, 0.75, 0.0],
}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "class": (
        {"label": "spam", "score": 0.75, **CLASSES, "abstained": False},
        {"label": "spam", "score": 0.75, "probabilities": BY_CLASS, "abstained": False},
    ),
    "labels": (
        {"labels": ["", "spam"], **CLASSES},
        {"labels": ["spam"], "probabilities": BY_CLASS},
    ),
    "choice": (
        {"choice": "b", "index": 1, "score": 0.75, "probabilities": [0.25, 0.75, 0.0]},
        {"choice": "b", "index": 1, "score": 0.75, "probabilities": [0.25, 0.75]},
    ),
    "masks": (
        {
            "tokens": [["six", "two"], ["", ""]],
            "probabilities": [[0.5, 0.25], [0.0, 0.0]],
            "sequences": ["at six", "at two"],
        },
        {
            "masks": [
                [
                    {"token": "six", "probability": 0.5},
                    {"token": "two", "probability": 0.25},
                ]
            ],
            "sequences": ["at six", "at two"],
        },
    ),
    "no mask": (
        {"tokens": [[""]], "probabilities": [[0.0]], "sequences": [""]},
        {"masks": [], "sequences": []},
    ),
    "entities": (
        {"entities": ["Ann", "Rome", ""], "types": ["PER", "LOC", ""], **PLACES},
        {
            "entities": [
                {"text": "Ann", "type": "PER", **FIRST},
                {"text": "Rome", "type": "LOC", **SECOND},
            ]
        },
    ),
    "words": (
        {"tags": ["O", "B-PER", ""], "scores": [0.5, 0.75, 0.0]},
        {"tags": ["O", "B-PER"], "scores": [0.5, 0.75]},
    ),
    "span": (
        {"answer": "six", **FIRST, "null_score": -2.0, **SPANS},
        {
            "answer": "six",
            **FIRST,
            "null_score": -2.0,
            "n_best": [{"answer": "six", **FIRST}, {"answer": "at six", **SECOND}],
        },
    ),
    "summary": (
        {"summary": "A. B.", "sentences": ["A.", "B.", ""], **PLACES},
        {
            "summary": "A. B.",
            "sentences": [{"text": "A.", **FIRST}, {"text": "B.", **SECOND}],
        },
    ),
    "windows": ({"score": 2.5, "start": 0, "end": 3},) * 2,
    "follows": ({"is_next": True, "probability": 0.75, "abstained": False},) * 2,
    "text": ({"text": "a", "texts": ["a", "b"], "scores": [0.5, 0.25]},) * 2,
    "vector": ({"embedding": [0.5, 0.25]}, {"embedding": [0.5, 0.25]}),
    "others": ({"label": "x", "own": 1}, {"label": "x", "own": 1}),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(name: str) -> None:
    given, wanted = ROWS[name]
    kept = dict(given)
    lists = {key: [value, value] for key, value in given.items()}
    assert rows_of(lists) == [wanted, wanted]
    assert given == kept
    # An export has its outputs in any order.
    (row, _), (other, _) = rows_of(lists), rows_of(dict(sorted(lists.items())))
    assert list(row) == list(other) == list(wanted)


def test_classes_that_do_not_fit_are_rejected() -> None:
    with pytest.raises(ValueError, match="zip"):
        rows_of(
            {
                "label": ["a"],
                "score": [0.5],
                "probabilities": [[0.5, 0.5]],
                "classes": [["a"]],
            }
        )


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (
            {"label": "b", "probabilities": {"a": 0.1, "b": 0.6, "c": 0.1, "d": 0.2}},
            {"label": "b", "probabilities": {"b": 0.6, "d": 0.2}},
        ),
        (
            {"masks": [["to", "of", "in"], ["x"]], "sequences": ["s", "t", "u"]},
            {"masks": [["to", "of"], ["x"]], "sequences": ["s", "t"]},
        ),
        ({"answer": "6", "n_best": [1, 2, 3]}, {"answer": "6", "n_best": [1, 2]}),
        (
            {"text": "a", "texts": ["a", "b", "c"], "scores": [-1.0, -2.0, -3.0]},
            {"text": "a", "texts": ["a", "b"], "scores": [-1.0, -2.0]},
        ),
        # One value for each choice, in their order; no answer; all entities.
        ({"probabilities": [0.1, 0.6, 0.3]},) * 2,
        ({"probabilities": None, "masks": None, "n_best": None},) * 2,
        ({"entities": [{"score": 0.1}] * 3, "scores": [1, 2, 3]},) * 2,
    ],
)
def test_the_best_alternatives_of_an_answer(row: Any, wanted: Any) -> None:
    before = copy.deepcopy(row)
    found = with_top(row, 2)
    assert found == wanted and row == before
    if isinstance(found.get("probabilities"), dict):
        assert list(found["probabilities"]) == ["b", "d"]
    assert with_top(row, 9) == row


def test_tasks_whose_answers_have_alternatives() -> None:
    names = {name for name in TASKS if has_alternatives(name)}
    assert names == {
        *("classification", "multi-label", "masked-lm", "question-answering"),
        *("translation", "abstractive-summarization"),
    }
    assert has_alternatives("your:Task")
