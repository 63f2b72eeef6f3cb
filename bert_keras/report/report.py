"""The report of a training run as one HTML file: `write_report`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_keras.errors import DataError
from bert_keras.files.atomic import written_beside
from bert_keras.report.charts import Point, line_chart
from bert_keras.report.page import (
    MOST_LETTERS,
    cell,
    framed,
    is_number,
    nested_table,
    page,
    pairs,
    section,
    table,
    text,
    union,
    words,
)
from bert_keras.report.scores import (
    is_loss,
    score_cards,
    scores_by_split,
    split_section,
)

_MOST_MISTAKES = 100
_LONG_TEXT = 60  # letters; a longer one has a wide column


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    settings: Mapping[str, object],
    data: Mapping[str, object],
    history: Sequence[Mapping[str, object]],
    scores: Mapping[str, Mapping[str, Any]],
    mistakes: Sequence[Mapping[str, object]],
    best_score: str = "",
    environment: Mapping[str, object] | None = None,
    command: str = "",
) -> Path:
    """Write the report of a run as one HTML file and return its path.

    The file is written beside and then renamed, so that it appears whole or not.

    Args:
        path: the file; its folder must exist.
        title: the heading of the page.
        settings: name to value of what the run was told.
        data: name of a split to its facts, such as `rows`, `mean_tokens` and
            `real_token_share`; a fact that is itself a mapping of numbers, such as
            `classes`, becomes a table with a column for each split. A plain value in
            place of the facts is shown as it is.
        history: rows such as `{"epoch": 1, "step": 40, "loss": 0.5}` and
            `{"epoch": 1, "dev_loss": 0.4, "dev_accuracy": 0.9}`. Numbers are drawn by
            `step` where their row has one, else by `epoch`.
        scores: name of a split to what `classification_scores` returns, or to any other
            mapping: unknown numbers join the table of scores, unknown mappings get a
            table of their own.
        mistakes: rows such as `text`, `label`, `prediction`, `probability`; shown by
            falling `probability` if all have it. The first 100 are shown.
        best_score: the score that is shown first and large.
        environment: versions and hardware.
        command: the command that repeats the run.

    Raises:
        DataError: the file cannot be written.
    """
    body = [
        f"<h1>{text(title)}</h1>",
        score_cards(scores, best_score),
        section("Scores", scores_by_split(scores)),
        section("Curves", _charts(history)),
        *(split_section(name, values) for name, values in scores.items()),
        section(*_mistakes(mistakes)),
        section("Data", _data(data)),
        section("Settings", pairs(settings)),
        section("Versions and hardware", pairs(environment or {})),
        section("Command", f"<pre>{text(command)}</pre>" if command else ""),
    ]
    return _write(path, page(title, "\n".join(part for part in body if part)))


def _write(path: str | os.PathLike[str], content: str) -> Path:
    target = Path(path)
    try:
        with written_beside(target) as beside:
            beside.write_text(content, encoding="utf-8")
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise DataError(message, path=target) from None
    return target


def _charts(history: Sequence[Mapping[str, Any]]) -> str:
    """Return the curves, one chart for each kind of number and horizontal axis."""
    curves: dict[tuple[str, str], list[Point]] = {}
    for number, row in enumerate(history, 1):
        axis = next((key for key in ("step", "epoch") if is_number(row.get(key))), "")
        x = float(row[axis] if axis else number)
        for key, y in row.items():
            if key not in ("step", "epoch") and is_number(y):
                curves.setdefault((axis, key), []).append((x, float(y)))
    charts: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for (axis, key), points in curves.items():
        chart = charts.setdefault((_family(key, points), axis), {})
        chart[words(key)] = points
    figures = []
    for (family, axis), lines in charts.items():
        svg = line_chart(
            lines,
            title=f"{family} by {axis or 'record'}",
            x_label={"step": "step (updates)", "": "record"}.get(axis, axis),
            y_label=family.lower(),
        )
        figures.append(f"<figure>{svg}</figure>" if svg else "")
    return f'<div class="charts">{"".join(figures)}</div>' if any(figures) else ""


def _family(key: str, points: Sequence[Point]) -> str:
    """Return the name of the chart that a curve belongs to."""
    if is_loss(key):
        return "Loss"
    # A held-out number that stays within 1, such as accuracy or a correlation.
    is_score = key.startswith("dev_") and all(not abs(y) > 1 for _, y in points)
    return "Scores" if is_score else words(key)


def _mistakes(mistakes: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return a heading and the rows as a table.

    The most confident come first where all say their probability, else the rows stand
    in their order.
    """
    rows, heading = list(mistakes), "Mistakes"
    if rows and all(is_number(row.get("probability")) for row in rows):
        rows.sort(key=lambda row: -float(row["probability"]))
        heading = "Most confident mistakes"
    keys = union(rows)
    if not keys:
        return heading, ""
    heads = "".join(f'<th scope="col">{text(words(key))}</th>' for key in keys)
    lines = [
        f"<tr>{''.join(_mistake_cell(key, row.get(key)) for key in keys)}</tr>"
        for row in rows[:_MOST_MISTAKES]
    ]
    note = f'<p class="note">{_MOST_MISTAKES} of {len(rows):,} are shown.</p>'
    note = note if len(rows) > _MOST_MISTAKES else ""
    return heading, framed([heads], lines) + note


def _mistake_cell(key: str, value: object) -> str:
    if not isinstance(value, str):
        return cell(value)
    is_long = key.startswith("text") or len(value) > _LONG_TEXT
    kind = ' class="text"' if is_long else ""
    return f'<td dir="auto"{kind}>{text(value, MOST_LETTERS)}</td>'


def _data(data: Mapping[str, object]) -> str:
    """Return a table of splits by facts, and one for each fact that is a mapping."""
    plain: dict[str, Mapping[str, object]] = {}
    nested: dict[str, dict[str, Mapping[str, object]]] = {}
    loose: dict[str, object] = {}
    for split, facts in data.items():
        if not isinstance(facts, Mapping):
            loose[split] = facts
            continue
        plain[split] = {k: v for k, v in facts.items() if not isinstance(v, Mapping)}
        for fact, values in facts.items():
            if isinstance(values, Mapping):
                nested.setdefault(fact, {})[split] = values
    parts = [nested_table(plain, corner="Split")]
    for fact, columns in nested.items():
        rows = (
            (name, [column.get(name) for column in columns.values()])
            for name in union(columns.values())
        )
        parts.append(f"<h3>{text(words(fact))}</h3>")
        parts.append(table(list(columns), rows, corner=""))
    return "".join(parts) + pairs(loose)
