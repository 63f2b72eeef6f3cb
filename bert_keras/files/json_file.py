"""JSON: one strict reader for every file of a model folder, and `json_text` to write.

Python's own `json` spends memory and time on input that no model needs: numbers of any
length, nesting until the stack is full, NaN, lone surrogates, which no file can store
as text, and duplicate keys, of which it drops one value. Here each of these is an
error.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from bert_keras.errors import BertKerasError, CheckpointError, one_line
from bert_keras.files.lfs import POINTER, REMEDY

_MOST_BYTES = 32 << 20  # a tokenizer.json of 250,000 tokens has 9 MB
_MOST_DIGITS = 40  # Hugging Face writes 1e30 as an integer
_DEEPEST = 32  # a preset of KerasHub has 7 levels


class JSONError(ValueError):
    """A text is not JSON that this module accepts; the message is one short line."""


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        JSONError: it is broken, a number has more than 40 digits or is not finite, a
            key has two values, lists and objects are nested more than 32 deep, or a
            string is not Unicode text.
    """
    try:
        value = json.loads(
            text,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=refuse_constant,
            object_pairs_hook=_object,
        )
    except JSONError:
        raise
    except RecursionError:
        raise JSONError(_TOO_DEEP) from None
    except ValueError as error:
        raise JSONError(one_line(error)) from None
    _check(value)
    return value


def read_json(
    path: str | os.PathLike[str],
    *,
    kind: type[dict[str, Any]] | type[list[Any]] = dict,
    error: type[BertKerasError] = CheckpointError,
) -> Any:
    """Return the JSON object in a file, or a list if `kind` is `list`.

    Args:
        path: a regular file of at most 32 MB, UTF-8.
        kind: `dict` or `list`.
        error: the exception class to raise.

    Raises:
        CheckpointError: or `error`: the file is absent, too large, or does not hold
            such JSON; see `parse_json`.
    """
    place = os.fspath(path)
    if not os.path.isfile(path):  # also false if permission is missing
        raise error(f"{place}: no such file")
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if data.startswith(POINTER):
            raise error(f"{place}: is {REMEDY}")
        if len(data) > _MOST_BYTES:
            raise error(f"{place}: must hold at most {_MOST_BYTES:,} bytes")
        value = parse_json(data.decode("utf-8"))
    except OSError as reason:
        raise error(f"{place}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError as reason:
        raise error(
            f"{place}: must be UTF-8 text; byte {reason.start} is not"
        ) from None
    except JSONError as reason:
        raise error(f"{place}: not a JSON file: {reason}") from None
    if not isinstance(value, kind):
        wanted = "object" if kind is dict else "list"
        raise error(
            f"{place}: must hold a JSON {wanted}; received {type(value).__name__}"
        )
    return value


_TOO_DEEP = f"lists and objects are nested more than {_DEEPEST} deep"


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise JSONError(
            f"a number must have at most {_MOST_DIGITS} digits; has {len(text):,}"
        )
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JSONError(f"a number is out of range: {one_line(text, longest=40)}")
    return value


def refuse_constant(name: str) -> NoReturn:
    """Raise JSONError for NaN and Infinity: the `parse_constant` of `json.loads`."""
    raise JSONError(f"{name} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if seen.setdefault(key, value) != value:
                raise JSONError(
                    f"the key {one_line(repr(key), longest=80)} has two values"
                )
    return found


def _check(value: Any, depth: int = 0) -> None:
    """Raise if nesting is too deep, or a string is not Unicode text."""
    if isinstance(value, str):
        if not value.isascii() and not is_unicode(value):
            raise JSONError(
                f"a string holds half of a surrogate pair: {ascii(value)[:80]}"
            )
    elif isinstance(value, list | dict):
        if value and depth == _DEEPEST:
            raise JSONError(_TOO_DEEP)
        for each in value:
            _check(each, depth + 1)
        for each in value.values() if isinstance(value, dict) else ():
            _check(each, depth + 1)


def is_unicode(text: str) -> bool:
    """Return whether a text can be written as UTF-8; JSON's `\\ud800` alone cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def json_text(
    value: Any, *, ensure_ascii: bool = False, indent: int | None = None
) -> str:
    """Return a value as JSON that every parser accepts, on one line without `indent`.

    Raises:
        BertKerasError: names the first number that is not finite.
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
