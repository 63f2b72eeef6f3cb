"""Pieces in rows: truncation, `[CLS] A [SEP] B [SEP]`, padded or packed, and back.

All in the TensorFlow graph with core ops only, so that an exported model holds the same
code (`tf_text.RoundRobinTrimmer` emits an op that older TF Serving lacks).

Source: Devlin et al. 2018 (arXiv:1810.04805), figure 2; Krell et al. 2021
(arXiv:2107.02027) for several texts in one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bert_keras.lazy_names import deferred
from bert_keras.settings import TRUNCATIONS, check_choice
from bert_keras.text.ragged import (
    arrays_of,
    put,
    segment_ids,
    sizes_of,
    slices,
    starts_of,
    with_sizes,
)

if TYPE_CHECKING:
    import tensorflow as tf
else:
    (tf,) = deferred("tensorflow")

# Rows of short texts have about this length. Attention grows with the square of the
# row, but at this length it is a twentieth of the work, and rows still fill well.
ROW_TOKENS = 96
_MOST_ROUNDED = 16
_SLACK = 1.05  # room to spare: whole texts seldom fill rows to the last token


def truncate_pair(
    a: Any,
    b: Any,
    max_tokens: int,
    *,
    how: str,
    keep: Callable[[Any, Any], Any] | None = None,
) -> tuple[Any, Any]:
    """Truncate two texts, RaggedTensors int32 [B, None], to `max_tokens` together.

    Args:
        a, b: the pieces of the two texts.
        max_tokens: budget without the special tokens.
        how: `longest_first` cuts the longer text and splits the budget as the
            `tokenizers` library does; `round_robin` takes one piece at a time from the
            longer text, from the second when equal, as Google's code does;
            `only_first` and `only_second` cut only that text, and the other one only if
            it alone exceeds the budget.
        keep: which pieces of a text are kept: `first_pieces` or `both_ends`.
    """
    keep_a, keep_b = kept_of_pair(sizes_of(a), sizes_of(b), max_tokens, how=how)
    keep = keep or first_pieces
    return keep(a, keep_a), keep(b, keep_b)


def kept_of_pair(size_a: Any, size_b: Any, max_tokens: int, *, how: str) -> Any:
    """Return how many pieces of each text `truncate_pair` keeps, int32 [B] each.

    `size_a` and `size_b` are the pieces of the texts: tensors, or NumPy's arrays.
    """
    check_choice("truncation", how, TRUNCATIONS)
    arrays = arrays_of(size_a)
    if how == "round_robin":
        keep_a = arrays.maximum(max_tokens - size_b, (max_tokens + 1) // 2)
    elif how == "longest_first":
        # The half that is larger by one goes to the longer text.
        half = max_tokens // 2 + arrays.where(size_a > size_b, max_tokens % 2, 0)
        keep_a = arrays.maximum(max_tokens - size_b, half)
    elif how == "only_first":
        keep_a = arrays.maximum(max_tokens - size_b, 0)
    else:
        keep_a = arrays.zeros_like(size_a) + max_tokens
    keep_a = arrays.minimum(keep_a, size_a)
    return keep_a, arrays.minimum(max_tokens - keep_a, size_b)


def first_pieces(pieces: Any, counts: Any) -> Any:
    """Return the first `counts[i]` pieces of row i, ragged int32 [B, None]."""
    return slices(pieces.values, starts_of(pieces), counts)


def both_ends(pieces: Any, counts: Any) -> Any:
    """Return `counts[i]` pieces of row i: its first ones, a quarter, and its last ones.

    Source: Sun et al. 2019 (arXiv:1905.05583), section 5.2: 128 and 382 of 510.
    """
    kept = tf.ragged.range(counts)
    row = segment_ids(kept.row_splits)
    skipped = tf.gather(sizes_of(pieces) - counts, row)
    is_head = kept.values < tf.gather(head_of(counts), row)
    places = kept.values + tf.where(is_head, 0, skipped)
    places += tf.gather(starts_of(pieces), row)
    return kept.with_values(tf.gather(pieces.values, places))


def head_of(counts: Any) -> Any:
    """Return how many of the pieces that `both_ends` keeps are the first ones."""
    return (counts + 3) // 4


def join(a: Any, b: Any | None, *, cls_id: int, sep_id: int) -> tuple[Any, Any]:
    """Return `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` and the segment of each token.

    `a` and `b`, which may be `None`, are RaggedTensors int32 [B, None], and so are both
    results. The segment is 0 up to the first `[SEP]`, then 1.
    """
    first = sizes_of(a) + 2
    sizes = first if b is None else first + sizes_of(b) + 1
    ends = tf.cumsum(sizes)
    starts = ends - sizes
    flat = tf.fill([tf.reduce_sum(sizes)], tf.constant(sep_id, tf.int32))
    ids = put(flat, starts, tf.fill(tf.shape(starts), tf.constant(cls_id, tf.int32)))
    middle = starts + first
    ids = put(ids, tf.ragged.range(starts + 1, middle - 1).values, a.values)
    segments = tf.zeros_like(ids)
    if b is not None:
        ids = put(ids, tf.ragged.range(middle, ends - 1).values, b.values)
        second = tf.ragged.range(middle, ends).values
        segments = put(segments, second, tf.ones_like(second))
    joined = with_sizes(ids, sizes)
    return joined, joined.with_values(segments)


def pad_rows(
    ids: Any, segments: Any, *, pad_id: int = 0, multiple: int = 1, **others: Any
) -> dict[str, Any]:
    """Return one text per row, padded to the longest; arguments as in `pack_rows`.

    Returns:
        `token_ids`, `segment_ids`, `padding_mask`, each int32 [B, T] with T at least 1,
        and the others, padded with -1.
    """
    sizes = sizes_of(ids)
    length = _round_up(tf.reduce_max(tf.concat([sizes, [1]], 0)), multiple)
    shape = tf.stack([tf.shape(sizes)[0], length])
    return {
        "token_ids": ids.to_tensor(pad_id, shape=shape),
        "segment_ids": segments.to_tensor(0, shape=shape),
        "padding_mask": tf.sequence_mask(sizes, length, dtype=tf.int32),
        **{key: each.to_tensor(-1, shape=shape) for key, each in others.items()},
    }


def pack_rows(
    ids: Any,
    segments: Any,
    *,
    pad_id: int = 0,
    row_tokens: int | None = ROW_TOKENS,
    multiple: int = 1,
    **others: Any,
) -> dict[str, Any]:
    """Pack several texts in a row, so that there is little padding.

    Texts are not split. Rows are as long as the longest text, or about `row_tokens`
    if texts are shorter; they are filled longest text first, each into the first row
    with room.

    Args:
        ids, segments: RaggedTensor int32 [S, None], S texts.
        pad_id: id of `[PAD]`.
        row_tokens: approximate length of rows of shorter texts; `None`: the length of
            the longest text, best if many texts are about that long.
        multiple: the length T is rounded up to a multiple of this.
        **others: RaggedTensor int32 [S, None] of the same tokens, such as targets.

    Returns:
        `token_ids`, `segment_ids`, `padding_mask` (1 = real), `position_ids` (from 0 in
        each text) and `sequence_ids` (1, 2 … in each row; 0 = padding), int32 [R, T];
        `cls_positions` int32 [S], where each text starts in the R*T tokens; the others,
        int32 [R, T] with -1 at padding.
    """
    (place,) = _placed(ids, row_tokens=row_tokens)
    return _laid(ids, segments, place, pad_id=pad_id, multiple=multiple, **others)


def pack_pairs(
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    *,
    pad_ids: tuple[int, int] = (0, 0),
    multiple: int = 1,
    **others: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pack pairs of texts in rows of two batches.

    The two texts of a pair are in the same row of their batches, with the same number
    in `sequence_ids`.

    Args:
        first, second: ids and segments of S texts each, RaggedTensors int32 [S, None].
        pad_ids: id of `[PAD]` of each.
        multiple: as in `pack_rows`.
        **others: RaggedTensor int32 [S, None] of the tokens of the second texts.

    Returns:
        Two dicts as from `pack_rows`, with the same number of rows.
    """
    places = _placed(first[0], second[0])
    a = _laid(*first, places[0], pad_id=pad_ids[0], multiple=multiple)
    ids, segments = second
    b = _laid(ids, segments, places[1], pad_id=pad_ids[1], multiple=multiple, **others)
    return a, b


def _placed(
    *texts: Any, row_tokens: int | None = ROW_TOKENS
) -> list[tuple[Any, Any, Any]]:
    """Return row, first column and rank in its row of S texts, int32 [S] each.

    Of several ragged tensors [S, None], the texts of one index share a row; the tensor
    that fills more rows determines their number.
    """
    sizes = tf.stack([sizes_of(each) for each in texts], axis=1)
    longest = tf.reduce_max(tf.pad(sizes, [[0, 1], [0, 0]], constant_values=1), axis=0)
    room = longest
    if row_tokens is not None:
        total = tf.reduce_sum(sizes, axis=0)
        full_rows = tf.reduce_max(total // tf.maximum(longest, row_tokens))
        full_rows = tf.cast(tf.maximum(full_rows, 1), tf.float32)
        share = tf.math.ceil(tf.cast(total, tf.float32) / full_rows * _SLACK)
        room = tf.maximum(longest, tf.cast(share, tf.int32))
    rows, columns, ranks = _places(sizes, room)
    return [(rows, columns[:, i], ranks) for i in range(len(texts))]


def _laid(
    ids: Any,
    segments: Any,
    place: tuple[Any, Any, Any],
    *,
    pad_id: int,
    multiple: int,
    **others: Any,
) -> dict[str, Any]:
    """Return texts laid in rows, by the row, the first column and the rank of each."""
    sizes = sizes_of(ids)
    rows, columns, ranks = place
    row_count = tf.reduce_max(tf.concat([rows + 1, [1]], 0))
    used = tf.reduce_max(tf.concat([columns + sizes, [1]], 0))
    length = _round_up(used, multiple)
    starts = rows * length + columns
    positions = tf.ragged.range(sizes)
    where = tf.ragged.range(starts, starts + sizes).values
    texts = segment_ids(positions.row_splits)

    def lay(values: Any, fill: int = 0) -> Any:
        flat = tf.fill([row_count * length], tf.constant(fill, tf.int32))
        return tf.reshape(put(flat, where, values), [row_count, length])

    return {
        "token_ids": lay(ids.flat_values, pad_id),
        "segment_ids": lay(segments.flat_values),
        "padding_mask": lay(tf.ones_like(ids.flat_values)),
        "position_ids": lay(positions.values),
        "sequence_ids": lay(tf.gather(ranks, texts)),
        "cls_positions": starts,
        **{key: lay(each.flat_values, -1) for key, each in others.items()},
    }


def unpack(values: Any, batch: Mapping[str, Any]) -> Any:
    """Return values [R, T, …] of a batch dict's rows by text, ragged [S, None, …].

    The inverse of either layout; padding is left out.
    """
    mask = batch["padding_mask"]
    rows, length = tf.shape(mask)[0], tf.shape(mask)[1]
    starts = text_starts(batch)
    if batch.get("cls_positions") is None:
        counts = tf.reduce_sum(mask, axis=1)
    else:
        ranks = batch["sequence_ids"]
        most = tf.reduce_max(ranks) + 1
        text = tf.reshape(tf.range(rows)[:, tf.newaxis] * most + ranks, [-1])
        sizes = tf.math.unsorted_segment_sum(tf.ones_like(text), text, rows * most)
        counts = tf.gather(sizes, tf.gather(text, starts))
    flat = tf.reshape(values, tf.concat([[rows * length], tf.shape(values)[2:]], 0))
    return slices(flat, starts, counts)


def locate(
    offsets: Any, batch: Mapping[str, Any], *, multiple: int = 1
) -> tuple[Any, Any]:
    """Return the positions of tokens in rows, padded to the most in a row.

    Args:
        offsets: RaggedTensor int32 [S, None], tokens of each text, counted from its
            first, such as those to predict.
        batch: the batch dict of the S texts, in either layout.
        multiple: P is rounded up to a multiple of this, or of 16 if this is larger.

    Returns:
        positions: int32 [R, P], their columns, in order; -1 where a row has fewer. P is
            at least 1.
        slots: RaggedTensor int32 [S, None], the index of each one in the R*P positions.
    """
    rows, length = tf.unstack(tf.shape(batch["padding_mask"]))
    texts = segment_ids(offsets.row_splits)
    places = tf.gather(text_starts(batch), texts) + offsets.flat_values
    order = tf.argsort(places)
    row = tf.gather(places, order) // length
    counts = tf.math.bincount(row, minlength=rows, maxlength=rows)
    multiple = min(multiple, _MOST_ROUNDED)
    most = _round_up(tf.reduce_max(tf.concat([counts, [1]], 0)), multiple)
    column = tf.range(tf.size(row)) - tf.gather(tf.cumsum(counts, exclusive=True), row)
    slots = row * most + column
    columns = tf.gather(places, order) % length
    positions = put(tf.fill([rows * most], -1), slots, columns)
    back = tf.gather(slots, tf.math.invert_permutation(order))
    return tf.reshape(positions, [rows, most]), offsets.with_flat_values(back)


def text_starts(batch: Mapping[str, Any]) -> Any:
    """Return where each text begins in the rows laid end to end, int32 [S]."""
    starts = batch.get("cls_positions")
    if starts is None:
        rows, length = tf.unstack(tf.shape(batch["padding_mask"]))
        return tf.range(rows) * length
    return starts


def _places(sizes: Any, room: Any) -> tuple[Any, Any, Any]:
    """Return row, first columns and rank (from 1) in its row of each item.

    `sizes`, int32 [S, D], are the tokens of S items, each of D texts, and `room`, int32
    [D], the most tokens of a row. Returns int32 [S], [S, D] and [S].
    """
    count, parts = tf.shape(sizes)[0], sizes.shape[1]
    total = tf.reduce_sum(sizes, axis=1)
    order = tf.argsort(total, direction="DESCENDING", stable=True)
    ordered = tf.gather(sizes, order)

    def put(index: Any, used: Any, filled: Any, found: Any) -> Any:
        size = ordered[index]
        # An item always fits into the next empty row: there is a first row with room.
        fits = tf.reduce_all(used + size <= room, axis=1)
        row = tf.argmax(fits, output_type=tf.int32)
        one = tf.concat([[row], used[row], [filled[row] + 1]], axis=0)
        found = found.write(index, one)
        place = tf.reshape(row, [1, 1])
        used = tf.tensor_scatter_nd_add(used, place, size[tf.newaxis])
        filled = tf.tensor_scatter_nd_add(filled, place, [1])
        return index + 1, used, filled, found

    empty, none = tf.zeros_like(sizes), tf.zeros_like(total)
    _, _, _, found = tf.while_loop(
        lambda index, *_: index < count,
        put,
        (0, empty, none, tf.TensorArray(tf.int32, count, element_shape=[parts + 2])),
        parallel_iterations=1,
    )
    table = tf.scatter_nd(tf.expand_dims(order, 1), found.stack(), [count, parts + 2])
    return table[:, 0], table[:, 1:-1], table[:, -1]


def _round_up(length: Any, multiple: int) -> Any:
    return (length + multiple - 1) // multiple * multiple
