"""The loop of a pretraining run: `PretrainingLoop`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bert_keras.checkpoints import assign, read_checkpoint
from bert_keras.config import BertConfig
from bert_keras.errors import TrainingError
from bert_keras.pretraining.pretrainer import (
    BertPretrainer,
    weights_of,
    write_pretrainer,
)
from bert_keras.pretraining.source import PretrainingBatches
from bert_keras.runs.progress import report
from bert_keras.training.checkpoint import TrainingState, WriteCheckpoint
from bert_keras.training.loop import RunContext, TrainingLoop
from bert_keras.training.progress import PretrainingProgress
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
    head = hidden**2 + hidden * config.vocab_size
    products = layers * (tokens * block + 2 * token_pairs * hidden)
    products += predictions * head + pooled * (hidden**2 + 2 * hidden)
    return 2.0 * products


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
            pairs are scored, `next_sentence_loss` and `next_sentence_accuracy`.

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
        self.plan = source.plan
        self._losses = held_out(model) if held_out else None
        self._state = TrainingState(model, self.optimizer)
        self.scores: dict[str, float] = {}
        self.restore()
        self.progress: PretrainingProgress = PretrainingProgress(
            functools.partial(forward_operations, model.encoder.config),
            steps=config.steps,
            start=self.step,
            row_every=min(max(config.steps // _ROWS, 1), 100),
            learning_rate=self.schedule,
            skip=self.skip_or_stop,
            scored_every=config.evaluate_every if held_out else 0,
            share=1 - self.distillation.weight if self.distillation else 1.0,
            is_shown=devices.is_chief,
        )

    def evaluate(self) -> dict[str, float]:
        """Return the held-out scores of the current weights, if there is such data."""
        if self._losses is not None:
            scores = {}
            for head, (loss, accuracy) in self._losses().items():
                scores[f"{head}_loss"] = loss
                scores[f"{head}_accuracy"] = accuracy
            perplexity = math.exp(min(scores["masked_lm_loss"], 700.0))
            self.scores = {"perplexity": perplexity, **scores}
        return self.scores

    def score(self) -> bool:
        with self.progress.scoring():
            found = self.evaluate()
        row = {f"dev_{name}": value for name, value in found.items()}
        self.add_row({"step": self.step, **row})
        if self.devices.is_chief:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
            report(f"step {self.step:,}  held out: {shown}")
        return False

    def scores_at(self, step: int) -> bool:
        is_due = step == self.steps or step % self.config.evaluate_every == 0
        return self._losses is not None and is_due

    def saves_at(self, step: int) -> bool:
        # The folder of a completed run holds its last state.
        return step == self.steps or super().saves_at(step)

    def checkpoint(self) -> WriteCheckpoint:
        weights, write_state = weights_of(self.model), self._state.checkpoint()
        if not all(np.isfinite(each).all() for each in weights.values()):
            raise TrainingError(
                f"the weights are not finite after step {self.step:,}: the learning "
                "rate is too large; the last checkpoint is kept"
            )

        def write(folder: Path) -> None:
            write_pretrainer(folder, self.model, self.plan.tokenizer, weights)
            write_state(folder)

        return write

    def read(self, folder: Path) -> None:
        assign(self.model, read_checkpoint(folder))
        self._state.restore(folder)
