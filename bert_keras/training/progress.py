"""Progress and curves of fine-tuning: `TrainingProgress`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_keras.runs.progress import Progress, report
from bert_keras.training.loop import UpdateProgress
from bert_keras.training.rows import TrainingRows
from bert_keras.training.updates import Update

_ROWS_AN_EPOCH = 20
# Cost of scoring a row relative to training on it, until it is measured: scoring
# computes no gradients.
_SCORING_COST = 1 / 3


class TrainingProgress(UpdateProgress):
    """Counts updates and scored rows, for the curves and the remaining time.

    The remaining time includes scoring, at the speed of the previous scoring.

    Args:
        rows: the training rows.
        start: number of updates made before.
        metrics: each row of the curves has their means; then they are reset.
        learning_rate: returns the rate of an update, by its number from 0.
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
        learning_rate: Callable[[int], float] | None = None,
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
        self.real_tokens = self.places = 0  # of this epoch's rows
        self._losses: list[float] = []  # since the last row
        self._clock = time.perf_counter()
        self._bar = Progress(
            "training",
            unit="steps",
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
        self._begin_epoch()

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: seconds, tokens, and the row in progress."""
        return {
            "seconds": self._seconds + time.perf_counter() - self._clock,
            "real_tokens": self.real_tokens,
            "places": self.places,
            "losses": list(self._losses),
            "metrics": [
                [keras.ops.convert_to_numpy(v).tolist() for v in metric.variables]
                for metric in self.metrics
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from what a checkpoint kept."""
        self._seconds = float(state["seconds"])
        self.real_tokens, self.places = int(state["real_tokens"]), int(state["places"])
        # Earlier versions ended a row before each checkpoint.
        self._losses = [float(loss) for loss in state.get("losses", ())]
        for metric, values in zip(self.metrics, state.get("metrics", ()), strict=False):
            for variable, value in zip(metric.variables, values, strict=True):
                variable.assign(value)

    @property
    def real_share(self) -> float:
        """Share of real tokens in the rows of the last epoch, 0 to 1."""
        return self.real_tokens / max(self.places, 1)

    def add(self, update: Update) -> dict[str, Any] | None:
        """Count an update; return a row of the curves if one is due."""
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
            row["learning_rate"] = self._learning_rate(self.step - 1)
        self._losses = []
        self._draw(row)
        return row

    def end_epoch(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the row of an epoch's dev scores."""
        epoch = self.step // self.rows.steps_per_epoch
        shown = "  ".join(f"{key} {value:.4f}" for key, value in scores.items())
        if shown:
            place = f"epoch {epoch}/{self.rows.epochs}" if epoch else "before training"
            report(f"{place}  {shown}")
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
            unit="examples",
            total=rows,
            is_shown=self.is_shown,
            later=lambda: self._training_seconds() + self._scoring_seconds(epochs),
            may_end_early=self._may_end_early and not self._is_over,
        )
        return self._scored

    def end_training(self) -> None:
        """Note that training is over, so that only scoring remains."""
        self.close()
        self._bar.total = self._bar.done

    @property
    def _is_over(self) -> bool:
        return self._bar.done == self._bar.total

    def _training_seconds(self) -> float:
        """Return the estimated seconds of the remaining updates, NaN if unknown."""
        steps = (self._bar.total or 0) - self._bar.done
        return steps * self._bar.typical_seconds if steps else 0.0

    def _scoring_seconds(self, epochs: int) -> float:
        """Return the estimated seconds of the remaining scoring, NaN if unknown."""
        epochs = 0 if self._is_over else self.rows.epochs - epochs
        rows = epochs * self.dev_rows + self._final_rows
        update = self._bar.typical_seconds / self.rows.batch_size * _SCORING_COST
        scored = math.nan if self._scored is None else self._scored.typical_seconds
        known = (each for each in (scored, self._row_seconds, update) if each == each)
        return rows * next(known, math.nan) if rows else 0.0

    def _begin_epoch(self) -> None:
        self._epoch_losses: list[float] = []
        self._seen = self._tokens = 0
        self._epoch_start = self._bar.seconds
        self._bar.resume()

    def _fields(self) -> list[str]:
        """Return the displayed fields of this epoch's updates in this process."""
        seconds = max(self._bar.seconds - self._epoch_start, 1e-9)
        loss = float(np.mean(self._epoch_losses)) if self._epoch_losses else np.nan
        epoch = (self.step - 1) // self.rows.steps_per_epoch + 1
        return [
            f"epoch {epoch}/{self.rows.epochs}",
            f"loss {loss:.4f}",
            f"{self._seen / seconds:,.1f} examples/s",
            f"{self._tokens / seconds:,.0f} real tokens/s",
            f"{self.real_share:.0%} of tokens real",
        ]
