"""What a classifier confuses: the most confused pairs of classes, and the matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.report.tables import Part
from bert_keras.report.values import is_number

_MANY_CLASSES = 12  # above it, a matrix is folded, grouped and set in small type
_MOST_CLASSES = 100  # above it, a matrix holds the `_MOST_CONFUSED` classes only
_MOST_CONFUSED = 60
_MOST_PAIRS = 20  # pairs of classes that are listed


def confusions(
    matrix: Sequence[Sequence[Any]],
    names: Sequence[str],
    mistakes: Sequence[Mapping[str, Any]] = (),
) -> list[tuple[str, Part]]:
    """Return the most confused pairs of classes, and the confusion matrix.

    Args:
        matrix: counts [C, C]; rows are true classes, columns predicted ones.
        names: C names; if there are not C, their numbers.
        mistakes: rows with `label`, `prediction` and `text`, the examples of pairs.
    """
    counts = np.asarray(matrix)
    if len(names) != len(counts):
        names = [str(number) for number in range(len(counts))]
    wrong = counts - np.diag(np.diagonal(counts))
    cells = np.argwhere(wrong)
    order = np.argsort(-wrong[tuple(cells.T)], kind="stable")[:_MOST_PAIRS]
    pairs = [
        {"label": names[i], "prediction": names[j], "rows": int(wrong[i, j])}
        for i, j in cells[order].tolist()
    ]
    sizes = dict(zip(names, counts.sum(axis=1).tolist(), strict=True))
    parts = [("confusion_matrix", _matrix(counts, names))]
    if len(names) < 3:
        return parts
    return [*confused_pairs(pairs, sizes, mistakes, count=len(cells)), *parts]


def confused_pairs(
    pairs: Sequence[Mapping[str, Any]],
    sizes: Mapping[str, int],
    mistakes: Sequence[Mapping[str, Any]] = (),
    *,
    count: int,
) -> list[tuple[str, Part]]:
    """Return the most common mistakes as rows, if there are any.

    Args:
        pairs: `label`, `prediction` and `rows`, the most frequent first.
        sizes: class to its number of rows.
        mistakes: as in `confusions`.
        count: number of all pairs.
    """
    if not pairs:
        return []
    texts: dict[tuple[object, object], object] = {}
    for row in mistakes:
        pair = (row.get("label"), row.get("prediction"))
        texts.setdefault(pair, row.get("text", ""))
    rows: list[dict[str, Any]] = []
    for each in pairs[:_MOST_PAIRS]:
        share = each["rows"] / max(sizes.get(each["label"], 0), 1)
        row = {**each, "share_of_the_label": f"{share:.0%}"}
        if texts:
            pair = (each["label"], each["prediction"])
            row["text_of_an_example"] = texts.get(pair, "")
        rows.append(row)
    found = {"columns": list(rows[0]), "rows": rows, "count": count}
    return [("most confused classes", Part("rows", found))]


def _matrix(counts: np.ndarray, names: Sequence[str]) -> Part:
    """Return a confusion matrix, each cell shaded by its share of the row.

    Many classes are grouped by confusion; of very many, the most confused are shown.
    """
    is_large, note, order = len(names) > _MANY_CLASSES, "", np.arange(len(names))
    if len(names) > _MOST_CLASSES:
        wrong = counts - np.diag(np.diagonal(counts))
        most = np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")
        order = np.sort(most[:_MOST_CONFUSED])
        note = f"The {len(order)} of {len(names):,} classes with the most mistakes. "
    if is_large:  # the eigenvectors of very many classes would take hours
        order = order[_grouped(counts[np.ix_(order, order)])]
        note += "Classes that are confused stand together."
    totals = np.maximum(counts.sum(axis=1), 1)
    rows = []
    for i in order.tolist():
        cells: list[dict[str, Any] | None] = []
        for j in order.tolist():
            share = counts[i, j] / totals[i]
            colour = "38 132 84" if i == j else "208 80 40"
            cell = {
                "count": int(counts[i, j]),
                "colour": f"{colour} / {0.08 + 0.67 * share:.2f}",
                "title": f"true {names[i]}, predicted {names[j]}: {100 * share:.1f} %",
            }
            cells.append(cell if counts[i, j] else None)
        rows.append((names[i], cells))
    shown = {"names": [name for name, _ in rows], "rows": rows, "dense": is_large}
    return Part("matrix", shown, note, is_folded=is_large)


def _grouped(counts: np.ndarray) -> np.ndarray:
    """Return an order of the classes in which confused classes are neighbours.

    It is the order of the Fiedler vector, the second eigenvector of the Laplacian of
    the graph of confusions, in each connected part; the largest part comes first.
    """
    weights = (counts + counts.T).astype("float64")
    np.fill_diagonal(weights, 0.0)
    left, parts = set(range(len(weights))), []
    while left:
        part, new = set[int](), {min(left)}
        while new:
            part |= new
            new = {*np.flatnonzero(weights[list(new)].any(axis=0)).tolist()} - part
        left -= part
        parts.append(sorted(part))
    found: list[int] = []
    for classes in sorted(parts, key=len, reverse=True):
        inside = weights[classes][:, classes]
        _, vectors = np.linalg.eigh(np.diag(inside.sum(axis=0)) - inside)
        second = vectors[:, min(1, len(classes) - 1)]
        found += [classes[place] for place in np.argsort(second, kind="stable")]
    return np.array(found)


def is_square(value: object) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(row, Sequence)
        and len(row) == len(value)
        and all(is_number(count) for count in row)
        for row in value
    )
