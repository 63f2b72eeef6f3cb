"""The updates of fine-tuning: `updates` yields each, `fit` makes all of them.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import keras
import tensorflow as tf

from bert_keras.data.table import Columns
from bert_keras.distribution.replicas import gathered, undivided
from bert_keras.errors import ConfigError
from bert_keras.model.optimizers import WarmupLinearDecay, optimizer_of
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.protocols import compares_rows, is_new_weight
from bert_keras.training.config import TrainConfig
from bert_keras.training.rows import TrainingRows
from bert_keras.training.train_step import make_updates

_SUMS = ("sum", "none", None)  # reductions
_SCALE = 2.0**20  # the sum of weights may be below 1; such counts become 1


class TaskObjective:
    """The loss of a task, and its training metrics.

    A batch's labels are a dict: `targets`, as the loss takes them, and optionally
    `weights`. If the `call` of a custom loss returns one number, a mean over something
    other than the examples, a method `counted(y_true)` returns their count, float32 [].
    It is needed if a batch comes in parts or is shared by replicas.

    The losses that the model's layers add are included. `metrics`, created in the scope
    of the model's strategy, are updated with each batch; the caller reads and resets
    them.
    """

    def __init__(
        self, model: keras.Model, *, metrics: Sequence[keras.metrics.Metric] = ()
    ) -> None:
        self.model = model
        self.loss = _loss_of(model)
        self.metrics = metrics
        self._counted = getattr(self.loss, "counted", None)
        # A sum is not divided.
        self._is_sum = self._counted is None and self.loss.reduction in _SUMS

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return the number of items in the mean of a batch's loss, float32 []."""
        targets, weights = labels["targets"], labels.get("weights")
        return {"loss": self._count(targets, weights)}

    def sums(self, outputs: Any, labels: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the loss times its count, and 0 (metrics count correct answers).

        In a replica function, both are those of its rows; if the loss compares rows,
        the replica's share of the loss over all replicas' rows.
        """
        targets, weights = labels["targets"], labels.get("weights")
        for metric in self.metrics:
            metric.update_state(
                targets, tf.nest.map_structure(tf.stop_gradient, outputs)
            )
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        share = 1.0
        if replicas > 1 and compares_rows(self.model.task):
            targets, outputs = gathered(targets), gathered(outputs)
            weights, share = gathered(weights), 1 / replicas

        def loss() -> Any:
            found = self._mean(targets, outputs, weights, replicas)
            return found + tf.add_n([tf.zeros([]), *self.model.losses])

        if self._is_sum:
            return {"loss": (share * loss(), tf.zeros([]))}
        count = self._count(targets, weights)
        # A replica without rows counts nothing, since the mean of no values may be NaN.
        found = tf.cond(count > 0, loss, lambda: tf.zeros([]))
        return {"loss": (share * found * tf.maximum(count, 1.0), tf.zeros([]))}

    def _mean(self, targets: Any, outputs: Any, weights: Any, replicas: int) -> Any:
        """Return the loss of a batch, float32 []."""
        loss = tf.reduce_sum(self.loss(targets, outputs, weights))
        if replicas == 1 or self.loss.reduction in _SUMS:
            return loss
        # Keras divides by the number of replicas if it computes the mean itself, but
        # not if a loss returns one number.
        plain = copy.copy(self.loss)
        plain.reduction = None
        is_number = plain(targets, outputs, weights).shape.rank == 0
        return loss if is_number else loss * replicas

    def _count(self, targets: Any, weights: Any) -> Any:
        if self._counted is not None:
            return tf.cast(self._counted(targets), tf.float32)
        if self._is_sum:
            return tf.zeros([])
        values = self._values(targets)
        ignored = getattr(self.loss, "ignore_class", None)
        if ignored is not None:
            mask = tf.reshape(targets, tf.shape(values)) != ignored
            values = tf.cast(mask, tf.float32)
        if weights is not None and self.loss.reduction == "mean_with_sample_weight":
            weights = tf.cast(weights, tf.float32)
            if ignored is not None:
                weights = tf.reshape(weights, tf.shape(values)) * values
            return _SCALE * tf.reduce_sum(weights)
        return tf.reduce_sum(values)

    def _values(self, targets: Any) -> Any:
        """Return ones in the shape of the unreduced losses.

        Losses remove the last axis of the outputs; the other axes are the targets'.
        """
        first = tf.convert_to_tensor(tf.nest.flatten(targets)[0])
        outputs = self.model.output
        rank = len(outputs.shape) - 1 if keras.utils.is_keras_tensor(outputs) else 1
        return tf.ones(tf.shape(first)[: min(max(rank, 1), first.shape.rank)])


def _loss_of(model: keras.Model) -> keras.losses.Loss:
    """Return the compiled loss of a model, or that of its task."""
    if not getattr(model, "compiled", False):
        return model.task.loss()
    loss = keras.losses.get(undivided(model.loss))
    return loss if isinstance(loss, keras.losses.Loss) else _Mean(loss)


class _Mean(keras.losses.Loss):
    """The mean of a function's values as a loss of Keras."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.call = function


_MOST_LOSS_ROWS = 1000
Batches = list[tuple[dict[str, Any], dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Update:
    """The loss and the token counts of an update."""

    loss: float  # the mean
    is_made: bool  # whether loss and gradients are finite; otherwise it was skipped
    real_tokens: int  # of its batches
    places: int  # token positions of its batches
    batches: Batches  # on several replicas those of all of them


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
    config = config.settled(model.task, len(train), model.backbone.config.hidden_size)
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
    config = config.settled(model.task, len(columns))
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
        ConfigError: the config has no learning rate, see `TrainConfig.settled`.
    """
    if config.learning_rate is None:
        raise ConfigError("`learning_rate` must be a number here; received None")
    return WarmupLinearDecay(
        config.learning_rate,
        total_steps=steps,
        warmup_steps=int(steps * config.warmup_share),
    )


def new_optimizer(
    config: TrainConfig, *, steps: int, model: TaskModel | None = None
) -> keras.optimizers.Optimizer:
    """Return the optimizer of a run with its schedule.

    The model's task says which weights are new, for `new_learning_rate`. Errors are
    those of `new_schedule`.
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
