"""The questions of a data set: where answers stand, and which were answered wrong.

Cells of `answers` are lists of (text, start); see `squad` for how files are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bert_keras.span_metrics import question_score
from bert_keras.squad import UNKNOWN, is_answers, place_of
from bert_keras.table import Columns

_MOST_SHOWN = 10


def answer_places(columns: Columns) -> np.ndarray:
    """Return first character and end of an answer of each question, int32 [N, 2].

    Of several the first whose text stands where it is said to; -1 for no answer, -2
    where no answer does.

    Raises:
        DataError: a cell of `answers` is of another form.
    """
    problems = [
        (row, f"`answers` must be a list of (text, start); received {answers!r}")
        for row, answers in enumerate(columns["answers"])
        if not is_answers(answers)
    ]
    if problems:
        raise columns.error(problems)
    pairs = zip(columns["context"], columns["answers"], strict=True)
    return np.array([place_of(*pair) for pair in pairs], "int32").reshape(-1, 2)


def misplaced(columns: Columns) -> list[str]:
    """Return a line that names the questions whose answers stand nowhere, or none."""
    wrong = np.flatnonzero(answer_places(columns)[:, 0] == UNKNOWN)
    if not len(wrong):
        return []
    names = names_of(columns)
    shown = ", ".join(str(names[row]) for row in wrong[:_MOST_SHOWN])
    more = len(wrong) - _MOST_SHOWN
    return [
        f"{columns.path}: {len(wrong):,} of {len(columns):,} questions are not "
        "trained on: none of their answers stands where `answer_start` says: "
        f"{shown}" + (f" and {more:,} more" if more > 0 else "")
    ]


def question_facts(columns: Columns) -> dict[str, Any]:
    """Return how many questions there are, with and without an answer."""
    answered = sum(bool(answers) for answers in columns["answers"])
    return {
        "rows": len(columns),
        "contexts": len(set(columns["context"])),
        "with_answer": answered,
        "without_answer": len(columns) - answered,
        "wrong_offsets": int((answer_places(columns) == UNKNOWN).any(1).sum()),
    }


def names_of(columns: Columns) -> list[Any]:
    """Return the ids of questions, or their lines where they have none."""
    return columns["id"] if "id" in columns else columns.lines


def gold_texts(columns: Columns) -> list[list[str]]:
    """Return the texts of each question's answers."""
    return [[answer[0] for answer in given] for given in columns["answers"]]


def wrong_answers(
    columns: Columns, given: list[str], probabilities: np.ndarray
) -> list[dict[str, Any]]:
    """Return the questions that were answered wrong, most confident first.

    Args:
        columns: the questions.
        given: the answer to each, "" for none.
        probabilities: float [N], those of the answers.
    """
    golds, names = gold_texts(columns), names_of(columns)
    scores = [question_score(*pair) for pair in zip(golds, given, strict=True)]
    wrong = [row for row, score in enumerate(scores) if score.exact < 1]
    wrong.sort(key=lambda row: -probabilities[row])
    return [
        {
            "id": names[row],
            "text": columns["question"][row],
            "answers": " | ".join(dict.fromkeys(golds[row])),
            "prediction": given[row],
            "f1": scores[row].f1,
            "probability": float(probabilities[row]),
        }
        for row in wrong
    ]
