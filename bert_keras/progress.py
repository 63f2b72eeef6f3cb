"""What is seen of a run while it goes on: `Progress` and `BestEpoch` callbacks."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import keras
import numpy as np

from bert_keras.inference import Predictor
from bert_keras.table import Columns

_T = TypeVar("_T")
_SECONDS_BETWEEN_LINES = 5.0  # where no one can see a line change in place


def say(line: str) -> None:
    """Print a line about the run, apart from what a command answers on stdout."""
    print(line, file=sys.stderr, flush=True)


def every_few_seconds(items: Iterable[_T], line: Callable[[], str]) -> Iterator[_T]:
    """Yield the items, and say a line about them every five seconds."""
    last = time.perf_counter()
    for item in items:
        now = time.perf_counter()
        if now - last > _SECONDS_BETWEEN_LINES:
            say(line())
            last = now
        yield item


class Progress(keras.callbacks.Callback):
    """Print the loss, examples and real tokens per second, and the time left.

    Args:
        examples: number of training examples.
        batch_size: examples of an update.

    Attributes:
        history: rows for the report's curves.
        real_share: share of real tokens in the rows of the last epoch, 0 to 1.
    """

    def __init__(self, *, examples: int, batch_size: int) -> None:
        super().__init__()
        self.examples = examples
        self.batch_size = batch_size
        self.steps = math.ceil(examples / batch_size)
        self.history: list[dict[str, Any]] = []
        self.real_share = 0.0
        self._epoch = self._step = 0
        self._losses: list[float] = []
        self._seen = 0.0
        self._weight = 0
        self._last_line = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch + 1
        self._epoch_start = time.perf_counter()
        self._weight, self._seen = 0, 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        logs = logs or {}
        self._step += 1
        seen = min((batch + 1) * self.batch_size, self.examples)
        # Keras gives the mean since the epoch began; the curve wants the step's own.
        total = float(logs["loss"]) * seen
        own = (total - self._seen) / max(seen - self._weight, 1)
        self._seen, self._weight = total, seen
        self._losses.append(own)
        if self._step % max(1, self.steps // 20) == 0 or batch + 1 == self.steps:
            self.history.append(
                {
                    "epoch": self._epoch - 1 + (batch + 1) / self.steps,
                    "step": self._step,
                    "loss": float(np.mean(self._losses)),
                }
            )
            self._losses = []
        now = time.perf_counter()
        seconds = now - self._epoch_start
        self.real_share = float(logs["real_share"])
        left = self._left(batch + 1, seconds)
        line = (
            f"epoch {self._epoch}/{self.params['epochs']}  "
            f"step {batch + 1}/{self.steps}  loss {float(logs['loss']):.4f}  "
            f"{seen / seconds:,.1f} examples/s  "
            f"{float(logs['real_tokens']) / seconds:,.0f} real tokens/s  "
            f"{self.real_share:.0%} of tokens real  {left:,.0f} s left"
        )
        ends = batch + 1 == self.steps
        if sys.stderr.isatty():
            print(f"\r\033[K{line}", end="\n" if ends else "", file=sys.stderr)
        elif ends or now - self._last_line > _SECONDS_BETWEEN_LINES:
            say(line)
            self._last_line = now

    def _left(self, steps: int, seconds: float) -> float:
        """Return the seconds that training will take from here, dev left out."""
        to_go = self.steps * (self.params["epochs"] - self._epoch + 1) - steps
        return seconds / steps * to_go

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        dev = {key: value for key, value in (logs or {}).items() if key[:4] == "dev_"}
        self.history.append({"epoch": epoch + 1, "step": self._step, **dev})
        shown = "  ".join(f"{key} {value:.4f}" for key, value in dev.items())
        say(f"epoch {epoch + 1}/{self.params['epochs']}  {shown}")


class BestEpoch(keras.callbacks.Callback):
    """Score dev after each epoch, keep and save the best weights.

    Stands before `Progress` in the list, which shows the scores that this one adds.

    Args:
        dev: the dev rows.
        output: where the best model is saved.
        save: writes a model into a folder, in one step.
    """

    def __init__(
        self, dev: Columns, output: Path, save: Callable[[Any, Path], None]
    ) -> None:
        super().__init__()
        self.dev = dev
        self.output = output
        self.save = save
        self.epoch = 0
        self.scores: dict[str, Any] = {}
        self.answers: dict[str, np.ndarray] = {}
        self._predictor: Predictor | None = None
        self._weights: list[np.ndarray] = []
        self._best = -np.inf

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        task = self.model.task
        self._predictor = self._predictor or Predictor(self.model)
        answers = self._predictor.answers(self.dev)
        scores = task.score(self.dev, answers)
        plain = {k: v for k, v in scores.items() if isinstance(v, float)}
        if logs is not None:
            logs.update({f"dev_{key}": value for key, value in plain.items()})
        if scores[task.best_score] > self._best:
            self._best = scores[task.best_score]
            self.epoch, self.scores, self.answers = epoch + 1, scores, answers
            self._weights = self.model.get_weights()
            self.save(self.model, self.output)

    def restore(self) -> None:
        """Give the model the weights of the best epoch."""
        if self._weights:
            self.model.set_weights(self._weights)
