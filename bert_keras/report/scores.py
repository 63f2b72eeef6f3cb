"""The scores of a run as they stand in its report: cards, tables, matrices, a chart.

Scores are a mapping of splits to mappings such as `classification_scores` returns.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from bert_keras.report.charts import line_chart
from bert_keras.report.page import (
    is_number,
    matrix_table,
    nested_table,
    pairs,
    section,
    shown_setting,
    shown_value,
    table,
    text,
    words,
)

_MOST_CLASSES = 100  # above it the commonest confusions stand for the whole matrix
_MOST_CONFUSIONS = 50
_MOST_CARDS = 3


def _plain_scores(values: Mapping[str, Any]) -> dict[str, object]:
    """Return the scores that are one number or word each."""
    return {
        key: value
        for key, value in values.items()
        if value is None or isinstance(value, str | bool) or is_number(value)
    }


def score_cards(scores: Mapping[str, Mapping[str, Any]], best_score: str) -> str:
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
            if not (is_loss(key) or isinstance(value, numbers.Integral))
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


def is_loss(key: str) -> bool:
    """Say whether a score is a loss, by its name."""
    return key == "loss" or key.endswith("_loss")


def scores_by_split(scores: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of the plain scores of each split."""
    rows = {split: _plain_scores(values) for split, values in scores.items()}
    return nested_table(rows, corner="Split")


def split_section(split: str, values: Mapping[str, Any]) -> str:
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
