"""About what a pretraining run takes: `estimate_of` measures a few of its updates."""

from __future__ import annotations

import math

from bert_keras.distribution.strategy import Devices
from bert_keras.pretraining.plan import PretrainingPlan, model_of
from bert_keras.pretraining.source import PretrainingBatches
from bert_keras.runs.notes import collected
from bert_keras.training.choices import Estimate
from bert_keras.training.estimate import (
    checkpoint_bytes,
    update_seconds,
    weight_bytes,
    with_peak_memory,
)
from bert_keras.training.progress import UPDATE_COST
from bert_keras.training.updates import new_optimizer, updates


def estimate_of(plan: PretrainingPlan, devices: Devices) -> Estimate:
    """Return about what a run takes on this machine; nothing is kept.

    The time is that of a few updates of each phase, times the updates that are left of
    it; scoring an example takes a third of an update of it.
    """
    config = plan.config
    source = PretrainingBatches(plan, devices)
    if plan.held_out is not None:
        source.held_out(plan.held_out)  # which may raise
    devices.check_batch_size(config.batch_size, config.accumulation)
    with collected(shown=False):
        model, distillation = model_of(plan, devices)
    with devices.strategy.scope():
        optimizer = new_optimizer(config, steps=plan.steps, model=model)
        optimizer.build(model.trainable_variables)
    seconds = update = 0.0
    if plan.clock is not None:  # whose updates were measured for the plan
        kept = checkpoint_bytes(model, config.keep)
        # A new run measures again, which is part of its budget.
        left = plan.clock.left if plan.first_step else plan.clock.total
        return with_peak_memory(left, weight_bytes(model.weights) + kept)
    for phase in plan.phases:
        left = phase.last - max(phase.first, plan.first_step)
        if left <= 0:
            continue
        made = updates(
            model, source, optimizer, first_step=phase.first, distillation=distillation
        )
        update = update_seconds(made, left)
        seconds += left * update
    if plan.held_out is not None:
        steps_left = plan.steps - plan.first_step
        times = math.ceil(steps_left / config.evaluate_every)
        of_example = update / config.batch_size / UPDATE_COST
        seconds += times * config.held_out_examples * of_example
    written = weight_bytes(model.weights) + checkpoint_bytes(model, config.keep)
    return with_peak_memory(seconds, written)
