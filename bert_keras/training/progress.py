"""Progress and curves of a run: `TrainingProgress` and `PretrainingProgress`.

Both count updates, say how long training and scoring still take, and return rows of the
curves. Fine-tuning waits for each update; pretraining looks at many at once.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_keras.distribution.replicas import assign_here, read_here
from bert_keras.models.objective import SOFT, STATES
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
# Cost of scoring a row relative to training on it, until it is measured: scoring
# computes no gradients.
_SCORING_COST = 1 / 3
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
            found = self._pace(_UPDATES) / self._update_rows * _SCORING_COST
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
        """Return the row of an epoch's dev scores."""
        epoch = self.step // self.rows.steps_per_epoch
        names = {key: words(key).removeprefix("Dev ") for key in scores}
        shown = ", ".join(f"{names[key]} {value:.4f}" for key, value in scores.items())
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
            may_end_early=self._may_end_early and not self._is_over,
        )
        return self._scored

    @property
    def rows_left(self) -> float:
        """The rows whose scoring takes as long as the rest of the run."""
        steps = (self._bar.total or 0) - self._bar.done
        epochs = steps / self.rows.steps_per_epoch
        scored = epochs * self.dev_rows + self._final_rows
        return steps * self.rows.batch_size / _SCORING_COST + scored

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


TRAINING = 3  # a backward pass takes twice the products of the forward pass
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_SECONDS_BETWEEN_DRAWS = 2.0  # reading the values waits for the device


class PretrainingProgress(UpdateProgress):
    """Sums the outputs of updates: fields of the progress, and rows of the curves.

    The progress shows the losses, the tokens per second, the rate of the model's
    operations (its matrix products; padding and recomputing do not count in either),
    and the share of the time spent waiting for batches. All are for the global batch.

    Args:
        operations: returns the operations of an update's forward passes from its
            `tokens`, `token_pairs`, `predictions` and `pooled` texts.
        steps: updates of all phases.
        start: updates of an earlier run.
        row_every: updates per row.
        learning_rate: as in `TrainingProgress`.
        skip: called with the number and the loss of an update whose loss or
            gradients are not finite; may raise. Later updates may have followed.
        scored_every: updates between two scorings; 0: nothing is scored.
        share: of the losses on the labels, which a teacher's have the rest of; the
            losses of the rows are the whole ones.
        is_shown: whether progress is reported.
    """

    def __init__(
        self,
        operations: Callable[..., float],
        *,
        steps: int,
        start: int,
        row_every: int,
        learning_rate: Callable[[int], Any],
        skip: Callable[[int, float], object],
        scored_every: int = 0,
        share: float = 1.0,
        is_shown: bool = True,
    ) -> None:
        self._share = share
        self._operations = operations
        self.steps = steps
        self.row_every = row_every
        self._skip = skip
        self._learning_rate = learning_rate
        self._scored_every = scored_every
        self._scoring_seconds = 0.0  # of the last scoring
        self.step = start
        self._updates: list[Update] = []  # since the last row
        self._looked_at = self._skipped = 0  # of these updates
        self._waited = 0.0  # for batches, since the last row
        self._bar = Progress(
            "pretraining",
            unit="steps",
            total=steps,
            done=start,
            is_shown=is_shown,
            later=self._seconds_of_scoring,
            seconds_between_draws=_SECONDS_BETWEEN_DRAWS,
        )
        self._row_start = 0.0
        self.close()

    @contextlib.contextmanager
    def scoring(self) -> Iterator[None]:
        """Measure the time of scoring, in a `with` block."""
        start = time.perf_counter()
        yield
        self._scoring_seconds = time.perf_counter() - start

    def add(self, update: Update) -> Row | None:
        self.step += 1
        self._updates.append(dataclasses.replace(update, batches=[]))
        self._waited += update.waited
        row = self._end_row() if self.step % self.row_every == 0 else None
        self._bar.add(
            1, lambda: _fields(row or self._row()), ends=self.step == self.steps
        )
        return row

    def pause(self) -> dict[str, float] | None:
        # The values of a row are not saved. Also, saved weights have had a finite loss.
        row = self._end_row()
        self.close()
        return row

    def _end_row(self) -> dict[str, float] | None:
        if not self._updates:
            return None
        row = self._row()
        self._updates, self._waited = [], 0.0
        self._row_start = self._bar.seconds
        self._looked_at = self._skipped = 0
        return row

    def _seconds_of_scoring(self) -> float:
        """Return the estimated seconds of further scorings, including the last one."""
        if not self._scored_every:
            return 0.0
        every = self._scored_every
        count = -(-self.steps // every) - self.step // every
        return count * self._scoring_seconds

    def _row(self) -> dict[str, float]:
        """Return the means since the last row, over the applied updates."""
        self._updates[-1].wait()  # so that the device's pending work is counted
        seconds = max(self._bar.seconds - self._row_start, 1e-9)
        self._look()
        made = [each for each in self._updates if each.is_made]
        extra = {"skipped_updates": self._skipped} if self._skipped else {}
        if not made:
            return {"step": self.step, **extra}
        losses: dict[str, float] = {}
        found: dict[str, float] = {}
        loss = 0.0
        totals = {
            head: sum(float(each.totals[head]) for each in made)
            for head in made[0].sums
        }
        for head, total in totals.items():
            pairs = np.sum([each.sums[head].numpy() for each in made], axis=0)
            count = max(total, 1.0)
            loss += float(pairs[0]) / count
            is_taught = head in (SOFT, STATES)
            share = 1 - self._share if is_taught else self._share
            if share:
                losses[head] = float(pairs[0]) / count / share
            if not is_taught:
                found[f"{head}_accuracy"] = float(pairs[1]) / count
        if "masked_lm" in losses:
            found["masked_lm_perplexity"] = math.exp(min(losses["masked_lm"], 700.0))
        tokens, slots, pairs_of_tokens = np.sum(
            [each.tokens.numpy() for each in made], axis=0, dtype="float64"
        )
        operations = TRAINING * self._operations(
            tokens=tokens,
            token_pairs=pairs_of_tokens,
            predictions=totals["masked_lm"],
            pooled=totals.get("next_sentence", 0.0),
        )
        return {
            "step": self.step,
            "loss": loss,
            **{f"{head}_loss": value for head, value in losses.items()},
            **found,
            "tokens": tokens,
            "tokens_per_second": tokens / seconds,
            "real_token_share": tokens / slots,
            "operations_per_second": operations / seconds,
            "input_wait_share": min(self._waited / seconds, 1.0),
            **extra,
            "learning_rate": float(self._learning_rate(self.step - 1)),
        }

    def _look(self) -> None:
        """Report skipped updates."""
        first = self.step - len(self._updates) + 1
        for place in range(self._looked_at, len(self._updates)):
            update = self._updates[place]
            if not update.is_made:
                self._skip(first + place, update.loss)
                self._skipped += 1
        self._looked_at = len(self._updates)


def _fields(row: Mapping[str, float]) -> list[str]:
    """Return the text shown for a row."""
    if "loss" not in row:
        return []
    shown = [f"loss {row['loss']:.4f}"]
    if "masked_lm_perplexity" in row:  # else a teacher alone is learned from
        shown.append(f"perplexity {row['masked_lm_perplexity']:,.1f}")
    shown.append(f"masked {row['masked_lm_accuracy']:.1%}")
    if "next_sentence_accuracy" in row:
        shown.append(f"next {row['next_sentence_accuracy']:.1%}")
    return [
        *shown,
        f"{row['tokens_per_second']:,.0f} tokens/s",
        f"{with_prefix(row['operations_per_second'])}FLOP/s",
        f"{row['input_wait_share']:.0%} waiting for input",
    ]


def with_prefix(value: float) -> str:
    """Return a number of three digits with a metric prefix, such as `45.2 G`."""
    power = min(int(math.log10(max(value, 1.0)) / 3), len(_PREFIXES) - 1)
    return f"{value / 1000**power:.3g} {_PREFIXES[power]}"
