"""What `TaskModel.fit` reads: rows in memory, checked and split, and datasets."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.holdout import Strata, stratified_holdout, uncovered_classes
from bert_keras.data.memory import is_missing
from bert_keras.data.table import as_columns
from bert_keras.errors import ConfigError, DataError, received, shown
from bert_keras.runs.progress import say
from bert_keras.settings import check_share
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import (
    TargetStrata,
    reads_windows,
    resample,
    scores_groups,
    strata_of,
)
from bert_keras.text.preprocessor import one_or_all


def new_seed() -> int:
    """Return a seed derived from the seed of `keras.utils.set_random_seed`."""
    return int(np.random.randint(2**31))


def row_dataset(*rows: Any) -> tf.data.Dataset:
    """Return a dataset of texts, targets and weights; the last ones may be left out."""
    return tf.data.Dataset.from_tensor_slices(keras.utils.pack_x_y_sample_weight(*rows))


def check_rows(x: Any, y: Any, sample_weight: Any, *, of: str = "") -> None:
    """Raise ConfigError unless texts, targets and weights have the same rows, and some.

    A row without a value, or with a value of another type than the first, is a
    DataError. `of` names what they are part of.
    """
    if y is None and sample_weight is not None:
        raise ConfigError(f"`sample_weight`{of} must be None where `y` is None")
    first = None
    for name, part in (("x", x), ("y", y), ("sample_weight", sample_weight)):
        for leaf in _leaves(part) if part is not None or name == "x" else ():
            if not isinstance(leaf, list) and not getattr(leaf, "shape", ()):
                raise ConfigError(
                    f"`{name}`{of} must be a list, an array or a `tf.data.Dataset`; "
                    f"{received(leaf)}"
                )
            rows = _rows_of(leaf)
            first = rows if first is None else first
            if not rows:
                raise ConfigError(
                    f"`{name}`{of} must have at least one row; received 0"
                )
            if rows != first:
                raise ConfigError(
                    f"`{name}`{of} must have the same number of rows as `x`; "
                    f"received {rows} and {first}"
                )
            for row, cell in enumerate(() if tf.is_tensor(leaf) else leaf):
                if is_missing(cell):
                    raise DataError(
                        f"`{name}`{of} must have a value in each row; row {row} has "
                        f"{cell}"
                    )
                if name == "x" and isinstance(cell, str) != isinstance(leaf[0], str):
                    raise DataError(
                        f"`x`{of} must hold one type of values; row {row} has "
                        f"{shown(cell)}, row 0 {shown(leaf[0])}"
                    )


def labelled(task: Task, data: Any) -> Any:
    """Return a dataset of dicts that hold a label as one of texts and labels."""
    roles, label = task.roles, "label"
    spec = getattr(data, "element_spec", None)
    if not isinstance(spec, dict) or not {*roles, label} <= set(spec):
        return data
    return data.map(lambda row: ({role: row[role] for role in roles}, row[label]))


def drawn(task: Task, data: Any, *, each_epoch: bool = False) -> Any:
    """Return a dataset of texts without targets with those that the task draws.

    In training, a dataset of texts also gets the numbers that draw their windows.
    They are drawn anew in each epoch, or the same each time.

    Raises:
        ConfigError: the task draws none.
    """
    if not isinstance(data, tf.data.Dataset):
        return data
    texts, targets, _ = keras.utils.unpack_x_y_sample_weight(data.element_spec)
    is_batch = isinstance(texts, dict) and not set(task.roles) <= set(texts)
    draws_windows = reads_windows(task) and each_epoch
    if is_batch or (targets is not None and not draws_windows):
        return data

    def draw(row: Any, number: Any) -> Any:
        texts, *others = keras.utils.unpack_x_y_sample_weight(row)
        if isinstance(texts, dict) and targets is not None:
            texts = one_or_all(tuple(texts[role] for role in task.roles))
        others = [each for each in others if each is not None] or [None]
        count = tf.shape(tf.nest.flatten(texts)[0])[0]
        draws = tf.random.stateless_uniform(
            [count], [number, 0], maxval=tf.int64.max, dtype=tf.int64
        )
        return resample(task, (texts, *others), draws)

    numbers = tf.data.Dataset.random(
        new_seed() if each_epoch else 0, rerandomize_each_iteration=each_epoch
    )
    found = tf.data.Dataset.zip((data, numbers)).map(draw)
    if isinstance(found.element_spec[1], tf.TensorSpec):
        return found
    raise ConfigError(f"`y` must be given for the task {task.name}; received None")


def split_rows(
    task: Task, data: tuple[Any, Any, Any], share: float, *, shuffle: bool
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return texts, targets and weights for training, and the held-out ones."""
    check_share("validation_split", share)
    if isinstance(data[0], tf.data.Dataset):
        raise ConfigError(
            "`validation_split` needs lists or arrays: give `validation_data` for "
            "a dataset"
        )
    check_rows(*data)
    total = _rows_of(_leaves(data[0])[0])
    count = total - math.floor(total * (1 - share))
    held_out = list(range(total - count, total))
    if shuffle:
        strata = _strata(task, data[1]) or [()] * total
        held_out = stratified_holdout(
            strata,
            count,
            seed=new_seed(),
            groups=_groups(task, data[0]),
            whole=scores_groups(task),
        )
        option = "`validation_split`"
        if missing := uncovered_classes(strata, held_out, option=option):
            say(f"the validation split of {len(held_out):,} rows has {missing}")
    kept = sorted(set(range(total)) - set(held_out))
    if not held_out or not kept:
        raise ConfigError(
            "`validation_split` must leave rows on both sides, and in training "
            f"one of each class; received {share} of {total} rows"
        )
    held = [tuple(_take(part, rows) for part in data) for rows in (kept, held_out)]
    return held[0], held[1]


def _groups(task: Task, x: Any) -> list[Any] | None:
    """Return the first text of each pair; `None` unless rows are pairs of texts."""
    if task.roles[0] != "text" or not isinstance(x, tuple) or len(x) != 2:
        return None
    return np.asarray(x[0], dtype=object).tolist()


def _strata(task: Task, y: Any) -> Strata:
    """Return the classes or quantiles of each row; an empty list if unknown."""
    labels: Any = np.asarray(y, dtype=object)
    if isinstance(task, TargetStrata) and labels.ndim > 1:
        return task.target_strata(labels)
    one = (str, bytes, int, float, np.number)
    if labels.ndim != 1 or not all(isinstance(each, one) for each in labels):
        return []
    return strata_of(task, as_columns(label=labels), **task.get_config())


def _leaves(part: Any) -> list[Any]:
    """Return the lists and arrays of texts, targets or weights."""
    if isinstance(part, tuple):
        return [leaf for each in part for leaf in _leaves(each)]
    if isinstance(part, dict):
        return [leaf for each in part.values() for leaf in _leaves(each)]
    return [part]


def _rows_of(leaf: Any) -> int:
    return len(leaf) if isinstance(leaf, list) else leaf.shape[0]


def _take(part: Any, rows: list[int]) -> Any:
    """Return some rows of texts, targets or weights."""
    if isinstance(part, tuple):
        return tuple(_take(each, rows) for each in part)
    if isinstance(part, dict):
        return {key: _take(each, rows) for key, each in part.items()}
    if part is None:
        return None
    if isinstance(part, list):
        return [part[row] for row in rows]
    if isinstance(part, tf.Tensor | tf.RaggedTensor):
        return tf.gather(part, rows)
    return np.asarray(part)[rows]
