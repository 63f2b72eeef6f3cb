"""Tables of a report: `Table`, and the confusion matrix."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import markupsafe

from bert_keras.report.page import is_number, words

_MOST_CLASSES = 100  # above it, the most common confusions replace the matrix
_MANY_CLASSES = 12  # above it, a matrix is set in small type
_MOST_CONFUSIONS = 50


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with named rows.

    Args:
        corner: heading of the first column.
        columns: heading of each column after it.
        rows: name of each row, and its values.
    """

    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[object]]]

    @functools.cached_property
    def numeric(self) -> list[bool]:
        """Whether a column holds numbers."""
        places = range(len(self.columns))
        return [any(is_number(row[place]) for _, row in self.rows) for place in places]


class Part(NamedTuple):
    """How a score is shown: `table`, `matrix`, `pairs`, `chart`, `charts` or `word`.

    A note may stand above it.
    """

    kind: str
    value: Any
    note: str = ""


def nested_table(rows: Mapping[str, Mapping[str, object]], *, corner: str) -> Table:
    """Return a table of a mapping of mappings; a missing value is a dash."""
    keys = union(rows.values())
    cells = [(name, [row.get(key) for key in keys]) for name, row in rows.items()]
    return Table(corner, [words(key) for key in keys], cells)


def union(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the keys of all rows, in the order in which they first occur."""
    return list(dict.fromkeys(key for row in rows for key in row))


def confusions(matrix: Sequence[Sequence[Any]], names: Sequence[str]) -> Part:
    """Return a confusion matrix or, of many classes, its most common errors.

    Args:
        matrix: counts [C, C]; rows are true classes, columns predicted ones.
        names: C names; if there are not C, their numbers.
    """
    if len(names) != len(matrix):
        names = [str(number) for number in range(len(matrix))]
    shown = _matrix if len(names) <= _MOST_CLASSES else _most_common
    return shown(matrix, names)


def is_square(value: object) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(row, Sequence)
        and len(row) == len(value)
        and all(is_number(count) for count in row)
        for row in value
    )


def _matrix(matrix: Sequence[Sequence[Any]], names: Sequence[str]) -> Part:
    """Return a confusion matrix, each cell shaded by its share of the row."""
    rows = []
    for i, row in enumerate(matrix):
        total = sum(row)
        cells = []
        for j, count in enumerate(row):
            share = count / total if total else 0.0
            colour = "38 132 84" if i == j else "208 80 40"
            cells.append(
                {
                    "count": count,
                    "colour": f"{colour} / {0.08 + 0.67 * share:.2f}",
                    "title": f"true {names[i]}, predicted {names[j]}: "
                    f"{100 * share:.1f} % of the row",
                }
            )
        rows.append((names[i], cells))
    dense = len(names) > _MANY_CLASSES
    return Part("matrix", {"names": names, "rows": rows, "dense": dense})


def _most_common(matrix: Sequence[Sequence[Any]], names: Sequence[str]) -> Part:
    """Return the most common confusions: true class, predicted class, count."""
    cells = [
        (count, i, j)
        for i, row in enumerate(matrix)
        for j, count in enumerate(row)
        if i != j and count
    ]
    cells.sort(key=lambda item: -item[0])
    rows = [(names[i], [names[j], n]) for n, i, j in cells[:_MOST_CONFUSIONS]]
    note = (
        f"{len(names):,} classes are too many for a matrix; these are the most common "
        f"of {len(cells):,} confusions."
    )
    return Part("table", Table("True", ["Predicted", "Count"], rows), note)


def interval_of(
    slices: Mapping[str, Sequence[Mapping[str, Any]]], value: object
) -> tuple[float, float] | None:
    """Return the interval of a split's score: that of a slice with this score alone."""
    for rows in slices.values():
        if len(rows) == 1 and value in rows[0].values() and rows[0]["low"] is not None:
            return rows[0]["low"], rows[0]["high"]
    return None


def interval_bar(
    low: float, high: float, value: float, least: float, most: float
) -> markupsafe.Markup:
    """Return an interval as text and as a bar on an axis from `least` to `most`."""
    scale = 100 / ((most - least) or 1.0)
    start, end, middle = (2 + scale * (x - least) for x in (low, high, value))
    return markupsafe.Markup(
        f'<span class="interval">{low:.3f} to {high:.3f}'
        '<svg viewBox="0 0 104 12" aria-hidden="true"><path d="M2 6H102" '
        'stroke="currentColor" stroke-opacity=".2"/>'
        f'<path d="M{start:.1f} 6H{end:.1f}" stroke="#2f7fc1" stroke-width="4"/>'
        f'<circle cx="{middle:.1f}" cy="6" r="4" fill="#2f7fc1"/></svg></span>'
    )
