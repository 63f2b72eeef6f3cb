"""The plan of a run with a budget of time, from what was measured for it.

The measurements take a minute, or a tenth of a shorter budget, and count in it.

Source: Hoffmann et al. 2022 (arXiv:2203.15556), table 3, for the tokens that a model of
a size needs; Geiping and Goldstein 2022 (arXiv:2212.14034) for the learning rate.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bert_keras.config import PRESETS, BertConfig
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import ConfigError
from bert_keras.pretraining.clock import Clock
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.pretraining.loop import forward_operations
from bert_keras.pretraining.plan import PretrainingPlan, model_of
from bert_keras.pretraining.source import PretrainingBatches
from bert_keras.runs.run_folder import CHECKPOINTS, settings_of
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.estimate import update_seconds
from bert_keras.training.updates import new_optimizer, updates

_LEARNING_RATE = 1e-3
_TOKENS_PER_WEIGHT = 20
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
        return _measured_plan(make, encoder, config, output, vocab, devices, clock)
    if encoder is None and config.teacher is None:
        encoder = BertConfig.from_dict(old["encoder"])
    chosen = {name: old[name] for name in ("batch_size", "learning_rate")}
    given = {n: getattr(config, n) for n in chosen if getattr(config, n) is not None}
    config = dataclasses.replace(config, **{**chosen, **given})
    reasons = dict.fromkeys((*chosen, "size", "steps"), "as the run began")
    settled = {"config": config, "output": output, "reasons": reasons}
    plan = make(encoder, **settled)
    steps = plan.first_step
    if steps:
        clock.restore(Path(output or "") / CHECKPOINTS / f"step-{steps:09d}")
        steps += round(steps * clock.left / max(clock.trained, 1e-3))
    plan = make(encoder, **settled, steps=max(steps, 1))
    return dataclasses.replace(plan, clock=clock)


def _measured_plan(
    make: Callable[..., PretrainingPlan],
    encoder: Any,
    config: PretrainConfig,
    output: str | os.PathLike[str] | None,
    vocab: str | os.PathLike[str] | None,
    devices: Devices,
    clock: Clock,
) -> PretrainingPlan:
    """Return the plan of a new run: the size and the batch that measuring leads to."""
    most = min(_MEASURING[0], _MEASURING[1] * clock.total)
    rate = config.learning_rate or _LEARNING_RATE
    reasons = {}
    if config.learning_rate is None:
        reasons["learning_rate"] = "of short runs (arXiv:2212.14034)"
    if config.batch_size is None:
        reasons["batch_size"] = "the smallest within a tenth of the best measured speed"
    chosen: _Measured | None = None
    candidates = [encoder]
    if encoder is None and config.teacher is None and vocab is not None:
        tokens = len(WordPieceTokenizer.from_folder(vocab).vocabulary)
        sizes = (BertConfig.from_preset(name, vocab_size=tokens) for name in PRESETS)
        candidates = list(sizes)
    for candidate in candidates:
        if chosen is not None:
            slower = _operations(candidate) / _operations(chosen.encoder)
            expected = chosen.tokens_per_second / slower * clock.left
            if clock.spent > most or expected < _needed(candidate):
                break
        found = _measured(make, candidate, config, rate, devices, clock, most)
        few = len(candidates) > 1 and _needed(candidate) > (
            found.tokens_per_second * clock.left
        )
        if chosen is None or not few:
            chosen = found
        if few:
            break
    assert chosen is not None  # noqa: S101
    if len(candidates) > 1:
        read = chosen.tokens_per_second * clock.left
        weights = _needed(chosen.encoder) / _TOKENS_PER_WEIGHT
        reasons["size"] = (
            f"a new model: reads {read / weights:,.0f} tokens for each weight of its "
            f"blocks; a larger one would less than {_TOKENS_PER_WEIGHT}"
        )
    reasons["steps"] = f"at {chosen.tokens_per_second:,.0f} tokens/s, measured"
    settled = dataclasses.replace(
        config, batch_size=chosen.batch_size, learning_rate=rate
    )
    steps = max(round(clock.left / chosen.update_seconds), 1)
    plan = make(
        chosen.encoder, config=settled, output=output, steps=steps, reasons=reasons
    )
    return dataclasses.replace(plan, clock=clock)


@dataclasses.dataclass(frozen=True)
class _Measured:
    """The speed of updates of an encoder."""

    encoder: Any
    batch_size: int
    update_seconds: float
    tokens_per_second: float


def _measured(
    make: Callable[..., PretrainingPlan],
    encoder: Any,
    config: PretrainConfig,
    rate: float,
    devices: Devices,
    clock: Clock,
    most: float,
) -> _Measured:
    """Return the speed of an encoder with the batch that is chosen for it.

    Batches double until the speed hardly gains, the time for measuring is over, or too
    few updates would fit into the budget.
    """
    least = config.accumulation * devices.replicas
    usual = [each for each in _BATCH_SIZES if each >= least] or [least]
    sizes = usual if config.batch_size is None else [config.batch_size]
    made = dataclasses.replace(config, batch_size=sizes[0], learning_rate=rate)
    plan = make(encoder, config=made, output=None)
    model, distillation = model_of(plan, devices, tell=lambda line: None)
    with devices.strategy.scope():
        optimizer = new_optimizer(made, steps=1, model=model)
        optimizer.build(model.trainable_variables)
    traced: dict[str, Any] = {}
    best: _Measured | None = None
    for size in sizes:
        own = dataclasses.replace(made, batch_size=size)
        devices.check_batch_size(size, own.accumulation)
        source = PretrainingBatches(dataclasses.replace(plan, config=own), devices)
        tokens = 0

        def counting(source: Any = source) -> Iterator[Any]:
            nonlocal tokens
            for update in updates(
                model, source, optimizer, distillation=distillation, traced=traced
            ):
                tokens = update.real_tokens
                yield update

        seconds = update_seconds(counting(), 2 if best else 3)
        found = _Measured(encoder, size, seconds, tokens / seconds)
        if best and found.tokens_per_second < _GAIN * best.tokens_per_second:
            break
        best = found
        if clock.spent > most or 2 * seconds * _LEAST_UPDATES > clock.left:
            break
    assert best is not None  # noqa: S101
    return best


def _needed(sizes: BertConfig) -> int:
    """Return the tokens that a model needs: for each weight of its blocks, 20."""
    embeddings = sizes.replace(num_hidden_layers=1).parameter_count(pooler=False)
    block = sizes.replace(num_hidden_layers=2).parameter_count(pooler=False)
    return _TOKENS_PER_WEIGHT * sizes.num_hidden_layers * (block - embeddings)


def _operations(sizes: BertConfig) -> float:
    """Return the operations for a token, of which a seventh is predicted."""
    return forward_operations(sizes, tokens=1, token_pairs=0, predictions=1 / 7)
