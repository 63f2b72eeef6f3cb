"""Class names: their one spelling, their order, and their entries in `config.json`.

A class has one name however a file or a frame spells it: without spaces around it, in
Unicode's form NFC, `true` for `True`, and `1` for `1.0` if all labels are whole.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.data.json_rows import list_in
from bert_keras.data.text_column import coded
from bert_keras.errors import ConfigError, first_of, shown
from bert_keras.runs.notes import say_once

_MOST_LETTERS = 1000  # of a name in data: longer ones are texts in the wrong column


_WHOLE = re.compile(r"([+-]?\d+)(\.0+)?")


def cleaned(name: str) -> str:
    """Return a name without spaces around it, in NFC."""
    return unicodedata.normalize("NFC", name).strip()


def label_names(cells: Sequence[str]) -> list[str]:
    """Return the class of each cell.

    Example:
        >>> label_names([" good\u00a0", "good"]), label_names(["1.0", "0"])
        (['good', 'good'], ['1', '0'])
        >>> label_names(["True", "false"]), label_names(["4.0", "4.5"])
        (['true', 'false'], ['4.0', '4.5'])
    """
    distinct, codes = coded(cells)
    names = [_spelled(cell) for cell in distinct]
    if all(map(_WHOLE.fullmatch, names)):
        names = [comparable(name) for name in names]
    found: list[str] = np.array(names, object)[codes].tolist()
    return found


@functools.lru_cache(maxsize=1 << 16)
def comparable(name: str) -> str:
    """Return the form in which names are compared, whatever their spelling."""
    name = _spelled(name)
    whole = _WHOLE.fullmatch(name)
    return whole[1] if whole else name


def _spelled(cell: str) -> str:
    """Return the name in a cell, which may be a list of this name alone."""
    items = list_in(cell) or []
    name = cleaned(str(items[0]) if len(items) == 1 else cell)
    return name.lower() if name in ("True", "TRUE", "False", "FALSE") else name


def numbers_of(cells: Iterable[str], names: Sequence[str]) -> dict[str, int]:
    """Return the class number of each distinct cell that names a class.

    Example:
        >>> numbers_of(["spam ", "eggs"], ["ham", "spam"])
        {'spam ': 1}
    """
    exact = {name: number for number, name in enumerate(names)}
    alike = {comparable(name): number for number, name in enumerate(names)}
    found = {}
    for cell in set(cells):
        number = exact.get(cell, alike.get(comparable(cell)))
        if number is not None:
            found[cell] = number
    return found


def are_positions(cells: Iterable[str], names: Sequence[str]) -> bool:
    """Return whether all cells are class numbers from 0, and no name is a number."""
    found = set(cells)
    return (
        bool(found)
        and not any(map(_WHOLE.fullmatch, names))
        and all(map(_WHOLE.fullmatch, found))
        and all(0 <= int(comparable(cell)) < len(names) for cell in found)
    )


def say_numbers(
    path: str, role: str, names: Sequence[str], *, of: str = "classes"
) -> None:
    """Say that the numbers in a column are the positions of names."""
    meant = ", ".join(f"{number} {name}" for number, name in enumerate(names))
    say_once(f"{path}: `{role}` holds the numbers of {of}: {meant}")


def with_clean_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a new task, its `classes` without spaces around them."""
    classes = settings.get("classes")
    if not isinstance(classes, list | tuple):
        return dict(settings)
    names = [cleaned(name) if isinstance(name, str) else name for name in classes]
    return {**settings, "classes": names}


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


# Brackets or quotes around a name or on one of its sides: of a list that was cut.
_CUT = re.compile(r"""[\[{].*[\]}]|['"].*['"]|\(['"].*|.*['"],?\)""", re.DOTALL)


def unfit_names(names: Iterable[Iterable[str]]) -> list[tuple[int, str]]:
    """Return the rows whose classes cannot be names, each with the reason."""
    rows: dict[str, int] = {}  # the first of each name
    for row, found in enumerate(names):
        for name in found:
            rows.setdefault(name, row)
    faults = ((row, _unfit(name)) for name, row in rows.items())
    return [(row, fault) for row, fault in faults if fault]


def _unfit(name: str) -> str:
    """Return why a text cannot be the name of a class, empty if it can."""
    if len(name) > _MOST_LETTERS:
        return (
            f"`label` must have {_MOST_LETTERS:,} characters at most; received "
            f"{len(name):,}: {shown(name)}"
        )
    if _CUT.fullmatch(name) or name.count("[") != name.count("]"):
        return (
            "`label` must be a name or a list of names as Python or JSON writes it, "
            f"without other brackets or quotes; received {name!r}"
        )
    return ""


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


def differing_numbers(config: Mapping[str, Any]) -> list[str]:
    """Return a note if `label2id` of a `config.json` numbers classes otherwise.

    Example:
        >>> differing_numbers({"id2label": {"0": "a"}, "label2id": {"a": 1}})
        ['`label2id` is not used, as `id2label` has other numbers: a is 0, not 1']
    """
    names, numbers = config.get("id2label"), config.get("label2id")
    if not isinstance(names, Mapping) or not isinstance(numbers, Mapping):
        return []
    of_name = {str(name): str(number) for number, name in names.items()}
    others = [
        f"{name} is {number}, not "
        + (shown(numbers[name]) if name in numbers else "in `label2id`")
        for name, number in of_name.items()
        if name not in numbers or str(numbers[name]) != number
    ]
    if not others:
        return []
    return [
        "`label2id` is not used, as `id2label` has other numbers: "
        f"{first_of(others, most=3, between='; ')}"
    ]


def renamed(classes: Any, count: int) -> tuple[str, ...]:
    """Return new names of outputs, from a list or from a word with commas.

    Raises:
        ConfigError: they are not as many as the outputs, or not all different.
    """
    names = _given_names(classes)
    if len(set(names)) != count or len(names) != count or "" in names:
        raise ConfigError(
            f"`classes` must name each of the {count} outputs, all different; "
            f"received {shown(classes)}"
        )
    return names


def chosen_names(classes: Any, *, least: int) -> tuple[str, ...]:
    """Return names of classes, from a list or from a word with commas.

    Raises:
        ConfigError: one is empty, they are not all different, or fewer than `least`.
    """
    names = _given_names(classes)
    if len(names) < least or len(set(names)) != len(names) or "" in names:
        count = "one" if least == 1 else "two"
        raise ConfigError(
            f"`classes` must be {count} or more different names; "
            f"received {shown(classes)}"
        )
    return names


def _given_names(classes: Any) -> tuple[str, ...]:
    given = classes.split(",") if isinstance(classes, str) else classes
    found = given if isinstance(given, list | tuple) else []
    return tuple(cleaned(str(name)) for name in found)


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
