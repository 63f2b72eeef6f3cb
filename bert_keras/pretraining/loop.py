"""Pretraining by phases, and the scores of held-out data: `PretrainingLoop`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import assign, read_checkpoint
from bert_keras.distribution.replicas import Share, distributed, summed_function
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import DataError, TrainingError
from bert_keras.model.optimizers import optimizer_of
from bert_keras.pretraining.files import find_files
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.operations import forward_operations, token_counts
from bert_keras.pretraining.plan import Phase, PretrainingPlan, check_sizes
from bert_keras.pretraining.pretrainer import (
    BertPretrainer,
    PretrainingObjective,
    weights_of,
    write_pretrainer,
)
from bert_keras.pretraining.records import read_batches, record_places
from bert_keras.runs.progress import report
from bert_keras.training.checkpoint import TrainingState, WriteCheckpoint
from bert_keras.training.loop import RunContext, TrainingLoop
from bert_keras.training.progress import PretrainingProgress, Row
from bert_keras.training.train_step import make_updates
from bert_keras.training.updates import new_schedule


@dataclasses.dataclass(frozen=True)
class PretrainingPlace:
    """The examples of an update, by its number in the whole run, from 1.

    Example:
        >>> str(PretrainingPlace(plan, 1000))
        'step 1,000, phase 2 (data/512), examples 25,345 to 25,600 of it'
    """

    plan: PretrainingPlan
    step: int

    @property
    def phase(self) -> Phase:
        """The phase that the update belongs to."""
        return next(each for each in self.plan.phases if self.step <= each.last)

    @property
    def first(self) -> int:
        """Number of examples that the phase has trained on before."""
        return (self.step - 1 - self.phase.first) * self.plan.config.batch_size

    def facts(self) -> dict[str, Any]:
        """Return `pretraining_dataset`'s arguments for these examples, as JSON."""
        size = self.plan.config.batch_size
        return {
            "step": self.step,
            "phase": self._number,
            "data": str(self.phase.data),
            "batch_size": size,
            "skip_batches": self.first // size,
            "seed": self._seed,
        }

    def rows(self) -> dict[str, Any]:
        """Return file and number of each example's record, from 0."""
        places = record_places(
            self.phase.data,
            self.plan.tokenizer,
            first=self.first,
            count=self.plan.config.batch_size,
            seed=self._seed,
        )
        records = [{"file": file, "record": number} for file, number in places]
        return {"records": records}

    def __str__(self) -> str:
        last = self.first + self.plan.config.batch_size
        return (
            f"step {self.step:,}, phase {self._number} ({self.phase.data}), examples "
            f"{self.first + 1:,} to {last:,} of it"
        )

    @property
    def _number(self) -> int:
        """Number of the phase, from 1."""
        return self.plan.phases.index(self.phase) + 1

    @property
    def _seed(self) -> int:
        """Seed of the order of the phase."""
        return self.phase.seed(self.plan.config)


def _batches(
    plan: PretrainingPlan, devices: Devices, share: Share, data: Any, **settings: Any
) -> tf.data.Dataset:
    """Return batches of a data set as a run reads them, with further settings."""
    static = devices.has_static_shapes
    return pretraining_dataset(
        data,
        plan.tokenizer,
        objective=plan.config.objective,
        next_sentence=plan.next_sentence,
        layout="padded" if static else plan.config.layout,
        padding="full" if static else "longest",
        drop_remainder=static,
        share=share,
        **settings,
    )


# Fixed, so that the examples do not depend on the batch size of training.
_HELD_OUT_ROWS = 32


class HeldOut:
    """The first examples of a data set, with the same masks each time.

    The masks follow the data's own settings, whatever the config uses in
    training, so that runs with different masks can be compared. A TPU, which needs one
    shape, skips the last examples if they do not fill a batch.

    Call: a model. Returns the means: `masked_lm_loss` (nats per token), `perplexity`
    (its exponential), `masked_lm_accuracy` and, if pairs are scored,
    `next_sentence_loss` and `next_sentence_accuracy`.

    Raises:
        ConfigError: the model is too small for the data; its masks are stored, and
            the objective is not `masked`.
        DataError: the data is missing or broken, or has no pairs to score.
    """

    def __init__(
        self, data: str | os.PathLike[str], plan: PretrainingPlan, devices: Devices
    ) -> None:
        config = plan.config
        files = find_files(data, plan.tokenizer)
        check_sizes(plan.sizes, plan.tokenizer, [files])
        if plan.next_sentence and not files.has_pairs:
            raise DataError("must hold pairs, as the training data does", path=data)
        self._data = data
        self._objective = PretrainingObjective(plan.next_sentence)
        self._strategy = devices.strategy
        rows = _HELD_OUT_ROWS
        if devices.has_static_shapes or devices.replicas > _HELD_OUT_ROWS:
            rows = math.ceil(_HELD_OUT_ROWS / devices.replicas) * devices.replicas

        def make(share: Share) -> tf.data.Dataset:
            dataset = _batches(
                plan,
                devices,
                share,
                data,
                batch_size=rows,
                shuffle=0,
                redraw=False,
            )
            batches = math.ceil(config.held_out_examples / rows)
            return dataset.take(batches * share.count)

        self._batches = distributed(devices.strategy, make)
        self._graph: Any = None

    def __call__(self, model: BertPretrainer) -> dict[str, float]:
        if self._graph is None:
            self._graph = self._graph_of(model)
        found: dict[str, list[Any]] = {}
        for batch, labels in read_batches(self._batches, self._data):
            for head, sums in self._graph(batch, labels).items():
                found.setdefault(head, []).append(sums)
        scores = {}
        for head, parts in found.items():
            loss, correct, count = tf.reduce_sum(
                tf.cast(tf.stack(parts), tf.float64), axis=0
            ).numpy()
            scores[f"{head}_loss"] = float(loss / max(count, 1.0))
            scores[f"{head}_accuracy"] = float(correct / max(count, 1.0))
        perplexity = math.exp(min(scores["masked_lm_loss"], 700.0))
        return {"perplexity": perplexity, **scores}

    def _graph_of(self, model: BertPretrainer) -> Any:
        """Return a function from a batch to loss, hits and count of each head, [3]."""

        def score(batch: Any, labels: Any) -> dict[str, Any]:
            sums = self._objective.sums(model(batch, training=False), labels)
            counts = self._objective.counts(labels)
            return {name: tf.stack([*sums[name], counts[name]]) for name in sums}

        return summed_function(self._strategy, score, self._batches.element_spec)


_ROWS = 200  # of the curves; each covers at most a hundred steps


class PretrainingLoop(TrainingLoop):
    """Trains a model on the phases of a plan; saves it, and scores held-out data.

    Args:
        model: with its initial weights; a checkpoint's replace them.
        plan: the run.
        held_out: data to score, or `None`.
        context: the run that it belongs to.

    Attributes:
        scores: the latest scores of the held-out data.

    Raises:
        CheckpointError: the last checkpoint of the run is broken.
        ConfigError: a batch is too small for the replicas.
    """

    def __init__(
        self,
        model: BertPretrainer,
        plan: PretrainingPlan,
        held_out: HeldOut | None,
        context: RunContext,
    ) -> None:
        config, devices = plan.config, context.devices
        devices.check_batch_size(config.batch_size, config.accumulation)
        self._schedule = new_schedule(config, steps=config.steps)
        with devices.strategy.scope():
            optimizer = optimizer_of(config, self._schedule)
            optimizer.build(model.trainable_variables)
        super().__init__(model, optimizer, context, steps=config.steps)
        self.plan = plan
        self.held_out = held_out
        self._objective = PretrainingObjective(plan.next_sentence)
        self._state = TrainingState(model, optimizer)
        self.scores: dict[str, float] = {}
        self.restore()
        self.progress: PretrainingProgress = PretrainingProgress(
            functools.partial(forward_operations, model.encoder.config),
            steps=config.steps,
            start=self.step,
            row_every=min(max(config.steps // _ROWS, 1), 100),
            skip=self.skip_or_stop,
            scored_every=config.evaluate_every if held_out else 0,
            is_shown=devices.is_chief,
        )

    def evaluate(self) -> dict[str, float]:
        """Return the held-out scores of the current weights, if there is such data."""
        self.scores = self.held_out(self.model) if self.held_out else {}
        return self.scores

    def score(self) -> bool:
        with self.progress.scoring():
            found = self.evaluate()
        row = {f"dev_{name}": value for name, value in found.items()}
        self.add_row({"step": self.step, **row})
        if self.devices.is_chief:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
            report(f"step {self.step:,}  held out: {shown}")
        return False

    def scores_at(self, step: int) -> bool:
        is_due = step == self.steps or step % self.plan.config.evaluate_every == 0
        return self.held_out is not None and is_due

    def saves_at(self, step: int) -> bool:
        # The folder of a completed run holds its last state.
        return step == self.steps or super().saves_at(step)

    def place_of(self, step: int) -> PretrainingPlace:
        return PretrainingPlace(self.plan, step)

    def updates(self) -> Iterator[Row | None]:
        for phase in self.plan.phases:
            if self.step < phase.last:
                yield from self._updates_on(phase)

    def add_row(self, row: Row | None) -> None:
        if row is not None and "loss" in row:
            row["learning_rate"] = float(self._schedule(self.step - 1))
        super().add_row(row)

    def checkpoint(self) -> WriteCheckpoint:
        weights, write_state = weights_of(self.model), self._state.checkpoint()
        if not all(np.isfinite(each).all() for each in weights.values()):
            raise TrainingError(
                f"the weights are not finite after step {self.step:,}: the learning "
                "rate is too large; the last checkpoint is kept"
            )

        def write(folder: Path) -> None:
            write_pretrainer(folder, self.model, self.plan.tokenizer, weights)
            write_state(folder)

        return write

    def read(self, folder: Path) -> None:
        assign(self.model, read_checkpoint(folder))
        self._state.restore(folder)

    def _updates_on(self, phase: Phase) -> Iterator[Row | None]:
        config, parts = self.plan.config, self.plan.config.accumulation

        def make(share: Share) -> tf.data.Dataset:
            return _batches(
                self.plan,
                self.devices,
                share,
                phase.data,
                batch_size=config.batch_size // parts,
                masking=phase.masking,
                seed=phase.seed(config),
                epochs=None,
                skip_batches=(self.step - phase.first) * parts,
            )

        for made in make_updates(
            self.model,
            self.optimizer,
            self._objective,
            make,
            parts=itertools.repeat(parts, phase.last - self.step),
            tokens=token_counts,
            read=lambda dataset: read_batches(dataset, phase.data),
        ):
            yield self.progress.add(made)
