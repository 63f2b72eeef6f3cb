"""Batches of few shapes, for compilers that compile each shape anew: `fixed_shapes`.

A TPU's compiler is such a one. Texts then have a row each, as long as the longest that
there may be. Tasks that cut a long text into windows have more rows than texts: those
are filled up to a multiple of the number of texts with rows that teach nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task

_LONG = ("token_ids", "segment_ids", "padding_mask")  # their last axis is the tokens'


def fixed_shapes(
    task: Task,
    inputs: dict[str, Any],
    labels: dict[str, Any],
    *,
    texts: int,
    length: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a batch of the padded layout whose shapes follow from its settings.

    In graph. The number of rows alone is open where a task cuts windows, and the number
    of masked positions of a masked language model.

    Args:
        task: tells of `rows_per_text` and `ignored_target`.
        inputs: tensors by name, rows first.
        labels: `targets` and perhaps `weights`, as `TaskObjective` takes them.
        texts: number of texts that the batch was made from.
        length: tokens of a row; rows have it by the preprocessor's `length_multiple`.
    """
    windows = task.rows_per_text is None
    rows = None if windows else texts * (task.rows_per_text or 1)

    def fixed(name: str, rows: int | None, value: Any) -> Any:
        if windows:
            missing = tf.math.floormod(-tf.shape(value)[0], texts)
            ends = [[0, missing], *[[0, 0]] * (value.shape.rank - 1)]
            filler = task.ignored_target if name == "targets" else 0
            value = tf.pad(value, ends, constant_values=tf.cast(filler, value.dtype))
        shape = [rows, *value.shape[1:]]
        if name in _LONG:
            shape[-1] = length
        return tf.ensure_shape(value, shape)

    # Of a task of pairs there is a target a pair, not a row.
    targets = None if windows else texts
    return (
        {name: fixed(name, rows, value) for name, value in inputs.items()},
        {
            name: tf.nest.map_structure(functools.partial(fixed, name, targets), value)
            for name, value in labels.items()
        },
    )
