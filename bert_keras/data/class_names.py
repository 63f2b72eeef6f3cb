"""Class names: their order, and their entries in `config.json`."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.errors import ConfigError, first_of, shown

if TYPE_CHECKING:
    from bert_keras.data.table import Columns

_MOST_LETTERS = 1000  # of a name in data: longer ones are texts in the wrong column


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names, sorted; by value if all are whole numbers.

    Names of equal value, such as "1" and "01", are sorted as strings, so that the order
    is deterministic.

    Example:
        >>> sorted_names({"10", "9", "09"})
        ('09', '9', '10')
    """
    found = sorted(set(names))
    if all(name.isdecimal() for name in found):
        found.sort(key=_value)
    return tuple(found)


def check_lengths(columns: Columns, names: Iterable[Iterable[str]]) -> None:
    """Raise DataError, by line, if a class of a row is too long to be a name."""
    problems = [
        (
            row,
            f"`label` must have {_MOST_LETTERS:,} characters at most; received "
            f"{len(name):,}: {shown(name)}",
        )
        for row, found in enumerate(names)
        for name in found
        if len(name) > _MOST_LETTERS
    ]
    columns.refuse(problems)


def listed(names: Sequence[str]) -> str:
    """Return the first class names for an error, each shortened."""
    cut = [name if len(name) <= 40 else name[:39] + "…" for name in names]
    return first_of(cut, most=12)


def _value(name: str) -> tuple[int, str]:
    """Return a sort key that orders decimal numbers of any script by value."""
    # Not `int`: it accepts at most 4,300 digits.
    digits = "".join(str(unicodedata.decimal(digit)) for digit in name).lstrip("0")
    return len(digits), digits


def class_entries(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the entries of `config.json` from which Hugging Face reads the names."""
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def class_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the classes in a Hugging Face `config.json`, by number.

    Without `id2label` there are two, Hugging Face's default.

    Raises:
        ConfigError: `id2label` does not map 0, 1 … to different names.
    """
    names = config.get("id2label")
    if names is None:
        names = {"0": "LABEL_0", "1": "LABEL_1"}
    try:
        by_id = {int(key): _label(value) for key, value in names.items()}
        found = tuple(by_id[index] for index in range(len(by_id)))
    except (AttributeError, KeyError, TypeError, ValueError):
        found = ()
    if not found or len(set(found)) != len(found):
        raise ConfigError(
            "`id2label` must map 0, 1 … to different class names; "
            f"received {shown(names, longest=200)}"
        )
    return found


def check_names(names: Any, *, least: int, what: str = "names") -> tuple[str, ...]:
    """Return class names, a list or tuple of strings, as a tuple.

    Raises:
        ConfigError: they are not strings, fewer than `least`, or not all different.
    """
    count = "one" if least == 1 else "two"
    if not isinstance(names, list | tuple) or not all(
        isinstance(name, str) for name in names
    ):
        raise ConfigError(
            f"`classes` must be a list of strings; received {shown(names)}"
        )
    if len(names) < least or len(set(names)) != len(names):
        raise ConfigError(
            f"`classes` must be {count} or more different {what}; "
            f"received {', '.join(map(shown, names[:12])) or 'none'}"
        )
    return tuple(names)


def _label(value: Any) -> str:
    """Return a class name; Hugging Face configs may also hold numbers."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError
    return str(value)
