"""The loop of fine-tuning and pretraining, and its checkpoints: `TrainingLoop`.

A checkpoint is written before the model is scored. A run that is interrupted while it
scores repeats the scoring when it resumes; everything else is in checkpoint and curves.
Between checkpoints everything is in memory, so that a short run writes none: the values
are also written when a run is stopped, and when its data is broken.
"""

from __future__ import annotations

import abc
import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
from safetensors.numpy import save

from bert_keras.checkpoints.safetensors_file import opened
from bert_keras.distribution.replicas import take_from_first
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import CheckpointError, DataError, TrainingError
from bert_keras.runs.progress import Progress, say
from bert_keras.runs.run_folder import NONFINITE, RunFolder, SilentRun
from bert_keras.runs.stop_signal import RunStopped, StopSignal

FILE = "training_state.safetensors"
Row = dict[str, Any]
WriteCheckpoint = Callable[[Path], object]


class UpdateProgress(abc.ABC):
    """Counts and displays the updates, and creates the rows of the curves."""

    _bar: Progress

    def pause(self) -> Row | None:
        """Stop the clock; return the row that must end before values are saved."""
        self.close()
        return None

    def close(self) -> None:
        """Stop the clock of training and remove its progress bar."""
        self._bar.close()

    def resume(self) -> None:
        """Restart the clock of training."""
        self._bar.resume()


class UpdatePlace(Protocol):
    """The position of an update in the data; `str` describes it in one line."""

    def facts(self) -> dict[str, Any]:
        """Return the facts that need no file access, as JSON values."""

    def rows(self) -> dict[str, Any]:
        """Return the names of the rows or records, which may require reading files."""


class TrainingState:
    """The variables of a run besides the model's weights, which an exact resume needs.

    Those of the optimizer (moments, step, loss scale) and the model's other variables
    (the states of dropout's seeds), as one safetensors file in the order of Keras.
    `weights` are weights of the model that are also kept here.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *,
        weights: Sequence[Any] = (),
    ) -> None:
        known = {id(weight) for weight in model.weights}
        others = [v for v in model.variables if id(v) not in known]
        self._variables = {
            **_numbered("optimizer", optimizer.variables),
            **_numbered("state", others),
            **_numbered("weights", weights),
        }

    def checkpoint(self) -> WriteCheckpoint:
        """Return a function that writes the current values into a folder."""
        arrays = {
            name: np.array(keras.ops.convert_to_numpy(variable))
            for name, variable in self._variables.items()
        }
        # `save_file` hides the system's error.
        return lambda folder: (folder / FILE).write_bytes(save(arrays))

    def restore(self, folder: Path) -> None:
        """Set the variables from a checkpoint.

        Raises:
            CheckpointError: the file is missing, broken or from another run.
        """
        path = folder / FILE
        with opened(path) as file:
            names = set(file.keys())
            for name in sorted(names ^ set(self._variables)):
                raise CheckpointError(f"{path}: belongs to another model: {name}")
            for name, variable in self._variables.items():
                stored = file.get_slice(name)
                shape = tuple(stored.get_shape())
                if shape != tuple(variable.shape):
                    raise CheckpointError(
                        f"{path}: {name} must have the shape {tuple(variable.shape)}; "
                        f"has {shape}"
                    )
            for name, variable in self._variables.items():
                variable.assign(file.get_tensor(name))


def _numbered(scope: str, variables: Sequence[Any]) -> dict[str, Any]:
    """Return names that do not depend on other objects of the process."""
    return {f"{scope}/{n:05d}": variable for n, variable in enumerate(variables)}


class CheckpointClock:
    """Says when a checkpoint is due.

    `every` is the interval: seconds such as `300s`, a number of updates, or `epoch`.
    """

    def __init__(self, every: str | int) -> None:
        every = str(every)
        self._seconds = float(every[:-1]) if every.endswith("s") else math.inf
        self._updates = int(every) if every.isdecimal() else 0
        self._is_by_epoch = every == "epoch"
        self.restart()

    def restart(self) -> None:
        """Count the seconds from now on."""
        self._started = time.monotonic()

    def is_late(self) -> bool:
        """Return whether the interval is one of time, and over."""
        return time.monotonic() - self._started >= self._seconds

    def is_due(self, step: int, *, ends_epoch: bool) -> bool:
        """Return whether a checkpoint is due after a number of updates."""
        if self._updates:
            return step % self._updates == 0
        return ends_epoch if self._is_by_epoch else self.is_late()


class TrainingLoop(abc.ABC):
    """Makes the updates of a run, starting at its last checkpoint; saves and scores.

    A subclass defines the objective and the source of batches: it creates its model,
    optimizer and progress, and calls `restore` before it trains. With several workers,
    only the chief reads and writes.

    Args:
        model: created in the scope of the strategy.
        optimizer: built.
        run: the run folder; a `SilentRun` for a worker that does not write.
        config: has `checkpoint_every`, `save_every`, `keep` and `on_nonfinite`.
        steps: number of updates of the whole run.
        devices: where to compute.
        stop: signals that the run must end.

    Attributes:
        step: number of updates made.
        history: rows of the curves.
        skipped: the positions of skipped updates, one line each.
    """

    progress: UpdateProgress

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *,
        run: RunFolder | SilentRun,
        config: Any,
        steps: int,
        devices: Devices,
        stop: StopSignal,
    ) -> None:
        self.model: Any = model
        self.optimizer = optimizer
        self.run = run
        self.config = config
        self.steps = steps
        self.devices = devices
        self.stop = stop
        self._clock = CheckpointClock(config.save_every or config.checkpoint_every)
        self.step = devices.agree(run.steps[-1] if run.steps else 0)
        self.history: list[Row] = []
        self.skipped: list[str] = []

    # Methods that differ between fine-tuning and pretraining.

    @abc.abstractmethod
    def updates(self) -> Iterator[Row | None]:
        """Make the remaining updates; after each, yield a row of the curves if due."""

    @abc.abstractmethod
    def place_of(self, step: int) -> UpdatePlace:
        """Return the position of an update, by its number from 1."""

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
        self._clock.restart()
        with contextlib.closing(self.progress):
            is_over = self.step > 0 and self.scores_at(self.step) and self.score()
            if not is_over and self.step < self.steps:
                self.progress.resume()
                try:
                    for row in self.updates():
                        self.step += 1
                        self.add_row(row)
                        if is_over := self._save_and_score():
                            break
                except DataError:  # found between two updates
                    self.save()
                    raise
            self.run.wait()
        return is_over

    def save(self) -> None:
        """Write a checkpoint in the background, on the chief."""
        if self.devices.is_chief:
            self.write(self.checkpoint())
        self._clock.restart()

    def write(self, checkpoint: WriteCheckpoint) -> None:
        """Write the checkpoint of the current step in the background."""
        self.run.save(self.step, checkpoint, keep=self.config.keep)

    def restore(self) -> None:
        """Resume from the last checkpoint; the other workers get the chief's values.

        Raises:
            CheckpointError: the checkpoint is broken.
        """
        if self.step and isinstance(self.run, RunFolder):
            folder = self.run.checkpoint(self.step)
            try:
                self.read(folder)
            except CheckpointError as error:
                raise CheckpointError(f"{error}; {self._remedy(folder)}") from None
            say(f"resuming after step {self.step:,} of {self.steps:,}: {folder}")
        if self.step and self.devices.workers > 1:
            variables = [*self.model.variables, *self.optimizer.variables]
            take_from_first(self.devices.strategy, variables, self.step)
        scores_again = self.scores_at(self.step)

        def is_kept(row: Any) -> bool:
            is_score = any(name.startswith("dev_") for name in row)
            return not (is_score and scores_again and row["step"] == self.step)

        self.history = self.run.rows(self.step, is_kept)

    def _remedy(self, folder: Path) -> str:
        """Return what to do about the last checkpoint if it is broken."""
        before = [step for step in self.run.steps if step < self.step]
        if before:
            return f"delete {folder} to resume from step {max(before):,}"
        return "there is no earlier checkpoint: start again with another output"

    def add_row(self, row: Row | None) -> None:
        """Add a row to the curves, unless it is `None`."""
        if row is not None:
            self.history.append(row)
            self.run.add_row(row)

    def skip_or_stop(self, step: int, loss: float) -> None:
        """Record a skipped update, by its number from 1, or raise to stop the run.

        The loss is finite if only gradients are not.

        Raises:
            TrainingError: names the position; a file in the run folder lists the rows.
        """
        place = self.place_of(step)
        is_finite = math.isfinite(loss)
        what = "a gradient is not finite" if is_finite else f"the loss is {loss}"
        where = f"{what} in {place}"
        if self.config.on_nonfinite == "skip":
            self.devices.say(f"{where}: update skipped")
            self.skipped.append(where)
            return
        # First the known facts: finding the rows may require reading files.
        note = {"loss": str(loss), **place.facts()}
        self.run.add_note(NONFINITE, note)
        if self.devices.is_chief:
            self.run.add_note(NONFINITE, {**note, **place.rows()})
        raise TrainingError(
            f"{where}: check its rows ({self.run.path / NONFINITE}), use a smaller "
            "--learning-rate, or --on-nonfinite skip"
        )

    def _wait_for_chief(self) -> None:
        """Return on all workers after the chief has written its checkpoint.

        If one worker ended earlier, a scheduler might kill the others.
        """
        self.run.wait()
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
