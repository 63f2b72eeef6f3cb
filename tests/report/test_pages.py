"""The report in a browser: it fits, sorts, and is readable in light and dark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TOO_WIDE, needs_browser

from bert_keras.report.comparison import compare_runs
from bert_keras.report.report import write_report
from bert_keras.scoring.classification import classification_scores
from bert_keras.scoring.curves import decision_curves
from report.test_comparison import run

pytestmark = needs_browser()

# The contrast of each text with what lies behind it, as WCAG 2 defines it.
TEXTS = "td, th, dt, dd, p, h2, pre, a"
FAINT = """(texts) => [...document.querySelectorAll(texts)].filter((each) => {
  const channel = (value) => {
    value /= 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = each.closest("pre, .card") ?? document.body;
  const both = [getComputedStyle(each).color, getComputedStyle(behind).backgroundColor];
  const [dark, bright] = both.map(light).sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05) < 4.5;
}).map((each) => each.outerHTML.slice(0, 80))"""


# Tables of rows that must be scrolled, and names of a matrix that lie on its numbers.
CUT = """[...document.querySelectorAll(".scroll:has(> .rows), .matrix tbody th")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.outerHTML.slice(0, 80))"""

# Names and numbers of a chart that lie on each other.
OVERLAPS = """[...document.querySelectorAll("svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")];
  const boxes = texts.map((each) => each.getBoundingClientRect());
  return texts.flatMap((each, i) => texts.slice(i + 1).filter((_, j) => {
    const [a, b] = [boxes[i], boxes[i + 1 + j]];
    return Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  }).map((other) => `${each.textContent} / ${other.textContent}`));
})"""


def write_pretraining(path: Path) -> Path:
    """Write a page like that of `pretrain`."""
    steps = np.random.default_rng(0).random(200)
    history = [
        {
            "step": step,
            "loss": 8 + value,
            "masked_lm_loss": 7 + value,
            "next_sentence_loss": value,
            "learning_rate": 2e-3 * (1 - step / 200),
            "tokens_per_second": 40_000 * value,
            "operations_per_second": 1e13 * value,
        }
        for step, value in enumerate(steps.tolist())
    ]
    history += [
        {"step": step, "dev_masked_lm_loss": 6.5, "dev_perplexity": 5166.7352 - step}
        for step in (50, 100, 150)
    ]
    return write_report(
        path,
        title="pretraining: an-extraordinarily-long-name-of-a-run",
        settings={"steps": 200, "phase_shares": None},
        data={"data/128": {"files": 1, "bytes": 15_676, "masks": "dynamic"}},
        history=history,
        scores={"held-out data": {"perplexity": 5166.7352, "masked_lm_accuracy": 0.05}},
        mistakes=[],
        best_score="perplexity",
        command="bert-keras pretrain --data data/128 " * 9,
    )


def write_seeds(path: Path) -> Path:
    """Write a page like that of `train --seeds 3`."""
    names = ("seed-42", "seed-43", "seed-44")
    history = [{"step": step, "loss": 1 / step} for step in range(1, 90)]
    history += [{"step": step, "dev_accuracy": step / 90} for step in (30, 60, 90)]
    table = {"dev": {"accuracy": 0.5, "expected_calibration_error": 0.1, "loss": 1.0}}
    runs = {
        "per_run": {name: {"dev": 0.5, "test": 0.4} for name in names},
        "mean": table,
        "standard_deviation": table,
    }
    return write_report(
        path,
        title="classification: seeds",
        settings={},
        data={},
        history=history,
        scores={"dev": {"accuracy": 0.5}, "runs": runs},
        mistakes=[],
        best_score="accuracy",
        runs=dict.fromkeys(names, history),
    )


def write_comparison(path: Path) -> Path:
    folders = [
        run(path.parent / name, value, encoder="/a/long/path" * 9)
        for name, value in (("one", 0.7), ("another-run-of-many", 0.9), ("third", 0.8))
    ]
    return compare_runs(folders, output=path)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize(
    ("write_page", "parts"),
    [
        (write_pretraining, ["5,167", "Masked LM accuracy", "Loss, smoothed"]),
        (write_seeds, ["All runs", "Dev accuracy by step"]),
        (write_comparison, ["Settings that differ", "Loss by step"]),
    ],
    ids=["pretraining", "seeds", "comparison"],
)
def test_other_pages_fit_and_are_readable(
    show: Callable[..., Any],
    tmp_path: Path,
    write_page: Callable[[Path], Path],
    parts: list[str],
    width: int,
    scheme: str,
) -> None:
    written = write_page(tmp_path / "page.html").read_text("utf-8")
    page = show(written, width, scheme)
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(FAINT, TEXTS) == []
    assert page.evaluate(OVERLAPS) == []
    text = page.locator("body").text_content()
    assert [part for part in parts if part not in text] == []
    assert page.locator("tbody th", has_text="runs").count() == 0  # no row of dashes


def write(path: Path) -> str:
    """Write the report of a run with every part, and return it."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 200)
    p = (0.3 * labels + 0.7 * random.random(200)).astype("float64")
    names = ["ham", "an extraordinarily-long-name-of-a-class"]
    scores = classification_scores(
        labels, np.stack([1 - p, p], axis=1), class_names=names
    )
    slices = [
        {
            "slice": name,
            "rows": rows,
            "accuracy": value,
            "low": value - 0.1,
            "high": 0.9,
        }
        for name, rows, value in (
            ("web", 90, 0.8),
            ("phone", 1100, 0.7),
            ("shop", 9, 0.75),
        )
    ]
    written = write_report(
        path,
        title="classification: spam",
        settings={"encoder": "/a/very/long/path" * 20, "seed": 1},
        data={"train": {"rows": 9, "classes": dict.fromkeys(names, 4)}},
        history=[
            {"epoch": 1, "step": step, "loss": 1 / step, "learning_rate": 1e-5 * step}
            for step in range(1, 60)
        ],
        scores={"dev": scores},
        mistakes=[
            {"line": line, "text": "long" * 80, "label": names[1], "probability": 0.9}
            for line in (5, 11, 7)
        ],
        best_score="accuracy",
        curves={"dev": {names[1]: decision_curves(labels, p)}},
        slices={"dev": {"channel": slices}},
        doubtful_labels={"dev": [{"line": 3, "label": "ham", "text": "win"}]},
        learning_curve=[{"rows": 10, "dev": 0.5}, {"rows": 20, "dev": 0.7}],
        usage={"In Python": "import bert_keras; " + "x" * 200},
    )
    return written.read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_a_report_fits_and_is_readable(
    show: Callable[..., Any], tmp_path: Path, width: int, scheme: str
) -> None:
    page = show(write(tmp_path / "report.html"), width, scheme)
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(FAINT, TEXTS) == []
    assert page.evaluate(OVERLAPS) == []
    square = page.locator("figure.square svg").first.bounding_box()
    assert square["width"] >= 340  # drawn for 352 pixels: letters of 12
    name = page.locator("tbody th", has_text="extraordinarily").first
    # In one line; on a phone the numbers beside it need the room.
    assert name.bounding_box()["height"] < (40 if width == 1400 else 120)


@pytest.mark.parametrize("width", [400, 1000, 1400])
@pytest.mark.parametrize("num_classes", [2, 5, 77, 300])
def test_many_classes_with_long_names(
    show: Callable[..., Any], tmp_path: Path, num_classes: int, width: int
) -> None:
    random = np.random.default_rng(0)
    names = [
        f"a_rather_long_name_of_class_{i}_in_the_north" for i in range(num_classes)
    ]
    labels = random.integers(0, num_classes, 900)
    p = random.dirichlet(np.ones(num_classes), 900)
    scores = classification_scores(labels, p, class_names=names)
    row = {"line": 9, "text": "a text of some words " * 9, "label": names[0]}
    written = write_report(
        tmp_path / "report.html",
        title="many classes",
        settings={},
        data={},
        history=[],
        scores={"dev": scores, "test": scores},
        mistakes=3 * [row | {"prediction": names[1], "probability": 0.9}],
        doubtful_labels={"test": 3 * [row | {"probable_label": names[1],
            "probability_of_label": 0.1, "probability_of_other": 0.9}]},
    )  # fmt: skip
    page = show(written.read_text("utf-8"), width)
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for heading in ("most-confident-mistakes-on-test", "labels-to-check"):
        text = page.locator(f"#{heading} td.text").first.bounding_box()["width"]
        assert text > (0.8 if width == 400 else 0.4) * min(width - 250, 900)
    # The contents stay in view, and a link opens what is folded.
    assert page.locator("#results-on-dev table").first.is_hidden()
    page.locator(".contents a", has_text="Results on dev").click()
    page.locator("#results-on-dev table").first.wait_for(state="visible")
    assert page.locator(".contents").bounding_box()["y"] == pytest.approx(0, abs=1)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate(TOO_WIDE) == []
    # Names that differ are not cut to the same letters.
    for part in ("thead th", "tbody th"):
        shown = page.locator(".matrix").first.locator(part).all_inner_texts()
        assert len(set(shown)) == len(shown) >= min(num_classes, 60)
    if num_classes > 12 and width == 1400:  # a name in one line, as in a list
        name = page.locator(".matrix tbody th").first.bounding_box()
        assert name["height"] < 30


def test_tables_are_sorted_by_mouse_and_keyboard(
    show: Callable[..., Any], tmp_path: Path
) -> None:
    page = show(write(tmp_path / "report.html"))
    table = page.locator(
        ".side > section", has=page.locator("h3", has_text="by channel")
    )
    names = table.locator("tbody th")
    rows = table.locator("th", has_text="Rows")
    assert rows.get_attribute("aria-sort") is None
    rows.locator("button").click()
    assert names.all_inner_texts() == ["phone", "web", "shop"]  # 1,100 is a number
    assert rows.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Enter")
    assert names.all_inner_texts() == ["shop", "web", "phone"]
    assert rows.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert names.all_inner_texts() == ["web", "shop", "phone"]
    assert rows.get_attribute("aria-sort") is None
    assert table.locator("[aria-sort]").count() == 1


def test_doubtful_labels_are_downloaded(
    show: Callable[..., Any], tmp_path: Path
) -> None:
    page = show(write(tmp_path / "report.html"))
    with page.expect_download() as started:
        page.locator("a[download]").click()
    assert started.value.suggested_filename == "doubtful_labels.csv"
    text = Path(started.value.path()).read_text(encoding="utf-8")
    assert text.splitlines() == ["set,line,label,text", "dev,3,ham,win"]


def test_a_comparison_is_sorted(show: Callable[..., Any], tmp_path: Path) -> None:
    written = write_comparison(tmp_path / "page.html")
    page = show(written.read_text("utf-8"), 400)
    scores = page.locator("section", has=page.locator("h2", has_text="Scores on dev"))
    scores.locator("th button", has_text="Accuracy").click()
    names = scores.locator("tbody th").all_inner_texts()
    assert names == ["another-run-of-many", "third", "one"]
