"""The updates of fine-tuning, from where its last checkpoint stands: `FineTuningLoop`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import assign, read_checkpoint
from bert_keras.data.table import Columns
from bert_keras.distribution.replicas import take_from_first
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import CheckpointError, TrainingError
from bert_keras.inference.model_folder import write_model
from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.initialization import undrawn
from bert_keras.model.lora import has_lora, plain_weights
from bert_keras.runs.progress import say
from bert_keras.runs.run_folder import NONFINITE, RunFolder, SilentRun
from bert_keras.runs.stop_signal import StopSignal
from bert_keras.tasks.task_model import TaskModel
from bert_keras.training.best_epoch import BestEpoch, DevCurve
from bert_keras.training.config import TrainConfig
from bert_keras.training.progress import TrainingProgress
from bert_keras.training.rows import places_of
from bert_keras.training.state import TrainingState, write_state
from bert_keras.training.train_step import not_finite
from bert_keras.training.updates import (
    HeldOutLoss,
    new_optimizer,
    own_metrics,
    training_rows,
    updates,
)

BEST = "best"  # the model folder of the best epoch, in that of the run
_PROGRESS = "progress.json"


class FineTuningLoop:
    """Trains a task's model; scores and saves it after each epoch.

    A checkpoint is written before an epoch is scored. A run that stops while it scores
    scores again when it goes on; all else is in checkpoint and curves. Of several
    workers the chief alone reads, scores and writes.

    Args:
        model: made in the scope of the strategy, with its weights of the start; those
            of a checkpoint take their place.
        train: rows to train on.
        dev: rows to score.
        run: the folder of the run; of a worker that does not write, a `SilentRun`.
        config: how to train, settled.
        devices: where to compute.
        stop: tells when the run is to end.
        final_rows: rows that are scored when training is over.

    Attributes:
        step: updates that are made.
        history: rows of the curves.
        best: the best epoch so far.
        ending: what a person should know of how training ended, in one line, or empty.
        skipped: where updates were passed over, a line each.

    Raises:
        CheckpointError: the last checkpoint of the run is broken.
    """

    def __init__(
        self,
        model: TaskModel,
        train: Columns,
        dev: Columns,
        *,
        run: RunFolder | SilentRun,
        config: TrainConfig,
        devices: Devices,
        stop: StopSignal,
        final_rows: int = 0,
    ) -> None:
        self.model = model
        self.dev = dev
        self.run = run
        self.config = config
        self.devices = devices
        self.stop = stop
        fixed = devices.has_static_shapes
        self.rows = training_rows(model, train, config, fixed=fixed)
        with devices.strategy.scope():
            self._optimizer = new_optimizer(config, steps=self.rows.steps)
            # Else TensorFlow makes its variables while it traces the step, and then has
            # to trace the step a second time.
            self._optimizer.build(model.trainable_variables)
            self._metrics = own_metrics(model)
        self._state = TrainingState(model, self._optimizer, weights=model.weights)
        # What texts need has no place on a TPU: there, a copy on the host is scored.
        self._scored = _plain_copy(model) if fixed else model
        self._predictor = Predictor(self._scored)
        self._held_out_loss: HeldOutLoss | None = None
        self.skipped: list[str] = []
        self.ending = ""
        self.step = devices.agree(run.steps[-1] if run.steps else 0)
        self.progress = TrainingProgress(
            self.rows,
            start=self.step,
            metrics=self._metrics,
            tensorboard=config.tensorboard if devices.is_chief else None,
            is_shown=devices.is_chief,
            dev_rows=len(dev),
            final_rows=final_rows,
            may_end_early=bool(config.patience),
        )
        if self.step:
            self._restore()
        self.history = run.rows(
            self.step,
            # An epoch that ends here is scored again.
            lambda row: "loss" in row or row["step"] < self.step,
        )
        self._curve = DevCurve()
        for row in self.history:
            self._curve.add_row(row, model.task.best_score)

    @property
    def best(self) -> BestEpoch:
        return self._curve.best

    @property
    def epoch(self) -> int:
        """The epoch of the last update, from 1."""
        return -(-self.step // self.rows.steps_per_epoch)

    def train(self) -> None:
        """Make all updates that are left, or those until dev no longer improves.

        Raises:
            TrainingError: a loss or gradient is not finite, and that is to stop a run.
            CheckpointError: the disk refuses.
            RunStopped: the run was asked to end; it is saved.
        """
        is_over = False
        if self.step and self.step % self.rows.steps_per_epoch == 0:
            is_over = self._score()
        if is_over or self.step == self.rows.steps:
            self._end(is_over)
            return
        made = updates(
            self.model,
            self.rows,
            self._optimizer,
            first_step=self.step,
            metrics=self._metrics,
        )
        for update in made:
            if not update.is_made:
                self._pass_over(update.loss)
            self.step += 1
            self._add(self.progress.add(update))
            if is_over := self._save_and_score():
                break
        self._end(is_over)

    def best_model(self) -> TaskModel:
        """Return the model of the best epoch, scored: of plain weights on one device.

        All workers have it.

        Raises:
            CheckpointError: that epoch's folder is broken.
        """
        self.run.wait()
        model, is_last = self.model, self.best.epoch == self.epoch
        if self.devices.name != "single" or has_lora(model.backbone):
            model, is_last = _plain_copy(model), False
        if self.devices.is_chief and not is_last:
            assign(model, read_checkpoint(self.run.path / BEST))
        if self.devices.workers > 1:
            take_from_first(self.devices.strategy, model.weights, 0)
        if self.best.scores is None:
            with self.progress.scoring("dev", len(self.dev)) as bar:
                answers = Predictor(model).answers(self.dev, seen=bar.add)
            self.best.answers = answers
            self.best.scores = model.task.score(self.dev, answers)
        return model

    def _save_and_score(self) -> bool:
        """Do what is due after an update; say whether training is over."""
        ends_epoch = self.step % self.rows.steps_per_epoch == 0
        stops = self.stop.is_due()
        if not ends_epoch and not stops and self.step % self.config.save_every:
            return False
        # A row ends here, so that curves go on as if a run had not been stopped.
        self._add(self.progress.end_row())
        if self.devices.is_chief:
            self._save()
        self.stop.leave(self.run.wait)
        return ends_epoch and self._score()

    def _save(self) -> None:
        state = self._state.copy()
        told = {**self.progress.state(), "skipped": list(self.skipped)}

        def write(folder: Path) -> None:
            write_state(folder, state)
            (folder / _PROGRESS).write_text(json.dumps(told), encoding="utf-8")

        self.run.save(self.step, write, keep=self.config.keep)

    def _restore(self) -> None:
        """Go on from the last checkpoint; the other workers get what the chief has."""
        if isinstance(self.run, RunFolder):
            self._read(self.run.checkpoint(self.step))
        if self.devices.workers > 1:
            variables = [*self.model.variables, *self._optimizer.variables]
            take_from_first(self.devices.strategy, variables, self.step)

    def _read(self, folder: Path) -> None:
        self._state.restore(folder)
        try:
            told = json.loads((folder / _PROGRESS).read_text(encoding="utf-8"))
            self.progress.restore(told)
            self.skipped = list(told["skipped"])
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{folder / _PROGRESS}: broken or missing") from None
        epoch, batch = divmod(self.step, self.rows.steps_per_epoch)
        say(
            f"going on after step {self.step:,} of {self.rows.steps:,} "
            f"({epoch} epochs and {batch:,} steps): {folder}"
        )

    def _score(self) -> bool:
        """Score an epoch; say, on all workers, whether dev no longer improves."""
        if self.devices.is_chief:
            with self.stop.at_once():
                self._score_dev()
        if not self.config.patience:
            return False
        # While the rate still rises, or has only begun to fall, dev may stand still.
        may_end = 2 * self.epoch >= self.rows.epochs
        stalled = self._curve.stalled >= self.config.patience  # the chief's counts
        return bool(self.devices.agree(int(may_end and stalled)))

    def _score_dev(self) -> None:
        """Score dev; keep the model if it is the best so far."""
        task = self.model.task
        if self._scored is not self.model:
            found = plain_weights(self.model)
            for weight in self._scored.weights:
                weight.assign(found[weight.path])
        with self.progress.scoring("dev", len(self.dev)) as bar:
            answers = self._predictor.answers(self.dev, seen=bar.add)
        scores = task.score(self.dev, answers)
        value, loss = float(scores[task.best_score]), self._dev_loss(scores)
        plain = {k: v for k, v in scores.items() if isinstance(v, float)}
        shown = {**plain, "loss": loss, task.best_score: value}
        self._add(
            self.progress.end_epoch({f"dev_{k}": v for k, v in shown.items()}),
        )
        if self._curve.add(self.epoch, value, loss, scores, answers):
            weights = {k: np.array(v) for k, v in plain_weights(self.model).items()}
            self.run.put(BEST, lambda folder: write_model(self.model, folder, weights))

    def _dev_loss(self, scores: dict[str, Any]) -> float:
        """Return the mean loss on dev: among the scores, or computed for it."""
        if "loss" in scores:
            return float(scores["loss"])
        if self._held_out_loss is None:
            self._held_out_loss = HeldOutLoss(self._scored, self.dev)
        return self._held_out_loss()

    def _end(self, is_early: bool) -> None:
        """Tell how training has ended, where that is worth a line."""
        self.progress.end_training()
        if not self.devices.is_chief:
            return
        if is_early:
            self.ending = (
                f"ended after epoch {self.epoch} of {self.rows.epochs}: dev has not "
                f"improved for {self._curve.stalled} epochs"
            )
        elif self.epoch > 1 and not self._curve.stalled:
            self.ending = (
                f"dev was still improving in the last epoch, {self.epoch}: more "
                "--epochs may give a better model"
            )
        if self.ending:
            say(self.ending)

    def _pass_over(self, loss: float) -> None:
        """Tell of an update that was not made; raise where that is to stop a run.

        Raises:
            TrainingError: names epoch, step and rows; a file in the run's folder holds
                all of them.
        """
        columns, rows = self.rows.columns, self.rows.rows_of(self.step)
        epoch, batch = divmod(self.step, self.rows.steps_per_epoch)
        what = not_finite(loss)
        where = (
            f"in epoch {epoch + 1}, step {batch + 1:,} of it, {self.step + 1:,} of all "
            f"({places_of(columns, rows)})"
        )
        if self.config.on_nonfinite == "skip":
            if self.devices.is_chief:
                say(f"{what} {where}: passed over")
            self.skipped.append(f"{what} {where}")
            return
        self.run.add_note(
            NONFINITE,
            {
                "loss": str(loss),
                "epoch": epoch + 1,
                "step_of_epoch": batch + 1,
                "step": self.step + 1,
                "file": columns.path,
                "lines": [columns.lines[row] for row in rows],
            },
        )
        raise TrainingError(
            f"{what} {where}: look at these rows, take a smaller --learning-rate, or "
            "--on-nonfinite skip"
        )

    def _add(self, row: dict[str, Any] | None) -> None:
        if row is not None:
            self.history.append(row)
            self.run.add_row(row)


def _plain_copy(model: TaskModel) -> TaskModel:
    """Return a model of the same form, without LoRA, made outside of any strategy."""
    with undrawn():
        encoder = BertEncoder.from_config(model.backbone.get_config())
    return TaskModel(encoder, model.task, model.preprocessor, seed=model.seed)
