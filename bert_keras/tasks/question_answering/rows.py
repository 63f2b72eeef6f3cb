"""Questions of a data set: positions of their answers, and wrong predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from bert_keras.data.squad import UNKNOWN, is_answers, place_of, stands_at
from bert_keras.data.table import Columns
from bert_keras.errors import first_of, received, shown
from bert_keras.scoring.answers import question_score


def answer_places(columns: Columns) -> np.ndarray:
    """Return start and end in characters of each question's answer, int32 [N, 2].

    Of several answers the first whose text is at its `answer_start`; -1 if there is no
    answer, -2 if none is at its place.

    Raises:
        DataError: a cell of `answers` is of another form.
    """
    problems = [
        (row, f"`answers` must be a list of (text, start); {received(answers)}")
        for row, answers in enumerate(columns["answers"])
        if not is_answers(answers)
    ]
    if problems:
        raise columns.error(problems)
    pairs = zip(columns["context"], columns["answers"], strict=True)
    return np.array([place_of(*pair) for pair in pairs], "int32").reshape(-1, 2)


def misplaced(columns: Columns) -> list[str]:
    """Return warnings about answers that are not at their `answer_start`.

    One line counts and names these answers, one the questions without any valid answer.
    """
    wrong = misplaced_answers(columns)
    if not wrong:
        return []
    names = names_of(columns)
    total = sum(map(len, columns["answers"]))
    asked = len({row for row, _, _ in wrong})
    told = [
        f"{names[row]} ({shown(text, longest=40)} at {at})" for row, text, at in wrong
    ]
    lines = [
        f"{columns.path}: {len(wrong):,} of {total:,} answers, of {asked:,} of "
        f"{len(columns):,} questions, do not stand where `answer_start` says: "
        f"{first_of(told)}"
    ]
    lost = np.flatnonzero(answer_places(columns)[:, 0] == UNKNOWN)
    if len(lost):
        lines.append(
            f"{columns.path}: {len(lost):,} of {len(columns):,} questions are not "
            "trained on: none of their answers stands where `answer_start` says: "
            f"{first_of([str(names[row]) for row in lost])}"
        )
    return lines


def misplaced_answers(columns: Columns) -> list[tuple[int, str, int]]:
    """Return row, text and start of each answer whose text is not at its start."""
    pairs = zip(columns["context"], columns["answers"], strict=True)
    return [
        (row, text, start)
        for row, (context, answers) in enumerate(pairs)
        for text, start in answers
        if not stands_at(context, text, start)
    ]


def question_facts(columns: Columns) -> dict[str, Any]:
    """Return how many questions there are, with and without an answer."""
    answered = sum(bool(answers) for answers in columns["answers"])
    return {
        "rows": len(columns),
        "contexts": len(set(columns["context"])),
        "with_answer": answered,
        "without_answer": len(columns) - answered,
        "misplaced_answers": len(misplaced_answers(columns)),
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
