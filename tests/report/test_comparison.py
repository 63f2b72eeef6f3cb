"""Runs are compared by what `comparison.json` notes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from conftest import refused

from bert_keras.report.comparison import compare_runs, write_run


def run(folder: Path, accuracy: float = 0.9, **settings: Any) -> Path:
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
    settings = page.partition("Settings that differ")[2].partition("</section>")[0]
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
        "none", "holds no comparison.json",
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
