"""The report of a training run as one HTML file: `write_report`."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_keras.drawing import Point, line_chart
from bert_keras.errors import DataError
from bert_keras.page import (
    MOST_LETTERS,
    cell,
    framed,
    is_number,
    matrix_table,
    nested_table,
    page,
    pairs,
    section,
    shown_setting,
    shown_value,
    table,
    text,
    union,
    words,
)
from bert_keras.whole_file import written_beside

_MOST_MISTAKES = 100
_MOST_CLASSES = 100  # above it the commonest confusions stand for the whole matrix
_MOST_CONFUSIONS = 50
_MOST_CARDS = 3
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
        _cards(scores, best_score),
        section("Scores", _scores_table(scores)),
        section("Curves", _charts(history)),
        *(_split(name, values) for name, values in scores.items()),
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


def _plain_scores(values: Mapping[str, Any]) -> dict[str, object]:
    """Return the scores that are one number or word each."""
    return {
        key: value
        for key, value in values.items()
        if value is None or isinstance(value, str | bool) or is_number(value)
    }


def _cards(scores: Mapping[str, Mapping[str, Any]], best_score: str) -> str:
    """Return up to three large numbers for each split: the best score, then others.

    Losses and counts are none of them unless there is nothing else.
    """
    cards = []
    for split, values in scores.items():
        plain = {key: value for key, value in values.items() if is_number(value)}
        count = plain.pop("num_examples", None)
        keys = [
            key
            for key, value in plain.items()
            if not (_is_loss(key) or isinstance(value, numbers.Integral))
        ]
        keys = sorted(keys or plain, key=lambda key: key != best_score)[:_MOST_CARDS]
        items = "".join(
            f"<div><dt>{text(words(key))}</dt><dd>{shown_value(plain[key])}</dd></div>"
            for key in keys
        )
        size = f'<span class="note">{shown_value(count)} examples</span>'
        head = f"<h3>{text(split)} {size if count else ''}</h3>"
        if items:
            cards.append(f'<div class="card">{head}<dl>{items}</dl></div>')
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _is_loss(key: str) -> bool:
    return key == "loss" or key.endswith("_loss")


def _scores_table(scores: Mapping[str, Mapping[str, Any]]) -> str:
    rows = {split: _plain_scores(values) for split, values in scores.items()}
    return nested_table(rows, corner="Split")


def _split(split: str, values: Mapping[str, Any]) -> str:
    """Return the tables of one split: its matrix, its classes, and what is unknown."""
    plain = _plain_scores(values)
    parts = [
        f"<section><h3>{text(words(key))}</h3>{_part(key, value, values)}</section>"
        for key, value in values.items()
        if key not in plain
    ]
    content = f'<div class="side">{"".join(parts)}</div>' if parts else ""
    return section(f"Results on {split}", content)


def _part(key: str, value: Any, values: Mapping[str, Any]) -> str:
    """Return one score that is more than a number, as fits its shape."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if key == "confusion_matrix" and _is_square(value):
        per_class = values.get("per_class")
        names = list(per_class) if isinstance(per_class, Mapping) else []
        if len(names) != len(value):
            names = [str(number) for number in range(len(value))]
        shown = matrix_table if len(names) <= _MOST_CLASSES else _confusions
        return shown(value, names)
    if key == "reliability" and value:
        return _reliability(value)
    if isinstance(value, Mapping) and value:
        if all(isinstance(row, Mapping) for row in value.values()):
            return nested_table(value, corner="Class" if key == "per_class" else "")
        return pairs(value)
    return f"<p>{shown_setting(value)}</p>"


def _reliability(bins: Sequence[Mapping[str, float]]) -> str:
    """Return how often the model is right by how sure it is: on the line is best."""
    svg = line_chart(
        {
            "the model": [(b["confidence"], b["accuracy"]) for b in bins],
            "as sure as right": [(0.0, 0.0), (1.0, 1.0)],
        },
        title="Accuracy by confidence",
        x_label="confidence (bins of equal width)",
        y_label="accuracy",
    )
    return f"<figure>{svg}</figure>"


def _confusions(matrix: Sequence[Sequence[Any]], names: Sequence[str]) -> str:
    """Return the commonest confusions: true class, predicted class, count."""
    cells = [
        (count, i, j)
        for i, row in enumerate(matrix)
        for j, count in enumerate(row)
        if i != j and count
    ]
    cells.sort(key=lambda item: -item[0])
    rows = [(names[i], [names[j], n]) for n, i, j in cells[:_MOST_CONFUSIONS]]
    note = (
        f'<p class="note">{len(names):,} classes are too many for a matrix; these are '
        f"the commonest of {len(cells):,} confusions.</p>"
    )
    return note + table(["Predicted", "Count"], rows, corner="True")


def _is_square(value: object) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(row, Sequence)
        and len(row) == len(value)
        and all(is_number(count) for count in row)
        for row in value
    )


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
    if _is_loss(key):
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
