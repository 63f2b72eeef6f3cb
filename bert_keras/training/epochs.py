"""Fine-tuning epoch by epoch, keeping the best epoch: `FineTuningLoop`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import assign, read_checkpoint
from bert_keras.data.table import Columns
from bert_keras.distribution.replicas import take_from_first
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import CheckpointError
from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.layers import undrawn
from bert_keras.model.lora import has_lora, plain_weights
from bert_keras.models.model_folder import write_model
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.progress import report, say
from bert_keras.runs.run_folder import EPOCH, RunFolder, SilentRun
from bert_keras.runs.stop_signal import StopSignal
from bert_keras.tasks.protocols import Showing, Writing
from bert_keras.training.config import TrainConfig
from bert_keras.training.loop import Row, TrainingLoop, TrainingState, WriteCheckpoint
from bert_keras.training.progress import TrainingProgress
from bert_keras.training.rows import RowsPlace
from bert_keras.training.tracking import Trackers
from bert_keras.training.updates import (
    HeldOutLoss,
    new_optimizer,
    new_schedule,
    own_metrics,
    training_rows,
    updates,
)

BEST = "best"  # the model folder of the best epoch, inside the run folder
_PROGRESS = "progress.json"
# The dev loss must fall by this share of the first epoch's loss to count as improved.
_LEAST_FALL = 0.01
# A large dev set is scored before training if this takes at most a tenth of the run,
# where an update of a row costs as much as scoring three.
_SMALL_DEV, _MOST_START, _UPDATE_COST = 1000, 0.1, 3


@dataclasses.dataclass
class BestEpoch:
    """The epoch with the highest score on dev; among equal scores, the lowest loss.

    If the losses are also equal, the later epoch is better.
    """

    epoch: int = 0  # from 1; 0 before training
    value: float = -math.inf  # the task's best score; NaN is below any number
    loss: float = math.inf  # the mean on dev; NaN is above any number
    # `None` if another process computed them.
    scores: dict[str, Any] | None = None
    answers: dict[str, np.ndarray] | None = None
    weights: dict[str, np.ndarray] | None = None  # plain ones, by path

    @property
    def rank(self) -> tuple[float, float]:
        return rank_of(self.value, self.loss)


def rank_of(value: float, loss: float) -> tuple[float, float]:
    """Return the key that compares pairs of dev score and loss; higher is better."""
    return (
        -math.inf if math.isnan(value) else value,
        -math.inf if math.isnan(loss) else -loss,
    )


class DevCurve:
    """Tracks score and loss on dev from epoch to epoch.

    `stalled` is the number of epochs since dev last improved: since a new highest
    score, or a loss that was lower by a hundredth of the first epoch's.
    """

    def __init__(self) -> None:
        self.best = BestEpoch()
        self.stalled = 0
        self._is_empty = True
        self._lowest, self._least_fall = math.inf, 0.0

    def add(
        self,
        epoch: int,
        value: float,
        loss: float,
        scores: dict[str, Any] | None = None,
        answers: dict[str, np.ndarray] | None = None,
    ) -> bool:
        """Add an epoch, as in `BestEpoch`; return whether it is the best so far."""
        found = BestEpoch(epoch, value, loss, scores, answers)
        is_higher = self._is_empty or found.rank[0] > self.best.rank[0]
        self._is_empty = False
        if falls := loss < self._lowest - self._least_fall:
            self._lowest = loss
            self._least_fall = self._least_fall or _LEAST_FALL * abs(loss)
        self.stalled = 0 if falls or is_higher else self.stalled + 1
        if found.rank < self.best.rank:
            return False
        self.best = found
        return True

    def add_row(self, row: Mapping[str, Any], best_score: str) -> None:
        """Add an epoch of a resumed run, from a row of its curves."""
        if f"dev_{best_score}" in row:
            loss = row.get("dev_loss", math.nan)
            self.add(int(row["epoch"]), row[f"dev_{best_score}"], loss)


class FineTuningLoop(TrainingLoop):
    """Trains a task's model; scores it after each epoch, and keeps the best one.

    The best model is kept in memory, and written with the checkpoints.

    With several workers, only the chief scores.

    Args:
        model: with its initial weights; those of a checkpoint replace them.
        train, dev: rows to train on, and to score; without dev, the last epoch is kept.
        run, config, devices, stop: as in `TrainingLoop`, see `TrainConfig.settled`.
        final_rows: number of rows that are scored after training.
        trackers: get the curves.

    Attributes:
        best: the best epoch so far; 0 for the model before training.
        ending: a one-line message about the end of training, or empty.

    Raises:
        CheckpointError: the last checkpoint of the run is broken.
    """

    def __init__(
        self,
        model: TaskModel,
        train: Columns,
        dev: Columns | None,
        *,
        run: RunFolder | SilentRun,
        config: TrainConfig,
        devices: Devices,
        stop: StopSignal,
        final_rows: int,
        trackers: Trackers,
    ) -> None:
        fixed = devices.has_static_shapes
        self.rows = training_rows(model, train, config, fixed=fixed)
        schedule = new_schedule(config, steps=self.rows.steps)
        with devices.strategy.scope():
            optimizer = new_optimizer(config, steps=self.rows.steps, model=model)
            # Otherwise TensorFlow creates its variables while it traces the step, and
            # has to trace the step a second time.
            optimizer.build(model.trainable_variables)
            self._metrics = own_metrics(model)
        super().__init__(
            model,
            optimizer,
            run=run,
            config=config,
            steps=self.rows.steps,
            devices=devices,
            stop=stop,
        )
        self.dev = dev
        self._state = TrainingState(model, optimizer, weights=model.weights)
        # Text ops do not run on a TPU: there, a copy on the host is scored.
        self._scored = _plain_copy(model) if fixed else model
        self._predictor = Predictor(self._scored, freeze=False)
        self._held_out_loss: HeldOutLoss | None = None
        self._is_best_written = False
        self.ending = ""
        self.trackers = trackers
        self.progress: TrainingProgress = TrainingProgress(
            self.rows,
            start=self.step,
            metrics=self._metrics,
            learning_rate=lambda step: float(schedule(step)),
            draw=self.trackers.curves,
            is_shown=devices.is_chief,
            dev_rows=len(dev or ()),
            final_rows=final_rows,
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

    def updates(self) -> Iterator[Row | None]:
        for update in updates(
            self.model,
            self.rows,
            self.optimizer,
            first_step=self.step,
            metrics=self._metrics,
        ):
            if not update.is_made:
                if self.config.on_nonfinite == "stop":
                    self.save()  # the values are those before the update
                self.skip_or_stop(self.step + 1, update.loss)
            yield self.progress.add(update)

    def place_of(self, step: int) -> RowsPlace:
        return RowsPlace(self.rows, step)

    def scores_at(self, step: int) -> bool:
        return step % self.rows.steps_per_epoch == 0

    def write(self, checkpoint: WriteCheckpoint) -> None:
        best, before = self.best, {}
        if best.weights is not None and not self._is_best_written:

            def write_best(folder: Path) -> None:
                write_model(self.model, folder, best.weights)
                note = json.dumps({"epoch": best.epoch})
                (folder / EPOCH).write_text(note, encoding="utf-8")

            before[BEST] = write_best
            self._is_best_written = True
        self.run.save(self.step, checkpoint, keep=self.config.keep, before=before)

    @contextlib.contextmanager
    def saved_on_failure(self) -> Iterator[None]:
        """Write the state of this moment if a block fails, which may change it."""
        is_saved = not self.devices.is_chief or self.step in self.run.steps
        checkpoint = None if is_saved else self.checkpoint()
        try:
            yield
        except BaseException:
            if checkpoint is not None:
                self.write(checkpoint)
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
        self.run.wait()
        model, is_last = self.model, self.best.epoch == self.epoch
        if self.devices.name != "single" or has_lora(model.backbone):
            model, is_last = _plain_copy(model), False
        if self.devices.is_chief and not is_last:
            self._assign_best(model)
        if self.devices.workers > 1:
            take_from_first(self.devices.strategy, model.weights, 0)
        if self.best.scores is None and self.dev is not None:
            answers = self.answers(Predictor(model, freeze=False), "dev", self.dev)
            self.best.answers = answers
            self.best.scores = model.task.score(self.dev, answers)
        return model

    def _assign_best(self, model: TaskModel) -> None:
        """Set the weights of the best epoch, of this process or of the run folder."""
        folder, weights = self.run.path / BEST, self.best.weights
        if weights is not None:
            for weight in model.weights:
                weight.assign(weights[weight.path])
            return
        note = folder / EPOCH
        if note.exists():  # earlier versions write none
            epoch = json.loads(note.read_text(encoding="utf-8"))["epoch"]
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
        run = self.rows.epochs * (_UPDATE_COST * rows + len(dev))
        if isinstance(task, Writing) and not self.model.has_pretrained_head:
            say("dev is not scored before training: the model cannot write yet")
        elif len(dev) > max(_MOST_START * run, _SMALL_DEV):
            say("dev is not scored before training: it has too many rows for that")
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
        shown = {**plain, "loss": loss, task.best_score: value}
        row = self.progress.end_epoch({f"dev_{k}": v for k, v in shown.items()})
        if isinstance(task, Showing):
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
            self.best.weights = {k: np.array(value) for k, value in weights.items()}
            self._is_best_written = False

    def _dev_loss(self, dev: Columns, scores: dict[str, Any]) -> float:
        """Return the mean loss on dev: among the scores, or computed for it."""
        if "loss" in scores:
            return float(scores["loss"])
        if self._held_out_loss is None:
            self._held_out_loss = HeldOutLoss(self._scored, dev)
        return self._held_out_loss()

    def _end(self, is_early: bool) -> None:
        """Set `ending` if the end of training is worth a message."""
        self.progress.end_training()
        if not self.devices.is_chief:
            return
        key = f"dev_{self.model.task.best_score}"
        values = [row[key] for row in self.history if key in row and row["epoch"]]
        if self.dev is not None and self.best.epoch == 0 and values:
            self.ending = (
                f"training did not help: {key} was {self.best.value:.4f} before the "
                f"first update, and at most {max(values):.4f} after an epoch; the "
                "model before training is kept"
            )
        elif is_early:
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


def _plain_copy(model: TaskModel) -> TaskModel:
    """Return a model of the same architecture, outside any strategy.

    It is without LoRA, and none of its layers are frozen.
    """
    config = {**model.backbone.get_config(), "frozen": ()}
    with undrawn():
        encoder = BertEncoder.from_config(config)
    return TaskModel(encoder, model.task, model.preprocessor, seed=model.seed)
