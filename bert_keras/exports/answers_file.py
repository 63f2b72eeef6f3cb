"""`answers.json` of an export: the task of its answers. Needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert_keras.data.class_names import listed
from bert_keras.errors import CheckpointError, ConfigError, one_line, shown
from bert_keras.files.json_file import read_json
from bert_keras.tasks import TASKS, find_task, name_of, named_or_given
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.base import Task
from bert_keras.tasks.catalog import VARIANTS

FORMAT = 1


def read_answers_file(
    folder: Path, path: Path, given: str | type[Task] | Task | None
) -> tuple[Task, dict[str, Any]]:
    """Return the task of an export, and all that `answers.json` holds.

    Args:
        folder: the export, for errors.
        path: the file.
        given: the task, as in `load_model`; a task instance must equal the exported
            task.

    Raises:
        CheckpointError: the file is missing or broken.
        ConfigError: a task instance has other settings than the export.
    """
    record = read_json(path)
    for key, kind in (("task", str), ("settings", dict), ("preprocessing", dict)):
        if not isinstance(record.get(key), kind):
            raise CheckpointError(
                f"{path}: `{key}` must be {'a string' if kind is str else 'an object'}"
                f"; received {shown(record.get(key))}"
            )
    if record.get("format", FORMAT) != FORMAT:
        raise CheckpointError(
            f"{path}: `format` must be {FORMAT}; received {shown(record['format'])}"
        )
    task_class = _class_of(path, record["task"], given)
    try:
        task = task_class.from_config(record["settings"])
    except (TypeError, ValueError) as error:  # wrong names or values
        raise CheckpointError(f"{path}: {' '.join(str(error).split())}") from None
    if isinstance(given, Task) and given != task:
        raise ConfigError(
            f"`task` must be the task of {folder}, whose settings are fixed in its "
            f"graph; received {shown(given)}"
        )
    return task, record


def check_answers(
    task: Task,
    folder: Path,
    record: str,
    answer: Callable[[], Mapping[str, Any]],
    *errors: type[Exception],
) -> None:
    """Raise a CheckpointError unless a model's answers match the record of its task.

    A record with other classes than the model does not match its answers.

    Args:
        task: the task.
        folder: the folder of the model, for errors.
        record: the file of the folder that names task and settings.
        answer: returns the answers to one text as arrays [1, …].
        errors: what may be raised besides the errors of Python's types.
    """
    kinds: tuple[type[Exception], ...] = (KeyError, ValueError, TypeError, IndexError)
    kinds += (AttributeError, *errors)
    try:
        (row,) = rows_of(answer(), task.name)
        classes, by_class = getattr(task, "classes", ()), row.get("probabilities")
        if classes and isinstance(by_class, dict):
            if list(by_class) != list(classes):
                raise ValueError(f"its classes are {listed(list(by_class))}")
    except kinds as error:
        raise CheckpointError(
            f"{folder}: the graph does not answer as {task.name} "
            f"with the settings in {record}: {type(error).__name__}: "
            f"{one_line(error, longest=200)}"
        ) from None


def _class_of(
    path: Path, held: str, given: str | type[Task] | Task | None
) -> type[Task]:
    if given is None:
        return named_task(path, held)
    found = type(given) if isinstance(given, Task) else given
    task_class: Any = named_or_given(found)
    check_same_task(path, held, task_class)
    return task_class


def check_same_task(place: Path, held: str, task_class: type[Task]) -> None:
    """Raise unless a model's task is of a class; a custom task may have moved."""
    given = name_of(task_class)
    if held != given and (held in TASKS or given in TASKS):
        raise CheckpointError(
            f"{place}: holds a model of the task {one_line(held)}; "
            f"received `task` {given}"
        )


def named_task(place: Path, name: str) -> type[Task]:
    """Return the class of a task of ours that a file names; no other is imported."""
    if name not in TASKS and name not in VARIANTS:
        raise CheckpointError(
            f"{place}: made by the task {shown(name)}, which is not one of ours: pass "
            "it as `task`, if you trust that code"
        )
    return find_task(name)
