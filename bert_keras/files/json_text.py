"""JSON as its standard has it, without NaN and Infinity: `json_text`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from bert_keras.errors import BertKerasError


def json_text(
    value: Any, *, ensure_ascii: bool = False, indent: int | None = None
) -> str:
    """Return a value as JSON that every parser reads, on one line without `indent`.

    Raises:
        BertKerasError: names the first number in it that is not finite.
    """
    try:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, allow_nan=False
        )
    except ValueError:
        for place, number in _numbers("", value):
            if not math.isfinite(number):
                raise BertKerasError(
                    f"`{place}` must be finite to be written as JSON; received {number}"
                ) from None
        raise


def _numbers(place: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield each float in a value with its place, such as `classes.ham.f1`."""
    if isinstance(value, float):
        yield place, value
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = enumerate(value)
    for key, each in inside:
        yield from _numbers(f"{place}.{key}" if place else str(key), each)
