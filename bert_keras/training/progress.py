"""What is seen of fine-tuning while it goes on: `TrainingProgress`."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bert_keras.errors import ConfigError
from bert_keras.runs.progress import say
from bert_keras.training.rows import TrainingRows
from bert_keras.training.updates import Update

_SECONDS_BETWEEN_LINES = 5.0  # where no one can see a line change in place
_ROWS_AN_EPOCH = 20
# What scoring a row costs of training on one, until it is measured: there are no
# gradients.
_SCORING_COST = 1 / 3


class TrainingProgress:
    """Prints the loss, examples and real tokens a second and the time left.

    The time left counts scoring in, at the speed of the last time.

    Args:
        rows: the rows that are trained on.
        start: updates that were made before.
        metrics: their means are told in each row of the curves; set back after it.
        tensorboard: folder for curves, or `None`.
        is_shown: whether lines are printed.
        dev_rows: rows that are scored after each epoch.
        final_rows: rows that are scored when training is over.
        may_end_early: whether the time left is the most that it can be.

    Attributes:
        seconds: of training, scores included, those before a stop as well.
        real_tokens, places: real tokens of this epoch, and the places of its rows.
    """

    def __init__(
        self,
        rows: TrainingRows,
        *,
        start: int = 0,
        metrics: Sequence[keras.metrics.Metric] = (),
        tensorboard: str | None = None,
        is_shown: bool = True,
        dev_rows: int = 0,
        final_rows: int = 0,
        may_end_early: bool = False,
    ) -> None:
        self.rows = rows
        self.step = start
        self.metrics = metrics
        self.is_shown = is_shown
        self.dev_rows = dev_rows
        self.may_end_early = may_end_early
        self._final_rows = final_rows  # that are left
        self._is_over = False
        self._step_seconds = 0.0
        self._row_seconds = 0.0  # of scoring
        self.seconds = 0.0
        self.real_tokens = self.places = 0
        self._losses: list[float] = []  # since the last row
        self._clock = self._last_line = time.perf_counter()
        self._writer = None
        if tensorboard:
            import tensorflow as tf

            self._writer = tf.summary.create_file_writer(tensorboard)
        self._begin_epoch()

    def state(self) -> dict[str, float]:
        """Return what a checkpoint keeps."""
        return {
            "seconds": self.seconds + time.perf_counter() - self._clock,
            "real_tokens": self.real_tokens,
            "places": self.places,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint kept."""
        self.seconds = float(state["seconds"])
        self.real_tokens, self.places = int(state["real_tokens"]), int(state["places"])

    @property
    def real_share(self) -> float:
        """Share of real tokens in the rows of the last epoch, 0 to 1."""
        return self.real_tokens / max(self.places, 1)

    def add(self, update: Update) -> dict[str, Any] | None:
        """Count an update; returns a row of the curves where one is due."""
        if self.step % self.rows.steps_per_epoch == 0:
            self.real_tokens = self.places = 0
        self._seen += self.rows.size(self.step)
        self.step += 1
        self.real_tokens += update.real_tokens
        self._tokens += update.real_tokens
        self.places += update.places
        if update.is_made:
            self._losses.append(update.loss)
            self._epoch_losses.append(update.loss)
        if self.is_shown:
            self._tell()
        batch = self._batch()
        every = max(1, self.rows.steps_per_epoch // _ROWS_AN_EPOCH)
        is_due = batch % every == 0 or batch == self.rows.steps_per_epoch
        return self.end_row() if is_due else None

    def end_row(self) -> dict[str, Any] | None:
        """Return the row of the updates since the last one, if any was made."""
        found = {metric.name: float(metric.result()) for metric in self.metrics}
        for metric in self.metrics:
            metric.reset_state()
        if not self._losses:
            return None
        row = {
            "epoch": self.step / self.rows.steps_per_epoch,
            "step": self.step,
            "loss": float(np.mean(self._losses)),
            **found,
        }
        self._losses = []
        self._draw(row)
        return row

    def end_epoch(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the row of an epoch's dev scores."""
        epoch = self.step // self.rows.steps_per_epoch
        shown = "  ".join(f"{key} {value:.4f}" for key, value in scores.items())
        say(f"epoch {epoch}/{self.rows.epochs}  {shown}")
        row = {"epoch": epoch, "step": self.step, **scores}
        self._draw(row)
        self._begin_epoch()
        return row

    def _begin_epoch(self) -> None:
        self._epoch_losses: list[float] = []
        self._seen = self._tokens = 0
        self._epoch_clock = time.perf_counter()

    def _batch(self) -> int:
        """Return the number of the update in its epoch, from 1."""
        return (self.step - 1) % self.rows.steps_per_epoch + 1

    def _tell(self) -> None:
        now = time.perf_counter()
        batch, steps = self._batch(), self.rows.steps_per_epoch
        seconds = max(now - self._epoch_clock, 1e-9)
        # Those of this epoch that this process has made.
        made = max(self._seen / self.rows.batch_size, 1e-9)
        self._step_seconds = seconds / made
        loss = float(np.mean(self._epoch_losses)) if self._epoch_losses else np.nan
        # This epoch is still to be scored.
        scored = (self.rows.epochs - (self.step - 1) // steps) * self.dev_rows
        self._show(
            f"epoch {(self.step - 1) // steps + 1}/{self.rows.epochs}  "
            f"step {batch}/{steps}  loss {loss:.4f}  "
            f"{self._seen / seconds:,.1f} examples/s  "
            f"{self._tokens / seconds:,.0f} real tokens/s  "
            f"{self.real_share:.0%} of tokens real  {self._left(scored)}",
            ends=batch == steps,
        )

    def scoring(self, name: str, rows: int) -> Callable[[int], None]:
        """Return what tells of rows being scored; it is called with how many more.

        Args:
            name: of the data set.
            rows: how many it has.
        """
        start, done = time.perf_counter(), 0

        def seen(count: int) -> None:
            nonlocal done
            done += count
            seconds = max(time.perf_counter() - start, 1e-9)
            self._row_seconds = seconds / done
            if name != "dev":
                self._final_rows -= count
            if not self.is_shown:
                return
            epochs = 0
            if not self._is_over:
                epochs = self.rows.epochs - self.step // self.rows.steps_per_epoch
            rest = rows - done if name == "dev" else 0
            self._show(
                f"scoring {name}: {done:,} of {rows:,}  {done / seconds:,.1f} "
                f"examples/s  {self._left(rest + epochs * self.dev_rows)}",
                ends=done == rows,
                is_quick=seconds < _SECONDS_BETWEEN_LINES,
            )

        return seen

    def end_training(self) -> None:
        """Note that no more updates are made, so that only scoring is left."""
        self._is_over = True

    def _left(self, dev_rows: int) -> str:
        """Return what is said of the time left, with so many rows of dev to score."""
        row = self._row_seconds
        if not row:
            row = self._step_seconds / self.rows.batch_size * _SCORING_COST
        steps = 0 if self._is_over else self.rows.steps - self.step
        seconds = steps * self._step_seconds + (dev_rows + self._final_rows) * row
        most = "at most " if steps and self.may_end_early else ""
        return f"{most}{seconds:,.0f} s left"

    def _show(self, line: str, *, ends: bool, is_quick: bool = False) -> None:
        """Print a line, in place of the last one where a person looks on.

        Args:
            line: what to say.
            ends: whether it is the last one of its kind, which is said always.
            is_quick: whether all of it took so short that nobody has to be told.
        """
        now = time.perf_counter()
        in_place = sys.stderr.isatty()
        waited = now - self._last_line > _SECONDS_BETWEEN_LINES
        if in_place:
            shown = "" if ends and is_quick else line
            end = "\n" if shown and ends else ""
            print(f"\r\033[K{shown}", end=end, file=sys.stderr, flush=True)
        elif waited or ends and not is_quick:
            say(line)
        else:
            return
        self._last_line = now

    def _draw(self, row: Mapping[str, float]) -> None:
        """Add a row to TensorBoard's curves."""
        if self._writer is None:
            return
        import tensorflow as tf

        with self._writer.as_default():
            for name, value in row.items():
                if name not in ("epoch", "step"):
                    tf.summary.scalar(name, value, step=int(row["step"]))
        self._writer.flush()


def check_tensorboard(curves: str | None, output: Path) -> None:
    """Raise unless curves can be written, and stay when the model is replaced."""
    if curves is None:
        return
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "`tensorboard` needs a package: pip install 'bert_keras[tensorboard]'"
        )
    if output.resolve() in (Path(curves).resolve(), *Path(curves).resolve().parents):
        raise ConfigError(
            f"`tensorboard` must be a folder outside the model folder; "
            f"received {curves}"
        )
