"""Scores as text for a terminal: `score_table`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bert_keras.report.tables import union, worst_first
from bert_keras.report.values import is_number, words

_OF_SLICES = ("slice", "rows", "low", "high")  # besides the score
_MOST_ROWS = 40  # of a table; the others are only in the JSON and in the report
_WORST_CLASSES = 20  # that are shown if there are more than that


def plan_lines(choices: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the choices of a run as lines of aligned text.

    Each has `name`, `value`, `reason` and `option`. The reasons, whose lengths differ
    most, are in the last column.
    """
    keys = ("name", "value", "option")
    widths = {key: max((len(row[key]) for row in choices), default=0) for key in keys}
    return [
        "  ".join([*(f"{row[key]:<{widths[key]}}" for key in keys), row["reason"]])
        for row in choices
    ]


def score_table(scores: dict[str, Any]) -> str:
    """Return scores as aligned text: numbers and words, then tables, such as classes.

    Classes are sorted by F1, the worst first and classes without rows last; of more
    than 40, the 20 worst are shown. Other scores, and the rows of other tables after
    the first 40, are only in the JSON and in the report.
    """
    lines = [
        f"  {words(key):<28}{_number(value):>10}"
        for key, value in scores.items()
        if is_number(value)
    ]
    lines += [
        f"  {words(key):<28}  {value}"
        for key, value in scores.items()
        if isinstance(value, str)
    ]
    for key, table in scores.items():
        if _is_row(table):  # one number per name: a table with one column
            table = {name: {"": value} for name, value in table.items()}
        if isinstance(table, dict) and table and all(map(_is_row, table.values())):
            if table.keys() <= scores.keys():  # such as their intervals
                table = {words(name): row for name, row in table.items()}
            lines += _table_lines(key, table)
    return "\n".join(lines)


def _table_lines(key: str, table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table of rows by name."""
    count, most, rest = len(table), _MOST_ROWS, "more rows"
    title = words(key)
    if all({"f1", "support"} <= row.keys() for row in table.values()):
        most = _MOST_ROWS if count <= _MOST_ROWS else _WORST_CLASSES
        title, rest = f"{title}, worst first", "classes that are better or have no rows"
        table = worst_first(table)
    table = dict(itertools.islice(table.items(), most))
    columns = {name: words(name) for name in union(table.values())}
    widths = {name: max(11, len(shown) + 2) for name, shown in columns.items()}
    width = max(28, *(len(name) + 2 for name in (title, *table)))
    heads = (f"{shown:>{widths[name]}}" for name, shown in columns.items())
    lines = [(f"  {title:<{width}}" + "".join(heads)).rstrip()]
    for name, row in table.items():
        cells = (f"{_number(row.get(each), each):>{widths[each]}}" for each in columns)
        lines.append(f"  {name:<{width}}" + "".join(cells))
    if count > most:
        lines.append(f"  and {count - most:,} {rest}")
    return lines


def _number(value: float | None, name: str = "") -> str:
    if value is None:
        return "-"
    digits = 1 if name == "seconds" else 4
    return f"{value:.{digits}f}" if isinstance(value, float) else f"{value:,}"


def _is_row(value: Any) -> bool:
    """Return whether a score maps names to numbers."""
    return (
        isinstance(value, dict) and bool(value) and all(map(is_number, value.values()))
    )


def interval_line(slices: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the 95% interval of the best score of all rows, from `slice_scores`."""
    (row,) = next((rows for rows in slices.values() if len(rows) == 1), [{}])
    low, high = row.get("low"), row.get("high")
    shown = "not known: too few rows"
    if low is not None and high is not None:
        shown = f"{low:.4f} to {high:.4f}"
    name = next((key for key in row if key not in _OF_SLICES), "score")
    return f"  {'95% interval of ' + words(name):<28}  {shown}"
