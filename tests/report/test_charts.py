"""The chart is well-formed SVG with all points inside its frame."""

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from bert_keras.report.charts import line_chart
from bert_keras.report.curves import training_curves

SVG = "{http://www.w3.org/2000/svg}"


def draw(series, **options):
    names = {"title": "Loss", "x_label": "step", "y_label": "nats"} | options
    return ElementTree.fromstring(line_chart(series, **names))


def points_of(line):
    return [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]


def words_of(svg):
    return [text.text for text in svg.iter(f"{SVG}text")]


def test_points_ticks_and_words():
    svg = draw({"train": [(0, 0.0), (10, 1.0)], "dev": [(5, 0.5)]})
    train, dev = svg.iter(f"{SVG}polyline")
    (x0, y0), (x1, y1) = points_of(train)
    assert x0 < x1 and y0 > y1  # y grows downwards in SVG
    assert points_of(dev) == [((x0 + x1) / 2, (y0 + y1) / 2)]
    words = words_of(svg)
    assert {"Loss", "step", "nats", "train", "dev"} <= set(words)
    assert {"0", "2", "10", "0.2", "1.0"} <= set(words)
    assert len(list(svg.iter(f"{SVG}circle"))) == 3


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ([2e-5, 5e-5], "5e-5"),
        ([0.0, 2e-4], "1.5e-4"),
        ([1e6, 3e6], "1,000,000"),
        ([2e9, 8e9], "8e9"),
        ([-1.0, 1.0], "-0.5"),
        ([0.985, 0.991], "0.985"),
        ([3, 3], "3.0"),
        ([0.0, 0.0], "0"),
        ([1e-9, 1e-9], "1e-9"),
    ],
)
def test_ticks_of_any_size(values, label):
    svg = draw({"a": list(enumerate(values))})
    assert label in words_of(svg)
    (line,) = svg.iter(f"{SVG}polyline")
    assert all(0 <= x <= 640 and 0 <= y <= 340 for x, y in points_of(line))


def test_epochs_have_integer_ticks():
    words = words_of(draw({"a": [(1, 0.3), (2, 0.2), (3, 0.1)]}, y_label=""))
    assert {"1", "2", "3"} <= set(words) and "1.5" not in words
    assert "1" in words_of(draw({"a": [(1, 0.3)]}))


@pytest.mark.parametrize("x", [0, -7, 1e29, 1e-29, 1e300])
def test_a_lone_point_is_in_the_middle(x):
    (circle,) = draw({"a": [(x, x)]}).iter(f"{SVG}circle")
    assert 64 < float(circle.get("cx")) < 620 and 50 < float(circle.get("cy")) < 292


def test_points_that_are_not_finite_are_counted():
    svg = draw({"a": [(1, 0.5), (2, math.nan), (3, math.inf)], "b": [(1, math.nan)]})
    assert "a (2 not finite)" in words_of(svg)
    assert len(list(svg.iter(f"{SVG}polyline"))) == 1
    assert line_chart({"a": []}, title="", x_label="", y_label="") == ""


def test_long_lines_are_thinned_to_means():
    (line,) = draw({"a": [(i, i % 2) for i in range(100_000)]}).iter(f"{SVG}polyline")
    points = points_of(line)
    assert len(points) == 400 and len({y for _, y in points}) == 1


def test_names_are_escaped_and_the_legend_wraps():
    names = [f"<b>&\"' a rather long name {number}" for number in range(9)]
    text = line_chart(
        {name: [(0, 1.0), (1, 2.0)] for name in names},
        title='<script>"',
        x_label="<x>",
        y_label="<y>",
    )
    assert not re.search("<b>|<script>|<x>|<y>", text)
    svg = ElementTree.fromstring(text)
    rows = {t.get("y") for t in svg.iter(f"{SVG}text") if t.text in names}
    assert len(rows) > 2


def test_a_line_may_have_points_behind_it_and_no_legend():
    back = [(x, x % 2) for x in range(9)]
    svg = draw({"a": [(0, 0.5), (8, 0.5)]}, behind={"a": back}, legend=False)
    behind, line = svg.iter(f"{SVG}polyline")
    assert behind.get("stroke") == line.get("stroke")
    assert float(behind.get("stroke-opacity")) < 1 and not line.get("stroke-opacity")
    assert "a" not in words_of(svg)
    lost = draw({"a": [(0, 0.5), (1, math.nan)]}, legend=False)
    assert "a (1 not finite)" in words_of(lost)


def test_the_margin_holds_the_widest_number():
    (wide,) = draw({"a": [(0, 0), (9, 0.0025)]}).iter(f"{SVG}polyline")
    (narrow,) = draw({"a": [(0, 0), (9, 5)]}).iter(f"{SVG}polyline")
    assert points_of(wide)[0][0] > points_of(narrow)[0][0] == 64


def test_long_curves_are_smoothed_before_their_values():
    history = [{"step": x, "loss": x % 2, "learning_rate": 0.1} for x in range(40)]
    loss, rate = map(ElementTree.fromstring, training_curves(history))
    assert len(list(loss.iter(f"{SVG}polyline"))) == 2
    assert "Loss by step, smoothed" in words_of(loss)
    assert len([word for word in words_of(loss) if "Loss" in word]) == 1  # no legend
    assert len(list(rate.iter(f"{SVG}polyline"))) == 1


def test_a_score_of_training_rows_says_so_beside_the_score_of_dev_rows():
    rows = [{"step": x, "accuracy": 0.5, "dev_accuracy": 0.4} for x in range(9)]
    titles = [words_of(ElementTree.fromstring(svg))[0] for svg in training_curves(rows)]
    assert titles == ["Accuracy of training rows by step", "Scores by step"]


def test_the_end_of_a_long_name_stays_in_the_legend() -> None:
    name = "please_forward_this_message_to_the_department (average precision 0.999)"
    svg = line_chart(
        {name: [(0, 0), (1, 1)]}, title="t", x_label="x", y_label="y", width=352
    )
    (shown,) = re.findall(r">(please[^<]*)<", svg)
    assert shown.endswith(" (average precision 0.999)") and "…" in shown
    assert 64 + 34 + 6.8 * len(shown) <= 352
