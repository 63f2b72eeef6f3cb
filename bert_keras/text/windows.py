"""Windows over long texts, in graph: overlapping rows, and the way back to the texts.

A text that is too long for a row is read in several windows, in `cut_windows` of
tokens, perhaps each after a question or a first text, in `units_in_windows` of whole
units such as sentences. Tokens, words and sentences are numbered through the batch;
`values_of` returns what was computed in rows by these numbers.

Sources: Devlin et al. 2018 (arXiv:1810.04805), section 4.2; google-research/bert
`run_squad.py` (`doc_stride`; the window in which a token has the most context).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from bert_keras.errors import ConfigError
from bert_keras.text.packing import join
from bert_keras.text.ragged import (
    count_true,
    put,
    segment_ids,
    sizes_of,
    slices,
    starts_of,
)

_LEAST_LENGTH = 5  # three special tokens, one of the question, one of the context
NO_LIMIT = 2**30  # of the tokens of a first text, beyond half of a window


class Windows(NamedTuple):
    """S windows over B texts, in the order of the texts.

    Args:
        ids, segments: RaggedTensor int32 [S, None], `[CLS] part [SEP]` or
            `[CLS] question [SEP] part [SEP]`.
        text: int32 [S], the text of each window, from 0.
        first, count: int32 [S], its first token of the text, and how many it holds.
        place: int32 [S], position of the first of them in the window.
        own_first, own_end: int32 [S], the tokens of the text that have more context
            here than in any other window; each token has exactly one.
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

    def own(self, values: Any) -> Any:
        """Return values of the tokens of texts in the window that owns each token.

        `values` is ragged int32 [B, None]; returns ragged int32 [S, None] like `ids`,
        -1 at other tokens.
        """
        sizes = self.own_end - self.own_first
        owned = slices(
            values.values,
            tf.gather(starts_of(values), self.text) + self.own_first,
            sizes,
        )
        starts = starts_of(self.ids) + self.place + self.own_first - self.first
        where = tf.ragged.range(starts, starts + sizes).values
        none = tf.fill(tf.shape(self.ids.values), -1)
        return self.ids.with_values(put(none, where, owned.values))


def cut_windows(
    question: Any,
    context: Any,
    *,
    max_length: int,
    stride: int | None,
    cls_id: int,
    sep_id: int,
    max_question_tokens: int = NO_LIMIT,
    is_last_full: bool = False,
) -> Windows:
    """Return windows that cover each context; an empty context gets one window.

    Args:
        question, context: RaggedTensor int32 [B, None], the pieces of the texts;
            `question` may be `None`.
        max_length: maximum tokens of a window, specials included.
        stride: context tokens from the start of a window to the start of the next; at
            most half of a window's context tokens, so that no answer is cut in two.
            (Hugging Face's `stride` is the overlap; Google's code has no such limit.)
            `None`: half of them.
        cls_id, sep_id: ids of the special tokens.
        max_question_tokens: longer questions are truncated, also if they would take
            more than half of the window.
        is_last_full: whether the last window of a context starts earlier, so that it
            is as long as the others. A token in the middle of the overlap of two
            windows then belongs to the second, otherwise to the first.
    """
    sizes = sizes_of(context)
    room = max_length - (2 if question is None else 3)
    asked = tf.zeros_like(sizes)
    if question is not None:
        if max_length < _LEAST_LENGTH:
            raise ConfigError(
                f"`max_length` must be at least {_LEAST_LENGTH} for a question and its "
                f"context; received {max_length}"
            )
        asked = tf.minimum(sizes_of(question), min(max_question_tokens, room // 2))
    most = room - asked
    step = (most + 1) // 2
    if stride is not None:
        step = tf.minimum(step, stride)
    # After the first window, one for each step needed to reach the end.
    counts = 1 + (tf.maximum(sizes - most, 0) + step - 1) // step
    numbers = tf.ragged.range(counts)
    text, number = segment_ids(numbers.row_splits), numbers.values
    size, most, step, count = (
        tf.gather(each, text) for each in (sizes, most, step, counts)
    )

    def start(number: Any) -> Any:
        place = number * step
        return tf.minimum(place, tf.maximum(size - most, 0)) if is_last_full else place

    def border(number: Any) -> Any:
        """Return the first token that has more context in a window than before it."""
        # A token belongs to the window whose middle is nearest: the border between
        # two windows is in the middle of their overlap.
        both = start(number - 1) + start(number) + most
        return (both if is_last_full else both + 1) // 2

    first = start(number)
    held = tf.minimum(most, size - first)
    asked = tf.gather(asked, text)
    parts = slices(context.values, tf.gather(starts_of(context), text) + first, held)
    place, before = asked + 1, parts
    if question is not None:
        starts = tf.gather(starts_of(question), text)
        place, before = asked + 2, slices(question.values, starts, asked)
    ids, segments = join(
        before,
        None if question is None else parts,
        cls_id=cls_id,
        sep_id=sep_id,
    )
    return Windows(
        ids,
        segments,
        text,
        first,
        held,
        place=place,
        own_first=tf.where(number == 0, 0, border(number)),
        own_end=tf.where(number == count - 1, size, border(number + 1)),
    )


def units_in_windows(sizes: Any, max_length: int) -> Any:
    """Return the window of each unit, such as a sentence, int32 [N].

    Windows hold whole units of one text, as many as fit, and are counted through the
    batch. `sizes` ragged int32 [B, None] are the tokens of the units, each at most
    `max_length`.
    """

    def add(state: tuple[Any, Any], size: Any) -> tuple[Any, Any]:
        used, window = state
        is_full = used + size > max_length
        used = tf.where(is_full, size, used + size)
        return used, window + tf.cast(is_full, tf.int32)

    by_place = tf.transpose(sizes.to_tensor(0))  # [U, B]: all texts in one step
    by_place = tf.pad(by_place, [[0, 1], [0, 0]])  # for batches without texts
    none = tf.zeros([tf.shape(by_place)[1]], tf.int32)
    _, windows = tf.scan(add, by_place, (none, none))
    counts = tf.reduce_max(windows, axis=0) + 1
    windows = tf.transpose(windows) + tf.cumsum(counts, exclusive=True)[:, tf.newaxis]
    return tf.RaggedTensor.from_tensor(windows, sizes.row_lengths()).flat_values


def values_of(values: Any, numbers: Any, count: Any) -> Any:
    """Return what was computed in rows by the numbers of words or sentences, [N, …].

    Args:
        values: [R, P, …], computed at places of the rows.
        numbers: int32 [R, P], the number at each place, or -1; each is there once.
        count: N, int32.
    """
    at = tf.where(numbers >= 0)
    shape = tf.concat([[count], tf.shape(values)[2:]], 0)
    places = tf.gather_nd(numbers, at)[:, tf.newaxis]
    return tf.scatter_nd(places, tf.gather_nd(values, at), shape)


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
