"""The updates of a run, from where its last checkpoint stands: `PretrainingLoop`."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import assign, read_checkpoint
from bert_keras.distribution.replicas import (
    Share,
    check_batch_size,
    distributed,
    summed_function,
    take_from_first,
)
from bert_keras.distribution.strategy import Devices, find_strategy
from bert_keras.errors import TrainingError
from bert_keras.model.optimizers import WarmupLinearDecay, optimizer_of
from bert_keras.pretraining.folder import weights_of, write_pretrainer
from bert_keras.pretraining.held_out import HeldOut
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.plan import Phase, PretrainingPlan
from bert_keras.pretraining.pretrainer import BertPretrainer, PretrainingObjective
from bert_keras.pretraining.progress import PretrainingProgress, token_counts
from bert_keras.pretraining.records import read_batches, record_places
from bert_keras.runs.progress import report, say
from bert_keras.runs.run_folder import NONFINITE, RunFolder, SilentRun
from bert_keras.runs.stop_signal import StopSignal
from bert_keras.training.state import TrainingState, write_state
from bert_keras.training.train_step import TrainStep, not_finite


@dataclasses.dataclass(frozen=True)
class PretrainingPlace:
    """The examples of an update.

    Args:
        plan: the run.
        step: number of the update, from 1, of the whole run.

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
        """How many examples the phase has trained on before."""
        return (self.step - 1 - self.phase.first) * self.plan.config.batch_size

    def facts(self) -> dict[str, Any]:
        """Return what `pretraining_dataset` needs to give the examples, fit for JSON.

        Its `skip_batches` is that for batches of `batch_size` examples.
        """
        size = self.plan.config.batch_size
        return {
            "step": self.step,
            "phase": self._number,
            "data": str(self.phase.data),
            "batch_size": size,
            "skip_batches": self.first // size,
            "seed": self._seed,
        }

    def records(self) -> list[dict[str, Any]]:
        """Return file and number of each example's record, from 0.

        Raises:
            DataError: a file cannot be read.
        """
        places = record_places(
            self.phase.data,
            self.plan.tokenizer,
            first=self.first,
            count=self.plan.config.batch_size,
            seed=self._seed,
        )
        return [{"file": file, "record": number} for file, number in places]

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


_ROWS = 200  # of the curves; each is of a hundred steps at most


class PretrainingLoop:
    """Trains a model phase by phase; scores it and saves it when that is due.

    Args:
        model: made in the scope of the strategy, with its weights of the start; those
            of a checkpoint take their place.
        plan: the run.
        run: its folder; of a worker that does not write, a `SilentRun`.
        held_out: data to score, or `None`.
        devices: where to compute; `None`: on one device.

    Attributes:
        step: updates that are made.
        history: rows of the curves.
        scores: of the held-out data, when they were last computed.

    Raises:
        CheckpointError: the last checkpoint of the run is broken.
        ConfigError: a batch is too small for the replicas.
    """

    def __init__(
        self,
        model: BertPretrainer,
        plan: PretrainingPlan,
        run: RunFolder | SilentRun,
        held_out: HeldOut | None,
        devices: Devices | None = None,
    ) -> None:
        config = plan.config
        self.devices = devices or find_strategy("single")
        check_batch_size(
            config.batch_size,
            config.accumulation,
            self.devices.replicas,
            self.devices.has_static_shapes,
        )
        self.model = model
        self.plan = plan
        self.run = run
        self.held_out = held_out
        self._objective = PretrainingObjective(plan.next_sentence)
        self._schedule = WarmupLinearDecay(
            config.learning_rate,
            total_steps=config.steps,
            warmup_steps=int(config.steps * config.warmup_share),
        )
        with self.devices.strategy.scope():
            self._optimizer = optimizer_of(config, self._schedule)
            self._optimizer.build(model.trainable_variables)
        self._state = TrainingState(model, self._optimizer)
        self.scores: dict[str, float] = {}
        self.step = self._restored()
        self.history = run.rows(self.step)
        self._progress = PretrainingProgress(
            model.encoder.config,
            steps=config.steps,
            start=self.step,
            row_every=min(max(config.steps // _ROWS, 1), 100),
            pass_over=self._pass_over,
            scored_every=config.evaluate_every if held_out else 0,
            is_shown=self.devices.is_chief,
        )

    def train(self) -> None:
        """Make all updates that are left.

        Raises:
            TrainingError: a loss or gradient is not finite, and that is to stop a run.
            DataError: a file of the data is broken.
            CheckpointError: the disk refuses.
            RunStopped: SIGTERM or SIGINT has come; the last step is saved.
        """
        with (
            contextlib.closing(self._progress),
            StopSignal(self.devices.vote) as self._stop,
        ):
            for phase in self.plan.phases:
                if self.step < phase.last:
                    self._train_on(phase)
            self.run.wait()

    def evaluate(self) -> dict[str, float]:
        """Return the held-out scores as the weights are now, if there is such data."""
        self.scores = self.held_out(self.model) if self.held_out else {}
        return self.scores

    def _train_on(self, phase: Phase) -> None:
        config, parts = self.plan.config, self.plan.config.accumulation
        static = self.devices.has_static_shapes

        def make(share: Share) -> tf.data.Dataset:
            return pretraining_dataset(
                phase.data,
                self.plan.tokenizer,
                batch_size=config.batch_size // parts,
                objective=config.objective,
                masking=phase.masking,
                next_sentence=self.plan.next_sentence,
                seed=phase.seed(config),
                epochs=None,
                skip_batches=(self.step - phase.first) * parts,
                layout="padded" if static else config.layout,
                padding="full" if static else "longest",
                drop_remainder=static,
                share=share,
            )

        strategy = self.devices.strategy
        dataset = distributed(strategy, make)
        count = summed_function(strategy, token_counts, [dataset.element_spec[0]])
        update = TrainStep(
            self.model, self._optimizer, self._objective, dataset.element_spec
        )
        batches = read_batches(dataset, phase.data)
        self._progress.resume()
        while self.step < phase.last:
            start = time.perf_counter()
            some = list(itertools.islice(batches, parts))
            waited = time.perf_counter() - start
            tokens = tf.add_n([count(inputs) for inputs, _ in some])
            sums, totals, is_made = update(some)
            self.step += 1
            self._add(self._progress.add(sums, totals, is_made, tokens, waited))
            self._score_and_save()
            self._stop.leave(self.run.wait)

    def _score_and_save(self) -> None:
        """Do what is due after a step."""
        config = self.plan.config
        is_last = self.step == config.steps
        stops = self._stop.is_due()
        saves = is_last or stops or self.step % config.save_every == 0
        scores = self.held_out and (is_last or self.step % config.evaluate_every == 0)
        if not saves and not scores:
            return
        # A row ends here, so that curves go on as if a run had not been stopped; and
        # what is saved has had a finite loss.
        self._add(self._progress.end_row())
        self._progress.close()
        if scores:
            with self._progress.scoring():
                found = self.evaluate()
            row = {f"dev_{name}": value for name, value in found.items()}
            self._add({"step": self.step, **row})
            shown = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
            if self.devices.is_chief:
                report(f"step {self.step:,}  held out: {shown}")
        if saves and self.devices.is_chief:
            self._save()
        self._progress.resume()

    def _restored(self) -> int:
        """Return the step that the run goes on from, and set all that follows from it.

        The chief alone reads; the other workers get what it has.
        """
        step = 0
        if self.run.steps and isinstance(self.run, RunFolder):
            step = self.run.steps[-1]
            folder = self.run.checkpoint(step)
            assign(self.model, read_checkpoint(folder))
            self._state.restore(folder)
            total = self.plan.config.steps
            self._tell(f"going on after step {step:,} of {total:,}: {folder}")
        if self.devices.workers > 1:
            step = self.devices.agree(step)
            if step > 0:
                variables = [*self.model.variables, *self._optimizer.variables]
                take_from_first(self.devices.strategy, variables, step)
        return step

    def _pass_over(self, step: int, loss: float) -> None:
        """Tell of an update that was not made; raise where that is to stop a run.

        Raises:
            TrainingError: names the step; a file in the run's folder tells its records.
        """
        what = not_finite(loss)
        place = PretrainingPlace(self.plan, step)
        if self.plan.config.on_nonfinite == "skip":
            self._tell(f"{what} in {place}: passed over")
            return
        # What is known at once first: to find the records, files are read.
        note = {"loss": str(loss), **place.facts()}
        self.run.add_note(NONFINITE, note)
        if self.devices.is_chief:
            self.run.add_note(NONFINITE, {**note, "records": place.records()})
        raise TrainingError(
            f"{what} in {place}: look at its records ({self.run.path / NONFINITE}), "
            "take a smaller --learning-rate, or --on-nonfinite skip"
        )

    def _tell(self, line: str) -> None:
        if self.devices.is_chief:
            say(line)

    def _save(self) -> None:
        weights, state = weights_of(self.model), self._state.copy()
        if not all(np.isfinite(each).all() for each in weights.values()):
            raise TrainingError(
                f"the weights are not finite after step {self.step:,}: the learning "
                "rate is too large; the last checkpoint stays"
            )

        def write(folder: Path) -> None:
            write_pretrainer(folder, self.model, self.plan.tokenizer, weights)
            write_state(folder, state)

        self.run.save(self.step, write, keep=self.plan.config.keep)

    def _add(self, row: dict[str, float] | None) -> None:
        if row is None:
            return
        if "loss" in row:
            row["learning_rate"] = float(self._schedule(self.step - 1))
        self.history.append(row)
        self.run.add_row(row)
