"""The rows of a run in training order, `TrainingRows`, and their `Labels`.

The order is a function of seed and epoch alone, and random draws for a row are a
function of seed, epoch and row. So a run resumes at any step without reading or
tokenizing earlier rows.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.columns import Columns
from bert_keras.data.text_column import TextColumn, joined, row_dtype
from bert_keras.distribution.replicas import ALONE, Share
from bert_keras.errors import ConfigError, first_of
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.base import Task, overrides
from bert_keras.tasks.protocols import texts_of
from bert_keras.text.preprocessor import as_tensors, one_or_all
from bert_keras.training.train_step import Batches

if TYPE_CHECKING:
    from bert_keras.training.distillation import Distillation


_LONG = ("token_ids", "segment_ids", "padding_mask")  # their last axis is tokens


def fixed_shapes(
    task: Task,
    inputs: dict[str, Any],
    labels: dict[str, Any],
    *,
    texts: int,
    length: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a batch of the padded layout with static shapes, in graph.

    Only the number of rows of a task with windows, and the number of masked positions
    of a masked language model, stay dynamic. `labels` are as `TaskObjective` takes
    them; `texts` is the number of texts of the batch, `length` the tokens of a row,
    which the preprocessor's `length_multiple` ensures.
    """
    if task.reads_windows:
        raise ConfigError(
            "`long` must be truncate or head-tail on a TPU; received windows"
        )
    windows = task.needs.rows_per_text is None
    ignored = getattr(task.loss(), "ignore_class", None) or 0
    rows = None if windows else texts * (task.needs.rows_per_text or 1)

    def fixed(name: str, rows: int | None, value: Any) -> Any:
        if windows:
            missing = tf.math.floormod(-tf.shape(value)[0], texts)
            ends = [[0, missing], *[[0, 0]] * (value.shape.rank - 1)]
            filler = ignored if name == "targets" else 0
            value = tf.pad(value, ends, constant_values=tf.cast(filler, value.dtype))
        shape = [rows, *value.shape[1:]]
        if name in _LONG:
            shape[-1] = length
        return tf.ensure_shape(value, shape)

    # A task of pairs has one target per pair, not per row.
    targets = None if windows else texts
    return (
        {name: fixed(name, rows, value) for name, value in inputs.items()},
        {
            name: tf.nest.map_structure(functools.partial(fixed, name, targets), value)
            for name, value in labels.items()
        },
    )


def _gather_texts(parts: Sequence[Any]) -> Callable[[Any], Any]:
    """Return a function, in graph, of the texts of rows, counted over all parts.

    Large columns stay in Arrow's memory, and only the texts of a batch are copied.
    """
    if not any(isinstance(part, TextColumn) for part in parts):
        tensor = tf.concat([as_tensors([part]) for part in parts], axis=0)
        return lambda rows: tf.gather(tensor, rows)
    column = joined(parts)

    def encoded(rows: np.ndarray) -> np.ndarray:
        return np.array(column.encoded(rows), object)

    def gather(rows: Any) -> Any:
        found = tf.numpy_function(encoded, [rows], tf.string, stateful=False)
        return tf.ensure_shape(found, rows.shape)

    return gather


_DRAWS = 2**62  # numbers from 0 to this


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """What is learned of N rows.

    Args:
        targets: [N, …], in a form that the task encodes.
        weights: of the rows in the loss, float32 [N]; `None`: all are 1.
        groups: the rows that are in a batch together; `None`: each is by itself.
    """

    targets: tf.Tensor
    weights: np.ndarray | None = None
    groups: Sequence[Sequence[int]] | None = None

    @classmethod
    def of(cls, task: Task, columns: Columns) -> Labels:
        """Return what a task learns of rows."""
        return cls(
            tf.convert_to_tensor(task.targets(columns)),
            task.example_weights(columns),
            task.gathered(columns),
        )


class TrainingRows:
    """Training rows, shuffled in each epoch, as batches of a model's task.

    Args:
        model: its task and preprocessor create the batches.
        columns: N rows.
        batch_size: rows of an update, or groups of rows that are in a batch together;
            the last one of an epoch may have fewer.
        epochs: passes over the rows.
        seed: seed of the order and of the random draws.
        accumulation: parts of an update; divides `batch_size`.
        fixed: whether batches have the shapes of `fixed_shapes`. Remaining rows that do
            not fill a batch are then left out of an epoch, different ones in each.
        distillation: what a teacher teaches of the rows.
        labels: what is learned of the rows; by default `Labels.of` the task.

    Raises:
        ConfigError: `fixed` batches have more rows than there are.
    """

    def __init__(
        self,
        model: TaskModel,
        columns: Columns,
        *,
        batch_size: int,
        epochs: int,
        seed: int,
        accumulation: int = 1,
        fixed: bool = False,
        distillation: Distillation | None = None,
        labels: Labels | None = None,
    ) -> None:
        self.distillation = distillation
        self.unlabeled = None if distillation is None else distillation.unlabeled
        self.labels = labels or Labels.of(model.task, columns)
        self.groups = self.labels.groups
        self.count = len(columns if self.groups is None else self.groups)
        self.count += len(self.unlabeled or ())
        if fixed and self.groups is not None:
            raise ConfigError(
                f"{model.task.name} cannot be trained on a TPU with an objective whose "
                "batches contain groups of rows: choose another objective"
            )
        if fixed and batch_size > len(columns):
            raise ConfigError(
                "`batch_size` must be at most the number of training rows "
                f"({len(columns):,}) on a TPU; received {batch_size}"
            )
        if fixed and "negative" in columns:
            raise ConfigError("`negative` columns cannot be trained on a TPU")
        self.fixed = fixed
        self.model = model
        self.columns = columns
        self.batch_size = batch_size
        self.epochs = epochs
        self.seed = seed
        self.part_size = batch_size // accumulation
        whole, rest = divmod(self.count, batch_size)
        self.steps_per_epoch = whole + (rest > 0 and not fixed)
        self.steps = self.steps_per_epoch * epochs

    def size(self, step: int) -> int:
        """Return the number of rows, or groups, of an update; steps count from 0."""
        first = step % self.steps_per_epoch * self.batch_size
        return min(self.batch_size, self.count - first)

    def parts(self, step: int) -> int:
        """Return the number of batches of an update."""
        return math.ceil(self.size(step) / self.part_size)

    def place(self, step: int) -> RowsPlace:
        """Return the position of an update, by its number from 1."""
        return RowsPlace(self, step)

    def batches(self, first_step: int) -> list[Batches]:
        """Return the batches of the updates from a step on."""
        parts = map(self.parts, range(first_step, self.steps))
        return [Batches(lambda share: self.dataset(first_step, share), parts)]

    def rows_of(self, step: int) -> list[int]:
        """Return the rows of an update, by index from 0."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        first = batch * self.batch_size
        order = self._order(tf.constant(epoch, tf.int64)).numpy()
        chosen = order[first : first + self.batch_size].tolist()
        if self.groups is None:
            return chosen
        return [row for group in chosen for row in self.groups[group]]

    def dataset(self, first_step: int = 0, share: Share = ALONE) -> tf.data.Dataset:
        """Return the batches from a step on: inputs, and labels for `TaskObjective`.

        Inputs are only the model's; labels are a dict of `targets` and, if rows
        have weights, `weights`. Each replica of a share gets its own rows of each
        batch, as consecutive elements of the dataset.
        """
        first_epoch, first_batch = divmod(first_step, self.steps_per_epoch)
        task = self.model.task
        part_of = self._texts()
        others = self._labels()
        texts = self.part_size // share.replicas
        groups = None if self.groups is None else tf.ragged.constant(self.groups)

        @tf.autograph.experimental.do_not_convert  # has no Python control flow
        def places(epoch: Any) -> tf.data.Dataset:
            order = self._order(epoch)
            # A number for each row takes as much memory as the order itself.
            draws = self._draws(epoch) if overrides(task, "resample") else None
            started = tf.where(epoch == first_epoch, first_batch * self.batch_size, 0)
            order = order[started : self.steps_per_epoch * self.batch_size]
            found = tf.data.Dataset.from_tensor_slices(order)
            found = found.batch(self.part_size, drop_remainder=self.fixed)

            @tf.autograph.experimental.do_not_convert
            def drawn(rows: Any) -> tuple[Any, Any]:
                rows = tf.cast(rows, tf.int64)
                return rows, rows if draws is None else tf.gather(draws, rows)

            return found.map(drawn)

        def batch(rows: Any, draws: Any) -> Any:
            if groups is not None:
                some = tf.gather(groups, rows)
                rows, draws = some.values, tf.repeat(draws, some.row_lengths())
            taken = (part_of(rows), *(tf.gather(part, rows) for part in others))
            inputs, labels = self._batch(texts, *task.resample(taken, draws))
            if self.distillation is not None:
                labels |= self.distillation.labels(rows, inputs)
            return inputs, labels

        found = tf.data.Dataset.range(first_epoch, self.epochs).flat_map(places)
        if share != ALONE:
            found = found.flat_map(share.parts)
        found = found.map(
            tf.autograph.experimental.do_not_convert(batch),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        count = sum(self.parts(step) for step in range(first_step, self.steps))
        count *= share.count
        found = found.apply(tf.data.experimental.assert_cardinality(count))
        return found.prefetch(tf.data.AUTOTUNE)

    def _texts(self) -> Callable[[Any], Any]:
        """Return a function, in graph, of the texts of rows: one tensor, or a tuple."""
        sets = [self.columns]
        if self.unlabeled is not None:
            sets.append(self.unlabeled)
        roles = zip(
            *(texts_of(self.model.task, each, use="train") for each in sets),
            strict=True,
        )
        gathers = [_gather_texts(parts) for parts in roles]
        return lambda rows: one_or_all(tuple(gather(rows) for gather in gathers))

    def _labels(self) -> list[Any]:
        """Return the targets and, if there are any, weights of all rows."""
        targets, weights = self.labels.targets, self.labels.weights
        if self.unlabeled is not None:  # whose targets are 0, with a weight of 0
            ends = [[0, len(self.unlabeled)], *[[0, 0]] * (targets.shape.rank - 1)]
            targets = tf.pad(targets, ends)
            known = np.ones(len(self.columns)) if weights is None else weights
            weights = np.pad(known, ends[0]).astype("float32")
        weighted = [] if weights is None else [tf.convert_to_tensor(weights)]
        return [targets, *weighted]

    def _batch(self, texts: int, *row: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        preprocessor = self.model.preprocessor
        length = preprocessor.max_length
        if self.fixed:
            preprocessor = preprocessor.replace(layout="padded", length_multiple=length)
        made = self.model.preprocess_samples(*row, preprocessor=preprocessor)
        batch, targets, weights = keras.utils.unpack_x_y_sample_weight(made)
        names = self.model.input
        inputs = {name: batch[name] for name in names if name in batch}
        labels = {"targets": targets, "weights": weights}
        labels = {k: v for k, v in labels.items() if v is not None}
        if not self.fixed:
            return inputs, labels
        return fixed_shapes(self.model.task, inputs, labels, texts=texts, length=length)

    def _order(self, epoch: Any) -> Any:
        """Return the rows, or groups, in the order of an epoch, int [N]."""
        rows = tf.range(self.count, dtype=row_dtype(self.count))
        seed = tf.stack([tf.constant(self.seed, tf.int64), 2 * epoch])
        return tf.random.experimental.stateless_shuffle(rows, seed)

    def _draws(self, epoch: Any) -> Any:
        """Return a random number for each row, or group, in an epoch, int64 [N]."""
        seed = tf.stack([tf.constant(self.seed, tf.int64), 2 * epoch + 1])
        shape = [self.count]
        return tf.random.stateless_uniform(shape, seed, 0, _DRAWS, tf.int64)


@dataclasses.dataclass(frozen=True)
class RowsPlace:
    """The rows of an update, by its number in the whole run, from 1."""

    batches: TrainingRows
    step: int

    def facts(self) -> dict[str, Any]:
        """Return numbers and file as JSON values."""
        epoch, batch = divmod(self.step - 1, self.batches.steps_per_epoch)
        return {
            "epoch": epoch + 1,
            "step_of_epoch": batch + 1,
            "step": self.step,
            "file": self.batches.columns.path,
        }

    def rows(self) -> dict[str, Any]:
        """Return the line numbers of the rows in their file."""
        labelled, others = self._rows()
        named = {"lines": [self.batches.columns.lines[row] for row in labelled]}
        if (unlabeled := self.batches.unlabeled) is not None:
            named["unlabeled lines"] = [unlabeled.lines[row] for row in others]
        return named

    def _rows(self) -> tuple[list[int], list[int]]:
        """Return the labelled and the unlabeled rows, each by index from 0."""
        rows, count = self.batches.rows_of(self.step - 1), len(self.batches.columns)
        labelled = [row for row in rows if row < count]
        return labelled, [row - count for row in rows if row >= count]

    def __str__(self) -> str:
        facts, places = self.facts(), []
        sets = self.batches.columns, self.batches.unlabeled
        for columns, rows in zip(sets, self._rows(), strict=True):
            if columns is not None and rows:
                lines = sorted(int(columns.lines[row]) for row in {*rows})
                places.append(f"{columns.path}, lines {first_of(lines, most=8)}")
        return (
            f"epoch {facts['epoch']}, step {facts['step_of_epoch']:,} of it, "
            f"{self.step:,} of all ({'; '.join(places)})"
        )
