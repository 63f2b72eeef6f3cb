"""Choose which waiting rows are computed together, by their lengths.

`about_as_long` is for one text per row, where short texts would be padded; `that_fit`
is for packed rows, where several texts share a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bert_keras.text.packing import ROW_TOKENS

_MOST_PADDING = 0.125  # of the tokens of a batch
_SLACK = 1.05  # whole texts seldom fill rows to the last token


def about_as_long(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return the indices of the first length and of those near it.

    At most `max_tokens` are computed, and at most an eighth of them are padding.

    Args:
        lengths: tokens of the waiting rows, the oldest first.
        max_tokens: of the batch, padding included; the first may exceed it alone.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    low = high = order.index(0)
    real = lengths[0]

    def padding(first: int, last: int, added: int) -> float:
        size = (last - first + 1) * lengths[order[last]]
        return 1.0 if size > max_tokens else 1 - (real + added) / max(size, 1)

    while True:
        shorter = longer = 1.0
        if low > 0:
            shorter = padding(low - 1, high, lengths[order[low - 1]])
        if high + 1 < len(order):
            longer = padding(low, high + 1, lengths[order[high + 1]])
        if min(shorter, longer) > _MOST_PADDING:
            return sorted(order[low : high + 1])
        if longer <= shorter:
            high += 1
            real += lengths[order[high]]
        else:
            low -= 1
            real += lengths[order[low]]


def that_fit(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return the indices of the first length, and of those that fit into its rows.

    Rows are as long as the first text, or `ROW_TOKENS` if it is shorter: the cost of
    attention is quadratic in the row length.

    Args:
        lengths, max_tokens: as in `about_as_long`, without padding.
    """
    room = max(lengths[0], ROW_TOKENS)
    chosen, total = [0], lengths[0]
    for place, length in enumerate(lengths[1:], start=1):
        if length <= room and total + length <= max_tokens:
            chosen.append(place)
            total += length
    return chosen


def of_one_shape(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return the indices of the first rows, all of one length.

    Args:
        lengths, max_tokens: as in `about_as_long`.
    """
    return list(range(min(len(lengths), max(max_tokens // max(lengths[0], 1), 1))))


def rows_of(lengths: Sequence[int]) -> tuple[list[int], list[int], int]:
    """Return the row and first column of each text in packed rows, and their length.

    The layout is that of `pack_rows`: longest first, each into the first row with
    enough room.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    longest, total = lengths[order[0]], sum(lengths)
    full_rows = max(total // max(longest, ROW_TOKENS), 1)
    room = max(longest, math.ceil(total / full_rows * _SLACK))
    used: list[int] = []
    rows, columns = [0] * len(lengths), [0] * len(lengths)
    for place in order:
        size = lengths[place]
        row = next((i for i, full in enumerate(used) if full + size <= room), len(used))
        if row == len(used):
            used.append(0)
        rows[place], columns[place] = row, used[row]
        used[row] += size
    return rows, columns, max(used)
