"""`opens_in`: the tool that is to read the trained head, and what follows from it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from bert_keras.errors import ConfigError, shown
from bert_keras.models.folder import Folder
from bert_keras.settings import options_of
from bert_keras.tasks import named_or_given
from bert_keras.tasks.base import Task, replaced
from bert_keras.tasks.classifier_settings import LAST, POOLER
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.hugging_face import ENCODER_ALONE
from bert_keras.training.config import TrainConfig

_READ = {"pooling": POOLER, "normalize": False, "layers": LAST, "long": "truncate"}
_COST = (
    "the head reads BERT's pooler, which this encoder of vectors of texts was trained "
    "without: transformers reads it, but with few rows of a class it is less accurate "
    "(BANKING77, 4,096 rows: 0.667 instead of 0.906; AG News, 16 rows: 0.546 instead "
    "of 0.680)"
)


def with_open_head(
    task: str | type[Task] | Task,
    config: TrainConfig,
    settings: Mapping[str, Any] | None,
    *,
    encoder: str | os.PathLike[str],
    tell: Callable[[str], object],
) -> tuple[type[Task] | Task, TrainConfig, dict[str, Any] | None]:
    """Return task, config and settings of a head that the tool `opens_in` reads.

    transformers reads a head on the pooler of BERT, which only finetune trains.

    Args:
        task, config, encoder: as in `train`.
        settings: the user's settings of the task; `None` for a task instance that is
            kept as it is.
        tell: gets a line about what this is expected to cost.

    Raises:
        ConfigError: an option or a setting contradicts it, or there is no such head.
    """
    task = named_or_given(task)
    if config.opens_in is None:
        return task, config, None if settings is None else dict(settings)
    if task.head_codec.architecture == ENCODER_ALONE:
        raise ConfigError(
            f"`opens_in` must be left out for {task.name}, which has no head in "
            f"transformers; received {config.opens_in}"
        )
    kind = task if isinstance(task, type) else type(task)
    wanted = {k: v for k, v in _READ.items() if k in options_of(kind)}
    if "pooling" not in wanted:
        return task, config, None if settings is None else dict(settings)
    if config.method not in ("auto", "finetune"):
        raise ConfigError(
            f"`method` must be finetune with `opens_in` {config.opens_in}, which reads "
            f"a head on BERT's pooler: no other trains it; received {config.method}"
        )
    given = (
        task.get_config() if isinstance(task, Task) and settings is None else settings
    )
    for name, value in wanted.items():
        if (found := (given or {}).get(name, value)) != value:
            raise ConfigError(
                f"`{name}` must be {shown(value)} with `opens_in` {config.opens_in}, "
                f"which computes no other; received {shown(found)}"
            )
    if isinstance(Folder.open(encoder).held(Embedding), Embedding):
        tell(_COST)
    config = dataclasses.replace(config, method="finetune")
    if settings is None:
        return task, config, None
    if isinstance(task, Task):
        task = replaced(task, **wanted)
    own = {name: wanted[name] for name in ("pooling", "long") if name in wanted}
    return task, config, {**settings, **own}
