"""Rows that occur twice: in training and in dev, or with different labels."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.data.memory import MISSING_WORDS
from bert_keras.errors import first_of

_AT_ONCE = 1 << 16  # rows
Texts = Sequence[Sequence[Any]]  # of each role the N texts, or lists of words


def shared_rows(
    train: Texts, other: Texts, columns: Columns, *, held_out: bool = False
) -> list[str]:
    """Return a note about rows of another set that are also training rows.

    Args:
        train: texts of the training rows.
        other: texts of the other set.
        columns: the rows of the other set.
        held_out: whether these come from the same data as the training rows.

    Example:
        >>> shared_rows([["a", "b"]], [["b", "c"]], as_columns(text=["b", "c"]))
        ['rows in memory: 1 of 2 rows is also a training row: row 1']
    """
    # Not `np.isin`, which sorts a copy of all keys: training rows may be many.
    keys = _keys(other)
    known = np.unique(keys)
    is_shared = np.zeros(len(known), bool)
    for start in range(0, len(train[0]), _AT_ONCE):
        some = _keys([texts[start : start + _AT_ONCE] for texts in train])
        places = _places(some, known)
        is_shared[places[places >= 0]] = True
    rows = np.flatnonzero(is_shared[np.searchsorted(known, keys)]).tolist()
    if not rows:
        return []
    is_one = len(rows) == 1
    which = "rows"
    what = "is also a training row" if is_one else "are also training rows"
    if held_out:
        which = "held-out rows"
        what = f"{'has' if is_one else 'have'} the texts of a row that is trained on"
    return [
        f"{columns.path}: {len(rows):,} of {len(columns):,} {which} {what}: "
        f"{columns.places(rows)}"
    ]


def new_rows(known: Iterable[Texts], texts: Texts) -> list[int]:
    """Return the first row of all texts that are in no known set.

    Example:
        >>> new_rows([[["a", "b"]], [["c"]]], [["b", "d", "d", "e"]])
        [1, 3]
    """
    seen = {key for each in known for key in _keys(each)}
    found: dict[int, int] = {}
    for row, key in enumerate(_keys(texts)):
        if key not in seen:
            found.setdefault(key, row)
    return list(found.values())


def repeated_texts(texts: Texts) -> list[int] | None:
    """Return a number for the texts of each row, equal for equal ones.

    `None` if all differ.

    Example:
        >>> repeated_texts([["a", "b", "a"]])
        [0, 1, 0]
    """
    keys = _keys(texts)
    different, numbers = np.unique(keys, return_inverse=True)
    return None if len(different) == len(keys) else numbers.reshape(-1).tolist()


def contradicting_labels(
    texts: Texts, labels: Sequence[Hashable], columns: Columns
) -> list[str]:
    """Return a note about rows with the same texts and different labels.

    Example:
        >>> contradicting_labels(
        ...     [["a", "b", "a"]], ["x", "x", "y"], as_columns(text=["a", "b", "a"])
        ... )
        ['rows in memory: 2 rows have the texts of another row and another label: rows
        1, 3']
    """
    keys, codes = _keys(texts), dict[Hashable, int]()
    twice = np.sort(keys)
    twice = np.unique(twice[1:][twice[1:] == twice[:-1]])
    # Few rows of millions have the texts of another: only these are compared.
    repeated = np.flatnonzero(_places(keys, twice) >= 0)
    keys = keys[repeated]
    given = (labels[row] for row in repeated.tolist())
    numbers = np.array([codes.setdefault(each, len(codes)) for each in given])
    order = np.argsort(keys, kind="stable")
    sorted_keys, sorted_numbers = keys[order], numbers[order]
    is_same_text = sorted_keys[1:] == sorted_keys[:-1]
    is_mixed = is_same_text & (sorted_numbers[1:] != sorted_numbers[:-1])
    if not is_mixed.any():
        return []
    rows = repeated[np.isin(keys, sorted_keys[1:][is_mixed])].tolist()
    return [
        f"{columns.path}: {len(rows):,} rows have the texts of another row and another "
        f"label: {columns.places(rows)}"
    ]


def near_names(names: Iterable[str], path: str) -> list[str]:
    """Return notes about class names that are doubtful.

    They differ only in case or inner spaces, or other tools write them for none.

    Example:
        >>> near_names(["good", "Good", "bad", "good"], "a.csv")
        ['a.csv: classes differ only in case or spaces: Good (1), good (2)']
    """
    counts = collections.Counter(names)
    alike: dict[str, list[str]] = {}
    for name in sorted(counts):
        alike.setdefault("".join(name.casefold().split()), []).append(name)
    groups = [
        ", ".join(f"{name[:40]} ({counts[name]:,})" for name in group)
        for group in alike.values()
        if len(group) > 1
    ]
    notes = []
    if groups:
        shown = first_of(groups, between="; ")
        notes.append(f"{path}: classes differ only in case or spaces: {shown}")
    blank = [f"{name} ({counts[name]:,})" for name in MISSING_WORDS if name in counts]
    if blank:
        notes.append(
            f"{path}: classes that are written for a missing value by other tools: "
            f"{', '.join(blank)}"
        )
    return notes


def _places(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return where each key is among the known ones, which are sorted, int64 [N].

    -1 if it is not. Unlike `np.isin`, it sorts no copy of the keys.
    """
    found = np.full(len(keys), -1)
    for start in range(0, len(keys) if len(known) else 0, _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        places = np.searchsorted(known, some)
        places[places == len(known)] = 0
        found[start : start + _AT_ONCE] = np.where(known[places] == some, places, -1)
    return found


def _keys(texts: Texts) -> np.ndarray:
    """Return a hash of each row, int64 [N], which takes less memory than its texts."""
    rows = zip(*texts, strict=True)
    return np.fromiter(
        (hash(tuple(t if isinstance(t, str) else tuple(t) for t in r)) for r in rows),
        "int64",
        len(texts[0]),
    )
