"""The dev rows of a run: held out from the training rows, or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_keras.data.holdout import (
    random_holdout,
    stratified_holdout,
    uncovered_classes,
)
from bert_keras.data.table import Columns
from bert_keras.errors import ConfigError, DataError
from bert_keras.runs.progress import say
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import groups_of, strata_of
from bert_keras.training.config import TrainConfig


def with_dev(
    task: type[Task] | Task,
    rows: Columns,
    config: TrainConfig,
    settings: Mapping[str, Any],
    *,
    is_earlier: bool = False,
    tell: Callable[[str], object] = say,
) -> tuple[Columns, Columns]:
    """Return training rows and dev rows, which are held out from the given rows.

    The arguments are those of `task_and_data`; `settings` are the task's.
    """
    strata = strata_of(task, rows, **settings)
    count = max(1, round(len(rows) * config.dev_share))
    held_out: list[int] = []
    if count < len(rows) and is_earlier:
        held_out = random_holdout(strata, count, seed=config.seed)
    elif count < len(rows):
        groups = groups_of(task, rows)
        held_out = stratified_holdout(strata, count, seed=config.seed, groups=groups)
    if not held_out:
        raise DataError(
            f"has too few rows to hold some out for dev ({len(rows)}; each class "
            "needs one in training): give dev rows, or --dev-share 0 to have none",
            path=rows.path,
        )
    kept = sorted(set(range(len(rows))) - set(held_out))
    fewer = f", not {count:,}: each class is in training"
    line = (
        f"no dev rows given: {len(held_out):,} of {len(rows):,} training rows are held "
        f"out (seed {config.seed}){fewer if len(held_out) < count else ''}"
    )
    if missing := uncovered_classes(strata, held_out, option="--dev-share"):
        line += f"; dev has {missing}"
    if shared := _shared(groups_of(task, rows), kept, held_out):
        line += f"; {shared:,} first texts are in both"
    tell(line)
    return rows.take(kept), rows.take(held_out)


def _shared(groups: Sequence[str] | None, kept: list[int], held_out: list[int]) -> int:
    """Return how many groups have rows in both parts of a split."""
    if groups is None:
        return 0
    return len({groups[row] for row in kept} & {groups[row] for row in held_out})


_FITTED = {"calibration": "none", "answered_accuracy": 0.0}  # on dev, unless so
_FITTED_BY_DEFAULT = {"threshold_tuning": "none", "no_answer": False}


def without_dev(
    task: Task,
    given: TrainConfig,
    config: TrainConfig,
    *,
    tell: Callable[[str], object] = say,
) -> TrainConfig:
    """Return the config of a run without dev rows, which cannot end early.

    Args:
        task: the task.
        given: the config as the user gave it.
        config: with numbers in place of `None`.
        tell: gets a line about what is not fitted.

    Raises:
        ConfigError: a given setting needs dev rows.
    """
    settings = task.settings()
    asked = {name: settings.get(name, none) for name, none in _FITTED.items()}
    asked = {name: value for name, value in asked.items() if value != _FITTED[name]}
    if given.patience:
        asked["patience"] = given.patience
    for name, value in asked.items():
        raise ConfigError(f"`{name}` needs dev rows; received {value} and no dev rows")
    for name, none in _FITTED_BY_DEFAULT.items():
        if settings.get(name, none) != none:
            tell(f"no dev rows: no threshold is fitted ({name} {settings[name]})")
    return dataclasses.replace(config, patience=0)
