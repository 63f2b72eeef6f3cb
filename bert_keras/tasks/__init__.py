"""The tasks: one file each, with one contract (`tasks.base.Task`)."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.errors import ConfigError, nearest

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task

# name: module and class, one line that `bert-keras tasks` prints without TensorFlow.
TASKS = {
    "abstractive-summarization": (
        "bert_keras.tasks.generation:AbstractiveSummarization",
        "a summary or headline in words of its own",
    ),
    "classification": (
        "bert_keras.tasks.classification:Classification",
        "one class for a text or a pair of texts (spam, sentiment, paraphrase …)",
    ),
    "embedding": (
        "bert_keras.tasks.embedding:Embedding",
        "a vector for a text, trained on pairs (search, similarity, features …)",
    ),
    "feature-tagging": (
        "bert_keras.tasks.tagging.task:FeatureTagging",
        "a tag for each word, by a BiLSTM on features of the frozen encoder",
    ),
    "masked-lm": (
        "bert_keras.tasks.masked_lm:MaskedLM",
        "the words that fit at each [MASK]; adapts BERT to your own plain text",
    ),
    "multi-label": (
        "bert_keras.tasks.multi_label:MultiLabel",
        "any number of classes for a text or a pair of texts (topics, emotions …)",
    ),
    "multiple-choice": (
        "bert_keras.tasks.multiple_choice:MultipleChoice",
        "the choice that fits a context best (SWAG, COPA, exam questions …)",
    ),
    "next-sentence": (
        "bert_keras.tasks.next_sentence:NextSentence",
        "whether a text follows another, as BERT learned it in pretraining",
    ),
    "question-answering": (
        "bert_keras.tasks.question_answering.task:QuestionAnswering",
        "the span of a text that answers a question (SQuAD 1.1 and 2.0)",
    ),
    "regression": (
        "bert_keras.tasks.regression:Regression",
        "one number for a text or a pair of texts (similarity, rating …)",
    ),
    "summarization": (
        "bert_keras.tasks.summarization:Summarization",
        "the sentences of a document that make its summary",
    ),
    "token-classification": (
        "bert_keras.tasks.tagging.task:TokenClassification",
        "a tag for each word: names of persons, places, products … in a text",
    ),
    "translation": (
        "bert_keras.tasks.generation:Translation",
        "a text in another language, or in another form of the same",
    ),
}


def check_task_name(name: str) -> None:
    """Raise ConfigError unless a name is one of `TASKS` or has a colon."""
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
    place = TASKS[name][0] if name in TASKS else name
    module, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"`task` {name!r} cannot be imported: {error}") from None
    from bert_keras.tasks.base import Task

    if not (isinstance(found, type) and issubclass(found, Task)):
        raise ConfigError(
            f"`task` must be a subclass of {Task.__module__}.{Task.__qualname__}; "
            f"received {name!r}"
        )
    return found


def name_of(task_class: type[Task]) -> str:
    """Return the name that `find_task` accepts for a class."""
    if task_class.name in TASKS:
        return task_class.name
    return f"{task_class.__module__}:{task_class.__qualname__}"


def parse_settings(task: Task | type[Task], settings: Sequence[str]) -> dict[str, Any]:
    """Return a task's settings from `name=value` words; values may be JSON.

    Raises:
        ConfigError: the task has no such setting.
    """
    known = [field.name for field in dataclasses.fields(task)]  # type: ignore[arg-type]
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in known:
            raise ConfigError(
                f"`--set` must be NAME=VALUE with a setting of {task.name} "
                f"({', '.join(known)}); received {setting!r}{nearest(name, known)}"
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value  # a word
    return found
