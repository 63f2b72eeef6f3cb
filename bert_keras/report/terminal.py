"""Scores as text for a terminal: `score_table`."""

from __future__ import annotations

import itertools
from typing import Any

_MOST_ROWS = 40  # of a table; the others are only in the JSON and in the report
_WORST_CLASSES = 20  # that are shown if there are more than that


def score_table(scores: dict[str, Any]) -> str:
    """Return scores as aligned text: plain numbers, then the tables, such as classes.

    Classes are sorted by F1, the worst first, and those without rows last; of more than
    40, the 20 worst are shown. Other scores, and the rows of other tables after the
    first 40, are only in the JSON and in the report.
    """
    lines = [
        f"  {key:<28}{_number(value):>10}"
        for key, value in scores.items()
        if _is_number(value)
    ]
    for key, table in scores.items():
        if _is_row(table):  # one number per name: a table with one column
            table = {name: {"": value} for name, value in table.items()}
        if isinstance(table, dict) and table and all(map(_is_row, table.values())):
            lines += _table_lines(key, table)
    return "\n".join(lines)


def _table_lines(key: str, table: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of a table of rows by name."""
    count, most, rest = len(table), _MOST_ROWS, "more rows"
    title = key
    if all({"f1", "support"} <= row.keys() for row in table.values()):
        most = _MOST_ROWS if count <= _MOST_ROWS else _WORST_CLASSES
        title, rest = f"{key}, worst first", "classes that are better or have no rows"
        table = dict(sorted(table.items(), key=_rank_of_class))
        table = {name: _without_rows(row) for name, row in table.items()}
    table = {name: row for name, row in itertools.islice(table.items(), most)}
    columns = list(dict.fromkeys(name for row in table.values() for name in row))
    widths = {name: max(11, len(name) + 2) for name in columns}
    width = max(28, *(len(name) + 2 for name in (title, *table)))
    heads = (f"{name:>{widths[name]}}" for name in columns)
    lines = [(f"  {title:<{width}}" + "".join(heads)).rstrip()]
    for name, row in table.items():
        cells = (f"{_number(row.get(each)):>{widths[each]}}" for each in columns)
        lines.append(f"  {name:<{width}}" + "".join(cells))
    if count > most:
        lines.append(f"  and {count - most:,} {rest}")
    return lines


def _rank_of_class(item: tuple[str, dict[str, Any]]) -> tuple[bool, float, float]:
    """Return the key that sorts classes by F1, then by rows; without rows last."""
    _, row = item
    return not row["support"], row["f1"], -row["support"]


def _without_rows(row: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of a class, unknown ones if it has no rows."""
    if row["support"]:
        return row
    return {name: 0 if name == "support" else None for name in row}


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_row(value: Any) -> bool:
    """Return whether a score maps names to numbers."""
    return (
        isinstance(value, dict) and bool(value) and all(map(_is_number, value.values()))
    )
