"""The reference of the benchmarks: transformers on torch, in its usual way.

A plain loop with torch's fused AdamW and the same recipe as ours; texts are padded to
the longest text of their batch.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)


class PeerUpdates:
    """The paper's recipe: AdamW without decay of LayerNorm and biases, clipping, and
    warmup over a tenth of the steps. Call it with the loss of each step.
    """

    def __init__(self, model: torch.nn.Module, rate: float, steps: int) -> None:
        groups: list[dict[str, Any]] = [
            {"params": [], "weight_decay": 0.01},
            {"params": [], "weight_decay": 0.0},
        ]
        for name, weight in model.named_parameters():
            groups["bias" in name or "LayerNorm" in name]["params"].append(weight)
        self.model = model
        self.optimizer = torch.optim.AdamW(groups, lr=rate, eps=1e-6, fused=True)
        self.schedule = get_linear_schedule_with_warmup(
            self.optimizer, steps // 10, steps
        )
        model.train()

    def __call__(self, loss: torch.Tensor) -> None:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()


class TransformersPeer:
    """A classifier of texts, or of pairs as tuples, on a pretrained encoder.

    Without classes it is a regression: labels and answers are numbers as strings.
    """

    def __init__(self, encoder: str, classes: Sequence[str], seed: int) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(os.cpu_count() or 1)
        self.seed = seed
        self.classes = list(classes)
        self.tokenizer = AutoTokenizer.from_pretrained(encoder)
        self.model = AutoModelForSequenceClassification.from_pretrained(
            encoder, num_labels=len(self.classes) or 1
        )

    def _batch(self, texts: Sequence[Any], max_length: int) -> Any:
        pairs = isinstance(texts[0], tuple)
        parts = [list(part) for part in zip(*texts, strict=True)] if pairs else [texts]
        return self.tokenizer(
            *parts,
            truncation=True,
            max_length=max_length,
            padding="longest",
            return_tensors="pt",
        )

    def fine_tune(
        self,
        texts: Sequence[Any],
        labels: Sequence[str],
        *,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        max_length: int,
        bfloat16: bool = False,
        after_update: Callable[[], object] = lambda: None,
    ) -> float:
        """Train, and return the duration in seconds.

        In bfloat16 with autocast, and with batches grouped by length, as the option of
        transformers' `Trainer` does it: within 50 batches, rows are sorted by length.
        """
        steps = -(-len(texts) // batch_size) * epochs
        update = PeerUpdates(self.model, learning_rate, steps)
        order = list(range(len(texts)))
        shuffle = random.Random(self.seed)
        started = time.perf_counter()
        for _ in range(epochs):
            shuffle.shuffle(order)
            if bfloat16:
                order = self._grouped(order, texts, batch_size)
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                batch = self._batch([texts[row] for row in rows], max_length)
                numbers = [self._number(labels[row]) for row in rows]
                with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                    loss = self.model(**batch, labels=torch.tensor(numbers)).loss
                update(loss)
                after_update()
        return time.perf_counter() - started

    def _grouped(
        self, order: list[int], texts: Sequence[Any], batch_size: int
    ) -> list[int]:
        size = 50 * batch_size
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        shuffle, found = random.Random(self.seed), []
        for part in parts:
            part.sort(key=lambda row: len(str(texts[row])))
            batches = [part[at : at + batch_size] for at in range(0, size, batch_size)]
            shuffle.shuffle(batches)
            found += [row for batch in batches for row in batch]
        return found

    def _number(self, label: str) -> float:
        return self.classes.index(label) if self.classes else float(label)

    def predict(
        self, texts: Sequence[Any], *, batch_size: int, max_length: int, by_length: bool
    ) -> tuple[float, list[str]]:
        """Return the duration in seconds, and the class or number of each text."""
        self.model.eval()
        order = list(range(len(texts)))
        started = time.perf_counter()
        if by_length:
            order.sort(key=lambda row: len(str(texts[row])))
        answers = [""] * len(order)
        with torch.inference_mode():
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                batch = self._batch([texts[row] for row in rows], max_length)
                logits = self.model(**batch).logits
                for row, values in zip(rows, logits.tolist(), strict=True):
                    answers[row] = (
                        self.classes[max(range(len(values)), key=values.__getitem__)]
                        if self.classes
                        else str(values[0])
                    )
        return time.perf_counter() - started, answers
