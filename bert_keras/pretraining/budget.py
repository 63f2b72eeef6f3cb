"""The plan of a run with a budget of time, from what was measured for it.

The measurements take a minute, or a tenth of a shorter budget, and count in it.

Source: Hoffmann et al. 2022 (arXiv:2203.15556), table 3, for the tokens that a model of
a size needs.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert_keras.config import PRESETS, BertConfig
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import ConfigError
from bert_keras.pretraining.clock import Clock
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.pretraining.loop import forward_operations
from bert_keras.pretraining.plan import PretrainingPlan, model_of
from bert_keras.pretraining.source import PretrainingBatches
from bert_keras.runs.notes import collected
from bert_keras.runs.run_folder import CHECKPOINTS, settings_of
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.estimate import update_seconds
from bert_keras.training.train_step import Update
from bert_keras.training.updates import new_optimizer, updates

_LEAST = 20  # tokens for each weight of the blocks
_MEASURING = 60.0, 0.1  # seconds at most, and share of the budget
_BATCH_SIZES = tuple(2**n for n in range(4, 11))
_GAIN = 1.1  # of speed, for which a batch may be twice as large
_LEAST_UPDATES = 1000


def plan_of_budget(
    make: Callable[..., PretrainingPlan],
    encoder: Any,
    config: PretrainConfig,
    output: str | os.PathLike[str] | None,
    *,
    vocab: str | os.PathLike[str] | None,
    devices: Devices,
) -> PretrainingPlan:
    """Return the plan of a run with a budget, from the measured speed of this machine.

    A run that goes on keeps its choices, and nothing is measured.

    Args:
        make: makes a plan from an encoder; `make_pretraining_plan` with the data.
        encoder, config, output, vocab: as in `pretrain`; `None` for an encoder leaves
            its size to the measurements.
        devices: where the run computes.

    Raises:
        ConfigError: there are several workers; and the errors of `make`.
    """
    if devices.workers > 1:
        raise ConfigError(
            f"a budget is for one worker; received {devices.workers}: give --steps"
        )
    clock = Clock(config.budget or 0.0)
    old = None if output is None else settings_of(Path(output))
    if old is None or "minutes" not in old:
        measuring = _Measuring(make, config, devices, clock)
        return dataclasses.replace(measuring.plan(encoder, vocab, output), clock=clock)
    if encoder is None and config.teacher is None:
        encoder = BertConfig.from_dict(old["encoder"])
    if config.batch_size is None:
        config = dataclasses.replace(config, batch_size=old["batch_size"])
    reasons = dict.fromkeys(("batch_size", "size", "steps"), "as the run began")
    settled = {"config": config, "output": output, "reasons": reasons}
    plan = make(encoder, **settled)
    steps = plan.first_step
    if steps:
        clock.restore(Path(output or "") / CHECKPOINTS / f"step-{steps:09d}")
        steps += round(steps * clock.left / max(clock.trained, 1e-3))
        reasons["steps"] = f"at the speed of the first {plan.first_step:,}"
    plan = make(encoder, **settled, steps=max(steps, 1))
    return dataclasses.replace(plan, clock=clock)


@dataclasses.dataclass(frozen=True)
class _Speed:
    """The speed of the updates of an encoder."""

    encoder: Any
    batch_size: int
    update_seconds: float
    tokens_per_second: float


class _Measuring:
    """Makes the plan of a new run; arguments as of `plan_of_budget`."""

    def __init__(
        self,
        make: Callable[..., PretrainingPlan],
        config: PretrainConfig,
        devices: Devices,
        clock: Clock,
    ) -> None:
        self._make, self._devices, self._clock = make, devices, clock
        self._config = config
        self._most = min(_MEASURING[0], _MEASURING[1] * clock.total)

    def plan(self, encoder: Any, vocab: Any, output: Any) -> PretrainingPlan:
        """Return the plan with the size, if it is open, and the batch that fit."""
        reasons = {}
        if self._config.batch_size is None:
            reasons["batch_size"] = (
                "the smallest with nine tenths of the best measured speed"
            )
        if encoder is None and self._config.teacher is None and vocab is not None:
            speed, reasons["size"] = self._largest(vocab)
        else:
            speed = self._speed(encoder)
        reasons["steps"] = f"at {speed.tokens_per_second:,.0f} tokens/s, measured"
        return self._make(
            speed.encoder,
            config=dataclasses.replace(self._config, batch_size=speed.batch_size),
            output=output,
            steps=max(round(self._clock.left / speed.update_seconds), 1),
            reasons=reasons,
        )

    def _largest(self, vocab: Any) -> tuple[_Speed, str]:
        """Return the largest named size that reads enough tokens, and the reason."""
        tokens = len(WordPieceTokenizer.from_folder(vocab).vocabulary)
        first, *others = (self._config.new_sizes(name, tokens) for name in PRESETS)
        end = f"; a larger one would have to read {_LEAST}"
        found = self._speed(first)
        for sizes in others:
            slower = _operations(sizes) / _operations(found.encoder)
            if (
                self._tokens_for_weight(sizes, found.tokens_per_second / slower)
                < _LEAST
            ):
                break
            if self._clock.spent > self._most:
                end = "; measuring a larger one takes too long"
                break
            larger = self._speed(sizes)
            if self._tokens_for_weight(sizes, larger.tokens_per_second) < _LEAST:
                break
            found = larger
        else:
            end = ""
        read = self._tokens_for_weight(found.encoder, found.tokens_per_second)
        about = "under 0.1 tokens"
        if read >= 0.1:
            about = f"about {read:,.{0 if read >= 10 else 1}f} tokens"
        if found.encoder == first and read < _LEAST:
            which = "the smallest size: in this time, it"
        else:
            which = "in this time, it"
        return found, f"{which} reads {about} per weight of its blocks{end}"

    def _tokens_for_weight(self, sizes: BertConfig, speed: float) -> float:
        """Return how many tokens are read for each weight of the blocks."""
        one, two = (
            sizes.replace(num_hidden_layers=n).parameter_count(pooler=False)
            for n in (1, 2)
        )
        return speed * self._clock.left / (sizes.num_hidden_layers * (two - one))

    def _speed(self, encoder: Any) -> _Speed:
        """Return the speed of an encoder with the batch that is chosen for it.

        Batches double until the speed hardly gains, the time for measuring is over, or
        too few updates would fit into the budget.
        """
        devices, config = self._devices, self._config
        least = config.accumulation * devices.replicas
        usual = [each for each in _BATCH_SIZES if each >= least] or [least]
        sizes = usual if config.batch_size is None else [config.batch_size]
        config = dataclasses.replace(config, batch_size=sizes[0])
        devices.check_batch_size(sizes[0], config.accumulation)
        plan = self._make(encoder, config=config, output=None)
        config = plan.config
        with collected(shown=False):
            model, distillation = model_of(plan, devices)
        with devices.strategy.scope():
            optimizer = new_optimizer(config, steps=1, model=model)
            optimizer.build(model.trainable_variables)
        traced: dict[str, Any] = {}

        def timed(size: int) -> _Speed:
            own = dataclasses.replace(config, batch_size=size)
            source = PretrainingBatches(dataclasses.replace(plan, config=own), devices)
            made = updates(
                model, source, optimizer, distillation=distillation, traced=traced
            )
            seconds, tokens = _timed(made)
            return _Speed(encoder, size, seconds, tokens / seconds)

        best = timed(sizes[0])
        for size in sizes[1:]:
            if self._clock.spent > self._most:
                break
            if 2 * best.update_seconds * _LEAST_UPDATES > self._clock.left:
                break
            try:
                found = timed(size)
            except tf.errors.ResourceExhaustedError:
                break
            if found.tokens_per_second < _GAIN * best.tokens_per_second:
                break
            best = found
        return best


def _timed(made: Iterator[Update]) -> tuple[float, int]:
    """Return the seconds of an update, and the tokens of the last one that is made."""
    tokens = [0]

    def counted() -> Iterator[Update]:
        for update in made:
            tokens.append(update.real_tokens)
            yield update

    seconds = update_seconds(counted(), 3)
    return seconds, tokens[-1]


def _operations(sizes: BertConfig) -> float:
    """Return the operations for a token, of which a seventh is predicted."""
    return forward_operations(sizes, tokens=1, token_pairs=0, predictions=1 / 7)
