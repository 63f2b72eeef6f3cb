"""The rows of labelled data that a model answers wrongly, to be explained."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any

from bert_keras.data.columns import Columns
from bert_keras.data.memory import is_path, rows_in_memory
from bert_keras.errors import ConfigError, counted
from bert_keras.explanations.items import check_explainable
from bert_keras.inference.predictor import Predictor
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.notes import say
from bert_keras.runs.progress import Progress
from bert_keras.tasks.base import overrides
from bert_keras.tasks.protocols import Deciding, texts_of

_LABELS = ("label", "answers", "summary")  # where a mistake has what is right


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A wrong answer.

    Attributes:
        parts: the texts of its row, by role.
        line: of the row in its file; `None` for a question, which has an id.
        label: what is right.
        rival: the answer that it is explained against; `None`: all others.
    """

    parts: tuple[Any, ...]
    line: int | None
    label: str | None
    rival: str | None


def true_label(mistake: Mapping[str, Any]) -> str | None:
    """Return what is right in a row of `Task.mistakes`, as text."""
    found = next((mistake[name] for name in _LABELS if name in mistake), None)
    if isinstance(found, numbers.Real):
        return f"{found:g}"
    return None if found is None else str(found)


def find_mistakes(
    predictor: Predictor, model: TaskModel, data: Any, *, most: int, batch_size: int
) -> list[Mistake]:
    """Return the first wrong answers to labelled rows; a note has their number.

    Args:
        predictor: the predictor of the model.
        model: the model, whose answers can be explained.
        data: labelled rows, as `evaluate` takes them.
        most: how many are returned; their order is `Task.mistakes`.
        batch_size: rows computed at once.

    Raises:
        ConfigError: the task has no mistakes, or cannot be explained.
        DataError: a label is missing, or unknown to the model.
    """
    task = model.task
    check_explainable(model)
    if not overrides(task, "mistakes"):
        raise ConfigError(
            f"`mistakes` must be left out for the task {task.name}, which defines "
            f"none; received {most}"
        )
    rows = data
    if not isinstance(data, Columns):
        rows = task.read(data if is_path(data) else rows_in_memory(data, name="texts"))
    task.targets(rows)  # labels are checked before the model runs
    texts = texts_of(task.paired(), rows)
    with Progress("scoring", unit="rows", total=len(rows)) as shown:
        answers = predictor.answers(rows, batch_size=batch_size, seen=shown.add)
    # Numbers of rows in place of lines and ids, which several rows may have.
    numbers_of_rows = range(len(rows))
    cells = {**rows.cells, "id": list(map(str, numbers_of_rows))}
    found = task.mistakes(Columns(rows.path, cells, numbers_of_rows), answers)
    if found:
        say(
            f"{counted(len(found), 'mistakes')} in {counted(len(rows), 'rows')}; "
            f"explained: {min(most, len(found)):,}"
        )
    chosen = []
    for each in found[:most]:
        number = each.get("line", each.get("id"))
        if number is None:
            raise ConfigError(
                f"`mistakes` of the task {task.name} must have the `line` of each row; "
                f"received {', '.join(each)}"
            )
        row = int(number)
        chosen.append(
            Mistake(
                parts=tuple(part[row] for part in texts),
                line=int(rows.lines[row]) if "line" in each else None,
                label=true_label(each),
                rival=task.rival(each) if isinstance(task, Deciding) else None,
            )
        )
    return chosen
