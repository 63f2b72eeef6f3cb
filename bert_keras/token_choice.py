"""Which tokens of texts are chosen, by an order that was drawn: pieces or whole words.

Source: google-research/bert `create_pretraining_data.py` (whole words); runs of words:
Joshi et al. 2019 (arXiv:1907.10529), and their lengths: Lan et al. 2019
(arXiv:1909.11942), section 4.1.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bert_keras.ragged import put

NEVER = tf.int64.max  # the order of a token that is never chosen
# Of runs of 1, 2 and 3 words: the shares below which a uniform number means at least
# 2 and 3. A run of n words has a probability in proportion to 1/n.
_LONGER = (5 / 11, 2 / 11)
_LONGEST = 1 + len(_LONGER)


def first_in_order(order: Any, wanted: Any) -> Any:
    """Return which of int64 [B, T] are among the `wanted` [B] lowest of their row."""
    rows, length = tf.unstack(tf.shape(order))
    most = tf.minimum(tf.reduce_max(tf.concat([wanted, [0]], 0)), length)
    # `top_k` takes the first of equal ones; a sort would order all T of them.
    lowest = (
        tf.math.top_k(-order, most).indices + tf.range(rows)[:, tf.newaxis] * length
    )
    places = tf.boolean_mask(lowest, tf.sequence_mask(wanted, most))
    chosen = put(
        tf.fill([rows * length], False), places, tf.fill(tf.shape(places), True)
    )
    return tf.reshape(chosen, [rows, length])


def whole_words(order: Any, continues: Any, wanted: Any, lengths: Any = None) -> Any:
    """Return which pieces are chosen, bool [B, T], in whole words.

    Args:
        order: int64 [B, T]; a word has the order of its first piece.
        continues: bool [B, T], whether a piece belongs to the word before it.
        wanted: int32 [B], most pieces of each text.
        lengths: int32 [B, T], most words of the run that begins with this piece's
            word; `None` is 1.
    """
    rows, length = tf.unstack(tf.shape(order))
    word = tf.cumsum(tf.cast(~continues, tf.int32), axis=1) - 1
    word = tf.maximum(word, 0)
    # Behind the last word are some that are never chosen, where runs end.
    width = length + _LONGEST
    base = tf.range(rows) * width
    flat = tf.reshape(base[:, tf.newaxis] + word, [-1])

    def by_word(values: Any) -> Any:
        return tf.math.unsorted_segment_sum(
            tf.reshape(values, [-1]), flat, rows * width
        )

    is_first = ~continues & (order < NEVER)
    known = by_word(tf.cast(is_first, tf.int32)) > 0
    sizes = by_word(tf.cast(order < NEVER, tf.int32))
    sizes = tf.where(known, sizes, length + 1)  # which never fits
    word_order = tf.where(known, by_word(tf.where(is_first, order, 0)), NEVER)
    word_order = tf.reshape(word_order, [rows, width])
    ranked = tf.transpose(tf.argsort(word_order, stable=True))
    counts = tf.reduce_sum(tf.reshape(tf.cast(known, tf.int32), [rows, width]), axis=1)
    most = tf.reduce_max(tf.concat([counts, [0]], 0))
    runs = None if lengths is None else by_word(tf.where(is_first, lengths, 0))

    def step(rank: Any, used: Any, taken: Any) -> Any:
        begin = base + ranked[rank]
        goes_on = tf.fill([rows], True)
        for i in range(1 if runs is None else _LONGEST):
            here = begin + i
            size = tf.gather(sizes, here)
            goes_on &= used + size <= wanted
            if runs is not None:
                goes_on &= ~tf.gather(taken, here) & (i < tf.gather(runs, begin))
            used += tf.where(goes_on, size, 0)
            taken = put(taken, here, tf.gather(taken, here) | goes_on)
        return rank + 1, used, taken

    _, _, taken = tf.while_loop(
        lambda rank, used, _: (rank < most) & tf.reduce_any(used < wanted),
        step,
        (0, tf.zeros_like(wanted), tf.fill([rows * width], False)),
        parallel_iterations=1,
    )
    return tf.reshape(tf.gather(taken, flat), [rows, length])


def run_lengths(uniform: Any) -> Any:
    """Return 1, 2 or 3 for float32 numbers in [0, 1), int32."""
    longer = [tf.cast(uniform < share, tf.int32) for share in _LONGER]
    return 1 + tf.add_n(longer)
