"""The loop of a pretraining run: `PretrainingLoop`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.errors import TrainingError
from bert_keras.pretraining.clock import Clock
from bert_keras.pretraining.pretrainer import (
    BertPretrainer,
    read_pretrainer,
    weights_of,
    write_pretrainer,
)
from bert_keras.pretraining.progress import PretrainingProgress
from bert_keras.pretraining.source import PretrainingBatches
from bert_keras.pretraining.task import perplexity_of, scores_of
from bert_keras.report.values import words
from bert_keras.runs.progress import report
from bert_keras.training.checkpoint import TrainingState, WriteCheckpoint
from bert_keras.training.loop import RunContext, TrainingLoop
from bert_keras.training.updates import MeanLosses


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
    head = config.embedding_width * (hidden + config.vocab_size)
    products = tokens * hidden * (config.embedding_size or 0)
    products += layers * (tokens * block + 2 * token_pairs * hidden)
    products += predictions * head + pooled * (hidden**2 + 2 * hidden)
    return 2.0 * products


def model_operations(model: BertPretrainer, **counts: float) -> float:
    """Return the operations of a forward pass of a model, with its generator.

    `counts` are those of `forward_operations`.
    """
    config = model.encoder.config
    if model.generator is None:
        return forward_operations(config, **counts)
    masked = forward_operations(model.generator.config, **counts)
    judged = 2.0 * counts["tokens"] * (config.hidden_size**2 + config.hidden_size)
    return masked + judged + forward_operations(config, **{**counts, "predictions": 0})


_ROWS = 200  # of the curves; each covers at most a hundred steps


class PretrainingLoop(TrainingLoop):
    """Trains a model on the phases of a plan; saves it, and scores held-out data.

    Args:
        model: with its initial weights; a checkpoint's replace them.
        source: of the batches; has the plan of the run.
        held_out: see `PretrainingBatches.held_out`; `None` if nothing is scored.
        context: the run that it belongs to.

    Attributes:
        scores: the latest scores of the held-out data, means: `masked_lm_loss` (nats
            per token), `perplexity` (its exponential), `masked_lm_accuracy` and, if
            pairs are scored, `next_sentence_loss` and `next_sentence_accuracy`; of
            replaced tokens, `replaced_token_loss`, `…_accuracy`, `…_precision` and
            `…_recall`.

    Raises:
        CheckpointError: the last checkpoint of the run is broken.
        ConfigError: a batch is too small for the replicas.
    """

    def __init__(
        self,
        model: BertPretrainer,
        source: PretrainingBatches,
        held_out: Callable[[BertPretrainer], MeanLosses] | None,
        context: RunContext,
    ) -> None:
        config, devices = context.config, context.devices
        devices.check_batch_size(config.batch_size, config.accumulation)
        super().__init__(model, source, context)
        self.plan, self.clock = source.plan, source.plan.clock
        self._losses = held_out(model) if held_out else None
        self._state = TrainingState(model, self.optimizer)
        self.scores: dict[str, float] = {}
        self.restore()
        learning_rate: Any = self.schedule
        if self.clock is not None:
            self._set_rate, learning_rate = self._rate_of(self.clock)
        self.progress: PretrainingProgress = PretrainingProgress(
            functools.partial(model_operations, model),
            steps=source.plan.steps,
            start=self.step,
            row_every=min(max(source.plan.steps // _ROWS, 1), 100),
            learning_rate=learning_rate,
            skip=self.skip_or_stop,
            scored_every=config.evaluate_every if held_out else 0,
            clock=self.clock,
            share=1 - self.distillation.weight if self.distillation else 1.0,
            is_shown=devices.is_chief,
        )
        if self.clock is not None and self.step:
            self._follow(self.clock)

    def _rate_of(self, clock: Clock) -> tuple[Callable[[], None], Callable[..., Any]]:
        """Return functions that set the rate of the next update, and return the last.

        The optimizer's schedule is one of steps; here they are shares of the time.
        """
        with self.devices.strategy.scope():
            rate = keras.Variable(0.0, trainable=False, name="rate")

        def set_rate() -> None:
            rate.assign(self.schedule(clock.share * self.source.steps))

        self.optimizer.learning_rate = lambda: tf.identity(rate.value)
        set_rate()
        return set_rate, lambda step: keras.ops.convert_to_numpy(rate)

    def _follow(self, clock: Clock) -> None:
        """Set the rate of the next update, and how many updates there will be."""
        clock.start()
        self._set_rate()
        update = self.progress.typical_seconds  # unknown after the first update
        planned = self.plan.steps - self.step
        more = math.ceil(clock.left / update) if update > 0 else planned
        self.steps = self.step + (max(more, 1) if clock.left else 0)
        self.progress.expect(self.steps)

    def _save_and_score(self) -> bool:
        if self.clock is None:
            return super()._save_and_score()
        self._follow(self.clock)
        return super()._save_and_score() or self.step >= self.steps

    def evaluate(self) -> dict[str, float]:
        """Return the held-out scores of the current weights, if there is such data."""
        if self._losses is not None:
            scores: dict[str, float] = {}
            for head, means in self._losses().items():
                scores |= scores_of(head, list(map(float, means)))
            self.scores = {"perplexity": perplexity_of(scores), **scores}
        return self.scores

    def score(self) -> bool:
        with self.progress.scoring():
            found = self.evaluate()
        row = {f"dev_{name}": value for name, value in found.items()}
        self.add_row({"step": self.step, **row})
        if self.devices.is_chief:
            shown = ", ".join(
                f"{words(name)} {value:.4f}"
                for name, value in found.items()
                if not name.endswith("_loss")  # which the report has
            )
            report(f"step {self.step:,}: held out {shown}")
        return False

    def scores_at(self, step: int) -> bool:
        is_due = step == self.steps or step % self.config.evaluate_every == 0
        return self._losses is not None and is_due

    def saves_at(self, step: int) -> bool:
        # The folder of a completed run holds its last state.
        return step == self.steps or super().saves_at(step)

    def checkpoint(self) -> WriteCheckpoint:
        weights, write_state = weights_of(self.model), self._state.checkpoint()
        write_clock = None if self.clock is None else self.clock.checkpoint()
        if not all(np.isfinite(each).all() for each in weights.values()):
            raise TrainingError(
                f"the weights are not finite after step {self.step:,}: the learning "
                "rate is too large; the last checkpoint is kept"
            )

        def write(folder: Path) -> None:
            write_pretrainer(folder, self.model, self.plan.tokenizer, weights)
            write_state(folder)
            if write_clock is not None:
                write_clock(folder)

        return write

    def read(self, folder: Path) -> None:
        read_pretrainer(folder, self.model)
        self._state.restore(folder)
        if self.clock is not None:
            self.clock.restore(folder)
