"""Windows by hand, and what holds for windows of every length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.text.windows import Cut, Windows, cut_windows


def cut(questions: list[int], contexts: list[int], **changes: Any) -> Windows:
    """Return the windows of questions and contexts with these piece counts.

    Questions are pieces 900, 901 …, contexts 10, 11 …
    """
    settings = {"max_length": 12, "stride": 3, "overlap": 0.5, **changes}
    asked = [list(range(900, 900 + n)) for n in questions]
    parts = [list(range(10, 10 + n)) for n in contexts]
    return cut_windows(
        tf.ragged.constant(asked, tf.int32, ragged_rank=1),
        tf.ragged.constant(parts, tf.int32, ragged_rank=1),
        Cut(**settings),
        cls_id=1,
        sep_id=2,
    )


def test_by_hand() -> None:
    # Room for 12 - 3 - 2 = 7 pieces: 10..16, and after three 13..19.
    windows = cut([2, 2], [10, 3])
    assert windows.ids.to_list() == [
        [1, 900, 901, 2, *range(10, 17), 2],
        [1, 900, 901, 2, *range(13, 20), 2],
        [1, 900, 901, 2, 10, 11, 12, 2],
    ]
    assert windows.segments.to_list()[2] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert windows.text.numpy().tolist() == [0, 0, 1]
    assert windows.first.numpy().tolist() == [0, 3, 0]
    assert windows.count.numpy().tolist() == [7, 7, 3]
    assert windows.place.numpy().tolist() == [4, 4, 4]
    # They share pieces 3 to 6 of the context: two have more context in each.
    assert windows.own_first.numpy().tolist() == [0, 5, 0]
    assert windows.own_end.numpy().tolist() == [5, 10, 3]


def test_windows_overlap_by_half_at_least() -> None:
    windows = cut([2], [30], stride=128)  # each holds 7
    assert windows.first.numpy().tolist() == [0, 4, 8, 12, 16, 20, 24]
    assert windows.count.numpy().tolist() == [7, 7, 7, 7, 7, 7, 6]


def test_empty_texts_have_a_window() -> None:
    windows = cut([0, 2], [3, 0])
    assert windows.ids.to_list() == [[1, 2, 10, 11, 12, 2], [1, 900, 901, 2, 2]]
    assert windows.count.numpy().tolist() == [3, 0]
    assert cut([], []).ids.nrows() == 0


def test_questions_are_truncated() -> None:
    assert cut([30], [1], max_first_tokens=3).ids.to_list() == [
        [1, 900, 901, 902, 2, 10, 2]
    ]
    # At most half of the nine that are not special.
    assert cut([30], [1]).place.numpy().tolist() == [6]


@pytest.mark.parametrize("stride", [1, 2, 5, 100])
@pytest.mark.parametrize("question", [0, 3, 50])
@pytest.mark.parametrize("max_length", [5, 6, 13])
def test_each_piece_is_read_in_the_window_with_most_context(
    stride: int, question: int, max_length: int
) -> None:
    sizes = list(range(40))
    windows = cut([question] * 40, sizes, stride=stride, max_length=max_length)
    assert windows.ids.row_lengths().numpy().max() <= max_length
    fields = [
        getattr(windows, name).numpy()
        for name in ("text", "first", "count", "own_first", "own_end", "place")
    ]
    ids = windows.ids.to_list()
    found: dict[int, list[tuple[int, ...]]] = {size: [] for size in sizes}
    for row, (text, *rest) in enumerate(zip(*fields, strict=True)):
        found[text].append(tuple(rest))
        first, count, _, _, place = rest
        pieces = ids[row][place : place + count]
        assert pieces == list(range(10 + first, 10 + first + count))
    for size, mine in found.items():
        owned = [list(range(own, end)) for _, _, own, end, _ in mine]
        assert sum(owned, []) == list(range(size))
        for piece in range(size):
            context = [
                min(piece - first, first + count - 1 - piece)
                for first, count, *_ in mine
            ]
            owner = next(i for i, pieces in enumerate(owned) if piece in pieces)
            assert context[owner] == max(context) >= 0


def test_no_room_for_context_is_rejected() -> None:
    refused(lambda: cut([1], [1], max_length=4), "`max_length`", "received 4")


def test_a_stride_longer_than_a_window_is_rejected() -> None:
    rule = "`stride` must be at most 10"
    refused(lambda: Cut(12, stride=11), rule, "left out", "received 11")
    assert Cut(12, stride=10).stride == 10
    assert Cut(12, stride=11, overlap=0.5).stride == 11  # at most half: always allowed


def test_windows_of_a_text_alone() -> None:
    windows = cut_windows(
        None,
        tf.ragged.constant([list(range(10, 30)), [], [7]], tf.int32, ragged_rank=1),
        Cut(9, stride=6, max_windows=2),
        cls_id=1,
        sep_id=2,
    )
    first, second, empty, short = windows.ids.to_list()
    assert first == [1, *range(10, 17), 2]
    assert second == [1, *range(16, 23), 2]  # the rest is beyond two windows
    assert (empty, short) == ([1, 2], [1, 7, 2])
    pieces = windows.pieces().to_list()
    assert pieces[1] == [-1, *range(6, 13), -1]
    assert pieces[2] == [-1, -1]
    assert windows.own_end.numpy().tolist() == [7, 13, 0, 1]


def test_draws_take_a_window_of_each_part_of_a_text() -> None:
    texts = tf.ragged.constant([list(range(100)), list(range(5))] * 200, tf.int32)
    draws = tf.range(400, dtype=tf.int64) * 7919
    windows = cut_windows(None, texts, Cut(12), cls_id=1, sep_id=2, draws=(draws, 4))
    text, first = windows.text.numpy(), windows.first.numpy()
    assert np.bincount(text).tolist() == [4, 1] * 200
    numbers = first[text % 2 == 0].reshape(200, 4) // 10
    assert (np.diff(numbers) > 0).all()  # none twice, in the order of the text
    assert set(numbers.ravel()) == set(range(10))  # each of the ten at times


def test_taken_windows() -> None:
    windows = cut([2, 2], [10, 3])
    taken = windows.take(tf.constant([2, 0]))
    assert taken.ids.to_list() == [windows.ids.to_list()[i] for i in (2, 0)]
    np.testing.assert_array_equal(taken.count, [3, 7])
