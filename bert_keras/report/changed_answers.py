"""The rows whose answer differs between two runs, from the mistakes of both.

A row among the mistakes of neither run has the right answer in both, so the mistakes
are enough to find every row whose answer changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bert_keras.report.tables import Part
from bert_keras.report.values import cut

_MOST_NOTED = 10_000  # mistakes; with more, answers are not compared
_MOST_TEXT = 200  # characters of a noted text
_MOST_SHOWN = 10
_Noted = Sequence[str]  # place, text, label, prediction


def noted_mistakes(mistakes: Sequence[Mapping[str, Any]]) -> list[list[str]] | None:
    """Return place, text, label and prediction of each mistake.

    `None` if there are too many, or if mistakes are not wrong answers: the mistakes of
    a regression are merely far off.
    """
    found = []
    for row in mistakes:
        place, label = (
            row.get("line", row.get("id")),
            row.get("label", row.get("answers")),
        )
        given = row.get("prediction")
        if place is None or not isinstance(label, str) or not isinstance(given, str):
            return None
        text = cut(row.get("text", ""), _MOST_TEXT)
        found.append([str(place), text, label, given])
    return found if len(found) <= _MOST_NOTED else None


def changed_answers(
    names: tuple[str, str], first: Sequence[_Noted], other: Sequence[_Noted]
) -> list[tuple[str, Part]]:
    """Return the rows that only one of two runs answers right, and other changes.

    Args:
        names: of the runs.
        first, other: their `noted_mistakes` on the same rows.

    Returns:
        Heading, with the count, and the first rows of each kind of change.
    """
    ours, theirs = ({tuple(row[:3]): row[3] for row in rows} for rows in (first, other))
    one, two = names
    kinds = {
        f"Right only in {two}": [key for key in ours if key not in theirs],
        f"Right only in {one}": [key for key in theirs if key not in ours],
        "Wrong in both, with different answers": [
            key for key in ours if key in theirs and ours[key] != theirs[key]
        ],
    }
    return [
        (f"{kind}: {len(keys):,}", Part("rows", _rows(names, keys, ours, theirs)))
        for kind, keys in kinds.items()
    ]


def _rows(
    names: tuple[str, str],
    keys: Sequence[tuple[str, ...]],
    ours: Mapping[tuple[str, ...], str],
    theirs: Mapping[tuple[str, ...], str],
) -> dict[str, Any]:
    """Return the first of some rows, with the answer of both runs."""
    one, two = (f"answer of {name}" for name in names)
    rows = [
        {
            "text": key[1],
            "label": key[2],
            one: ours.get(key, key[2]),
            two: theirs.get(key, key[2]),
        }
        for key in keys[:_MOST_SHOWN]
    ]
    return {"columns": ["text", "label", one, two], "rows": rows, "count": len(keys)}
