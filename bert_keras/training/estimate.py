"""About what a run takes: `estimate_of` measures a small part of it on real rows.

`with_peak_memory`, `update_seconds` and `checkpoint_bytes` serve any other run, too.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import keras
import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.distribution.strategy import Devices
from bert_keras.inference.predictor import Predictor
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.notes import collected
from bert_keras.training.balanced_batches import updates_for
from bert_keras.training.choices import Estimate
from bert_keras.training.contrastive_fit import PairTraining, rows_of_trainings
from bert_keras.training.data import UNLABELED, count_tests
from bert_keras.training.head_fit import HeadFit, HeadInputs
from bert_keras.training.linear_head import DECAYS, fit_head, powers_of, strengths_of
from bert_keras.training.plan import Plan, model_of
from bert_keras.training.progress import UPDATE_COST, Forecast
from bert_keras.training.train_step import Update
from bert_keras.training.updates import new_optimizer, training_rows, updates

_UPDATES = 3  # that are timed; the first one also traces the graph
_ROWS = 64  # whose vectors are timed
_SAMPLE = 256  # random vectors on which the fit of a head is timed
_FLOAT = 4  # bytes
_SLOTS = 3  # a weight and the two moments of its optimizer, in a checkpoint


@collected(shown=False)
def estimate_of(plan: Plan, devices: Devices) -> Estimate:
    """Return about what a run takes on this machine; nothing is kept.

    The time is that of a few updates, or vectors, on rows of the run, times their
    number; scoring a row takes a third of an update of it. Without the answers of a
    teacher, the explanations in the report, and the start of the process.
    """
    model = model_of(plan, devices)
    measure = {"linear": _linear, "contrastive": _contrastive}
    seconds, kept = measure.get(plan.config.method, _finetune)(plan, model, devices)
    return with_peak_memory(seconds, weight_bytes(model.weights) + kept)


def with_peak_memory(seconds: float, written_bytes: int) -> Estimate:
    """Return an estimate with the memory that measuring has taken."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = peak if sys.platform == "darwin" else peak * 1024
    return Estimate(seconds, memory, written_bytes)


def weight_bytes(weights: Sequence[Any]) -> int:
    """Return the bytes of weights in a file."""
    return _FLOAT * sum(int(np.prod(each.shape)) for each in weights)


def checkpoint_bytes(model: keras.Model, keep: int) -> int:
    """Return the bytes of the checkpoints of a run, while one more is written."""
    moments = (_SLOTS - 1) * weight_bytes(model.trainable_weights)
    return (keep + 1) * (weight_bytes(model.weights) + moments)


def _finetune(plan: Plan, model: TaskModel, devices: Devices) -> tuple[float, int]:
    """Return seconds of all updates, and bytes of checkpoints and best epoch."""
    config = plan.config
    fixed = devices.has_static_shapes
    rows = training_rows(model, plan.rows["train"], config, fixed=fixed)
    with devices.strategy.scope():
        optimizer = new_optimizer(config, steps=rows.steps, model=model)
        optimizer.build(model.trainable_variables)
    update = update_seconds(updates(model, rows, optimizer), rows.steps)
    epochs = cast(int, config.epochs)
    of_row = update / rows.size(0) / UPDATE_COST
    scored = len(plan.rows.get("dev", ())) * (1 + epochs) + count_tests(plan.rows)
    kept = weight_bytes(model.weights) + checkpoint_bytes(model, config.keep)
    return rows.steps * update + scored * of_row, kept


def _linear(plan: Plan, model: TaskModel, devices: Devices) -> tuple[float, int]:
    """Return seconds of vectors and of the fits, and bytes of the vectors."""
    rows = plan.rows["train"]
    of_row, width = _vectors(model, rows)
    loss, targets = plan.task.linear_targets(rows)
    some = np.random.default_rng(0).normal(size=(min(_SAMPLE, len(rows)), width))
    weights = plan.task.example_weights(rows)
    start = time.perf_counter()
    fit_head(
        some,
        targets[: len(some)],
        loss=loss,
        l2=strengths_of(targets, loss),
        weights=None if weights is None else weights[: len(some)],
    )
    # Of N rows and D numbers, it takes N min(N, D) multiplications.
    size, part = (n * min(n, width) for n in (len(rows), len(some)))
    fit = (time.perf_counter() - start) * size / part
    fits = HeadFit.most_folds * len(powers_of(targets, loss))
    fits = fits * (len(DECAYS) if plan.tries_layers else 1) + 1
    count = len(rows) + len(plan.rows.get(UNLABELED, ()))
    scored = len(plan.rows.get("dev", ())) + count_tests(plan.rows)
    return (count + scored) * of_row + fits * fit, _FLOAT * count * width


def _contrastive(plan: Plan, model: TaskModel, devices: Devices) -> tuple[float, int]:
    """Return seconds of the updates on pairs, for all rows and each fold."""
    rows = plan.rows["train"]
    _, targets = plan.task.linear_targets(rows)
    train_on_pairs = PairTraining(model, plan.config, Forecast())
    times: list[float] = []
    train_on_pairs(
        rows, targets, steps=_UPDATES, after_update=lambda: times.append(time.time())
    )
    update = float(min(np.diff(times)))
    of_row, _ = _vectors(model, rows)
    sizes = rows_of_trainings(len(rows), has_dev="dev" in plan.rows)
    scored = len(plan.rows.get("dev", ())) + count_tests(plan.rows)
    vectors = len(sizes) * len(rows) + scored
    return sum(map(updates_for, sizes)) * update + vectors * of_row, 0


def _vectors(model: TaskModel, rows: Columns) -> tuple[float, int]:
    """Return the seconds of the vector of a row that a head reads, and its width."""
    below = Predictor(HeadInputs(model), freeze=False)
    some = rows.spread(_ROWS)
    width = below.answers(some)["vector"].shape[1]
    return _last_seconds(lambda: below.answers(some), 2) / len(some), width


def update_seconds(made: Iterator[Update], most: int) -> float:
    """Return the seconds of an update, from a few of `most` that are made."""
    return _last_seconds(lambda: next(made).wait(), most)


def _last_seconds(action: Callable[[], object], most: int) -> float:
    """Return the shortest time of an action after the first, or of a single one."""
    times = []
    for _ in range(min(_UPDATES, most)):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times[1:] or times)
