"""The loop of a run: `TrainingLoop`, and `FineTuningLoop`, which keeps the best epoch.

A checkpoint is written before the model is scored. A run that is interrupted while it
scores repeats the scoring when it resumes; everything else is in checkpoint and curves.
Between checkpoints everything is in memory, so that a short run writes none: the values
are also written when a run is stopped, and when its data is broken.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bert_keras.checkpoints import assign, read_checkpoint
from bert_keras.data.columns import Columns
from bert_keras.distribution.replicas import take_from_first
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import CheckpointError, DataError, TrainingError, counted
from bert_keras.files.json_file import read_json
from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.layers import undrawn
from bert_keras.model.lora import has_lora, plain_weights
from bert_keras.models.model_folder import write_model
from bert_keras.models.task_model import TaskModel
from bert_keras.report.values import words
from bert_keras.runs.notes import say, show
from bert_keras.runs.progress import report
from bert_keras.runs.run_folder import EPOCH, NONFINITE, RunFolder
from bert_keras.runs.stop_signal import RunStopped, StopSignal
from bert_keras.tasks.protocols import Writing
from bert_keras.training.best_epoch import BestEpoch, DevCurve
from bert_keras.training.checkpoint import (
    CheckpointClock,
    TrainingState,
    WriteCheckpoint,
    own,
)
from bert_keras.training.data import count_tests
from bert_keras.training.progress import (
    UPDATE_COST,
    Row,
    TrainingProgress,
    UpdateProgress,
)
from bert_keras.training.tracking import Trackers
from bert_keras.training.train_step import BatchSource
from bert_keras.training.trainer import Fitted, training_notes
from bert_keras.training.updates import (
    MeanLosses,
    dev_losses,
    new_optimizer,
    new_schedule,
    own_metrics,
    training_rows,
    updates,
)


@dataclasses.dataclass(frozen=True)
class RunContext:
    """What a run gives to its training, whatever the method.

    Args:
        folder: the run folder; `None` for a worker that does not write.
        config: the settings, see `TrainConfig.finalized`, or a `PretrainConfig`.
        devices: where to compute.
        stop: signals that the run must end.
        trackers: get the curves.
        distillation: what a teacher teaches, if there is one.
        tries_layers: whether a linear head on all layers is compared with others.
        vectors: as in `Plan`.
        fold: the name of the rows that are a training fold; they are shown as held-out.
    """

    folder: RunFolder | None
    config: Any
    devices: Devices
    stop: StopSignal
    trackers: Trackers = dataclasses.field(default_factory=Trackers)
    distillation: Any = None  # a `Teaching`; of fine-tuning, a `Distillation`
    tries_layers: bool = False
    vectors: np.ndarray | None = None
    fold: str = ""


class TrainingLoop(abc.ABC):
    """Makes the updates of a run, starting at its last checkpoint; saves and scores.

    The losses are the model's, see `TaskObjective`. A subclass scores the model and
    says what a checkpoint holds: it creates its progress, and calls `restore` before it
    trains. With several workers, only the chief reads and writes.

    Args:
        model: created in the scope of the strategy.
        source: of the batches.
        context: the run that it belongs to.

    Attributes:
        optimizer: of the config, built.
        schedule: the learning rate of each update, by its number from 0.
        metrics: of the task, updated with each batch.
        step: number of updates made.
        history: rows of the curves.
        skipped: the positions of skipped updates, one line each.
    """

    progress: UpdateProgress

    def __init__(
        self, model: keras.Model, source: BatchSource, context: RunContext
    ) -> None:
        self.model: Any = model
        self.source, self.steps = source, source.steps
        self.run, self.config = context.folder, context.config
        self.devices, self.stop = context.devices, context.stop
        self.trackers, self.distillation = context.trackers, context.distillation
        self.schedule = new_schedule(self.config, steps=self.steps)
        with self.devices.strategy.scope():
            self.optimizer = new_optimizer(self.config, steps=self.steps, model=model)
            # Otherwise TensorFlow creates its variables while it traces the step, and
            # has to trace the step a second time.
            self.optimizer.build(model.trainable_variables)
            self.metrics = own_metrics(model)
        self._clock = CheckpointClock(self.config.checkpoint_every)
        saved = self.run.steps if self.run else []
        self.step = self.devices.agree(saved[-1] if saved else 0)
        self.history: list[Row] = []
        self.skipped: list[str] = []

    # Methods that differ between fine-tuning and pretraining.

    @abc.abstractmethod
    def scores_at(self, step: int) -> bool:
        """Return whether the model is scored after this number of updates."""

    @abc.abstractmethod
    def score(self) -> bool:
        """Score the model; return on all workers whether training is over."""

    def saves_at(self, step: int) -> bool:
        """Return whether a checkpoint is written after this number of updates."""
        # The chief writes, and its clock decides.
        ends_epoch = self.scores_at(step)
        return self.devices.is_chief and self._clock.is_due(step, ends_epoch=ends_epoch)

    @abc.abstractmethod
    def checkpoint(self) -> WriteCheckpoint:
        """Return a function that writes the current values into a folder."""

    @abc.abstractmethod
    def read(self, folder: Path) -> None:
        """Set all values from a checkpoint; it may raise a CheckpointError."""

    # Methods that they share.

    def train(self) -> bool:
        """Make all remaining updates; return whether training ended early.

        Raises:
            TrainingError: a loss or gradient is not finite, and `on_nonfinite` is stop.
            DataError: a file of the data is broken.
            CheckpointError: writing fails.
            RunStopped: a stop was requested; the run is saved.
        """
        first = self.step
        with contextlib.closing(self.progress):
            is_over = self.step > 0 and self.scores_at(self.step) and self.score()
            if not is_over and self.step < self.steps:
                self.progress.resume()
                try:
                    for update in updates(
                        self.model,
                        self.source,
                        self.optimizer,
                        first_step=self.step,
                        metrics=self.metrics,
                        distillation=self.distillation,
                    ):
                        row = self.progress.add(update)
                        self.step += 1
                        if self.step == first + 1:  # which has traced the graphs
                            self._clock.start()
                        self.add_row(row)
                        if is_over := self._save_and_score():
                            break
                except DataError:  # found between two updates
                    self.save()
                    raise
            self.wait()
        return is_over

    def save(self) -> None:
        """Write a checkpoint in the background, on the chief."""
        if self.run is not None:
            self.write(self.run, self.checkpoint())
        self._clock.saved()

    def write(self, run: RunFolder, checkpoint: WriteCheckpoint) -> None:
        """Write the checkpoint of the current step in the background."""
        run.save(self.step, checkpoint, keep=self.config.keep)

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is complete."""
        if self.run is not None:
            self.run.wait()

    def restore(self) -> None:
        """Resume from the last checkpoint; the other workers get the chief's values.

        Raises:
            CheckpointError: the checkpoint is broken.
        """
        if self.step and self.run is not None:
            folder = self.run.checkpoint(self.step)
            try:
                self.read(folder)
            except CheckpointError as error:
                remedy = (
                    "there is no earlier checkpoint: start again with another output"
                )
                if earlier := [step for step in self.run.steps if step < self.step]:
                    remedy = f"delete {folder} to resume from step {max(earlier):,}"
                raise CheckpointError(f"{error}; {remedy}") from None
            show(f"resuming after step {self.step:,} of {self.steps:,}: {folder}")
        if self.step and self.devices.workers > 1:
            variables = [*self.model.variables, *self.optimizer.variables]
            take_from_first(self.devices.strategy, variables, self.step)
        scores_again = self.scores_at(self.step)

        def is_kept(row: Any) -> bool:
            is_score = any(name.startswith("dev_") for name in row)
            return not (is_score and scores_again and row["step"] == self.step)

        if self.run is not None:
            self.history = self.run.rows(self.step, is_kept)

    def add_row(self, row: Row | None) -> None:
        """Add a row to the curves, unless it is `None`."""
        if row is not None:
            self.history.append(row)
            if self.run is not None:
                self.run.add_row(row)

    def skip_or_stop(self, step: int, loss: float) -> None:
        """Record a skipped update, by its number from 1, or raise to stop the run.

        The loss is finite if only gradients are not.

        Raises:
            TrainingError: names the position; a file in the run folder lists the rows.
        """
        place = self.source.place(step)
        is_finite = math.isfinite(loss)
        what = "a gradient is not finite" if is_finite else f"the loss is {loss}"
        where = f"{what} in {place}"
        if self.config.on_nonfinite == "skip":
            show(f"{where}: update skipped")
            self.skipped.append(where)
            return
        file = f"{NONFINITE} of the first worker"
        if self.run is not None:
            # First the known facts: finding the rows may require reading files.
            note = {"loss": str(loss), **place.facts()}
            self.run.add_note(NONFINITE, note)
            self.run.add_note(NONFINITE, {**note, **place.rows()})
            file = str(self.run.path / NONFINITE)
        raise TrainingError(
            f"{where}: check its rows ({file}), use a smaller --learning-rate, or "
            "--on-nonfinite skip"
        )

    def _wait_for_chief(self) -> None:
        """Return on all workers after the chief has written its checkpoint.

        If one worker ended earlier, a scheduler might kill the others.
        """
        self.wait()
        self.devices.agree(0)

    def _save_and_score(self) -> bool:
        """Save and score if due after an update; return whether training is over."""
        scores = self.scores_at(self.step)
        stops = self.stop.is_due()
        saves = stops or self.saves_at(self.step)
        if not saves and not scores:
            return False
        self.add_row(self.progress.pause())
        if saves:
            self.save()
        self.stop.leave(self._wait_for_chief)
        is_over = scores and self._score_or_save()
        self.progress.resume()
        return is_over

    def _score_or_save(self) -> bool:
        """Call `score`, which changes no values; save them if it is interrupted."""
        try:
            return self.score()
        except RunStopped:
            self.save()
            raise


BEST = "best"  # the model folder of the best epoch, inside the run folder
_PROGRESS = "progress.json"
# A large dev set is scored before training if this takes at most a tenth of the run.
_SMALL_DEV, _MOST_START = 1000, 0.1


class FineTuningLoop(TrainingLoop):
    """Trains a task's model; scores it after each epoch, and keeps the best one.

    The best model is kept in memory, and written with the checkpoints.

    With several workers, only the chief scores.

    Args:
        model: with its initial weights; a checkpoint's weights replace them.
        data: the rows by name: `train`, `dev` to score after each epoch, and tests to
            score after training. Without dev, the last epoch is kept.
        context: the run that it belongs to.

    Attributes:
        best: the best epoch so far; 0 for the model before training.
        ending: a one-line message about the end of training, or empty.

    Raises:
        CheckpointError: the last checkpoint of the run is broken.
    """

    def __init__(
        self, model: TaskModel, data: Mapping[str, Columns], context: RunContext
    ) -> None:
        config, devices = context.config, context.devices
        fixed = devices.has_static_shapes
        self.rows = training_rows(
            model, data["train"], config, fixed=fixed, distillation=context.distillation
        )
        super().__init__(model, self.rows, context)
        self.dev = data.get("dev")
        self._state = TrainingState(model, self.optimizer, weights=model.weights)
        # Text ops do not run on a TPU: there, a copy on the host is scored.
        self._scored = _plain_copy(model) if fixed else model
        self._predictor = Predictor(self._scored, freeze=False)
        self._dev_losses: MeanLosses | None = None
        self._is_best_written = False
        self.ending = ""
        self.progress: TrainingProgress = TrainingProgress(
            self.rows,
            start=self.step,
            metrics=self.metrics,
            learning_rate=self.schedule,
            skip=self.skip_or_stop,
            draw=self.trackers.curves,
            is_shown=devices.is_chief,
            dev_rows=len(self.dev or ()),
            final_rows=count_tests(data),
            may_end_early=bool(config.patience),
        )
        self.restore()
        self._curve = DevCurve()
        self.trackers.resume(self.history)
        for row in self.history:
            if row["epoch"] or model.has_pretrained_head:
                self._curve.add_row(row, model.task.best_score)

    @property
    def best(self) -> BestEpoch:
        return self._curve.best

    def fitted(self) -> Fitted:
        """Return the model of the best epoch, on all workers, and what is known of it.

        Raises:
            CheckpointError: the folder of that epoch is broken.
        """
        model, progress = self.best_model(), self.progress
        shown: dict[str, Any] = {"best_epoch": self.best.epoch}
        if self.dev is not None:
            shown["best_epoch_dev_loss"] = self.best.loss
        return Fitted(
            model=model,
            scores=self.best.scores or {},
            answers=self.best.answers or {},
            validated=None,
            history=self.history,
            settings=shown | training_notes(self.ending, self.skipped),
            batches={"real_token_share": progress.real_share},
            seconds=float(progress.state()["seconds"]),
            steps=self.steps,
            update_seconds=(progress.tracing_seconds, progress.token_seconds),
        )

    @property
    def epoch(self) -> int:
        """The epoch of the last update, from 1."""
        return -(-self.step // self.rows.steps_per_epoch)

    def train(self) -> bool:
        if self.step == 0 and self.dev is not None and self.devices.is_chief:
            self._score_start(self.dev)
        is_early = super().train()
        self._end(is_early)
        return is_early

    def skip_or_stop(self, step: int, loss: float) -> None:
        if self.config.on_nonfinite == "stop":
            self.save()  # the values are from before the update
        super().skip_or_stop(step, loss)

    def scores_at(self, step: int) -> bool:
        return step % self.rows.steps_per_epoch == 0

    def write(self, run: RunFolder, checkpoint: WriteCheckpoint) -> None:
        best, before = self.best, {}
        if best.weights is not None and not self._is_best_written:

            def write_best(folder: Path) -> None:
                write_model(self.model, folder, best.weights)
                note = json.dumps({"epoch": best.epoch})
                (folder / EPOCH).write_text(note, encoding="utf-8")

            before[BEST] = write_best
            self._is_best_written = True
        run.save(self.step, checkpoint, keep=self.config.keep, before=before)

    @contextlib.contextmanager
    def saved_on_failure(self) -> Iterator[None]:
        """Write the state of this moment if a block fails, which may change it."""
        run = self.run
        if run is None or self.step in run.steps:
            yield
            return
        last = []
        if self.best.epoch != self.epoch:  # whose weights the model gets
            values = map(keras.ops.convert_to_numpy, self.model.weights)
            last = [np.array(value) for value in values]  # a view may change
        try:
            yield
        except BaseException:
            for weight, value in zip(self.model.weights, last, strict=False):
                weight.assign(value)
            self.write(run, self.checkpoint())
            raise

    def checkpoint(self) -> WriteCheckpoint:
        write_state = self._state.checkpoint()
        progress = {**self.progress.state(), "skipped": list(self.skipped)}

        def write(folder: Path) -> None:
            write_state(folder)
            (folder / _PROGRESS).write_text(json.dumps(progress), encoding="utf-8")

        return write

    def read(self, folder: Path) -> None:
        self._state.restore(folder)
        try:
            progress = json.loads((folder / _PROGRESS).read_text(encoding="utf-8"))
            self.progress.restore(progress)
            self.skipped = list(progress["skipped"])
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{folder / _PROGRESS}: broken or missing") from None

    def best_model(self) -> TaskModel:
        """Return the model of the best epoch, with plain weights, on all workers.

        Raises:
            CheckpointError: the folder of that epoch is broken.
        """
        self.wait()
        model, is_last = self.model, self.best.epoch == self.epoch
        if self.devices.name != "single" or has_lora(model.backbone):
            model, is_last = _plain_copy(model), False
        if self.run is not None and not is_last:
            self._assign_best(model, self.run.path / BEST)
        if self.devices.workers > 1:
            take_from_first(self.devices.strategy, model.weights, 0)
        if self.best.scores is None and self.dev is not None:
            answers = self.answers(Predictor(model, freeze=False), "dev", self.dev)
            self.best.answers = answers
            self.best.scores = model.task.score(self.dev, answers)
        return model

    def _assign_best(self, model: TaskModel, folder: Path) -> None:
        """Set the weights of the best epoch, of this process or of its folder."""
        weights = self.best.weights
        if weights is not None:
            for weight in model.weights:
                weight.assign(weights[weight.path])
            return
        epoch = read_json(folder / EPOCH).get("epoch")
        if epoch != self.best.epoch:
            raise CheckpointError(
                f"{folder}: must hold epoch {self.best.epoch}, the best one; holds "
                f"epoch {epoch}: `--resume never` starts over"
            )
        assign(model, read_checkpoint(folder))

    def answers(
        self, predictor: Predictor, name: str, rows: Columns
    ) -> dict[str, np.ndarray]:
        """Return the answers to the rows of a data set, and show the progress."""
        with self.progress.scoring(name, len(rows)) as bar:
            return predictor.answers(rows, seen=bar.add)

    def score(self) -> bool:
        if self.devices.is_chief:
            with self.stop.at_once():
                self._score_dev()
        if not self.config.patience:
            return False
        # While the learning rate rises or has just started to fall, dev may stall.
        may_end = 2 * self.epoch >= self.rows.epochs
        stalled = self._curve.stalled >= self.config.patience  # the chief decides
        return bool(self.devices.agree(int(may_end and stalled)))

    def _score_start(self, dev: Columns) -> None:
        """Score dev before the first update, unless this would take too long.

        The model that a run starts with is kept as the best one only if its head was
        pretrained, or if it has none.
        """
        task, rows = self.model.task, len(self.rows.columns)
        run = self.rows.epochs * (UPDATE_COST * rows + len(dev))
        if isinstance(task, Writing) and not self.model.has_pretrained_head:
            say("dev is not scored before training: the decoder is new")
        elif len(dev) > max(_MOST_START * run, _SMALL_DEV):
            say("dev is not scored before training: it has too many rows")
        else:
            with self.stop.at_once():
                self._score_dev()

    def _score_dev(self) -> None:
        """Score dev, if there is one, and keep the model if it is the best so far."""
        task = self.model.task
        if self.dev is None:
            self.progress.end_epoch({})
            self._keep_if_best(math.nan, math.nan)
            return
        if self._scored is not self.model:
            found = plain_weights(self.model, self.model.backbone)
            for weight in self._scored.weights:
                weight.assign(found[weight.path])
        answers = self.answers(self._predictor, "dev", self.dev)
        scores = task.score(self.dev, answers)
        value, loss = float(scores[task.best_score]), self._dev_loss(self.dev, scores)
        plain = {k: v for k, v in scores.items() if isinstance(v, float)}
        kept = {task.best_score: value, **plain, "loss": loss}
        row = self.progress.end_epoch({f"dev_{k}": v for k, v in kept.items()})
        for line in task.shown(self.dev, answers):
            report(line)
        self.add_row(row)
        self._keep_if_best(value, loss, scores, answers)

    def _keep_if_best(self, value: float, loss: float, *scored: Any) -> None:
        """Add an epoch to the curve, and keep its model if it is the best so far."""
        if self.epoch == 0 and not self.model.has_pretrained_head:
            return  # its answers are random
        if self._curve.add(self.epoch, value, loss, *scored):
            weights = plain_weights(self.model, self.model.backbone)
            self.best.weights = {k: own(value) for k, value in weights.items()}
            self._is_best_written = False

    def _dev_loss(self, dev: Columns, scores: dict[str, Any]) -> float:
        """Return the mean loss on dev: among the scores, or computed for it."""
        if "loss" in scores:
            return float(scores["loss"])
        if self._dev_losses is None:
            self._dev_losses = dev_losses(self._scored, dev)
        return float(self._dev_losses()["loss"][0])

    def _end(self, is_early: bool) -> None:
        """Set `ending` if the end of training is worth a message."""
        self.progress.end_training()
        if not self.devices.is_chief:
            return
        score = self.model.task.best_score
        key = f"dev_{score}"
        values = [row[key] for row in self.history if key in row and row["epoch"]]
        if self.dev is not None and self.best.epoch == 0 and values:
            self.ending = (
                f"training did not help: the dev score ({words(score)}) was "
                f"{self.best.value:.4f} before the first update, and at most "
                f"{max(values):.4f} after an epoch; the model before training is kept"
            )
        elif is_early and self.epoch < self.rows.epochs:
            self.ending = (
                f"ended after epoch {self.epoch} of {self.rows.epochs}: dev has not "
                f"improved for {counted(self._curve.stalled, 'epochs')}"
            )
        elif self.epoch > 1 and not self._curve.stalled:
            before, what = values[:-1], "dev was still improving"
            if before and values[-1] <= max(before):
                what = "the dev loss was still falling"
            kept = ""
            if self.best.epoch != self.epoch:
                kept = f"epoch {self.best.epoch}, the best on dev, is kept; "
            self.ending = (
                f"{kept}{what} in the last epoch, {self.epoch}: more --epochs may give "
                "a better model"
            )
        if self.ending:
            say(self.ending)


def _plain_copy(model: TaskModel) -> TaskModel:
    """Return a model of the same architecture, outside any strategy.

    It is without LoRA, and none of its layers are frozen.
    """
    config = {**model.backbone.get_config(), "frozen": (), "lora": {}}
    with undrawn():
        encoder = BertEncoder.from_config(config)
    return TaskModel(encoder, model.task, model.preprocessor, seed=model.seed)
