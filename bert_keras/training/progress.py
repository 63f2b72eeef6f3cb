"""Progress and curves of a run: `UpdateProgress`, and fine-tuning's `TrainingProgress`.

They count updates, say how long training and scoring still take, and return rows of the
curves. Fine-tuning waits for each update; pretraining looks at many at once.
"""

from __future__ import annotations

import abc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_keras.distribution.replicas import assign_here, read_here
from bert_keras.report.values import words
from bert_keras.runs.progress import Progress, report
from bert_keras.training.rows import TrainingRows
from bert_keras.training.train_step import Update

Row = dict[str, Any]


class UpdateProgress(abc.ABC):
    """Counts and displays the updates, and creates the rows of the curves."""

    _bar: Progress

    @abc.abstractmethod
    def add(self, update: Update) -> Row | None:
        """Count an update; return a row of the curves if one is due."""

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


_ROWS_AN_EPOCH = 20
_SHOWN_SCORES = 2  # of an epoch, besides the loss; the curves have all
# Cost of training on a row relative to scoring it, which computes no gradients. The
# time left follows it until both are measured.
UPDATE_COST = 3
_UPDATES, _EXAMPLES = "updates", "rows"  # units of the jobs of a `Forecast`


class Forecast:
    """Counts the jobs of a run, so that each shows the time left of all of them.

    Jobs are updates of `update_rows` rows each, and examples that are answered. The
    pace of those that are not begun is that of the last job of their unit.

    Args:
        updates, examples: of all jobs of the run; NaN if their number is not known, and
            then no time left is shown.
        update_rows: rows of an update.

    Attributes:
        left: units of the jobs that are not begun.
    """

    def __init__(
        self, *, updates: int = 0, examples: float = 0.0, update_rows: int = 1
    ) -> None:
        self.left: dict[str, float] = {_UPDATES: updates, _EXAMPLES: examples}
        self._update_rows = update_rows
        self._bars: dict[str, Progress] = {}  # the last one of each unit
        self._paces: dict[str, float] = {}  # of the ones before

    def updates(self, name: str, count: int) -> Progress:
        """Return the progress of a job of updates."""
        return self._job(name, _UPDATES, count)

    def examples(self, name: str, count: int) -> Progress:
        """Return the progress of a job that answers examples."""
        return self._job(name, _EXAMPLES, count)

    def leave_out(self, *, updates: int = 0, examples: int = 0) -> None:
        """Note that some of the work is not to be done."""
        self.left[_UPDATES] -= updates
        self.left[_EXAMPLES] -= examples

    def _job(self, name: str, unit: str, count: int) -> Progress:
        self._paces = {each: self._pace(each) for each in self.left}
        self.left[unit] -= count
        self._bars[unit] = Progress(name, unit=unit, total=count, later=self._later)
        return self._bars[unit]

    def _later(self) -> float:
        """Return the estimated seconds of the jobs that are not begun."""
        return sum(
            count * self._pace(unit)
            for unit, count in self.left.items()
            if not count <= 0  # it may be NaN
        )

    def _pace(self, unit: str) -> float:
        """Return the seconds of a unit; NaN if unknown."""
        found = self._bars[unit].typical_seconds if unit in self._bars else math.nan
        if math.isnan(found):
            found = self._paces.get(unit, math.nan)
        if math.isnan(found) and unit == _EXAMPLES and _UPDATES in self._bars:
            found = self._pace(_UPDATES) / self._update_rows / UPDATE_COST
        return found


class TrainingProgress(UpdateProgress):
    """Counts updates and scored rows, for the curves and the remaining time.

    The remaining time includes scoring, at the speed of the previous scoring.

    Args:
        rows: the training rows.
        start: number of updates made before.
        metrics: each row of the curves has their means; then they are reset.
        learning_rate: returns the rate of an update, by its number from 0.
        skip: called with the number and the loss of an update that was skipped; may
            raise.
        draw: gets each row of the curves, for a tracker.
        is_shown: whether progress is reported.
        dev_rows, final_rows: number of rows that are scored after each epoch, and after
            training.
        may_end_early: whether training may stop before its last epoch.
    """

    def __init__(
        self,
        rows: TrainingRows,
        *,
        start: int = 0,
        metrics: Sequence[keras.metrics.Metric] = (),
        learning_rate: Callable[[int], Any] | None = None,
        skip: Callable[[int, float], object] = lambda step, loss: None,
        draw: Callable[[Mapping[str, float]], object] = lambda row: None,
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
        self._may_end_early = may_end_early
        self._final_rows = final_rows  # whose scoring has not started
        self._scored: Progress | None = None  # the last that was scored
        self._row_seconds = math.nan  # of what was scored before that
        self._seconds = 0.0  # of the run before this process
        self.tracing_seconds = math.nan  # of the first update, longer than others
        self.real_tokens = self.places = 0  # of this epoch's rows
        self._losses: list[float] = []  # since the last row
        self._epoch_loss = (0.0, 0)  # sum and number of this epoch's losses
        self._clock = time.perf_counter()
        self._bar = Progress(
            "training",
            unit="steps",
            has_speed=False,  # the rows have
            total=rows.steps,
            done=start,
            is_shown=is_shown,
            # This epoch is still to be scored.
            later=lambda: self._scoring_seconds(
                (self.step - 1) // rows.steps_per_epoch
            ),
            may_end_early=may_end_early,
        )
        self._draw = draw
        self._learning_rate = learning_rate
        self._skip = skip
        self._begin_epoch()

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: seconds, tokens, and the row in progress.

        Of metrics in progress, it keeps what this worker has counted.
        """
        return {
            "seconds": self._seconds + time.perf_counter() - self._clock,
            "real_tokens": self.real_tokens,
            "places": self.places,
            "tracing_seconds": self.tracing_seconds,
            "losses": list(self._losses),
            "epoch_loss": self._epoch_loss,
            "metrics": [
                [read_here(variable).tolist() for variable in metric.variables]
                for metric in self.metrics
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from what a checkpoint kept."""
        self._seconds = float(state["seconds"])
        self.tracing_seconds = float(state.get("tracing_seconds", math.nan))
        self.real_tokens, self.places = int(state["real_tokens"]), int(state["places"])
        # Earlier versions ended a row before each checkpoint.
        self._losses = [float(loss) for loss in state.get("losses", ())]
        total, count = state.get("epoch_loss", (0.0, 0))
        self._epoch_loss = float(total), int(count)
        for metric, values in zip(self.metrics, state.get("metrics", ()), strict=False):
            for variable, value in zip(metric.variables, values, strict=True):
                assign_here(variable, value)

    @property
    def token_seconds(self) -> float:
        """Seconds of an update per token position of its batch, NaN if unknown."""
        made = (self.step - 1) % self.rows.steps_per_epoch + 1
        return self._bar.typical_seconds * made / max(self.places, 1)

    @property
    def real_share(self) -> float:
        """Share of real tokens in the rows of the last epoch, 0 to 1."""
        return self.real_tokens / max(self.places, 1)

    def add(self, update: Update) -> Row | None:
        loss, is_made = update.loss, bool(update.is_made)
        if not is_made:
            self._skip(self.step + 1, loss)
        if self.step % self.rows.steps_per_epoch == 0:
            self.real_tokens = self.places = 0
            self._epoch_loss = (0.0, 0)
        if math.isnan(self.tracing_seconds):
            self.tracing_seconds = self._bar.seconds - self._epoch_start
        self._seen += self.rows.size(self.step)
        self.step += 1
        real_tokens, places, _ = map(int, update.tokens.numpy())
        self.real_tokens += real_tokens
        self.places += places
        if is_made:
            self._losses.append(loss)
            total, count = self._epoch_loss
            self._epoch_loss = total + loss, count + 1
        steps = self.rows.steps_per_epoch
        batch = (self.step - 1) % steps + 1
        self._bar.add(1, self._fields, ends=batch == steps)
        every = max(1, steps // _ROWS_AN_EPOCH)
        return self._end_row() if batch % every == 0 or batch == steps else None

    def _end_row(self) -> dict[str, Any] | None:
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
        if self._learning_rate is not None:
            row["learning_rate"] = float(self._learning_rate(self.step - 1))
        self._losses = []
        self._draw(row)
        return row

    def end_epoch(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the row of an epoch's dev scores; show the first two and the loss."""
        epoch = self.step // self.rows.steps_per_epoch
        brief = [key for key in scores if key != "dev_loss"][:_SHOWN_SCORES]
        shown = ", ".join(
            f"{words(key).removeprefix('Dev ')} {scores[key]:.4f}"
            for key in (*brief, "dev_loss")
            if key in scores
        )
        if shown:
            place = f"epoch {epoch}/{self.rows.epochs}" if epoch else "before training"
            report(f"{place}: dev {shown}")
        row = {"epoch": epoch, "step": self.step, **scores}
        self._draw(row)
        self._begin_epoch()
        return row

    def scoring(self, name: str, rows: int) -> Progress:
        """Return the progress of scoring a data set; `add` takes numbers of rows."""
        self.close()
        if name != "dev":
            self._final_rows -= rows
        if self._scored is not None and not math.isnan(self._scored.typical_seconds):
            self._row_seconds = self._scored.typical_seconds
        epochs = self.step // self.rows.steps_per_epoch
        self._scored = Progress(
            f"scoring {name}",
            unit="rows",
            total=rows,
            is_shown=self.is_shown,
            later=lambda: self._training_seconds() + self._scoring_seconds(epochs),
            may_end_early=self._may_end_early and self._steps_left > 0,
        )
        return self._scored

    @property
    def rows_left(self) -> float:
        """The rows whose scoring takes as long as the rest of the run."""
        epochs = self._steps_left / self.rows.steps_per_epoch
        scored = epochs * self.dev_rows + self._final_rows
        return self._steps_left * self.rows.batch_size * UPDATE_COST + scored

    def end_training(self) -> None:
        """Note that training is over, so that only scoring remains."""
        self.close()
        self._bar.total = self._bar.done

    @property
    def _steps_left(self) -> int:
        return (self._bar.total or 0) - self._bar.done

    def _training_seconds(self) -> float:
        """Return the estimated seconds of the remaining updates, NaN if unknown."""
        steps = self._steps_left
        return steps * self._bar.typical_seconds if steps else 0.0

    def _scoring_seconds(self, epochs: int) -> float:
        """Return the estimated seconds of the remaining scoring, NaN if unknown."""
        epochs = self.rows.epochs - epochs if self._steps_left else 0
        rows = epochs * self.dev_rows + self._final_rows
        update = self._bar.typical_seconds / self.rows.batch_size / UPDATE_COST
        scored = math.nan if self._scored is None else self._scored.typical_seconds
        known = (each for each in (scored, self._row_seconds, update) if each == each)
        return rows * next(known, math.nan) if rows else 0.0

    def _begin_epoch(self) -> None:
        self._seen = 0
        self._epoch_start = self._bar.seconds
        self._bar.resume()

    def _fields(self) -> list[str]:
        """Return the displayed fields of this epoch; speeds are of this process."""
        seconds = max(self._bar.seconds - self._epoch_start, 1e-9)
        total, count = self._epoch_loss
        loss = total / count if count else math.nan
        epoch = (self.step - 1) // self.rows.steps_per_epoch + 1
        return [
            f"epoch {epoch}/{self.rows.epochs}",
            f"loss {loss:.4f}",
            f"{self._seen / seconds:,.1f} rows/s",
        ]
