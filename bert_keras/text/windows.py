"""Windows over long texts, in graph: each pairs a question with a part of a text.

Sources: Devlin et al. 2018 (arXiv:1810.04805), section 4.2; google-research/bert
`run_squad.py` (`doc_stride`; the window in which a token has the most context).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from bert_keras.errors import ConfigError
from bert_keras.text.packing import join
from bert_keras.text.ragged import count_true, segment_ids, sizes_of, slices, starts_of

_LEAST_LENGTH = 5  # three special tokens, one of the question, one of the context


class Windows(NamedTuple):
    """S windows over the contexts of B texts, in the order of the texts.

    Args:
        ids, segments: RaggedTensor int32 [S, None], `[CLS] question [SEP] part [SEP]`.
        text: int32 [S], the text of each window, from 0.
        first, count: int32 [S], its first context token, and how many it holds.
        place: int32 [S], position of the first of them in the window.
        own_first, own_end: int32 [S], the context tokens that have more context here
            than in any other window; each token has exactly one.
    """

    ids: Any
    segments: Any
    text: Any
    first: Any
    count: Any
    place: Any
    own_first: Any
    own_end: Any

    def take(self, rows: Any) -> Windows:
        """Select some of the windows by index, int32 [N]."""
        return Windows(*(tf.gather(part, rows) for part in self))


def cut_windows(
    question: Any,
    context: Any,
    *,
    max_length: int,
    stride: int,
    max_question_tokens: int,
    cls_id: int,
    sep_id: int,
) -> Windows:
    """Return windows that cover each context; an empty context gets one window.

    Args:
        question, context: RaggedTensor int32 [B, None], the pieces of the texts.
        max_length: maximum tokens of a window, specials included.
        stride: context tokens from the start of a window to the start of the next; at
            most half of a window's context tokens, so that no answer is cut in two.
            (Hugging Face's `stride` is the overlap; Google's code has no such limit.)
        max_question_tokens: longer questions are truncated, also if they would take
            more than half of the window.
        cls_id, sep_id: ids of the special tokens.
    """
    room = max_length - 3
    if max_length < _LEAST_LENGTH:
        raise ConfigError(
            f"`max_length` must be at least {_LEAST_LENGTH} for a question and its "
            f"context; received {max_length}"
        )
    asked = tf.minimum(sizes_of(question), min(max_question_tokens, room // 2))
    sizes = sizes_of(context)
    most = room - asked
    step = tf.minimum((most + 1) // 2, stride)
    # After the first window, one for each step needed to reach the end.
    counts = 1 + (tf.maximum(sizes - most, 0) + step - 1) // step
    numbers = tf.ragged.range(counts)
    text, number = segment_ids(numbers.row_splits), numbers.values
    size, most, step = (tf.gather(each, text) for each in (sizes, most, step))
    first = number * step
    count = tf.minimum(most, size - first)
    asked = tf.gather(asked, text)
    ids, segments = join(
        slices(question.values, tf.gather(starts_of(question), text), asked),
        slices(context.values, tf.gather(starts_of(context), text) + first, count),
        cls_id=cls_id,
        sep_id=sep_id,
    )
    # A token belongs to the window whose middle is nearest: the border between
    # two windows is in the middle of their overlap.
    border = (first - 1 + first - step + most) // 2 + 1
    following = (first + most - 1 + first + step) // 2 + 1
    last = first + count == size
    return Windows(
        ids,
        segments,
        text,
        first,
        count,
        place=asked + 2,
        own_first=tf.where(number == 0, 0, border),
        own_end=tf.where(last, size, following),
    )


def mark_windows(
    windows: Windows, starts: Any, ends: Any, targets: Any
) -> tuple[Any, Any]:
    """Mark the first and the last token of answers in each window.

    Args:
        windows: the S windows.
        starts, ends: RaggedTensor int32 [B, None], the characters of context tokens.
        targets: int32 [B, 2], first character and end of an answer; -1 for no answer,
            -2 if unknown.

    Returns:
        Two RaggedTensors int32 [S, None], 1 at that token. A window without the whole
        answer has both at `[CLS]`, and with an unknown answer neither; the same holds
        for an answer that is dropped as a whole, such as a control character.
    """
    targets = tf.cast(targets, tf.int32)
    of_token = tf.gather(targets, segment_ids(ends.row_splits))
    before = count_true(ends.values <= of_token[:, 0], ends.row_splits)
    until = count_true(starts.values < of_token[:, 1], ends.row_splits)
    first, last = (tf.gather(place, windows.text) for place in (before, until - 1))
    target = tf.gather(targets[:, 0], windows.text)
    some = (target >= 0) & (first <= last)
    here = some & (first >= windows.first) & (last < windows.first + windows.count)
    shift = windows.place - windows.first
    positions = tf.ragged.range(sizes_of(windows.ids))
    window = segment_ids(positions.row_splits)

    def marks(token: Any) -> Any:
        place = tf.where(here, token + shift, tf.where(some | (target == -1), 0, -1))
        found = positions.values == tf.gather(place, window)
        return positions.with_values(tf.cast(found, tf.int32))

    return marks(first), marks(last)
