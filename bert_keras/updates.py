"""The updates of fine-tuning, one by one: `updates`, and `fit`, which makes them all.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_keras.errors import ConfigError
from bert_keras.optimizers import WarmupLinearDecay, optimizer_of
from bert_keras.replica_input import distributed
from bert_keras.replicas import summed_function
from bert_keras.table import Columns
from bert_keras.task_model import TaskModel
from bert_keras.task_objective import TaskObjective
from bert_keras.train_config import TrainConfig
from bert_keras.train_step import TrainStep
from bert_keras.training_rows import TrainingRows

Batches = list[tuple[dict[str, Any], dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Update:
    """What is told of an update.

    Args:
        loss: its mean.
        is_made: whether loss and gradients are finite; else it was passed over.
        real_tokens, places: real tokens of its batches, and the places of their rows.
        batches: what it was made from; on several replicas those of all of them.
    """

    loss: float
    is_made: bool
    real_tokens: int
    places: int
    batches: Batches


def updates(
    model: TaskModel,
    rows: TrainingRows,
    optimizer: keras.optimizers.Optimizer,
    *,
    first_step: int = 0,
    metrics: Sequence[keras.metrics.Metric] = (),
) -> Iterator[Update]:
    """Update a model's weights, and yield what is told of each update.

    Each batch is shared by the replicas of the strategy in whose scope the model was
    made; what is told is that of all of them.

    Args:
        model: a task's model.
        rows: what it is trained on.
        optimizer: built.
        first_step: updates that were made before.
        metrics: updated with each batch; made in the same scope.
    """
    strategy = model.distribute_strategy
    dataset = distributed(strategy, lambda share: rows.dataset(first_step, share))
    count = summed_function(strategy, _token_counts, [dataset.element_spec[0]])
    objective = TaskObjective(model, metrics=metrics)
    update = TrainStep(model, optimizer, objective, dataset.element_spec)
    batches = iter(dataset)
    for step in range(first_step, rows.steps):
        some = list(itertools.islice(batches, rows.parts(step)))
        sums, totals, is_made = update(some)
        loss = float(sums["loss"][0]) / max(float(totals["loss"]), 1.0)
        tokens = tf.add_n([count(inputs) for inputs, _ in some])
        real_tokens, places = (int(each) for each in tokens.numpy())
        yield Update(loss, bool(is_made), real_tokens, places, some)


def _token_counts(inputs: dict[str, Any]) -> Any:
    """Return the real tokens of a batch and the places of its rows, float32 [2]."""
    mask = tf.cast(inputs["padding_mask"], tf.float32)
    return tf.stack([tf.reduce_sum(mask), tf.cast(tf.size(mask), tf.float32)])


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
    config = config.settled(model.task.learning_rate)
    rows = training_rows(model, train, config)
    optimizer = new_optimizer(config, steps=rows.steps)
    optimizer.build(model.trainable_variables)
    for update in updates(model, rows, optimizer):
        if after_update:
            after_update(update.batches)


def training_rows(
    model: TaskModel, columns: Columns, config: TrainConfig, *, fixed: bool = False
) -> TrainingRows:
    """Return the rows of a run in its order; `fixed` as that of `TrainingRows`."""
    return TrainingRows(
        model,
        columns,
        batch_size=config.batch_size,
        epochs=config.epochs,
        seed=config.seed,
        accumulation=config.accumulation,
        fixed=fixed,
    )


def new_optimizer(config: TrainConfig, *, steps: int) -> keras.optimizers.Optimizer:
    """Return the optimizer of a run with its schedule over so many updates.

    Args:
        config: how to train; has a learning rate, see `TrainConfig.settled`.
        steps: updates of the run.

    Raises:
        ConfigError: the config has none.
    """
    if config.learning_rate is None:
        raise ConfigError("`learning_rate` must be a number here; received None")
    schedule = WarmupLinearDecay(
        config.learning_rate,
        total_steps=steps,
        warmup_steps=int(steps * config.warmup_share),
    )
    return optimizer_of(config, schedule)


def own_metrics(model: TaskModel) -> list[keras.metrics.Metric]:
    """Return the metrics of a task that `updates` can keep."""
    found = model.task.metrics()
    return [metric for metric in found if isinstance(metric, keras.metrics.Metric)]
