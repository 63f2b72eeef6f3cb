"""Protobuf messages, field by field: numbers and bytes, nothing trusted.

Source: protobuf.dev, "Encoding". Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterator


class BrokenError(Exception):
    """The bytes are not what they should be; the message says where."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, of at most 64 bits, and the place after it."""
    value = 0
    for shift in range(0, 64, 7):
        byte = data[at]  # IndexError beyond the end
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            if value >= 1 << 64:
                break
            return value, at
    raise BrokenError("a number of more than 64 bits")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the (number, value) pairs of a protobuf message.

    Raises:
        BrokenError, IndexError: the bytes are no such message.
    """
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise BrokenError("an unknown kind of field")
        if not tag >> 3 or at + size > len(data):
            raise BrokenError("a field outside its message")
        yield tag >> 3, data[at : at + size]
        at += size
