"""Choose a task, or write your own: data, head, loss, answers and scores.

One file for each, with one contract (`tasks.base.Task`).
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.errors import BertKerasError, ConfigError, nearest, received, shown
from bert_keras.lazy_names import quiet_imports, requirements
from bert_keras.settings import check_type, options_of
from bert_keras.tasks.catalog import TASKS

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task


def check_task_name(name: str) -> None:
    """Raise ConfigError unless a name is one of `TASKS` or has a colon."""
    check_type("task", name, str)
    if name not in TASKS and ":" not in name:
        raise ConfigError(
            f"`task` must be one of {', '.join(TASKS)}, or module:Class of your own; "
            f"received {name!r}{nearest(name, TASKS)}"
        )


def find_task(name: str) -> type[Task]:
    """Return the class of a name of `TASKS`, or of a user's `module:Class`.

    Only the module of that task is imported.

    Raises:
        ConfigError: there is no such task.
    """
    check_task_name(name)
    place = TASKS[name].place if name in TASKS else name
    module, _, attribute = place.partition(":")
    try:
        with quiet_imports(), requirements():
            found = getattr(importlib.import_module(module), attribute)
    except BertKerasError:
        raise
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"`task` {name!r} cannot be imported: {error}") from None
    from bert_keras.tasks.base import Task

    if not (isinstance(found, type) and issubclass(found, Task)):
        raise ConfigError(
            f"`task` must be a subclass of {Task.__module__}.{Task.__qualname__}; "
            f"received {name!r}"
        )
    return found


def named_or_given(task: str | type[Task] | Task | None) -> type[Task] | Task:
    """Return the class of a task's name; a class or a task is returned unchanged.

    Raises:
        ConfigError: it is none of these, or there is no such task.
    """
    from bert_keras.tasks.base import Task

    if isinstance(task, str):
        return find_task(task)
    if isinstance(task, Task) or isinstance(task, type) and issubclass(task, Task):
        return task
    raise ConfigError(
        f"`task` must be a name, a subclass of Task or a task; {received(task)}"
    )


def class_of(task: type[Task] | Task) -> type[Task]:
    """Return the class of a task; a class is returned unchanged."""
    return task if isinstance(task, type) else type(task)


def name_of(task_class: type[Task]) -> str:
    """Return the name that `find_task` accepts for a class."""
    if task_class.name in TASKS:
        return task_class.name
    return f"{task_class.__module__}:{task_class.__qualname__}"


def check_settings(task: Task | type[Task], settings: Mapping[str, Any]) -> None:
    """Raise ConfigError unless a task has these settings, and each has an effect."""
    known = setting_names(task)
    for name, declared in options_of(class_of(task)).items():
        # A setting that needs the other one is fitted only where it is not given.
        if name not in settings or not declared.fitted_by or declared.needs:
            continue
        fits, none = declared.fitted_by
        if settings.get(fits, none) != none:
            raise ConfigError(
                f"`{fits}` fits `{name}` on dev: give one of them; received "
                f"{shown(settings[fits])} and {shown(settings[name])}"
            )
    for name in settings:
        if name not in known:
            raise ConfigError(
                f"a setting of {task.name} must be one of {', '.join(known)}; "
                f"received {name!r}{nearest(name, known)}"
            )


def setting_names(task: Task | type[Task]) -> list[str]:
    """Return the names of a task's settings."""
    return [field.name for field in dataclasses.fields(task)]  # type: ignore[arg-type]


def parse_settings(task: Task | type[Task], settings: Sequence[str]) -> dict[str, Any]:
    """Return a task's settings from `name=value` words; values may be JSON.

    Raises:
        ConfigError: the task has no such setting.
    """
    known = setting_names(task)
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in known:
            raise ConfigError(
                f"`--set` must be NAME=VALUE with a setting of {task.name} "
                f"({', '.join(known)}); received {setting!r}{nearest(name, known)}"
            )
        if name in found:
            raise ConfigError(
                f"`--set` must give {name} once; received {setting!r} too"
            )
        found[name] = setting_value(value)
    check_settings(task, found)
    return found


def setting_value(text: str) -> Any:
    """Return the value of a setting as typed: JSON, or a word."""
    import json  # `--help` does not need it

    try:
        return json.loads(text)
    except ValueError:
        return text
