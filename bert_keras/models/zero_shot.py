"""A classifier without training rows, from an entailment or an embedding model.

Sources: Yin et al. 2019 (arXiv:1909.00161) for entailment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_keras.data.class_names import chosen_names, listed
from bert_keras.errors import ConfigError
from bert_keras.models.backend import Backend
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.base import Task
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.entailment import check_template
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.text.preprocessor import Preprocessor


def zero_shot_model(
    model: Backend,
    classes: Any,
    *,
    template: str | None = None,
    multi_label: bool = False,
) -> TaskModel:
    """Return the classifier of some classes on the weights of a model.

    Args:
        model: an entailment model.
        classes: their names, a list or a word with commas.
        template: the sentence about a class, with `{}` in place of its name; `None`:
            the default of the task.
        multi_label: whether each class applies or not, whatever the others.

    Raises:
        ConfigError: the model is another one, or an argument is out of range.
    """
    names = chosen_names(classes, least=1 if multi_label else 2)
    given: dict[str, Any] = {"classes": names}
    if template is not None:
        check_template(template)
        given["template"] = template
    if not isinstance(model, TaskModel):
        raise ConfigError(
            "`model` must be a model folder to get classes, since the graph of an "
            f"export is fixed; received {type(model).__name__}"
        )
    kind = MultiLabel if multi_label else Classification
    task = kind(**_entailment(model.task), **given)
    # A sentence is never truncated in favour of the text.
    preprocessor = model.preprocessor.replace(truncation="only_first")
    head = {w.path: w.numpy() for w in model.weights if not w.path.startswith("bert/")}
    return _with_head(model, task, preprocessor, head)


def _with_head(
    model: TaskModel,
    task: Task,
    preprocessor: Preprocessor,
    head: Mapping[str, np.ndarray],
) -> TaskModel:
    """Return a model of another task on the same encoder, with a head's weights."""
    encoder, source = model.backbone, model.backbone.source
    encoder.source = None  # or the head would be reported as random
    try:
        made = TaskModel(encoder, task, preprocessor)
    finally:
        encoder.source = source
    for weight in made.weights:
        if weight.path in head:
            weight.assign(head[weight.path])
    return made


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
        "`classes` need an entailment model, a classification of pairs with a class "
        f"entailment; received the task {task.name}"
        f"{f' with the classes {listed(named)}' if named else ''}"
    )
