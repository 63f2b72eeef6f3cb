"""The choice of tokens: the lowest of each row, and how long runs of words are."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from bert_keras.text.masking import first_in_order, run_lengths


def test_the_lowest_of_each_row() -> None:
    order = tf.constant([[3, 1, 2, 9], [5, 5, 5, 5], [4, 3, 2, 1]], tf.int64)
    chosen = first_in_order(order, tf.constant([2, 1, 0]))
    assert chosen.numpy().astype(int).tolist() == [
        [0, 1, 1, 0],
        [1, 0, 0, 0],  # of equal ones the first
        [0, 0, 0, 0],
    ]


def test_lengths_of_runs() -> None:
    numbers = tf.linspace(0.0, 1.0, 11_001)[:-1]
    counts = np.bincount(run_lengths(numbers).numpy())
    np.testing.assert_allclose(counts, [0, 6000, 3000, 2000], atol=1)
