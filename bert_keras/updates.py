"""The updates of fine-tuning, one by one: `updates`, and `fit`, which makes them all.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from bert_keras.optimizers import AdamW, Lamb, WarmupLinearDecay
from bert_keras.table import Columns
from bert_keras.task_model import TaskModel
from bert_keras.task_objective import TaskObjective
from bert_keras.train_config import TrainConfig
from bert_keras.train_step import TrainStep
from bert_keras.training_rows import TrainingRows

Batches = list[tuple[dict[str, Any], dict[str, Any]]]


def updates(
    model: TaskModel,
    rows: TrainingRows,
    optimizer: keras.optimizers.Optimizer,
    *,
    first_step: int = 0,
    metrics: Sequence[keras.metrics.Metric] = (),
) -> Iterator[tuple[float, Batches]]:
    """Update a model's weights, and yield each update's loss and its batches.

    Args:
        model: a task's model.
        rows: what it is trained on.
        optimizer: built.
        first_step: updates that were made before.
        metrics: updated with each batch.
    """
    dataset = rows.dataset(first_step)
    objective = TaskObjective(model, metrics=metrics)
    update = TrainStep(model, optimizer, objective, dataset.element_spec)
    batches = iter(dataset)
    for step in range(first_step, rows.steps):
        some = list(itertools.islice(batches, rows.parts(step)))
        sums, totals = update(some)
        yield float(sums["loss"][0]) / max(float(totals["loss"]), 1.0), some


def fit(
    model: TaskModel,
    train: Columns,
    config: TrainConfig,
    *,
    after_update: Callable[[Batches], object] | None = None,
) -> None:
    """Train a model on all rows as the config says; its last weights stay in it.

    Nothing is scored and nothing is saved, unlike in `train`.

    Args:
        model: a task's model.
        train: the rows.
        config: how to train.
        after_update: called with the batches of each update.
    """
    rows = training_rows(model, train, config)
    optimizer = new_optimizer(config, steps=rows.steps)
    optimizer.build(model.trainable_variables)
    for _, batches in updates(model, rows, optimizer):
        if after_update:
            after_update(batches)


def training_rows(
    model: TaskModel, columns: Columns, config: TrainConfig
) -> TrainingRows:
    """Return the rows of a run in its order."""
    return TrainingRows(
        model,
        columns,
        batch_size=config.batch_size,
        epochs=config.epochs,
        seed=config.seed,
        accumulation=config.accumulation,
    )


def new_optimizer(
    config: TrainConfig, *, steps: int, make: Callable[..., Any] | None = None
) -> keras.optimizers.Optimizer:
    """Return the optimizer of a run with its schedule over so many updates.

    Args:
        config: how to train.
        steps: updates of the run.
        make: takes the class and its settings, as `finite_updates` does.
    """
    schedule = WarmupLinearDecay(
        config.learning_rate,
        total_steps=steps,
        warmup_steps=int(steps * config.warmup_share),
    )
    kind: Any = {"adamw": AdamW, "lamb": Lamb}[config.optimizer]
    settings: dict[str, Any] = {
        "learning_rate": schedule,
        "weight_decay": config.weight_decay,
        "global_clipnorm": config.global_clipnorm,
    }
    if config.precision == "mixed_float16":  # this looks for what is not finite itself
        return keras.optimizers.LossScaleOptimizer(kind(**settings))
    return make(kind, **settings) if make else kind(**settings)


def own_metrics(model: TaskModel) -> list[keras.metrics.Metric]:
    """Return the metrics of a task that `updates` can keep."""
    found = model.task.metrics()
    return [metric for metric in found if isinstance(metric, keras.metrics.Metric)]
