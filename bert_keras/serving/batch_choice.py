"""Choose which waiting rows are computed together, by their lengths.

`group_by_length` is for one text per row, where short texts would be padded;
`pack_first_fit` is for packed rows, where several texts share a row. `pack_or_group`
takes the one of both that computes less for a token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bert_keras.text.packing import ROW_TOKENS

_SLACK = 1.05  # whole texts seldom fill rows to the last token
_WIDTHS = (ROW_TOKENS, 128, 192, 256, 384, 512)
_WIDTH_STEP = 8
_MOST_ROOM = 1.08  # of rows of these widths, as a share of the texts in them
# What a batch costs, in tokens of a narrow row: attention by the width, and a call.
_OF_WIDTH, _OF_CALL = 0.0012, 40
_SAVED = _OF_CALL / 2  # by a text in a batch: in another one it would share the call


def group_by_length(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return the indices of the first length and of lengths near it.

    A text joins them while it adds less padding than it saves of another call.

    Args:
        lengths: tokens of the waiting rows, the oldest first.
        max_tokens: of the batch, padding included; the first may exceed it alone.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    low = order.index(0)
    high, real = low + 1, lengths[0]
    most, chosen = 0.0, [0]

    def gain(first: int, last: int, tokens: int) -> float:
        """Return the tokens that the lengths in this range of `order` save."""
        size = (last - first) * lengths[order[last - 1]]
        saved = _SAVED * (last - first - 1)
        return saved - (size - tokens) if size <= max_tokens else -math.inf

    while True:
        shorter = longer = -math.inf
        if low > 0:
            shorter = gain(low - 1, high, real + lengths[order[low - 1]])
        if high < len(order):
            longer = gain(low, high + 1, real + lengths[order[high]])
        found = max(shorter, longer)
        if found == -math.inf:
            return sorted(chosen)
        if longer >= shorter:
            real += lengths[order[high]]
            high += 1
        else:
            low -= 1
            real += lengths[order[low]]
        if found >= most:
            most, chosen = found, order[low:high]


def pack_first_fit(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return the indices of the first length, and of lengths that fill its rows.

    Rows have the smallest of a few widths that the first text fits into, since the cost
    of attention is quadratic in the width. Few widths give few shapes of batches: the
    processor's library prepares and caches each operation for each shape.

    Args:
        lengths, max_tokens: as in `group_by_length`.
    """
    width = max(min(_row_width(lengths[0]), max_tokens), lengths[0])
    used = [lengths[0]] + [0] * (max_tokens // width - 1)
    chosen = [0]
    for place, length in enumerate(lengths[1:], start=1):
        row = _first_with_room(used, length, width)
        if row < len(used):
            used[row] += length
            chosen.append(place)
    return chosen


def pack_or_group(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return the choice of `pack_first_fit` or of `group_by_length`.

    Texts that are longer than half of a row do not share it, so that rows of similar
    texts are narrower. For rankings of ten texts of 70 tokens this is a fifth less.

    Args:
        lengths, max_tokens: as in `group_by_length`.
    """

    def cost(choice: list[int]) -> float:
        """Return the cost of a token of the chosen texts."""
        chosen = [lengths[place] for place in choice]
        rows, _, width = rows_of(chosen)
        computed = (1 + max(rows)) * width
        return (computed * (1 + _OF_WIDTH * width) + _OF_CALL) / sum(chosen)

    packed = pack_first_fit(lengths, max_tokens)
    if len(lengths) == 1:
        return packed
    return min(packed, group_by_length(lengths, max_tokens), key=cost)


def of_one_shape(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return the indices of the first rows, all of one length.

    Args:
        lengths, max_tokens: as in `group_by_length`.
    """
    return list(range(min(len(lengths), max(max_tokens // max(lengths[0], 1), 1))))


def rows_of(lengths: Sequence[int]) -> tuple[list[int], list[int], int]:
    """Return the row and first column of each text in packed rows, and their width.

    Each text is placed into the first row with enough room, in the order of
    `pack_first_fit`. The width is one of its widths if the texts fill its rows;
    otherwise it is what they need with the longest placed first, as in `pack_rows`.
    """
    if len(lengths) == 1:
        return [0], [0], lengths[0]
    longest, total = max(lengths), sum(lengths)
    width = _row_width(longest)
    found = _placed(lengths, width, range(len(lengths)))
    if (1 + max(found[0])) * width > total * _MOST_ROOM:
        full_rows = max(total // max(longest, ROW_TOKENS), 1)
        room = max(longest, math.ceil(total / full_rows * _SLACK))
        by_size = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
        found = _placed(lengths, room, by_size)
        ends = [first + size for first, size in zip(found[1], lengths, strict=True)]
        width = -(-max(ends) // _WIDTH_STEP) * _WIDTH_STEP
    return *found, width


def _row_width(longest: int) -> int:
    return next((width for width in _WIDTHS if width >= longest), longest)


def _placed(
    lengths: Sequence[int], room: int, order: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the row and first column of each text in rows with this much room."""
    used: list[int] = []
    rows, columns = [0] * len(lengths), [0] * len(lengths)
    for place in order:
        row = _first_with_room(used, lengths[place], room)
        if row == len(used):
            used.append(0)
        rows[place], columns[place] = row, used[row]
        used[row] += lengths[place]
    return rows, columns


def _first_with_room(used: Sequence[int], size: int, room: int) -> int:
    """Return the first row with room for more tokens; the number of rows if none."""
    fits = (row for row, full in enumerate(used) if full + size <= room)
    return next(fits, len(used))
