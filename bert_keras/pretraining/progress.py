"""The counts and progress of a pretraining run: `PretrainingProgress`."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.runs.progress import Progress
from bert_keras.training.loop import UpdateProgress
from bert_keras.training.train_step import Made

TRAINING = 3  # a backward pass takes twice the products of the forward pass


def forward_operations(
    config: BertConfig,
    *,
    tokens: float,
    token_pairs: float,
    predictions: float = 0.0,
    pooled: float = 0.0,
) -> float:
    """Return the operations of the matrix products of a forward pass.

    Each token counts in each block, as is usual; `BertEncoder.read_at` needs fewer in
    the last block.

    Args:
        config: the sizes of the model.
        tokens: real tokens, padding not counted.
        token_pairs: sum over the texts of their squared numbers of tokens.
        predictions: tokens that the masked-LM head predicts.
        pooled: texts that the pooler and a head of 2 classes read.

    Example:
        >>> forward_operations(BertConfig(), tokens=1, token_pairs=0) / 2 == 84_934_656
        True
    """
    hidden, layers = config.hidden_size, config.num_hidden_layers
    block = 4 * hidden**2 + 2 * hidden * config.intermediate_size
    head = hidden**2 + hidden * config.vocab_size
    products = layers * (tokens * block + 2 * token_pairs * hidden)
    products += predictions * head + pooled * (hidden**2 + 2 * hidden)
    return 2.0 * products


_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_SECONDS_BETWEEN_DRAWS = 2.0  # reading the values waits for the device


class PretrainingProgress(UpdateProgress):
    """Sums the outputs of updates: fields of the progress, and rows of the curves.

    The progress shows the losses, the speed in real tokens, their share of the rows,
    the rate of the model's operations (its matrix products for real tokens; padding and
    recomputing do not count), and the share of the time spent waiting for batches. All
    are for the global batch.

    Args:
        config: sizes of the model.
        steps: updates of all phases.
        start: updates of an earlier run.
        row_every: updates per row.
        skip: called with the number and the loss of an update whose loss or
            gradients are not finite; may raise. Later updates may have followed.
        scored_every: updates between two scorings; 0: nothing is scored.
        is_shown: whether progress is reported.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        steps: int,
        start: int,
        row_every: int,
        skip: Callable[[int, float], object],
        scored_every: int = 0,
        is_shown: bool = True,
    ) -> None:
        self.config = config
        self.steps = steps
        self.row_every = row_every
        self._skip = skip
        self._scored_every = scored_every
        self._scoring_seconds = 0.0  # of the last scoring
        self.step = start
        self._updates: list[Any] = []  # since the last row
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

    def add(self, made: Made) -> dict[str, float] | None:
        """Count an update with `token_counts`; returns a row when one is due."""
        self.step += 1
        self._updates.append((made.sums, made.totals, made.is_made, made.tokens))
        self._waited += made.waited
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
        for value in self._updates[-1][0].values():
            value.numpy()  # waits for the device, so that its pending work is counted
        seconds = max(self._bar.seconds - self._row_start, 1e-9)
        self._look()
        made = [each for each in self._updates if each[2]]
        extra = {"skipped_updates": self._skipped} if self._skipped else {}
        if not made:
            return {"step": self.step, **extra}
        losses: dict[str, float] = {}
        found: dict[str, float] = {}
        totals = {
            head: sum(float(totals[head]) for _, totals, *_ in made)
            for head in made[0][0]
        }
        for head, total in totals.items():
            pairs = np.sum([sums[head].numpy() for sums, *_ in made], axis=0)
            count = max(total, 1.0)
            losses[head] = float(pairs[0]) / count
            found[f"{head}_accuracy"] = float(pairs[1]) / count
        loss = sum(losses.values())
        tokens, slots, pairs_of_tokens = np.sum(
            [tokens.numpy() for *_, tokens in made], axis=0, dtype="float64"
        )
        operations = TRAINING * forward_operations(
            self.config,
            tokens=tokens,
            token_pairs=pairs_of_tokens,
            predictions=totals["masked_lm"],
            pooled=totals.get("next_sentence", 0.0),
        )
        return {
            "step": self.step,
            "loss": loss,
            **{f"{head}_loss": value for head, value in losses.items()},
            "masked_lm_perplexity": math.exp(min(losses["masked_lm"], 700.0)),
            **found,
            "tokens": tokens,
            "tokens_per_second": tokens / seconds,
            "real_token_share": tokens / slots,
            "operations_per_second": operations / seconds,
            "input_wait_share": min(self._waited / seconds, 1.0),
            **extra,
        }

    def _look(self) -> None:
        """Report skipped updates."""
        first = self.step - len(self._updates) + 1
        for place in range(self._looked_at, len(self._updates)):
            sums, totals, is_made, _ = self._updates[place]
            if not is_made:
                losses = [
                    float(pair[0]) / max(float(totals[head]), 1.0)
                    for head, pair in sums.items()
                ]
                self._skip(first + place, sum(losses))
                self._skipped += 1
        self._looked_at = len(self._updates)


def _fields(row: Mapping[str, float]) -> list[str]:
    """Return the text shown for a row."""
    if "loss" not in row:
        return []
    shown = [
        f"loss {row['loss']:.4f}",
        f"perplexity {row['masked_lm_perplexity']:,.1f}",
        f"masked {row['masked_lm_accuracy']:.1%}",
    ]
    if "next_sentence_accuracy" in row:
        shown.append(f"next {row['next_sentence_accuracy']:.1%}")
    return [
        *shown,
        f"{row['tokens_per_second']:,.0f} real tokens/s",
        f"{row['real_token_share']:.0%} of tokens real",
        f"{with_prefix(row['operations_per_second'])}FLOP/s",
        f"{row['input_wait_share']:.0%} waiting for input",
    ]


def with_prefix(value: float) -> str:
    """Return a number of three digits with a metric prefix, such as `45.2 G`."""
    power = min(int(math.log10(max(value, 1.0)) / 3), len(_PREFIXES) - 1)
    return f"{value / 1000**power:.3g} {_PREFIXES[power]}"


def token_counts(inputs: Mapping[str, Any]) -> Any:
    """Return a batch's real tokens, positions and squared text lengths, float32 [3]."""
    mask = tf.cast(inputs["padding_mask"], tf.float32)
    positions = inputs.get("position_ids")
    if positions is None:
        positions = tf.cumsum(tf.ones_like(mask), axis=1) - 1
    # The sum of 2 i + 1 over the positions i of a text is its squared length.
    squared = tf.reduce_sum(mask * (2 * tf.cast(positions, tf.float32) + 1))
    places = tf.cast(tf.size(mask), tf.float32)
    return tf.stack([tf.reduce_sum(mask), places, squared])
