"""A run that trains the encoder on pairs of rows before the head: `ContrastiveFit`.

Source: Tunstall et al. 2022 (arXiv:2209.11055). There, each pair of texts is an
example; here, the loss compares all texts of a batch, so that each is computed once for
all of its pairs, and no list of pairs is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.errors import ConfigError
from bert_keras.model.contrastive import SharedClassLoss
from bert_keras.models.objective import Objective
from bert_keras.models.task_model import TaskModel
from bert_keras.reading.windows import vector_model
from bert_keras.report.values import words
from bert_keras.training.balanced_batches import ROWS, balanced_batches, updates_for
from bert_keras.training.config import TrainConfig
from bert_keras.training.head_fit import HeadTrainer, balance_note, folds_needed
from bert_keras.training.linear_head import (
    Head,
    Validation,
    balanced,
    fit_head,
    powers_of,
    validation_of,
)
from bert_keras.training.loop import RunContext
from bert_keras.training.progress import Forecast
from bert_keras.training.rows import Labels, TrainingRows
from bert_keras.training.self_training import self_trained_head
from bert_keras.training.updates import Fit


class NoGain(Exception):
    """A head on the untrained encoder scores higher; the message says how much."""


class ContrastiveFit(HeadTrainer):
    """Trains the encoder on pairs within and across classes, and then a linear head.

    Without dev rows, the scores are from cross-validation of both steps: each fold's
    encoder starts anew, and sees only the rows outside of the fold. Where few folds
    hold enough rows out, the others are left out. Interrupted runs keep the answers to
    the folds.

    Attributes:
        least: the `rank` of a head on vectors of the encoder as it is, on the same
            folds or dev rows; `train` raises `NoGain` if training reaches less.

    Raises:
        ConfigError: there are several replicas, or TPUs.
    """

    most_folds = 3
    enough = 128
    least: tuple[float, float] | None = None

    def __init__(
        self, model: TaskModel, data: Mapping[str, Columns], context: RunContext
    ) -> None:
        super().__init__(model, data, context)
        devices = context.devices
        if devices.replicas > 1 or devices.has_static_shapes:
            raise ConfigError(
                "`strategy` must use one replica, not a TPU's, with `method` "
                f"contrastive; received {devices.name}, {devices.replicas} replicas"
            )

    def planned(self, folds: Sequence[Sequence[int]]) -> Forecast:
        count, others = len(self.train_rows), len(self.unlabeled or ())
        kept = [count - len(fold) for fold in folds] if self.needs_folds else []
        examples = len(kept) * (count + others) + count + others
        return Forecast(
            updates=sum(map(updates_for, [*kept, count])),
            examples=examples + self.then,
            update_rows=ROWS,
        )

    @property
    def needs_folds(self) -> bool:
        return self.dev is None or self.unlabeled is not None

    def train(self) -> None:
        super().train()
        self._check_gain(self.rank)

    def _check_gain(self, rank: tuple[float, float]) -> None:
        """Raise NoGain if a score and negative loss are below those to reach."""
        if self.least is not None and rank < self.least:
            name = words(self.model.task.best_score).lower()
            rows = "in cross-validation" if self.dev is None else "on dev"
            raise NoGain(
                f"{rows}, it has {name} {self.least[0]:.4f}, and training the encoder "
                f"on pairs first {rank[0]:.4f}"
            )

    def fit(
        self,
        targets: np.ndarray,
        folds: Sequence[Sequence[int]],
        *,
        loss: str,
        weights: np.ndarray | None,
    ) -> tuple[Head, Validation | None, str]:
        start = [weight.numpy() for weight in self.model.backbone.weights]
        train_on_pairs = PairTraining(self.model, self.config, self.forecast)
        weights = np.ones(len(targets)) if weights is None else weights

        def heads_of(
            rows: list[int], name: str, unlabeled: Columns | None
        ) -> list[Head]:
            for weight, value in zip(self.model.backbone.weights, start, strict=True):
                weight.assign(value)
            some, wanted = self.train_rows.take(rows), targets[rows]
            train_on_pairs(some, wanted, name=name)
            given: dict[str, Any] = {"loss": loss, "l2": 1 / wanted.size}
            x, own = self.vectors(some), weights[rows]
            heads = []
            for each in powers:
                heads += fit_head(
                    x, wanted, **given, weights=balanced(wanted, own, each)
                )
            if unlabeled is not None:
                others = self.vectors(unlabeled)
                heads.append(self_trained_head(x, wanted, others, **given, weights=own))
            return heads

        found, unlabeled, power, powers = None, None, 0.0, powers_of(targets, loss)
        if self.needs_folds:
            logits = self._held_out(folds, (len(powers), *targets.shape), heads_of)
            known: dict[str, Any] = {"loss": loss, "weights": weights}
            known["l2"] = 1 / targets.size  # weaker for many classes
            tried = [validation_of(each, targets, folds, **known) for each in logits]
            power, found = self.best_power(tried[: len(powers)])
            if self.unlabeled is not None:
                if self.tell_gain(found, tried[-1]):
                    found, unlabeled = tried[-1], self.unlabeled
                else:
                    self.forecast.leave_out(examples=len(self.unlabeled))
            if self.dev is None:
                self._check_gain(self.rank_of(found))
        note = balance_note(power) if unlabeled is None else ""
        line = (
            f"the encoder, trained on pairs within and across classes "
            f"({updates_for(len(targets))} updates of up to {ROWS} texts), and a "
            f"linear head on its vectors{note}"
        )
        name = "all rows" if self.needs_folds else "pairs"
        heads = heads_of(list(range(len(targets))), name, unlabeled)
        head = heads[-1] if unlabeled is not None else heads[powers.index(power)]
        return head, found, line

    def _held_out(
        self,
        folds: Sequence[Sequence[int]],
        shape: tuple[int, ...],
        heads_of: Callable[[list[int], str, Columns | None], list[Head]],
    ) -> np.ndarray:
        """Return the logits of the rows of the folds by each head, float64 [K, N, C].

        Rows in no fold have 0. `shape` has K without the head of self-training.
        """
        logits = np.zeros((shape[0] + (self.unlabeled is not None), *shape[1:]))
        for number, fold in enumerate(folds, 1):
            name = f"fold-{number}.npy"
            found = self.run.array(name) if self.run else None
            # Earlier versions kept fewer heads.
            if found is None or len(found) != len(logits):
                kept = sorted(set(range(shape[1])) - set(fold))
                part = f"fold {number} of {len(folds)}"
                heads = heads_of(kept, part, self.unlabeled)
                x = self.vectors(self.train_rows.take(fold))
                found = np.stack([head(x) for head in heads])
                if self.run is not None:
                    self.run.add_array(name, found)
            else:
                count = len(self.train_rows)
                self.forecast.leave_out(
                    updates=updates_for(count - len(fold)),
                    examples=count + len(self.unlabeled or ()),
                )
            logits[:, fold] = found
        return logits


def rows_of_trainings(rows: int, *, has_dev: bool) -> list[int]:
    """Return about how many rows each training reads: outside of each fold, and all."""
    fold = rows // ContrastiveFit.most_folds
    folds = [] if has_dev else [fold] * ContrastiveFit.most_folds
    return [rows - fold] * folds_needed(folds, ContrastiveFit.enough) + [rows]


class PairTraining:
    """Trains the encoder of a classifier: texts with a class in common become alike.

    Args:
        model: its encoder is trained; its head is not used.
        config: its learning rate, optimizer and seed are used.
        forecast: counts the updates.

    Call:
        rows: N training rows.
        targets: their classes, 0 or 1, float [N, C].
        name: what the progress is named after.
        steps: the number of updates; by default `updates_for` the rows.
        after_update: called after each.
    """

    def __init__(
        self, model: TaskModel, config: TrainConfig, forecast: Forecast
    ) -> None:
        self.model, self.seed, self.forecast = model, config.seed, forecast
        config = config.with_rate(model.task, model.backbone.config.hidden_size)
        self._fit = Fit(
            vector_model(model),
            # No weight is new: the head is not trained.
            dataclasses.replace(config, new_learning_rate=None),
            objective=Objective(SharedClassLoss(), compares=True),
        )

    def __call__(
        self,
        rows: Columns,
        targets: np.ndarray,
        *,
        name: str = "pairs",
        steps: int | None = None,
        after_update: Callable[[], object] = lambda: None,
    ) -> None:
        steps = steps or updates_for(len(rows))
        batches = balanced_batches(targets, steps, seed=self.seed)
        labels = Labels.of(self.model.task, rows)
        source = TrainingRows(
            self.model,
            rows,
            batch_size=1,
            epochs=1,
            seed=self.seed,
            labels=dataclasses.replace(labels, weights=None, groups=batches),
        )
        with self.forecast.updates(name, steps) as bar:

            def made(_: object) -> None:
                bar.add(1)
                after_update()

            self._fit(source, after_update=made)
