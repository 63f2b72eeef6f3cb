"""Runs are compared by what `comparison.json` notes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from conftest import refused

from bert_keras.report.changed_answers import noted_mistakes
from bert_keras.report.comparison import compare_runs, write_run


def run(folder: Path, accuracy: float = 0.9, note: Any = None, **settings: Any) -> Path:
    """Write the note of a run and return its folder."""
    folder.mkdir(parents=True)
    whole = {"slice": "all rows", "rows": 9, "low": accuracy - 0.1, "high": 0.99}
    write_run(
        folder,
        {
            "settings": {"seed": 1, "batch_size": 16, **settings},
            "data": {"train": {"rows": 9}, "note": "a word"},
            "history": [
                {"step": 1, "epoch": 1, "loss": np.float32(0.7)},
                {"step": 2, "epoch": 2, "loss": accuracy, "dev_accuracy": accuracy},
                {"step": 3, "dev_loss": float("nan")},
            ],
            "scores": {"dev": {"loss": 0.5, "accuracy": accuracy, "matrix": [[1]]}},
            "best_score": "accuracy",
            "slices": {"dev": {"all rows": [whole | {"accuracy": accuracy}]}},
            "environment": {"keras": "3"},
            "command": f"bert-keras train … {folder.name}",
            **(note or {}),
        },
    )
    return folder


def test_scores_curves_and_settings_that_differ(tmp_path: Path) -> None:
    folders = [
        run(tmp_path / "first"),
        run(tmp_path / "second", 0.8, seed=2, training_seconds=7),
    ]
    page = compare_runs(folders, output=tmp_path / "page.html").read_text("utf-8")
    assert page.index("Accuracy") < page.index("0.800 to 0.990")
    assert page.count("<polyline") == 4  # loss and accuracy of two runs
    settings = page.partition("Settings that differ</h2>")[2].partition("</section>")[0]
    assert "seed" in settings and "batch_size" not in settings
    assert "training_seconds" not in settings
    assert "Versions and hardware" not in page and "train … second" in page


def test_runs_that_are_no_runs(tmp_path: Path) -> None:
    one, page = run(tmp_path / "one"), tmp_path / "page.html"
    (tmp_path / "none").mkdir()
    refused(lambda: compare_runs([one], output=page), "`runs`", "two or more")
    refused(lambda: compare_runs([one, one], output=page), "different", "one")
    refused(
        lambda: compare_runs([one, tmp_path / "none"], output=page),
        "none", "contains no comparison.json",
    )  # fmt: skip
    other = run(tmp_path / "other")
    note = json.loads((other / "comparison.json").read_text("utf-8"))
    (other / "comparison.json").write_text(json.dumps(note | {"scores": 3}), "utf-8")
    refused(
        lambda: compare_runs([one, other], output=page), "`scores`", "comparison.json"
    )
    assert not page.exists()


def test_folders_of_the_same_name_have_that_of_their_parent(tmp_path: Path) -> None:
    folders = [run(tmp_path / name / "model") for name in "ab"]
    page = compare_runs(folders, output=tmp_path / "page.html").read_text("utf-8")
    assert ">a/model</th>" in page and ">b/model</th>" in page
    assert "<p>None.</p>" in page


def answers_of(path: Path, **wrong: str) -> Path:
    """Write a run on four test rows; the label of row `a` is "A", and so on."""
    mistakes = [
        {"line": ord(row), "text": f"text {row}", "label": row.upper(), "prediction": x}
        for row, x in wrong.items()
    ]
    per_class = {
        name: {"f1": 0.25 if name.lower() in wrong else 1.0, "support": 1}
        for name in "ABC"
    }
    per_class["D"] = {"f1": 0.0, "support": 0}
    scores = {"f1": 0.5, "per_class": per_class}
    return run(
        path,
        note={
            "scores": {"dev": {"f1": 0.5}, "test": scores},
            "mistakes": mistakes,
            "data": {
                "dev": {"rows": 3, "digest": path.name},
                "test": {"rows": 4, "digest": "same"},
            },
        },
        shared=None,
    )


def test_changed_answers_and_classes(tmp_path: Path) -> None:
    first = answers_of(tmp_path / "first", a="B", b="C")
    second = answers_of(tmp_path / "second", b="A", c="A")
    page = compare_runs([first, second], output=tmp_path / "p.html").read_text("utf-8")
    assert page.index("Scores on test") < page.index("Scores on dev")
    assert "The rows of dev are not the same in all runs" in page
    assert "The rows of test" not in page
    answers = page.partition(">Answers that changed</h2>")[2].partition("</section>")[0]
    headings = (
        "Right only in second: 1",
        "Right only in first: 1",
        "Wrong in both.*: 1",
    )
    parts = re.split("|".join(headings), answers)
    texts = [re.findall(r"text [abc]", part) for part in parts]
    assert texts == [[], ["text a"], ["text c"], ["text b"]]
    classes = page.partition("Classes on test</h2>")[2].partition("</section>")[0]
    rows = re.findall(r"<tr><th[^>]*>(\w)</th>(.*?)</tr>", classes)
    assert [name for name, _ in rows] == ["A", "C", "B", "D"]
    assert "0.7500" in rows[0][1] and rows[3][1].count("–") == 3
    assert "None" not in page


def test_runs_of_which_less_is_known_are_compared(tmp_path: Path) -> None:
    folders = [answers_of(tmp_path / name, a="B") for name in ("new", "old")]
    path = folders[1] / "comparison.json"
    note = json.loads(path.read_text("utf-8"))
    for key in ("digests", "per_class", "mistakes"):
        note[key] = {}
    path.write_text(json.dumps(note), "utf-8")
    page = compare_runs(folders, output=tmp_path / "page.html").read_text("utf-8")
    assert "It is not known whether the rows of test are the same" in page
    assert "compared of new and old: old has no note of the mistakes" in page
    folds = {"three": "cross-validation, 3 folds", "five": "cross-validation, 5 folds"}
    validated = [
        run(tmp_path / name, note={"scores": {split: {"accuracy": 0.9}}})
        for name, split in folds.items()
    ]
    page = compare_runs(validated, output=tmp_path / "page.html").read_text("utf-8")
    assert page.count("cross-validation</h") == 1 and "folds</h" not in page
    scores = {"held-out data": {"perplexity": 9.0}}
    pretrained = [run(tmp_path / n, note={"scores": scores}) for n in ("one", "other")]
    page = compare_runs(pretrained, output=tmp_path / "page.html").read_text("utf-8")
    assert "Answers that changed" not in page and page.count("held-out data</h") == 1


def test_why_answers_are_not_compared(tmp_path: Path) -> None:
    first = answers_of(tmp_path / "first", a="B")
    other = answers_of(tmp_path / "other", a="B")
    path, page = other / "comparison.json", tmp_path / "page.html"
    note = json.loads(path.read_text("utf-8"))

    def shown(**changes: Any) -> str:
        path.write_text(json.dumps(note | changes), "utf-8")
        return compare_runs([first, other], output=page).read_text("utf-8")

    said = "No answers are compared of first and other: "
    assert f"{said}the rows of test are not the same" in shown(digests={"test": "x"})
    assert f"{said}it is not known whether the rows of test" in shown(digests={})
    moved = {"dev": note["mistakes"]["test"]}
    assert f"{said}the mistakes are of test and of dev" in shown(mistakes=moved)
    right = [answers_of(tmp_path / name) for name in ("one", "two")]
    compare_runs(right, output=page)
    assert "one and two: neither made a mistake on test" in page.read_text("utf-8")


def test_a_setting_that_one_run_lacks_and_another_leaves_open_is_equal(
    tmp_path: Path,
) -> None:
    folders = [run(tmp_path / "a", dropout=None), run(tmp_path / "b")]
    page = compare_runs(folders, output=tmp_path / "page.html").read_text("utf-8")
    assert "dropout" not in page and "<p>None.</p>" in page


def test_mistakes_that_are_not_wrong_answers_are_not_noted() -> None:
    row = {"line": 1, "text": "x", "label": 0.5, "prediction": 0.9}
    assert noted_mistakes([row]) is None
    assert noted_mistakes([{"id": "q", "answers": "a", "prediction": "b"}]) == [
        ["q", "", "a", "b"]
    ]
