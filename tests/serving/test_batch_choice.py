"""Which rows are computed together."""

from __future__ import annotations

import numpy as np
import pytest

from bert_keras.serving.batch_choice import (
    group_by_length,
    of_one_shape,
    pack_first_fit,
    pack_or_group,
    rows_of,
)


@pytest.mark.parametrize(
    ("lengths", "most", "wanted"),
    [
        ([10], 1, [0]),  # alone, though it is longer than a batch
        ([10, 10, 10], 20, [0, 1]),
        ([10, 100, 10, 11], 1000, [0, 2, 3]),
        ([100, 10, 10, 95], 1000, [0, 3]),
        # A second call for the short text would cost more than its padding.
        ([5, 10, 10, 10, 10, 10, 10, 10], 1000, list(range(8))),
        ([10, 5, 10, 10, 10, 10, 10, 10], 1000, list(range(8))),
        # With an eighth of padding at most, one would join the first.
        ([12, 40, 15, 33, 20, 25, 9, 30], 320, [0, 2, 4, 5, 6]),
    ],
)
def test_texts_of_similar_length(
    lengths: list[int], most: int, wanted: list[int]
) -> None:
    assert group_by_length(lengths, most) == wanted


def test_a_text_adds_less_padding_than_half_a_call() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        lengths = draw.integers(1, 300, draw.integers(1, 60)).tolist()
        chosen = [lengths[place] for place in group_by_length(lengths, 2000)]
        size = len(chosen) * max(chosen)
        assert lengths[0] in chosen
        assert len(chosen) == 1 or size <= 2000
        assert size - sum(chosen) <= 20 * (len(chosen) - 1)


def test_long_texts_do_not_widen_the_rows_of_short_ones() -> None:
    assert pack_first_fit([20, 200, 30, 96], 1000) == [0, 2, 3]
    assert pack_first_fit([200, 20, 257, 30], 1000) == [0, 1, 3]
    assert pack_first_fit([20, 30, 40], 60) == [0, 1]
    assert pack_first_fit([500], 60) == [0]


def test_texts_that_cannot_share_a_row_are_grouped() -> None:
    lengths = [70, 50, 72, 51, 71, 49, 90, 69]  # none shares a row of 96
    assert pack_first_fit(lengths, 400) == [0, 1, 2, 3]
    assert pack_or_group(lengths, 400) == group_by_length(lengths, 400)
    lengths = [10, 30, 20, 45, 12, 50, 9, 14]  # two full rows
    assert pack_or_group(lengths, 400) == pack_first_fit(lengths, 400) == [*range(8)]
    assert pack_or_group([500], 60) == [0]


def test_full_batches_have_few_shapes_and_little_padding() -> None:
    draw = np.random.default_rng(0)
    shapes, real, computed = set(), 0, 0
    for _ in range(300):
        waiting = draw.geometric(0.03, 60).clip(3, 250).tolist()
        chosen = [waiting[place] for place in pack_first_fit(waiting, 640)]
        rows, _, width = rows_of(chosen)
        shapes.add((max(rows) + 1, width))
        real, computed = real + sum(chosen), computed + (max(rows) + 1) * width
        assert waiting[0] in chosen and (max(rows) + 1) * width <= 768
    assert len(shapes) < 8
    assert real > 0.98 * computed


def test_equal_shapes_fill_a_batch() -> None:
    assert of_one_shape([8] * 5, 32) == [0, 1, 2, 3]
    assert of_one_shape([80] * 5, 32) == [0]


def test_texts_in_a_row_do_not_overlap() -> None:
    draw = np.random.default_rng(0)
    for _ in range(100):
        lengths = draw.integers(3, 90, draw.integers(1, 40)).tolist()
        rows, columns, width = rows_of(lengths)
        used = np.zeros((max(rows) + 1, width), int)
        for row, column, length in zip(rows, columns, lengths, strict=True):
            assert column + length <= width
            used[row, column : column + length] += 1
        assert used.max() == 1
        assert used.sum() == sum(lengths)


def test_one_text_has_no_padding() -> None:
    assert rows_of([7]) == ([0], [0], 7)
