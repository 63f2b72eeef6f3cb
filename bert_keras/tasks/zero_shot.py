"""The task of a classifier without training rows, by the task of the model it is from.

See `models.zero_shot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bert_keras.data.class_names import listed
from bert_keras.errors import ConfigError
from bert_keras.tasks.base import Task
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.entailment import check_template
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.protocols import check_dense


def check_templates(templates: Sequence[str]) -> None:
    """Raise ConfigError unless each template is a text with one `{}`."""
    for each in templates:
        check_template(each)


def task_of_vectors(held: Any, names: Sequence[str], *, multi_label: bool) -> Task:
    """Return the task of classes whose names are compared with vectors of texts.

    Raises:
        ConfigError: the vectors are not dense.
    """
    check_dense(held, "`classes`")
    return _kind(multi_label)(tuple(names), pooling=held.pooling, normalize=True)


def task_of_entailment(
    held: Task, names: Sequence[str], templates: Sequence[str], *, multi_label: bool
) -> Task:
    """Return the task of classes that an entailment model scores.

    Raises:
        ConfigError: `held` is of another model, or there are several templates.
    """
    if len(templates) > 1:
        raise ConfigError(
            "`template` must be one for an entailment model, which scores one sentence "
            f"about a class; received {len(templates)}"
        )
    given: dict[str, Any] = {"template": templates[0]} if templates else {}
    return _kind(multi_label)(tuple(names), **_entailment(held), **given)


def _kind(multi_label: bool) -> Any:
    return MultiLabel if multi_label else Classification


def _entailment(task: Task) -> dict[str, Any]:
    """Return the settings that follow from the task of an entailment model.

    Raises:
        ConfigError: it is another model.
    """
    found: tuple[str, ...] = ()
    if isinstance(task, Classification | MultiLabel) and task.entailment:
        found = task.entailment
    elif isinstance(task, Classification) and task.pairs is not False:
        found = task.classes
    if any(name.lower().startswith("entail") for name in found):
        return {"entailment": found, "temperature": getattr(task, "temperature", 1.0)}
    named = getattr(task, "classes", ())
    raise ConfigError(
        "`classes` need an embedding model, or an entailment model: a classification "
        f"of pairs with a class entailment; received the task {task.name}"
        f"{f' with the classes {listed(named)}' if named else ''}"
    )
