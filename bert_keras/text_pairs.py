"""The pairs of texts of a data set: how near they are, and which are far off or lost.

Vectors are those of the first texts of all pairs and then of the second ones, float32
[2 N, D]. No TensorFlow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bert_keras.correlation import ranks
from bert_keras.errors import DataError
from bert_keras.similarity import cosines, pair_places
from bert_keras.table import Columns

_FAR = 0.25  # a pair whose rank is off by this share of all pairs counts as a mistake


def pairs_of(columns: Columns) -> tuple[list[Any], list[Any]]:
    """Return the first and the second text of each row.

    Raises:
        DataError: rows have one text.
    """
    if "text_pair" not in columns:
        raise DataError(
            "training reads pairs of texts, the column of `text_pair` is missing: "
            "name it",
            path=columns.path,
        )
    return columns["text"], columns["text_pair"]


def text_numbers(columns: Columns) -> np.ndarray:
    """Return a number for each text of a row, int32 [N, 2], the same for equal ones."""
    numbers: dict[str, int] = {}
    rows = [
        [numbers.setdefault(text, len(numbers)) for text in pair]
        for pair in zip(*pairs_of(columns), strict=True)
    ]
    return np.array(rows, np.int32).reshape(-1, 2)


def similarities(columns: Columns) -> np.ndarray:
    """Return the labels as numbers, float32 [N]; bad ones are named by line."""
    if "label" not in columns:
        raise DataError(
            "the model learned similarities, the column of `label` is missing: name it",
            path=columns.path,
        )
    values, wrong = [], []
    for row, cell in enumerate(columns["label"]):
        try:
            values.append(float(cell))
        except ValueError:
            values.append(math.nan)
        if not math.isfinite(values[-1]):
            wrong.append((row, f"`label` must be a number; received {cell!r}"))
    if wrong:
        raise columns.error(wrong)
    return np.array(values, np.float32)


def far_pairs(columns: Columns, vectors: np.ndarray) -> list[dict[str, Any]]:
    """Return the pairs whose cosine is far from its place by label, farthest first."""
    first, second = np.split(vectors, 2)
    found = cosines(first, second)
    texts, pairs = pairs_of(columns)
    gold = similarities(columns)
    off = (ranks(found) - ranks(gold)) / len(gold)
    rows = np.flatnonzero(abs(off) > _FAR)
    return [
        {
            "line": columns.lines[row],
            "text": f"{texts[row]}  |  {pairs[row]}",
            "label": columns["label"][row],
            "cosine": float(found[row]),
        }
        for row in rows[np.argsort(-abs(off[rows]), kind="stable")]
    ]


def lost_pairs(columns: Columns, vectors: np.ndarray) -> list[dict[str, Any]]:
    """Return the texts whose pair is not the nearest, farthest first."""
    texts, pairs = pairs_of(columns)
    places, nearest = places_of(columns, vectors)
    rows = np.flatnonzero(places > 1)
    return [
        {
            "line": columns.lines[row],
            "text": texts[row],
            "label": pairs[row],
            "place": int(places[row]),
            "prediction": pairs[nearest[row]],
        }
        for row in rows[np.argsort(-places[rows], kind="stable")]
    ]


def places_of(columns: Columns, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each text's pair and the nearest wrong one: `pair_places`."""
    first, second = np.split(vectors, 2)
    texts, pairs = pairs_of(columns)
    return pair_places(first, second, texts=texts, pairs=pairs)
