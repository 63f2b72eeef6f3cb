"""Windows over long texts, in graph: overlapping rows, and the way back to the texts.

A text that is too long for a row is read in several windows, in `cut_windows` of
tokens, perhaps each after a question or a first text, in `units_in_windows` of whole
units such as sentences. Tokens, words and sentences are numbered through the batch;
`values_of` returns what was computed in rows by these numbers.

Sources: Devlin et al. 2018 (arXiv:1810.04805), section 4.2; google-research/bert
`run_squad.py` (`doc_stride`; the window in which a token has the most context).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_keras.errors import ConfigError
from bert_keras.lazy_names import deferred
from bert_keras.text.masking import mixed
from bert_keras.text.packing import join
from bert_keras.text.ragged import (
    arrays_of,
    count_true,
    put,
    segment_ids,
    sizes_of,
    slices,
    starts_of,
    taken,
)

if TYPE_CHECKING:
    import tensorflow as tf
else:
    (tf,) = deferred("tensorflow")

_LEAST_LENGTH = 5  # three special tokens, one of the question, one of the context
_NO_LIMIT = 2**30


@dataclasses.dataclass(frozen=True)
class Cut:
    """How texts are cut into windows.

    Args:
        max_length: maximum tokens of a window, specials included.
        stride: tokens of the text from the start of a window to the start of the next,
            at most `overlap` allows. (Hugging Face's `stride` is the overlap; Google's
            code has no such limit.) `None`: as many as it allows.
        overlap: the least share of a window that is in the next one too: 0, or 0.5, so
            that no answer is cut in two.
        max_first_tokens: longer questions, or first texts, are truncated, also if they
            would take more than half of the window.
        max_windows: the most windows of a text; the rest is left out.
        is_last_full: whether the last window of a text starts earlier, so that it is
            as long as the others. A token in the middle of the overlap of two windows
            then belongs to the second, otherwise to the first.
        is_prefix: whether first texts are prompts: no `[SEP]` follows them.

    Raises:
        ConfigError: no token of the text fits into a window, or some are left out
            between windows.
    """

    max_length: int
    stride: int | None = None
    overlap: float = 0.0
    max_first_tokens: int = _NO_LIMIT
    max_windows: int = _NO_LIMIT
    is_last_full: bool = False
    is_prefix: bool = False

    def __post_init__(self) -> None:
        room = self.max_length - 2
        if not self.overlap and self.stride is not None and self.stride > room:
            raise ConfigError(
                f"`stride` must be at most {room}, the tokens of a window (max_length "
                f"less two), so that none is left out; received {self.stride}"
            )

    def plan(self, sizes: Any, first: Any | None) -> Plan:
        """Return the windows of texts by their tokens, int32 [B], and the tokens of
        their first texts, or `None`: tensors, or NumPy's arrays.
        """
        room = self.max_length - (2 if first is None or self.is_prefix else 3)
        arrays = arrays_of(sizes)
        kept = arrays.zeros_like(sizes)
        if first is not None:
            if self.max_length < _LEAST_LENGTH:
                raise ConfigError(
                    f"`max_length` must be at least {_LEAST_LENGTH} for a question and "
                    f"its context; received {self.max_length}"
                )
            kept = arrays.minimum(first, min(self.max_first_tokens, room // 2))
        most = room - kept
        step = (most + 1) // 2 if self.overlap else most
        if self.stride is not None:
            step = arrays.minimum(step, self.stride)
        # After the first window, one for each step needed to reach the end.
        count = 1 + (arrays.maximum(sizes - most, 0) + step - 1) // step
        return Plan(kept, most, step, arrays.minimum(count, self.max_windows))

    def places(self, plan: Plan, sizes: Any, text: Any, number: Any) -> Places:
        """Return where S windows are in their texts, tensors or NumPy's arrays.

        Args:
            plan: the windows of B texts.
            sizes: int32 [B], the tokens of the texts.
            text: int32 [S], the text of each window.
            number: int32 [S], which window of its text it is, from 0.
        """
        arrays, size = arrays_of(sizes), taken(sizes, text)
        kept, most, step, count = (taken(each, text) for each in plan)

        def start(number: Any) -> Any:
            place = number * step
            if not self.is_last_full:
                return place
            return arrays.minimum(place, arrays.maximum(size - most, 0))

        def border(number: Any) -> Any:
            """Return the first token that has more context in a window than before."""
            # A token belongs to the window whose middle is nearest: the border between
            # two windows is in the middle of their overlap.
            both = start(number - 1) + start(number) + most
            return (both if self.is_last_full else both + 1) // 2

        first = start(number)
        held = arrays.minimum(most, size - first)
        return Places(
            text,
            first,
            held,
            own_first=arrays.where(number == 0, 0, border(number)),
            own_end=arrays.where(number == count - 1, first + held, border(number + 1)),
            kept=kept,
        )


class Plan(NamedTuple):
    """The windows of B texts, int32 [B] each.

    Args:
        kept: tokens of the first text, in each window.
        most: tokens of the text in a window.
        step: from the start of a window to the start of the next.
        count: the number of windows.
    """

    kept: Any
    most: Any
    step: Any
    count: Any

    def read(self, sizes: Any) -> Any:
        """Return the tokens of the texts that are in a window, of all, int32 [B]."""
        most = self.most + (self.count - 1) * self.step
        return arrays_of(sizes).minimum(sizes, most)

    def computed(self, sizes: Any, special: int) -> Any:
        """Return the tokens of all windows of each text, int32 [B].

        `special` is the number of special tokens of a window.
        """
        again = self.most - self.step  # by which two windows overlap
        rows = self.count * (special + self.kept)
        return rows + self.read(sizes) + (self.count - 1) * again


class Places(NamedTuple):
    """Where S windows are in their texts, int32 [S] each.

    Args:
        text: the text of each window, from 0.
        first, count: its first token of the text, and how many it holds.
        own_first, own_end: the tokens of the text that have more context here than in
            any other window; each token has exactly one.
        kept: the tokens of the first text, in each window.
    """

    text: Any
    first: Any
    count: Any
    own_first: Any
    own_end: Any
    kept: Any


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

    def pieces(self) -> Any:
        """Return the number of each token in its text, or in the question.

        Ragged int32 [S, None] like `ids`, from 0; -1 at special tokens.
        """
        columns = tf.ragged.range(sizes_of(self.ids))
        window, column = segment_ids(columns.row_splits), columns.values
        place, first, count = (
            tf.gather(each, window) for each in (self.place, self.first, self.count)
        )
        of_text = (column >= place) & (column < place + count)
        of_question = (column > 0) & (column < place - 1)
        number = tf.where(of_question, column - 1, -1)
        return columns.with_values(tf.where(of_text, first + column - place, number))

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
    cut: Cut,
    *,
    cls_id: int,
    sep_id: int,
    draws: tuple[Any, int] | None = None,
) -> Windows:
    """Return windows that cover each context; an empty context gets one window.

    Args:
        question, context: RaggedTensor int32 [B, None], the pieces of the texts;
            `question`, which stands in each window, may be `None`.
        cut: how they are cut.
        cls_id, sep_id: ids of the special tokens.
        draws: random numbers int64 [B], and how many windows of each text are drawn
            with them, the others left out.
    """
    sizes = sizes_of(context)
    plan = cut.plan(sizes, None if question is None else sizes_of(question))
    numbers = tf.ragged.range(plan.count)
    if draws is not None:
        numbers = _drawn(plan.count, *draws)
    text = segment_ids(numbers.row_splits)
    places = cut.places(plan, sizes, text, numbers.values)
    _, first, held, own_first, own_end, kept = places
    parts = slices(context.values, tf.gather(starts_of(context), text) + first, held)
    place, rows = kept + 1, (parts, None)
    if question is not None:
        starts = tf.gather(starts_of(question), text)
        rows = slices(question.values, starts, kept), parts
        if cut.is_prefix:
            rows = tf.concat(rows, axis=1), None
        else:
            place += 1
    ids, segments = join(*rows, cls_id=cls_id, sep_id=sep_id)
    return Windows(
        ids,
        segments,
        text,
        first,
        held,
        place=place,
        own_first=own_first,
        own_end=own_end,
    )


def _drawn(counts: Any, draws: Any, most: int) -> Any:
    """Return the numbers of `most` windows of each text, or of all, ragged int32.

    A text's windows are divided into `most` parts of about the same size, of which one
    window each is drawn. `counts` int32 [B] are its windows.
    """
    taken = tf.minimum(counts, most)
    parts = tf.ragged.range(taken)
    text = segment_ids(parts.row_splits)
    count, of, part = tf.gather(counts, text), tf.gather(taken, text), parts.values
    first, end = part * count // of, (part + 1) * count // of
    seeds = tf.cast(tf.gather(draws, text) + tf.cast(part, tf.int64), tf.uint64)
    number = tf.bitwise.right_shift(mixed(seeds), tf.constant(2, tf.uint64))
    number = tf.cast(number, tf.int64) % tf.cast(end - first, tf.int64)
    return parts.with_values(first + tf.cast(number, tf.int32))


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
