"""Reranking by each objective, with two or three documents of a query."""

from __future__ import annotations

from bert_keras.data.table import as_columns
from bert_keras.tasks.reranking import Reranking
from task_cases import OTHERS, Case

ROWS = [
    ("see you", "lunch at six", "1"),
    ("see you", "win cash now", "0"),
    ("see you", "half off", "0"),
    ("win", "free cash prize!", "1"),
    ("win", "at home", "0"),
    ("shoes", "sale: half price", "1"),
    ("shoes", "see you at six", "0"),
    ("shoes", "a free prize", "0"),
    ("lunch", "at home now?", "1"),
    ("lunch", "sale", "0"),
    ("sale", "half off", "1"),
    ("sale", "you win", "0"),
]
QUERIES, DOCUMENTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))


def _case(task: Reranking, labels: list[str], loss: float, target: str = "") -> Case:
    return Case(
        task,
        as_columns(text=QUERIES, text_pair=DOCUMENTS, label=labels),
        outputs=(12, 1),
        loss=loss,
        others=(OTHERS, OTHERS[::-1]),
        wrong=("label", "ten"),
        target=target,
        compares=task.compares,
        other_form=[("see you", ["lunch at six", "win cash"])],
    )


GRADES = ["3" if label == "1" else label for label in LABELS]
SCORES = ["4.5" if label == "1" else "-1.25" for label in LABELS]

CASES = {
    "pointwise": _case(Reranking(), LABELS, 0.2, "label"),
    "listwise": _case(Reranking("listwise"), LABELS, 0.2),
    "margins": _case(Reranking("margin-mse", "linear"), SCORES, 1.0),
    "grades": _case(Reranking(largest_grade=3.0, activation="linear"), GRADES, 0.2),
}
