"""Places in texts, whatever a tool counts: characters, UTF-16 units or bytes.

A character is a Unicode code point. JavaScript, Java and C# count UTF-16 units, of
which a character such as an emoji has two. The text that a span or an answer repeats
tells which of them it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np


class Place(NamedTuple):
    """A span of a context, and the text that its source gives for it, if any."""

    context: str
    start: int
    end: int
    text: str | None = None


Convert = Callable[[str, int], int]  # of an offset in a context to characters


def characters(context: str, offset: int) -> int:
    """Return an offset in characters unchanged."""
    return offset


def utf16_units(context: str, offset: int) -> int:
    """Return an offset in UTF-16 units in characters; -1 if it is within one.

    Example:
        >>> utf16_units("🎉 win", 3), utf16_units("🎉 win", 1)
        (2, -1)
    """
    return _converted(context, offset, (0xFFFF,))


def utf8_bytes(context: str, offset: int) -> int:
    """Return an offset in UTF-8 bytes in characters; -1 if it is within one."""
    return _converted(context, offset, (0x7F, 0x7FF, 0xFFFF))


def _converted(context: str, offset: int, longer: tuple[int, ...]) -> int:
    starts = _starts(context, longer)
    place = int(np.searchsorted(starts, offset))
    return place if place < len(starts) and starts[place] == offset else -1


@functools.lru_cache(maxsize=4)  # the places of a context come one after the other
def _starts(context: str, longer: tuple[int, ...]) -> np.ndarray:
    """Return the unit at which each character of N begins, and the end, int64 [N + 1].

    A character has one unit, and another for each of the `longer` code points below it.
    """
    codes = np.frombuffer(context.encode("utf-32-le", "surrogatepass"), "<u4")
    units = 1 + sum((codes > most).astype("int64") for most in longer)
    return np.concatenate([[0], np.cumsum(units)])


UNITS: dict[str, Convert] = {
    "characters": characters,
    "UTF-16 units": utf16_units,
    "UTF-8 bytes": utf8_bytes,
}


def unit_of(places: Iterable[Place]) -> str:
    """Return the first of `UNITS` in which all places have the text that they repeat.

    `characters` if there is none, or no place repeats its text.

    Example:
        >>> unit_of([Place("🎉 win with Anna", 12, 16, "Anna")])
        'UTF-16 units'
    """
    named: Sequence[Place] = [place for place in places if place.text]
    for unit, convert in UNITS.items():
        if all(is_right(place, convert) for place in named):
            return unit
    return "characters"


def is_right(place: Place, convert: Convert = characters) -> bool:
    """Return whether the context has the place's text there; true if it has none."""
    if place.text is None:
        return True
    context, start, end, text = place
    first, last = convert(context, start), convert(context, end)
    return 0 <= first <= last and context[first:last] == text
