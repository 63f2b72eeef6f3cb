"""What all ways of training have in common: `Trainer`, and what it gives, `Fitted`."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.inference.predictor import Predictor
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.base import Task


class CrossValidated(NamedTuple):
    """The result of cross-validation.

    Attributes:
        name: what scores are named after.
        rows: the rows that were held out once.
        answers: the answers to them by name. Thresholds and the like, which follow from
            answers, are of the other folds.
        task: the task, with thresholds of all answers.
        trained_on: how many rows the models of the folds have seen, in words: they are
            often a little worse than the model of all rows.
    """

    name: str
    rows: list[int]
    answers: dict[str, np.ndarray]
    task: Task
    trained_on: str


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """What a trainer gives back.

    Args:
        model: with the weights that are kept, outside of any strategy.
        scores, answers: of the dev rows; empty without them.
        validated: what cross-validation found, if there was one.
        history: rows of the curves.
        settings: what the report shows beside the settings of the run, such as the best
            epoch.
        batches: facts on the batches of the training rows.
        seconds: of the run so far.
        steps: number of updates.
        update_seconds: seconds of the first update, and of one per token; NaN if
            unknown.
    """

    model: TaskModel
    scores: dict[str, Any]
    answers: dict[str, np.ndarray]
    validated: CrossValidated | None
    history: list[dict[str, Any]]
    settings: dict[str, Any]
    seconds: float
    batches: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: int = 1
    update_seconds: tuple[float, float] = (math.nan, math.nan)


class Trainer(Protocol):
    """Fits a model to the rows of a plan.

    It is made of the model, the rows by name (`train`, and `dev`, `unlabeled` and tests
    if there are some), and the `RunContext`. An interrupted run that is made again
    resumes.

    Attributes:
        history: rows of the curves.
    """

    history: list[dict[str, Any]]

    def train(self) -> object:
        """Train, from where an interrupted run ended."""
        ...

    def fitted(self) -> Fitted:
        """Return the result; call it after `train`, once."""
        ...

    def answers(
        self, predictor: Predictor, name: str, rows: Columns
    ) -> dict[str, np.ndarray]:
        """Return the answers to the rows of a data set, and show the progress."""
        ...

    def saved_on_failure(self) -> contextlib.AbstractContextManager[None]:
        """Return a context around what follows training, whose failure it survives."""
        ...


def training_notes(ending: str, skipped: Sequence[str] = ()) -> dict[str, str]:
    """Return how training ended, and its skipped updates, as settings of a report."""
    found = {"training": ending, "skipped_updates": "; ".join(skipped)}
    return {name: value for name, value in found.items() if value}
