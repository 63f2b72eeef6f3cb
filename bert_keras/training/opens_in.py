"""`opens_in`: the tool that is to read the trained head, and what follows from it."""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_keras.errors import ConfigError, shown
from bert_keras.settings import CROSS, LAST_LAYER, POOLER, options_of
from bert_keras.tasks import class_of
from bert_keras.tasks.base import Task
from bert_keras.tasks.hugging_face import ENCODER_ALONE
from bert_keras.training.choices import Facts

_READ: dict[str, Any] = {
    "pooling": POOLER,
    "normalize": False,
    "layers": LAST_LAYER,
    "pair_encoder": CROSS,
    "long": "truncate",
}
_COST = (
    "the head reads BERT's pooler, as transformers needs it, but this sentence encoder "
    "was trained without a pooler: with few rows per class, accuracy is lower "
    "(BANKING77, 4,096 rows: 0.667 instead of 0.906; AG News, 16 rows: 0.546 instead "
    "of 0.680)"
)


def with_open_head(facts: Facts) -> tuple[Facts, list[str]]:
    """Return the facts of a head that the tool `opens_in` reads, and notes on its cost.

    transformers reads a head on the pooler of BERT, which only finetune trains.

    Raises:
        ConfigError: an option or a setting contradicts it, or there is no such head.
    """
    task, config = facts.task, facts.config
    if config.opens_in is None:
        return facts, []
    if task.head_codec.architecture == ENCODER_ALONE:
        raise ConfigError(
            f"`opens_in` must be left out for {task.name}, which has no head in "
            f"transformers; received {config.opens_in}"
        )
    options = options_of(class_of(task))
    wanted = {k: v for k, v in _READ.items() if k in options}
    if "pooling" not in wanted:
        return facts, []
    if config.method not in ("auto", "finetune"):
        raise ConfigError(
            f"`method` must be finetune with `opens_in` {config.opens_in}, which reads "
            f"a head on BERT's pooler: only finetune trains one; received "
            f"{config.method}"
        )
    given = task.get_config() if isinstance(task, Task) else facts.given
    for name, value in wanted.items():
        if (found := given.get(name, value)) != value:
            raise ConfigError(
                f"`{name}` must be {shown(value)} with `opens_in` {config.opens_in}, "
                f"which supports no other value; received {shown(found)}"
            )
    is_of_vectors = facts.folder.embedding() is not None
    settings = facts.settings
    if settings is not None:
        names = {"pooling", "long"} & {*wanted}
        settings = {**settings, **{name: wanted[name] for name in names}}
    config = dataclasses.replace(config, method="finetune")
    facts = dataclasses.replace(facts, config=config, settings=settings)
    return facts, [_COST] if is_of_vectors else []
