"""Curves of a report: training, ROC, precision-recall and calibration curves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import markupsafe

from bert_keras.report.charts import Point, line_chart
from bert_keras.report.values import is_number, words

_AXES = {"step": "step (updates)", "": "record"}
_SIDE = 352  # pixels of a square chart
_LEAST_SMOOTHED = 30  # points; a shorter curve is drawn as it is
_SPAN = 15  # a smoothed curve remembers this part of its points


def training_curves(
    history: Sequence[Mapping[str, Any]], *, dev: str = "dev"
) -> list[markupsafe.Markup]:
    """Return one chart for each kind of number and horizontal axis.

    The loss comes first, the learning rate beside it. Long curves are smoothed, with
    their values drawn faintly behind.

    Args:
        history: rows such as `{"epoch": 1, "step": 40, "loss": 0.5}`.
        dev: what the names of curves call the data of keys such as `dev_loss`.
    """
    curves = curves_of(history)
    charts: dict[tuple[str, str], dict[str, list[Point]]] = {}
    # Training before dev, whose first score is from before the first update.
    ordered = sorted(curves.items(), key=lambda curve: curve[0][1].startswith("dev_"))
    keys = {key for _, key in curves}
    for (axis, key), points in ordered:
        of_dev = key.startswith("dev_")
        shown = f"{dev}_{key.removeprefix('dev_')}" if of_dev else key
        name, family = words(shown), _family(key, points) or words(shown)
        if f"dev_{key}" in keys and not is_loss(key):
            name = family = f"{name} of training rows"
        charts.setdefault((family, axis), {})[name] = points
    first = ["Loss", "Learning rate"]
    order = sorted(
        charts, key=lambda chart: first.index(chart[0]) if chart[0] in first else 2
    )
    drawn = []
    for family, axis in order:
        lines = charts[family, axis]
        is_one = list(lines) == [family]
        behind: dict[str, list[Point]] = {}
        if family != "Learning rate":
            lines, behind = _with_smoothed(lines)
        svg = _chart(
            lines,
            family,
            axis,
            is_smoothed=is_one and bool(behind),
            behind=behind,
            legend=not is_one,
        )
        drawn.append(svg)
    return [svg for svg in drawn if svg]


def _chart(
    lines: Mapping[str, Sequence[Point]],
    name: str,
    axis: str,
    *,
    is_smoothed: bool,
    **settings: Any,
) -> markupsafe.Markup:
    """Return a chart of a number by an axis of `curves_of`, see `line_chart`."""
    title = f"{name} by {axis or 'record'}{', smoothed' if is_smoothed else ''}"
    x_label, y_label = _AXES.get(axis, axis), _lower(name)
    return line_chart(lines, title=title, x_label=x_label, y_label=y_label, **settings)


def curves_of(
    history: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], list[Point]]:
    """Return the points of each number of a history, by its axis and name.

    The axis is `step` if a row has one, else `epoch`, else the empty string.
    """
    curves: dict[tuple[str, str], list[Point]] = {}
    for number, row in enumerate(history, 1):
        axis = next((key for key in ("step", "epoch") if is_number(row.get(key))), "")
        x = float(row[axis] if axis else number)
        for key, y in row.items():
            if key not in ("step", "epoch") and is_number(y):
                curves.setdefault((axis, key), []).append((x, float(y)))
    return curves


def is_loss(key: str) -> bool:
    """Return whether a score or a curve is a loss, by its name."""
    return key == "loss" or key.endswith("_loss")


def _family(key: str, points: Sequence[Point]) -> str:
    """Return the name of the chart that a curve shares, if it has none of its own."""
    if is_loss(key):
        return "Loss"
    # A held-out number that stays within 1, such as accuracy or a correlation.
    is_score = key.startswith("dev_") and all(not abs(y) > 1 for _, y in points)
    return "Scores" if is_score else ""


def _with_smoothed(
    lines: Mapping[str, list[Point]],
) -> tuple[dict[str, list[Point]], dict[str, list[Point]]]:
    """Return the lines, long ones smoothed, and the points behind the smoothed ones.

    Points that are not finite stay in the lines, where they are counted.
    """
    found: dict[str, list[Point]] = {}
    behind: dict[str, list[Point]] = {}
    for name, points in lines.items():
        if len(points) < _LEAST_SMOOTHED:
            found[name] = points
            continue
        shown = f"{name}, smoothed"
        lost = [point for point in points if not abs(point[1]) < float("inf")]
        found[shown], behind[shown] = [*smoothed(points), *lost], points
    return found, behind


def _lower(name: str) -> str:
    """Return a name for an axis; abbreviations keep their letters."""
    return " ".join(
        w if w.isupper() or w[1:] != w[1:].lower() else w.lower() for w in name.split()
    )


def smoothed(points: Sequence[Point]) -> list[Point]:
    """Return the exponential moving average of the values, with bias correction.

    Its span is a fifteenth of the points. A value that is not finite is left out.
    """
    rate = 2 / (max(len(points) / _SPAN, 2) + 1)
    total = weight = 0.0
    found = []
    for x, y in points:
        if abs(y) < float("inf"):  # false for NaN
            total = (1 - rate) * total + rate * y
            weight = (1 - rate) * weight + rate
            found.append((x, total / weight))
    return found


def compared_curves(
    histories: Mapping[str, Sequence[Mapping[str, Any]]], *, keys: Collection[str] = ()
) -> list[markupsafe.Markup]:
    """Return a chart for each number, with a line for each run; losses come first.

    Args:
        histories: name of a run to its history, see `training_curves`.
        keys: the only numbers to draw; by default all.
    """
    curves = {name: curves_of(rows) for name, rows in histories.items()}
    known = dict.fromkeys(place for found in curves.values() for place in found)
    drawn = []
    for axis, key in sorted(known, key=lambda place: not is_loss(place[1])):
        if keys and key not in keys:
            continue
        lines = {
            name: found[axis, key]
            for name, found in curves.items()
            if (axis, key) in found
        }
        longest = max(len(points) for points in lines.values())
        is_smoothed = key != "learning_rate" and longest >= _LEAST_SMOOTHED
        if is_smoothed:
            lines = {name: smoothed(points) for name, points in lines.items()}
        drawn.append(_chart(lines, words(key), axis, is_smoothed=is_smoothed))
    return [svg for svg in drawn if svg]


def decision_charts(curves: Mapping[str, Mapping[str, Any]]) -> list[markupsafe.Markup]:
    """Return ROC and precision-recall curves; of one decision also its threshold.

    Args:
        curves: name of a decision to `decision_curves`; curves without points are left
            out.
    """
    drawn = {name: found for name, found in curves.items() if "roc" in found}
    if not drawn:
        return []
    lines: dict[str, Any] = {
        f"{name} (AUC {found['roc_auc']:.3f})": found["roc"]
        for name, found in drawn.items()
    }
    roc = _square(
        {**lines, "chance": [(0, 0), (1, 1)]},
        title="ROC curve",
        x_label="false positive rate",
        y_label="true positive rate",
        faint=["chance"],
    )
    lines = {
        f"{name} (average precision {found['average_precision']:.3f})": found[
            "precision_recall"
        ]
        for name, found in drawn.items()
    }
    precisions = _square(
        lines,
        title="Precision by recall",
        x_label="recall",
        y_label="precision",
        shown=[(0, 0), (1, 1)],
    )
    if len(curves) > 1:
        return [roc, precisions]
    (found,) = drawn.values()
    scores = _square(
        {
            name: [(row[0], row[place]) for row in found["by_threshold"]]
            for place, name in enumerate(("precision", "recall", "F1"), 1)
        },
        title="Scores by threshold",
        x_label="threshold",
        y_label="score",
        shown=[(0, 0), (1, 1)],
    )
    return [roc, precisions, scores]


def reliability_chart(bins: Sequence[Mapping[str, float]]) -> markupsafe.Markup:
    """Return a chart of accuracy by confidence; a calibrated model lies on the line."""
    return _square(
        {
            "the model": [(b["confidence"], b["accuracy"]) for b in bins],
            "perfect calibration": [(0.0, 0.0), (1.0, 1.0)],
        },
        title="Accuracy by confidence",
        x_label="confidence (bins of equal width)",
        y_label="accuracy",
        faint=["perfect calibration"],
    )


def _square(lines: Mapping[str, Any], **settings: Any) -> markupsafe.Markup:
    """Return a square chart of shares, see `line_chart`."""
    return line_chart(lines, width=_SIDE, height=_SIDE, **settings)


def learning_curve_chart(
    rows: Sequence[Mapping[str, Any]], best_score: str
) -> markupsafe.Markup:
    """Return a chart of the best score of each data set by the number of rows.

    Args:
        rows: `rows`, and the score of each data set by its name.
        best_score: name of the score.
    """
    splits = [key for key in rows[0] if key != "rows"]
    return line_chart(
        {
            split: [
                (row["rows"], row[split]) for row in rows if is_number(row.get(split))
            ]
            for split in splits
        },
        title=f"{words(best_score)} by training rows",
        x_label="training rows",
        y_label=_lower(words(best_score)),
    )
