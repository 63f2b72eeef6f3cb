"""The updates of a task: `updates` yields each, `fit` makes all of them.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.columns import Columns
from bert_keras.distribution.replicas import distributed, seed_states, summed_function
from bert_keras.errors import ConfigError, TrainingError
from bert_keras.model.optimizers import WarmupLinearDecay, optimizer_of
from bert_keras.models.objective import Objective, TaskObjective, Teaching
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.notes import say
from bert_keras.tasks.protocols import training_examples
from bert_keras.training.config import TrainConfig
from bert_keras.training.distillation import Distillation
from bert_keras.training.rows import TrainingRows
from bert_keras.training.train_step import Batch, BatchSource, TrainStep, Update

_MOST_LOSS_ROWS = 1000


def updates(
    model: keras.Model,
    source: BatchSource,
    optimizer: keras.optimizers.Optimizer,
    *,
    first_step: int = 0,
    objective: Objective | None = None,
    metrics: Sequence[keras.metrics.Metric] = (),
    distillation: Teaching | None = None,
    traced: dict[str, TrainStep] | None = None,
) -> Iterator[Update]:
    """Update a model's weights, and yield each update.

    Each batch is shared by the replicas of the strategy in whose scope the model was
    created; loss and counts are over all of them. `first_step` updates were made
    before; `objective` is by default the model's own; `metrics`, of the same scope, are
    updated with each batch; `distillation` is what a teacher teaches; `traced` keeps
    the graphs for later calls that have the same arguments except for the source.
    """
    strategy = model.distribute_strategy
    sums = TaskObjective(model, objective, metrics=metrics, distillation=distillation)
    steps = {} if traced is None else traced
    for some in source.batches(first_step):
        dataset = distributed(strategy, some.make)
        form = repr(dataset.element_spec)
        if form not in steps:
            steps[form] = TrainStep(model, optimizer, sums, dataset.element_spec)
        step = steps[form]
        batches = iter(some.read(dataset))
        for number in some.parts:
            start = time.perf_counter()
            parts = list(itertools.islice(batches, number))
            waited = time.perf_counter() - start
            yield dataclasses.replace(step(parts), waited=waited)


class Fit:
    """Makes the updates of a source of batches, with the settings of a config.

    Nothing is scored or saved, unlike in `train`. Each call begins with the weights as
    they are, the first state of the optimizer and the first seeds of dropout. Later
    calls use the graphs of the first one.

    Args:
        model: is trained in place.
        config: the settings, with a learning rate.
        objective: by default the model's own.

    Call: the source; `after_update` is called with the batches of each update.

    Raises:
        TrainingError: a loss or gradient is not finite, and `on_nonfinite` is stop.
    """

    def __init__(
        self,
        model: keras.Model,
        config: TrainConfig,
        *,
        objective: Objective | None = None,
    ) -> None:
        self.model, self.config, self.objective = model, config, objective
        self._optimizer: tuple[Any, Any] | None = None
        self._first: list[tuple[Any, Any]] = []
        self._traced: dict[str, TrainStep] = {}

    def __call__(
        self,
        source: BatchSource,
        *,
        after_update: Callable[[Sequence[Batch]], object] | None = None,
    ) -> None:
        schedule = new_schedule(self.config, steps=source.steps)
        optimizer, rate = self._started()
        rate.assign(schedule(optimizer.iterations))
        made = []
        for update in updates(
            self.model, source, optimizer, objective=self.objective, traced=self._traced
        ):
            made.append(update.is_made)
            rate.assign(schedule(optimizer.iterations))
            if after_update:
                update.wait()
                after_update(update.batches)
        skipped = len(made) - sum(map(bool, made))
        if skipped:
            line = f"{skipped:,} of {len(made):,} updates were not finite, and skipped"
            if self.config.on_nonfinite == "stop":
                raise TrainingError(
                    f"{line}: use a smaller --learning-rate, or --on-nonfinite skip"
                )
            say(line)

    def _started(self) -> tuple[keras.optimizers.Optimizer, keras.Variable]:
        """Return the optimizer and its rate; reset it and the seeds of dropout."""
        model = self.model
        if self._optimizer is None:
            # Graphs read the rate: a schedule's number of steps would be part of them.
            with model.distribute_strategy.scope():
                rate = keras.Variable(0.0, trainable=False, name="rate")
            optimizer = new_optimizer(self.config, steps=1, model=model)
            optimizer.learning_rate = lambda: tf.identity(rate.value)
            optimizer.build(model.trainable_variables)
            self._optimizer = optimizer, rate
            # Moments, as large as the weights, are 0 at first.
            self._first = [
                (state, None if len(state.shape) else state.numpy())
                for state in optimizer.variables
            ]
            self._first += [(state, state.numpy()) for state in seed_states(model)]
        else:
            for state, first in self._first:
                state.assign(tf.zeros_like(state.value) if first is None else first)
        return self._optimizer


def fit(
    model: TaskModel,
    train: Columns,
    config: TrainConfig,
    *,
    after_update: Callable[[Sequence[Batch]], object] | None = None,
) -> None:
    """Train a model in place on all rows, see `Fit`."""
    task, width = model.task, model.backbone.config.hidden_size
    config = config.finalized(task, training_examples(task, train), width)
    source = training_rows(model, train, config)
    Fit(model, config)(source, after_update=after_update)


class MeanLosses:
    """The means of a model's losses over a data set, without dropout.

    Args:
        model: its losses are computed, see `TaskObjective`.
        batches: dataset of inputs and labels; for a strategy from `distributed`.
        strategy: whose replicas compute; by default TensorFlow's own.
        read: iterates over the dataset.

    Call: returns the means of `TaskObjective.sums` by the name of the loss.
    """

    def __init__(
        self,
        model: keras.Model,
        batches: Any,
        *,
        strategy: tf.distribute.Strategy | None = None,
        read: Callable[[Any], Iterable[Batch]] = iter,
    ) -> None:
        self._batches, self._read = batches, read
        objective = TaskObjective(model)

        def sums(inputs: Any, labels: Any) -> dict[str, Any]:
            found = objective.sums(model(inputs, training=False), labels)
            counts = objective.counts(labels)
            return {name: tf.stack([*found[name], counts[name]]) for name in found}

        strategy = strategy or tf.distribute.get_strategy()
        self._sums = summed_function(strategy, sums, batches.element_spec)

    def __call__(self) -> dict[str, np.ndarray]:
        parts: dict[str, list[Any]] = {}
        for batch in self._read(self._batches):
            for name, sums in self._sums(*batch).items():
                parts.setdefault(name, []).append(sums)
        means = {}
        for name, found in parts.items():
            sums = np.stack(found).sum(0, np.float64)
            means[name] = sums[:-1] / max(sums[-1], 1)
        return means


def dev_losses(
    model: TaskModel, columns: Columns, *, batch_size: int = 32
) -> MeanLosses:
    """Return the mean of a task's loss on rows, `loss`; of many, of some.

    Of more than 1,000 rows, 1,000 evenly spread ones are used. A loss that compares
    rows depends on `batch_size`, the rows computed at once.
    """
    some = columns.spread(_MOST_LOSS_ROWS)
    rows = TrainingRows(model, some, batch_size=batch_size, epochs=1, seed=0)
    return MeanLosses(model, rows.dataset())


def training_rows(
    model: TaskModel,
    columns: Columns,
    config: TrainConfig,
    *,
    fixed: bool = False,
    distillation: Distillation | None = None,
) -> TrainingRows:
    """Return the rows of a run in training order; the others as in `TrainingRows`."""
    config = config.finalized(model.task, training_examples(model.task, columns))
    return TrainingRows(
        model,
        columns,
        batch_size=cast(int, config.batch_size),
        epochs=cast(int, config.epochs),
        seed=config.seed,
        accumulation=config.accumulation,
        fixed=fixed,
        distillation=distillation,
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
    config: Any, *, steps: int, model: keras.Model | None = None
) -> keras.optimizers.Optimizer:
    """Return the optimizer of a run with its schedule; arguments as in `new_schedule`.

    The model's task says which weights are new, for `new_learning_rate`.
    """
    schedule = new_schedule(config, steps=steps)
    rate = getattr(config, "new_learning_rate", None)
    new: list[str] = []
    if rate is not None and model is not None:
        paths = [weight.path for weight in model.trainable_variables]
        new = [path for path in paths if model.task.is_new(path)]
    factor = (rate or 0.0) / schedule.peak_learning_rate
    return optimizer_of(config, schedule, factors=dict.fromkeys(new, factor))


def own_metrics(model: keras.Model) -> list[keras.metrics.Metric]:
    """Return the metrics of a task that `updates` can keep.

    A task with several losses has metrics for each, and counts its `correct` answers.
    """
    found = model.task.metrics()
    if isinstance(found, dict):
        return []
    return [metric for metric in found if isinstance(metric, keras.metrics.Metric)]
