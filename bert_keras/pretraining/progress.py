"""Progress and curves of pretraining: `PretrainingProgress`."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_keras.models.objective import SOFT, STATES
from bert_keras.pretraining.clock import Clock
from bert_keras.pretraining.task import MASKED_LM, REPLACED, perplexity_of, scores_of
from bert_keras.runs.progress import Progress
from bert_keras.training.progress import Row, UpdateProgress
from bert_keras.training.train_step import Update

TRAINING = 3  # a backward pass takes twice the products of the forward pass
_SECONDS_BETWEEN_DRAWS = 2.0  # reading the values waits for the device
_SHOWN = 100  # last updates whose means the progress shows


class PretrainingProgress(UpdateProgress):
    """Sums the outputs of updates: fields of the progress, and rows of the curves.

    The progress shows the loss, the accuracies and the tokens per second (without
    padding), means of the last hundred updates; the first one of all, which is traced,
    counts only until the second. The rows also have the rate of the model's operations
    (its matrix products; padding and recomputing do not count) and the share of the
    time spent waiting for batches. All are for the global batch.

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
        clock: of a run whose end is not a number of updates.
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
        clock: Clock | None = None,
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
        self._clock = clock
        self._scoring_seconds = 0.0  # of the last scoring
        self.step = start
        self._updates: list[Update] = []  # since the last row
        self._looked_at = self._skipped = 0  # of these updates
        self._waited = 0.0  # for batches, since the last row
        # The last updates, with the seconds of training before each.
        self._recent: deque[tuple[float, Update]] = deque(maxlen=_SHOWN)
        self._added_at = 0.0
        self._second = start + 2
        self._bar = Progress(
            "pretraining",
            unit="steps",
            has_speed=False,  # the tokens have
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

    @property
    def typical_seconds(self) -> float:
        """Seconds of an update, NaN if unknown."""
        return self._bar.typical_seconds

    def expect(self, steps: int) -> None:
        """Set how many updates there are to be, as far as the time allows."""
        self.steps = self._bar.total = steps

    def add(self, update: Update) -> Row | None:
        self.step += 1
        made = dataclasses.replace(update, batches=[])
        self._updates.append(made)
        self._waited += update.waited
        if self.step == self._second:
            self._recent.clear()
        self._recent.append((self._added_at, made))
        self._added_at = self._bar.seconds
        row = self._end_row() if self.step % self.row_every == 0 else None
        if self._clock is not None:  # else a run might seem to end before its time
            more = max(self.steps, self.step + 1)
            self.expect(more if self._clock.left else self.step)
        self._bar.add(1, self._shown, ends=self.step == self.steps)
        return row

    def pause(self) -> dict[str, float] | None:
        # The values of a row are not saved. Also, saved weights have had a finite loss.
        row = self._end_row()
        self.close()
        return row

    def _end_row(self) -> dict[str, float] | None:
        """Return the means since the last row, `None` without any; a new row begins."""
        if not self._updates:
            return None
        means = self._means(self._updates, self._row_start)
        self._look()
        seconds = max(self._bar.seconds - self._row_start, 1e-9)
        if means:
            means["input_wait_share"] = min(self._waited / seconds, 1.0)
        row = {"step": self.step, **means}
        if self._skipped:
            row["skipped_updates"] = self._skipped
        if means:
            row["learning_rate"] = float(self._learning_rate(self.step - 1))
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

    def _shown(self) -> list[str]:
        """Return the text of the means of the last updates."""
        start, _ = self._recent[0]
        row = self._means([update for _, update in self._recent], start)
        self._look()
        if not row:
            return []
        shown = [f"loss {row['loss']:.4f}"]
        if "masked_lm_perplexity" in row:  # else a teacher alone is learned from
            shown.append(f"perplexity {row['masked_lm_perplexity']:,.1f}")
        shown.append(f"masked words {row['masked_lm_accuracy']:.1%} right")
        if "next_sentence_accuracy" in row:
            shown.append(f"next sentences {row['next_sentence_accuracy']:.1%} right")
        if f"{REPLACED}_recall" in row:
            found = (row[f"{REPLACED}_{name}"] for name in ("precision", "recall"))
            shown.append("replaced {:.1%} precision {:.1%} recall".format(*found))
        return [*shown, f"{row['tokens_per_second']:,.0f} tokens/s"]

    def _means(self, updates: Sequence[Update], start: float) -> dict[str, float]:
        """Return the means over the applied updates, empty without any.

        `start` is when the updates began, in seconds of training.
        """
        updates[-1].wait()  # so that the device's pending work is counted
        seconds = max(self._bar.seconds - start, 1e-9)
        made = [each for each in updates if each.is_made]
        if not made:
            return {}
        found: dict[str, float] = {}
        loss = 0.0
        totals = {
            head: sum(float(each.totals[head]) for each in made)
            for head in made[0].sums
        }
        for head, total in totals.items():
            sums = np.sum([each.sums[head].numpy() for each in made], axis=0)
            means = sums / max(total, 1.0)
            loss += made[0].loss_weights.get(head, 1.0) * float(means[0])
            is_taught = head in (SOFT, STATES)
            share = 1 - self._share if is_taught else self._share
            scores = scores_of(head, [means[0] / (share or 1.0), *means[1:]])
            lost = scores.pop(f"{head}_loss")
            found |= {f"{head}_loss": lost} if share else {}
            found |= {} if is_taught else scores
        if f"{MASKED_LM}_loss" in found:
            found[f"{MASKED_LM}_perplexity"] = perplexity_of(found)
        tokens, slots, pairs_of_tokens = np.sum(
            [each.tokens.numpy() for each in made], axis=0, dtype="float64"
        )
        operations = TRAINING * self._operations(
            tokens=tokens,
            token_pairs=pairs_of_tokens,
            predictions=totals[MASKED_LM],
            pooled=totals.get("next_sentence", 0.0),
        )
        return {
            "loss": loss,
            **found,
            "tokens": tokens,
            "tokens_per_second": tokens / seconds,
            "real_token_share": tokens / slots,
            "operations_per_second": operations / seconds,
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
