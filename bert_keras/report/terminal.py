"""Scores as text for a terminal: `score_table`."""

from __future__ import annotations

import itertools
from typing import Any

_MOST_ROWS = 40  # of a table; the others are only in the JSON and in the report


def score_table(scores: dict[str, Any]) -> str:
    """Return scores as aligned text: plain numbers, then the tables, such as classes.

    Other scores, and the rows of long tables after the first 40, are only in the JSON
    and in the report.
    """
    lines = [
        f"  {key:<28}{_number(value):>10}"
        for key, value in scores.items()
        if _is_number(value)
    ]
    for key, table in scores.items():
        if _is_row(table):  # one number per name: a table with one column
            table = {name: {"": value} for name, value in table.items()}
        if not (
            isinstance(table, dict) and table and all(map(_is_row, table.values()))
        ):
            continue
        more = len(table) - _MOST_ROWS
        table = dict(itertools.islice(table.items(), _MOST_ROWS))
        columns = list(dict.fromkeys(name for row in table.values() for name in row))
        widths = {name: max(11, len(name) + 2) for name in columns}
        width = max(28, *(len(name) + 2 for name in (key, *table)))
        heads = (f"{name:>{widths[name]}}" for name in columns)
        lines.append((f"  {key:<{width}}" + "".join(heads)).rstrip())
        for name, row in table.items():
            cells = (
                f"{_number(row[column]) if column in row else '-':>{widths[column]}}"
                for column in columns
            )
            lines.append(f"  {name:<{width}}" + "".join(cells))
        if more > 0:
            lines.append(f"  and {more:,} more rows")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_row(value: Any) -> bool:
    """Return whether a score maps names to numbers."""
    return (
        isinstance(value, dict) and bool(value) and all(map(_is_number, value.values()))
    )
