"""A line chart as inline SVG: `line_chart`, so that a report needs no plotting library.

Axes and labels use the colour of the surrounding text (`currentColor`), and the lines
are mid-tones, so that a chart is readable on white, on black and on paper; dashes
distinguish the lines without colour.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import markupsafe

from bert_keras.report.page import render

Point = tuple[float, float]
Tick = tuple[float, str]  # position and label

_COLOURS = ("#2f7fc1", "#d9742b", "#2f9e5f", "#9a67c7", "#c94a53", "#8a7a3d")
_DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "5 2")
_MOST_POINTS = 400  # a longer line is drawn as this many means of neighbouring points
_MOST_MARKS = 30  # a line with more points does not mark each
_MOST_TICKS = 6  # of an axis, approximately
_LEFT, _RIGHT, _BOTTOM = 64, 20, 48  # margins in pixels
_Y_LABEL = 24  # room of the vertical axis's name
_LETTER = 6.8  # mean width of a letter of 12 px in pixels


def line_chart(
    series: Mapping[str, Sequence[Point]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    faint: Collection[str] = (),
    behind: Mapping[str, Sequence[Point]] | None = None,
    shown: Sequence[Point] = (),
    legend: bool = True,
    width: int = 480,
    height: int = 300,
) -> markupsafe.Markup:
    """Return a chart of one or more lines as an `<svg>` element.

    Args:
        series: name of each line to its points (x, y), in the order to be joined.
            Points that are not finite are left out and counted in the legend.
        title: the title, which a screen reader also reads.
        x_label: name and unit of the horizontal axis.
        y_label: name and unit of the vertical axis.
        faint: names of lines that are drawn faintly, such as a reference.
        behind: name of a line to further points, drawn faintly behind it in its colour,
            such as the points that it averages.
        shown: points that the axes cover besides the points of the lines.
        legend: `False` leaves out the names, unless one tells of points left out.
        width: pixels; the drawing scales to the available width.
        height: pixels.

    Returns:
        The element, or an empty string if no point is finite.

    Example:
        >>> svg = line_chart(
        ...     {"train": [(1, 0.7), (2, 0.5)]},
        ...     title="Loss",
        ...     x_label="step",
        ...     y_label="nats",
        ... )
        >>> svg.startswith("<svg") and svg.count("<polyline")
        1
    """
    lines = {name: _finite(points) for name, points in series.items()}
    backs = {name: _finite(points) for name, points in (behind or {}).items()}
    every = [point for points in lines.values() for point in points]
    if not every:
        return markupsafe.Markup("")
    every += [*shown, *(point for points in backs.values() for point in points)]
    names = {
        name: _legend_name(name, len(series[name]) - len(points), width)
        for name, points in lines.items()
        if points
    }
    strokes = [
        _stroke(number, is_faint=name in faint) for number, name in enumerate(names)
    ]
    keys: list[dict[str, Any]] = []
    top = 34
    if legend or list(names) != list(names.values()):
        keys, height_of_keys = _legend(list(names.values()), strokes, width)
        top += height_of_keys
    x_ticks, x_range = _axis([x for x, _ in every], snug=True)
    y_ticks, y_range = _axis([y for _, y in every], snug=False)
    longest = max(len(label) for _, label in y_ticks)
    left = max(_LEFT, round(_Y_LABEL + 8 + _LETTER * longest))
    frame = _Frame(left, top, width - _RIGHT, height - _BOTTOM, x_range, y_range)
    drawn = [
        _polyline(frame, backs[name], number, _stroke(number, is_behind=True))
        for number, name in enumerate(names)
        if backs.get(name)
    ]
    drawn += [
        _polyline(frame, lines[name], number, strokes[number])
        for number, name in enumerate(names)
    ]
    svg = render(
        "chart.svg",
        title=title,
        width=width,
        height=height,
        frame=frame,
        legend=keys,
        x_ticks=[(frame.place((x, 0.0))[0], label) for x, label in x_ticks],
        y_ticks=[(frame.place((0.0, y))[1], label) for y, label in y_ticks],
        x_label=x_label,
        y_label=y_label,
        lines=drawn,
    )
    return markupsafe.Markup(svg)


class _Frame(NamedTuple):
    """The edges of the plot in pixels, and the ranges of its axes."""

    left: int
    top: int
    right: int
    bottom: int
    x_range: Point
    y_range: Point

    def place(self, point: Point) -> Point:
        """Return the pixels of a point."""
        (x_low, x_high), (y_low, y_high) = self.x_range, self.y_range
        x = (point[0] - x_low) / (x_high - x_low)
        y = (point[1] - y_low) / (y_high - y_low)
        return (
            self.left + x * (self.right - self.left),
            self.bottom - y * (self.bottom - self.top),
        )


def _polyline(
    frame: _Frame, points: list[Point], number: int, stroke: markupsafe.Markup
) -> dict[str, Any]:
    """Return a line for the template; each point is marked if there are few."""
    places = [frame.place(point) for point in _thin(points)]
    return {
        "path": " ".join(f"{x:.1f},{y:.1f}" for x, y in places),
        "stroke": stroke,
        "colour": _COLOURS[number % len(_COLOURS)],
        "marks": places if len(places) <= _MOST_MARKS else [],
    }


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _thin(points: list[Point]) -> list[Point]:
    """Return at most `_MOST_POINTS` points: the means of neighbouring points."""
    size = math.ceil(len(points) / _MOST_POINTS)
    if size < 2:
        return points
    runs = (points[i : i + size] for i in range(0, len(points), size))
    return [
        (sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run))
        for run in runs
    ]


def _axis(values: list[float], *, snug: bool) -> tuple[list[Tick], Point]:
    """Return round ticks, each with its label, and the range of the axis.

    With `snug` the axis ends at the data, otherwise at the ticks around it.
    """
    low, high = min(values), max(values)
    whole = snug and all(float(value).is_integer() for value in values)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        half = 0.5 * (abs(low) or 1.0)
        half = 1.0 if whole and abs(low) < 1e9 else half
        low, high = low - half, high + half
        snug = False
    step = _round_step((high - low) / _MOST_TICKS)
    if whole:
        step = max(step, 1.0)  # there is no epoch 1.5
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    if snug:
        slack = 1e-9 * step
        ticks = [tick for tick in ticks if low - slack <= tick <= high + slack]
    else:
        low, high = ticks[0], ticks[-1]
    return [(tick, _tick_label(tick, step)) for tick in ticks], (low, high)


def _round_step(step: float) -> float:
    """Return the next number up of the form 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1, 2, 5, 10, 20) if m * power >= step * 0.999)


def _tick_label(value: float, step: float) -> str:
    if abs(value) < step * 1e-6:
        return "0"
    if step < 1e-4 or abs(value) >= 1e7:
        digits = re.sub(r"\.?0*e([+-])0*", r"e\1", f"{value:.2e}")
        return digits.replace("e+", "e")
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{decimals}f}"


def _legend_name(name: str, lost: int, width: int) -> str:
    """Return a name that fits a row of the legend; the middle of a long one is cut."""
    most = min(40, int((width - _LEFT - 34) / _LETTER))
    if len(name) > most:
        name = f"{name[: most // 4]}…{name[most // 4 + 1 - most :]}"
    return f"{name} ({lost} not finite)" if lost else name


def _legend(
    names: list[str], strokes: list[markupsafe.Markup], width: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the keys of a legend, in one or more rows, and its height in pixels."""
    keys, x, y = [], float(_LEFT), 36
    for name, stroke in zip(names, strokes, strict=True):
        room = 34 + _LETTER * len(name) + 14
        if x > _LEFT and x + room > width:
            x, y = float(_LEFT), y + 18
        keys.append({"name": name, "x": round(x), "y": y, "stroke": stroke})
        x += room
    return keys, y - 36 + 16


def _stroke(
    number: int, *, is_faint: bool = False, is_behind: bool = False
) -> markupsafe.Markup:
    """Return the attributes of a line by its number."""
    stroke = f'stroke="{_COLOURS[number % len(_COLOURS)]}"'
    if is_behind:
        return markupsafe.Markup(f'{stroke} stroke-width="1.5" stroke-opacity=".35"')
    dash = _DASHES[number % len(_DASHES)]
    more = f' stroke-dasharray="{dash}"' if dash else ""
    more += ' stroke-opacity=".4"' if is_faint else ""
    return markupsafe.Markup(f'{stroke} stroke-width="2"{more}')
