"""Tables of a report: `Table`, and the scores of classes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_keras.lazy_names import deferred
from bert_keras.report.values import is_number, words

if TYPE_CHECKING:
    import markupsafe
else:
    (markupsafe,) = deferred("markupsafe")

_WORST = 15  # classes that are listed; all follow, folded


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
    """How a score is shown.

    Attributes:
        kind: `table`, `rows`, `matrix`, `pairs`, `chart`, `charts` or `word`.
        value: what the template of this kind shows.
        note: stands above it.
        is_folded: whether it is hidden until its heading is pressed.
    """

    kind: str
    value: Any
    note: str = ""
    is_folded: bool = False


def nested_table(rows: Mapping[str, Mapping[str, object]], *, corner: str) -> Table:
    """Return a table of a mapping of mappings; a missing value is a dash."""
    keys = union(rows.values())
    cells = [(name, [row.get(key) for key in keys]) for name, row in rows.items()]
    return Table(corner, [words(key) for key in keys], cells)


def union(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the keys of all rows, in the order in which they first occur."""
    return list(dict.fromkeys(key for row in rows for key in row))


def class_tables(
    per_class: Mapping[str, Mapping[str, object]],
) -> list[tuple[str, Part]]:
    """Return the scores of classes, the worst first; of many, the worst apart too."""
    rows = worst_first(per_class)
    every = nested_table(rows, corner="Class")
    if len(rows) <= _WORST:
        return [("classes, worst first", Part("table", every))]
    worst = dataclasses.replace(every, rows=every.rows[:_WORST])
    return [
        (f"worst {_WORST} of {len(rows):,} classes", Part("table", worst)),
        (f"all {len(rows):,} classes", Part("table", every, is_folded=True)),
    ]


def worst_first(
    per_class: Mapping[str, Mapping[str, Any]],
) -> dict[str, Mapping[str, Any]]:
    """Return the scores of classes by F1, the lowest first.

    A class without rows comes last, with `None` for its scores.
    """
    rows = {
        name: row
        if row.get("support") != 0
        else {key: 0 if key == "support" else None for key in row}
        for name, row in per_class.items()
    }

    def rank(name: str) -> tuple[bool, float, float]:
        value = rows[name].get("f1")
        return value is None, value or 0.0, -(rows[name].get("support") or 0)

    return {name: rows[name] for name in sorted(rows, key=rank)}


def interval_of(
    slices: Mapping[str, Sequence[Mapping[str, Any]]], value: object
) -> tuple[float, float] | None:
    """Return the confidence interval of a split's main score; `None` if unknown."""
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
