"""Which rows to label next."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refused

from bert_keras.cli.main import main
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.retrieval import selection
from bert_keras.retrieval.selection import (
    covering_rows,
    distinct_rows,
    select_rows,
    uncertainties,
)
from bert_keras.scoring.similarity import unit_rows

TEXTS = ["win cash", "see you", "Win  cash", "", "lunch at six", "free prize", "now"]


def test_rows_cover_the_groups_that_have_no_label() -> None:
    draw = np.random.default_rng(0)
    places = np.repeat(np.eye(8, dtype="float32")[:4], [40, 30, 20, 10], axis=0)
    vectors = unit_rows(places + 0.2 * draw.normal(size=places.shape))
    groups = np.repeat(np.arange(4), [40, 30, 20, 10])
    found = covering_rows(vectors, 4)
    assert groups[found].tolist() == [0, 1, 2, 3]  # the largest group first
    assert found == covering_rows(vectors, 4)
    others = covering_rows(vectors, 2, covered=vectors[found[:2]])
    assert sorted(groups[others]) == [2, 3]
    every = covering_rows(vectors[:3], 9, covered=vectors[:1])
    assert sorted(every) == [1, 2]  # not what is labelled, and each once


@pytest.mark.parametrize("file", ["saved_model.pb", "onnx/model.onnx"])
def test_an_export_of_a_classifier_is_a_classifier(
    file: str, spam_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnx").mkdir()
    for name in (file, "answers.json"):
        (tmp_path / name).touch()
    predictor = Predictor(spam_model)
    monkeypatch.setattr(selection, "load_predictor", lambda *_, **__: predictor)
    for strategy in ("margin", "entropy"):
        found, wanted = (
            select_rows(model, TEXTS, count=2, strategy=strategy)
            for model in (tmp_path, predictor)
        )
        assert found == wanted


@pytest.mark.slow
def test_doubtful_rows_first(
    spam_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("bert_keras.runs.progress._SECONDS_BETWEEN_LINES", -1.0)
    rows = distinct_rows(TEXTS, known=["SEE you"])
    assert rows == [0, 4, 5, 6]
    given = [TEXTS[row] for row in rows]
    answers = load_predictor(spam_folder).predict(given)
    p = np.sort([list(a["probabilities"].values()) for a in answers], axis=1)
    doubts = {"margin": 1 - (p[:, -1] - p[:, -2]), "entropy": -(p * np.log(p)).sum(1)}
    for strategy, wanted in doubts.items():
        found = uncertainties(spam_folder, given, strategy)
        np.testing.assert_allclose(found, wanted, atol=1e-4)
    labelled = ["see you"]
    found = select_rows(
        spam_folder, TEXTS, count=2, strategy="margin", labelled=labelled
    )
    assert found == [rows[i] for i in np.argsort(-doubts["margin"])[:2]]
    told = capsys.readouterr().err
    assert "are left out: 3 of 7" in told
    assert "uncertainties: 4 of 4 texts" in told
    assert set(select_rows(spam_folder, TEXTS, count=9, labelled=labelled)) <= set(rows)


def test_the_verb_writes_rows_to_label(
    encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, output = tmp_path / "pool.csv", tmp_path / "next.csv"
    rows = "".join(f"{number},{text}\n" for number, text in enumerate(TEXTS, 1))
    pool.write_text(f"id,body\n{rows}")
    given = [str(encoder_folder), str(pool), "--output", str(output), "--text", "body"]
    assert main(["select", *given, "--count", "3"]) == 0
    found = list(csv.DictReader(output.read_text().splitlines()))
    assert [list(row) for row in found] == [["id", "body", "label"]] * 3
    assert all(row["body"] == TEXTS[int(row["id"]) - 1] for row in found)
    assert {row["label"] for row in found} == {""}
    done = tmp_path / "done.csv"
    done.write_text("body,label\nwin cash,spam\nlunch at six,\nnow,ham\n")
    assert main(["select", *given, "--count", "3", "--labelled", str(done)]) == 0
    assert "done.csv: 1 of 3 rows have an empty label" in capsys.readouterr().err
    found = list(csv.DictReader(output.read_text().splitlines()))
    assert sorted(row["id"] for row in found) == ["5", "6"]
    assert main(["select", *given, "--strategy", "margin"]) == 2
    assert "`strategy` margin needs a classifier" in capsys.readouterr().err
    output.write_text("id,body,label\n5,see you,ham\n6,ok,\n")
    assert main(["select", *given]) == 2
    told = capsys.readouterr().err
    assert "must not replace labels" in told and "next.csv has 1 label" in told
    output.unlink()
    pool.write_text("body,label\nsee you,\nwin cash,spam\n")
    assert main(["select", *given]) == 2
    told = capsys.readouterr().err
    assert "pool.csv:3" in told and "`label` must be empty" in told and "spam" in told


def test_wrong_arguments(encoder_folder: Path) -> None:
    refused(lambda: select_rows(encoder_folder, [], count=2), "`texts`", "at least one")
    refused(
        lambda: select_rows(encoder_folder, ["a"], strategy="best"),
        "`strategy`",
        "best",
    )
