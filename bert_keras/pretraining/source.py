"""The source of batches of pretraining: phase after phase, and held-out data."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from bert_keras.distribution.replicas import Share, distributed
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import DataError
from bert_keras.pretraining.distillation import INPUTS
from bert_keras.pretraining.files import find_files
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.plan import PretrainingPlan, check_sizes
from bert_keras.pretraining.pretrainer import BertPretrainer
from bert_keras.pretraining.records import read_batches, record_places
from bert_keras.training.train_step import Batches
from bert_keras.training.updates import MeanLosses

# Fixed, so that the examples do not depend on the batch size of training.
_HELD_OUT_ROWS = 32


class PretrainingPlace:
    """The examples of an update, by its number in the whole run, from 1.

    Example:
        >>> str(PretrainingPlace(plan, 1000))
        'step 1,000, phase 2 (data/512), examples 25,345 to 25,600 of it'
    """

    def __init__(self, plan: PretrainingPlan, step: int) -> None:
        phases = enumerate(plan.phases, 1)
        self._number, phase = next(each for each in phases if step <= each[1].last)
        self._step, self._data = step, phase.data
        self._tokenizer, self._seed = plan.tokenizer, phase.seed(plan.config)
        self._size = plan.config.batch_size
        self._before = step - 1 - phase.first  # batches of the phase

    def facts(self) -> dict[str, Any]:
        """Return `pretraining_dataset`'s arguments for these examples, as JSON."""
        return {
            "step": self._step,
            "phase": self._number,
            "data": str(self._data),
            "batch_size": self._size,
            "skip_batches": self._before,
            "seed": self._seed,
        }

    def rows(self) -> dict[str, Any]:
        """Return file and number of each example's record, from 0."""
        places = record_places(
            self._data,
            self._tokenizer,
            first=self._before * self._size,
            count=self._size,
            seed=self._seed,
        )
        return {"records": [{"file": file, "record": n} for file, n in places]}

    def __str__(self) -> str:
        first = self._before * self._size
        return (
            f"step {self._step:,}, phase {self._number} ({self._data}), examples "
            f"{first + 1:,} to {first + self._size:,} of it"
        )


class PretrainingBatches:
    """The batches of a plan, phase after phase."""

    def __init__(self, plan: PretrainingPlan, devices: Devices) -> None:
        self.plan, self.devices = plan, devices
        self.steps = plan.steps

    def place(self, step: int) -> PretrainingPlace:
        """Return the position of an update, by its number from 1."""
        return PretrainingPlace(self.plan, step)

    def batches(self, first_step: int) -> Iterator[Batches]:
        """Yield the batches of each phase, from a step on."""
        config, parts = self.plan.config, self.plan.config.accumulation
        for phase in self.plan.phases:
            if (step := max(first_step, phase.first)) >= phase.last:
                continue
            yield Batches(
                functools.partial(
                    self._taught,
                    phase.data,
                    batch_size=config.batch_size // parts,
                    masking=phase.masking,
                    seed=phase.seed(config),
                    epochs=None,
                    skip_batches=(step - phase.first) * parts,
                ),
                itertools.repeat(parts, phase.last - step),
                functools.partial(read_batches, data=phase.data),
            )

    def _taught(self, data: Any, share: Share, **settings: Any) -> tf.data.Dataset:
        """Return batches of a data set whose labels hold what a teacher reads."""
        found = self.dataset(data, share, **settings)
        if self.plan.teacher is None:
            return found
        return found.map(lambda batch, labels: (batch, {**labels, INPUTS: batch}))

    def dataset(self, data: Any, share: Share, **settings: Any) -> tf.data.Dataset:
        """Return batches of a data set as a run reads them, with further settings."""
        static, config = self.devices.has_static_shapes, self.plan.config
        return pretraining_dataset(
            data,
            self.plan.tokenizer,
            objective=config.objective,
            next_sentence=self.plan.next_sentence,
            layout="padded" if static else config.layout,
            padding="full" if static else "longest",
            drop_remainder=static,
            share=share,
            **settings,
        )

    def held_out(
        self, data: str | os.PathLike[str]
    ) -> Callable[[BertPretrainer], MeanLosses]:
        """Return the losses of a model on the first examples of a data set.

        The masks are the same each time. They follow the data's own settings, whatever
        the config uses in training, so that runs with different masks can be compared.
        A TPU, which needs one shape, skips the last examples if they do not fill a
        batch.

        Raises:
            ConfigError: the model is too small for the data; its masks are stored, and
                the objective is not `masked`.
            DataError: the data is missing or broken, or has no pairs to score.
        """
        plan, devices = self.plan, self.devices
        files = find_files(data, plan.tokenizer)
        check_sizes(plan.sizes, plan.tokenizer, [files])
        if plan.next_sentence and not files.has_pairs:
            raise DataError("must hold pairs, as the training data does", path=data)
        rows = _HELD_OUT_ROWS
        if devices.has_static_shapes or devices.replicas > _HELD_OUT_ROWS:
            rows = math.ceil(_HELD_OUT_ROWS / devices.replicas) * devices.replicas
        batches = math.ceil(plan.config.held_out_examples / rows)

        def make(share: Share) -> tf.data.Dataset:
            dataset = self.dataset(
                data, share, batch_size=rows, shuffle=0, redraw=False
            )
            return dataset.take(batches * share.count)

        return functools.partial(
            MeanLosses,
            batches=distributed(devices.strategy, make),
            strategy=devices.strategy,
            read=functools.partial(read_batches, data=data),
        )
