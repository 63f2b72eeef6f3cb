"""A classifier without training rows, from an entailment or an embedding model.

Of an embedding model the head is the vectors of the names times the model's scale, so
that its outputs are scaled cosines, as in the loss that the model was trained with.

Sources: Yin et al. 2019 (arXiv:1909.00161) for entailment; Reimers and Gurevych 2019
(arXiv:1908.10084) for vectors and their scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.data.class_names import chosen_names
from bert_keras.errors import ConfigError, shown
from bert_keras.models.kept_layers import KERNEL
from bert_keras.models.task_model import TaskModel, with_head
from bert_keras.reading.choices import PLACE
from bert_keras.reading.layers import LAST
from bert_keras.scoring.similarity import unit_rows
from bert_keras.settings import POOLINGS
from bert_keras.tasks.zero_shot import (
    check_templates,
    task_of_entailment,
    task_of_vectors,
)

BIAS = "classifier/bias"


def zero_shot_model(
    model: TaskModel,
    classes: Any,
    *,
    template: str | Sequence[str] | None = None,
    multi_label: bool = False,
) -> TaskModel:
    """Return the classifier of some classes on the weights of a model.

    Args:
        model: an entailment model, or an embedding model.
        classes: their names, a list or a word with commas.
        template: the sentence about a class, with `{}` in place of its name; for an
            embedding model also several; it takes the mean of their vectors. `None`:
            the default of the task for entailment, `{}` for an embedding model.
        multi_label: whether any number of classes can apply to a text.

    Raises:
        ConfigError: the model is another one, or an argument is out of range.
    """
    names = chosen_names(classes, least=1 if multi_label else 2)
    templates = [template] if isinstance(template, str) else list(template or ())
    check_templates(templates)
    if model.preprocessor.tokenizer.lowercase:
        _check_case(names)
    held: Any = model.task
    if held.vector_output:
        task = task_of_vectors(held, names, multi_label=multi_label)
        vectors = _name_vectors(model, names, templates or [PLACE])
        head = {KERNEL: held.scale * vectors.T, BIAS: np.zeros(len(names), "float32")}
        return with_head(model, task, model.preprocessor, head)
    task = task_of_entailment(held, names, templates, multi_label=multi_label)
    # A sentence is never truncated in favour of the text.
    preprocessor = model.preprocessor.replace(truncation="only_first")
    head = {w.path: w.numpy() for w in model.weights if w.path in (KERNEL, BIAS)}
    return with_head(model, task, preprocessor, head)


def _check_case(names: Sequence[str]) -> None:
    """Raise ConfigError if an uncased model reads two names as the same."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(name.lower(), name)
        if first != name:
            raise ConfigError(
                "`classes` must be names that differ in more than their case for an "
                f"uncased model; received {first} and {name}"
            )


def _name_vectors(
    model: TaskModel, names: Sequence[str], templates: Sequence[str]
) -> np.ndarray:
    """Return the vector of each class, float32 [C, H] of length 1.

    The mean over the sentences that the templates make of its name.

    Raises:
        ConfigError: the vectors are not what the head of a classifier reads.
    """
    task: Any = model.task
    prompt = task.prompt()
    for name, value, is_read in (
        ("pooling", task.pooling, task.pooling in POOLINGS),
        ("layers", task.layers, task.layers == LAST),
        ("dense", task.dense, not task.dense),
        ("default_prompt", task.default_prompt, not prompt),
    ):
        if not is_read:
            raise ConfigError(
                "an embedding model with classes must pool the tokens of the last "
                f"layer in one way, without a prompt; `{name}` is {shown(value)}"
            )
    sentences = [each.replace(PLACE, name) for name in names for each in templates]
    found = model.answer(tf.constant(sentences))["embedding"].numpy()
    units = unit_rows(found).reshape(len(names), len(templates), -1)
    return unit_rows(units.mean(axis=1))
