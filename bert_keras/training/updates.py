"""The updates of fine-tuning: `updates` yields each, `fit` makes all of them.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import keras
import tensorflow as tf

from bert_keras.data.columns import Columns
from bert_keras.errors import ConfigError
from bert_keras.model.optimizers import WarmupLinearDecay, optimizer_of
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.protocols import is_new_weight, training_examples
from bert_keras.training.config import TrainConfig
from bert_keras.training.objective import TaskObjective
from bert_keras.training.rows import TrainingRows
from bert_keras.training.train_step import make_updates

_MOST_LOSS_ROWS = 1000
Batches = list[tuple[dict[str, Any], dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Update:
    """The loss and the token counts of an update."""

    loss: float  # the mean
    is_made: bool  # whether loss and gradients are finite; otherwise it was skipped
    real_tokens: int  # of its batches
    places: int  # token positions of its batches
    batches: Batches  # on several replicas, the batches of all


def updates(
    model: TaskModel,
    rows: TrainingRows,
    optimizer: keras.optimizers.Optimizer,
    *,
    first_step: int = 0,
    metrics: Sequence[keras.metrics.Metric] = (),
) -> Iterator[Update]:
    """Update a model's weights, and yield each update.

    Each batch is shared by the replicas of the strategy in whose scope the model was
    created; loss and counts are over all of them. `first_step` updates were made
    before; `metrics`, of the same scope, are updated with each batch.
    """
    made = make_updates(
        model,
        optimizer,
        TaskObjective(model, metrics=metrics),
        lambda share: rows.dataset(first_step, share),
        parts=(rows.parts(step) for step in range(first_step, rows.steps)),
        tokens=_token_counts,
    )
    for each in made:
        loss = float(each.sums["loss"][0]) / max(float(each.totals["loss"]), 1.0)
        real_tokens, places = (int(count) for count in each.tokens.numpy())
        yield Update(loss, bool(each.is_made), real_tokens, places, each.batches)


def _token_counts(inputs: dict[str, Any]) -> Any:
    """Return the real tokens and the token positions of a batch, float32 [2]."""
    names = [name for name in inputs if name.endswith("padding_mask")]
    masks = [tf.cast(inputs[name], tf.float32) for name in names]
    real = tf.add_n([tf.reduce_sum(mask) for mask in masks])
    return tf.stack([real, tf.cast(tf.add_n([tf.size(m) for m in masks]), tf.float32)])


def fit(
    model: TaskModel,
    train: Columns,
    config: TrainConfig,
    *,
    after_update: Callable[[Batches], object] | None = None,
) -> None:
    """Train a model in place on all rows with the settings of a config.

    Nothing is scored or saved, unlike in `train`. `after_update` is called with the
    batches of each update.
    """
    task = model.task
    examples, width = training_examples(task, train), model.backbone.config.hidden_size
    config = config.finalized(task, examples, width)
    rows = training_rows(model, train, config)
    optimizer = new_optimizer(config, steps=rows.steps, model=model)
    optimizer.build(model.trainable_variables)
    for update in updates(model, rows, optimizer):
        if after_update:
            after_update(update.batches)


class HeldOutLoss:
    """The mean of a task's loss on held-out rows, without dropout.

    Of more than 1,000 rows, 1,000 evenly spread ones are used. A loss that compares
    rows depends on `batch_size`, the rows computed at once.
    """

    def __init__(
        self, model: TaskModel, columns: Columns, *, batch_size: int = 32
    ) -> None:
        every = max(1, -(-len(columns) // _MOST_LOSS_ROWS))
        some = columns.take(range(0, len(columns), every))
        rows = TrainingRows(model, some, batch_size=batch_size, epochs=1, seed=0)
        self._batches = rows.dataset()
        objective = TaskObjective(model)

        def sums(inputs: Any, labels: Any) -> tuple[Any, Any]:
            loss, _ = objective.sums(model(inputs, training=False), labels)["loss"]
            return loss, objective.counts(labels)["loss"]

        spec = self._batches.element_spec
        self._sums = tf.function(sums, input_signature=spec, autograph=False)

    def __call__(self) -> float:
        """Return the loss with the current weights of the model."""
        found = [tuple(map(float, self._sums(*batch))) for batch in self._batches]
        total, count = (sum(each) for each in zip(*found, strict=True))
        return total / max(count, 1.0)


def training_rows(
    model: TaskModel, columns: Columns, config: TrainConfig, *, fixed: bool = False
) -> TrainingRows:
    """Return the rows of a run in training order; `fixed` as in `TrainingRows`."""
    config = config.finalized(model.task, training_examples(model.task, columns))
    return TrainingRows(
        model,
        columns,
        batch_size=cast(int, config.batch_size),
        epochs=cast(int, config.epochs),
        seed=config.seed,
        accumulation=config.accumulation,
        fixed=fixed,
    )


def new_schedule(config: Any, *, steps: int) -> WarmupLinearDecay:
    """Return the learning rate of a run, from a `TrainConfig` or `PretrainConfig`.

    Raises:
        ConfigError: the config has no learning rate, see `TrainConfig.finalized`.
    """
    if config.learning_rate is None:
        raise ConfigError("`learning_rate` must be a number here; received None")
    return WarmupLinearDecay(
        config.learning_rate,
        total_steps=steps,
        warmup_steps=int(steps * config.warmup_ratio),
    )


def new_optimizer(
    config: TrainConfig, *, steps: int, model: TaskModel | None = None
) -> keras.optimizers.Optimizer:
    """Return the optimizer of a run with its schedule.

    The model's task says which weights are new, for `new_learning_rate`. Errors are
    as in `new_schedule`.
    """
    schedule = new_schedule(config, steps=steps)
    new: list[str] = []
    if config.new_learning_rate is not None and model is not None:
        paths = [weight.path for weight in model.trainable_variables]
        new = [path for path in paths if is_new_weight(model.task, path)]
    factor = (config.new_learning_rate or 0.0) / schedule.peak_learning_rate
    return optimizer_of(config, schedule, factors=dict.fromkeys(new, factor))


def own_metrics(model: TaskModel) -> list[keras.metrics.Metric]:
    """Return the metrics of a task that `updates` can keep."""
    found = model.task.metrics()
    return [metric for metric in found if isinstance(metric, keras.metrics.Metric)]
