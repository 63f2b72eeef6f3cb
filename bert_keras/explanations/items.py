"""The items and targets of a model's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bert_keras.errors import ConfigError
from bert_keras.explained.item import Item
from bert_keras.explained.targets import Target
from bert_keras.models.task_model import TaskModel, is_one_vector
from bert_keras.tasks.base import overrides


def item_of(
    model: TaskModel, parts: Sequence[Any], answer: Mapping[str, Any], **named: Any
) -> Item:
    """Return the item of an answer; the arguments are as in `Item`."""
    forms = model.task.forms
    roles = next((form for form in forms if len(form) == len(parts)), ())
    return Item(model, parts, answer, roles=roles, **named)


def check_explainable(model: TaskModel) -> None:
    """Raise ConfigError if a model's answers cannot be explained, see `targets_of`."""
    task = model.task
    is_vector = task.answers_ids and is_one_vector(model.output)
    if not overrides(task, "explained") and not is_vector:
        raise ConfigError(
            f"answers of the task {task.name} cannot be explained; a task of your own "
            "can define `explained`, see `bert_keras.tasks.base.Task`"
        )


def targets_of(item: Item) -> list[Target]:
    """Return the numbers to explain for an item.

    A task without a method `explained`, with one vector of outputs per text and the
    default `features`, explains the largest output.

    Raises:
        ConfigError: the task has nothing to explain, or no answer `target` or
            `against`.
    """
    check_explainable(item.model)
    return item.model.task.explained(item)
