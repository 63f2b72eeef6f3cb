"""The cases of the contract test: a module a task, `CASES` in it, forms by name."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from conftest import ROWS

from bert_keras.data.columns import Columns
from bert_keras.tasks.base import Task

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
# Met by no training row: empty, long, other scripts, upper case.
OTHERS = ["", "é 日本 🎉", "WIN " * 30, "see you", "zzz"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One form of a task: the task, one batch of rows, and what overfitting means."""

    task: Task
    columns: Columns
    outputs: tuple[int | None, ...]  # shape of the outputs; None: of no fixed size
    loss: float  # of the batch after `steps` updates, at most
    others: tuple[list[Any], ...]  # more texts, a list a role, met by no training row
    # A role and a cell that `targets` rejects; None: any text is a valid label.
    wrong: tuple[str, str] | None
    target: str = "label"  # the role whose cells `fit` accepts unchanged, or ""
    steps: int = 40  # after which the batch is overfitted
    compares: bool = False  # whether the loss compares the rows of a batch
    # A text in the form of another signature, if there is one.
    other_form: list[Any] = dataclasses.field(default_factory=lambda: ["see you"])


def cases_of(name: str) -> dict[str, Case]:
    """Return the cases of a task by form."""
    return importlib.import_module(f"task_cases.{name.replace('-', '_')}").CASES


def first_case(name: str) -> Case:
    """Return the first case of a task, which is proven in every way."""
    return next(iter(cases_of(name).values()))
