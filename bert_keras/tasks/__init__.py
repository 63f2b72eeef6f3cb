"""The tasks: one file each, all of one contract (`tasks.base.Task`).

`find_task` returns one of ours by its short name, or a user's own by
`my_package.my_task:MyTask`. Only the module of that task is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bert_keras.errors import ConfigError

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task

# name: module and class, one line that `bert-keras tasks` prints without TensorFlow.
TASKS = {
    "classification": (
        "bert_keras.tasks.classification:Classification",
        "one class for a text or a pair of texts (spam, sentiment, paraphrase …)",
    ),
    "multi-label": (
        "bert_keras.tasks.multi_label:MultiLabel",
        "any number of classes for a text or a pair of texts (topics, emotions …)",
    ),
    "next-sentence": (
        "bert_keras.tasks.next_sentence:NextSentence",
        "whether a text follows another, as BERT learned it in pretraining",
    ),
    "regression": (
        "bert_keras.tasks.regression:Regression",
        "one number for a text or a pair of texts (similarity, rating …)",
    ),
}


def find_task(name: str) -> type[Task]:
    """Return the class of a task.

    Args:
        name: a name of `TASKS`, or `module:Class` of a user's own.

    Raises:
        ConfigError: there is no such task.
    """
    place = TASKS[name][0] if name in TASKS else name
    module, _, attribute = place.partition(":")
    if not attribute:
        raise ConfigError(
            f"`task` must be one of {', '.join(TASKS)}, or module:Class of your own; "
            f"received {name!r}"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"`task` {name!r} cannot be imported: {error}") from None
    from bert_keras.tasks.base import Task

    if not (isinstance(found, type) and issubclass(found, Task)):
        raise ConfigError(
            f"`task` {name!r} must be a subclass of bert_keras.tasks.Task"
        )
    return found
