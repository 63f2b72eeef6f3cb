"""Operations on ragged rows by positions in their flat values, in graph.

`tf.ragged`'s own slices, masks, comparisons and concatenations trace hundreds of ops
each, most of them checks; these trace about ten. Memory grows only with the values:
`tf.repeat` and `value_rowids` take rows times the longest row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.lazy_names import deferred

if TYPE_CHECKING:
    import tensorflow as tf
else:
    (tf,) = deferred("tensorflow")


def arrays_of(values: Any) -> Any:
    """Return NumPy for its arrays and TensorFlow for tensors.

    What is decided about rows is written once, with functions that both have.
    """
    return np if isinstance(values, np.ndarray) else tf


def taken(values: Any, places: Any) -> Any:
    """Return the values at places [S], of an array or a tensor."""
    return values[places] if arrays_of(values) is np else tf.gather(values, places)


def sizes_of(rows: Any) -> Any:
    """Return the number of values of each row, int32 [B]."""
    return tf.cast(rows.row_lengths(), tf.int32)


def starts_of(rows: Any) -> Any:
    """Return where each row starts in the flat values, int32 [B]."""
    return tf.cast(rows.row_splits[:-1], tf.int32)


def segment_ids(row_splits: Any) -> Any:
    """Return the row that each value is in, int32 [N]."""
    return tf.cumsum(rows_begun(row_splits))


def rows_begun(row_splits: Any) -> Any:
    """Count the rows, except the first, that start at each value, int32 [N]."""
    # One extra value, since empty rows at the end start there.
    size = tf.reshape(row_splits[-1] + 1, [1])
    starts = row_splits[1:, None]
    ones = tf.ones_like(starts[:, 0], tf.int32)
    return tf.scatter_nd(starts, ones, size)[:-1]


def slices(values: Any, starts: Any, sizes: Any) -> Any:
    """Return ragged [S, None]: `sizes[i]` of the values [N, …] from `starts[i]` on."""
    where = tf.ragged.range(starts, starts + sizes)
    return where.with_values(tf.gather(values, where.values))


def with_sizes(values: Any, sizes: Any) -> Any:
    """Return RaggedTensor [S, None] of values [N] row after row, `sizes` int [S]."""
    lengths = tf.cast(sizes, tf.int64)
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def put(flat: Any, places: Any, values: Any) -> Any:
    """Return [N] with values [M] at places [M], integers."""
    return tf.tensor_scatter_nd_update(flat, places[:, tf.newaxis], values)


def laid_like(grid: Any, places: Any, values: Any) -> Any:
    """Return int32 [R, P] like `grid`, with values [M] at flat places [M], else -1."""
    flat = put(tf.fill([tf.size(grid)], -1), places, values)
    return tf.reshape(flat, tf.shape(grid))


def count_true(where: Any, row_splits: Any) -> Any:
    """Count the true values of each row, int32 [B], of bool [N]."""
    total = tf.cumsum(tf.cast(where, tf.int32))
    edges = tf.gather(tf.pad(total, [[1, 0]]), row_splits)
    return edges[1:] - edges[:-1]


def keep(rows: Any, where: Any) -> Any:
    """Keep the values of the rows where bool [N] is true."""
    values = tf.gather(rows.values, tf.where(where)[:, 0])
    return with_sizes(values, count_true(where, rows.row_splits))


def never_empty(rows: Any, fill: Any) -> Any:
    """Return the rows [B, None], with one value `fill` in empty ones."""
    sizes = sizes_of(rows)
    full = tf.maximum(sizes, 1)
    starts = tf.cumsum(full, exclusive=True)
    flat = tf.fill([tf.reduce_sum(full)], tf.constant(fill, rows.dtype))
    places = tf.ragged.range(starts, starts + sizes).values
    return with_sizes(put(flat, places, rows.values), full)
