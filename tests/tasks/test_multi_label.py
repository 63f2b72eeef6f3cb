"""What a multi-label task does with cells, thresholds and dev rows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.data.table import as_columns
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.multi_label import MultiLabel

TASK = MultiLabel(("fun", "news", "sport"))
CELLS = ["news, sport", "", "fun", "sport,fun,news"]
TARGETS = [[0, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 1]]


def test_cells_become_targets() -> None:
    columns = as_columns(text=["a"] * 4, label=CELLS)
    np.testing.assert_array_equal(TASK.targets(columns), TARGETS)
    np.testing.assert_array_equal(TASK.encode_targets(tf.constant(CELLS)), TARGETS)
    assert MultiLabel.from_columns(columns) == TASK


def test_lists_in_memory_become_targets() -> None:
    columns = as_columns(text=["a"] * 2, label=[["news", "sport"], []])
    np.testing.assert_array_equal(TASK.targets(columns), TARGETS[:2])


@pytest.mark.parametrize(
    "cells", [[[1, 2], [], [0], [0, 1, 2]], [[0.0, 1.0, 1.0], *TARGETS[1:]]]
)
def test_numbers_are_of_the_named_classes(
    cells: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"text": ["a"] * 4, "label": [json.dumps(cell) for cell in cells]}
    columns = dataclasses.replace(as_columns(**given), path=f"{cells[0]}.jsonl")
    np.testing.assert_array_equal(TASK.targets(columns), TARGETS)
    note = "`label` holds the numbers of classes: 0 fun, 1 news, 2 sport"
    assert note in capsys.readouterr().err
    unnamed = MultiLabel.from_columns(columns)
    assert unnamed.classes == ("0", "1", "2")
    np.testing.assert_array_equal(unnamed.targets(columns), TARGETS)
    assert capsys.readouterr().err == ""


def test_a_flag_for_each_of_two_classes() -> None:
    columns = as_columns(text=["a"] * 2, label=[[0, 1], [1, 0]])
    two = MultiLabel.from_columns(columns)
    assert two.targets(columns).tolist() == [[0, 1], [1, 0]]
    both = TASK.targets(as_columns(text=["a"], label=[[0, 1]]))  # numbers of three
    assert both.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("a.tsv", "text\tlabel\na\tnews, sport\nb\t\nc\tfun\n", {}),
        ("a.tsv", "text\tlabel\na\tnews|sport\nb\t\nc\tfun\n", {"separator": "|"}),
        ("a.csv", 'text,label\na,"news,sport"\nb,\nc,fun\n', {}),
        (
            "a.jsonl",
            '{"text": "a", "label": ["news", "sport"]}\n'
            '{"text": "b", "label": []}\n{"text": "c", "label": "fun"}\n',
            {},
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": ["news", "sport"]}\n'
            '{"text": "b", "label": ""}\n{"text": "c", "label": ["fun"]}\n',
            {"separator": "; "},
        ),
    ],
)
def test_files(tmp_path: Path, name: str, content: str, settings: Any) -> None:
    (tmp_path / name).write_text(content)
    columns = MultiLabel.read(tmp_path / name)
    task = MultiLabel.from_columns(columns, **settings)
    assert task.classes == TASK.classes
    np.testing.assert_array_equal(task.targets(columns), TARGETS[:3])


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('{"text": "a", "label": ["news", null]}', "`label`"),
        ('{"text": "a", "label": ["news", ""]}', "`label`"),
        ('{"text": ["a"], "label": ["news"]}', "`text`"),
        ('{"text": "", "label": ["news"]}', "`text`"),
        ('{"text": "a", "label": null}\n{"text": "a", "label": []}', "is missing"),
    ],
)
def test_invalid_cells(tmp_path: Path, content: str, part: str) -> None:
    (tmp_path / "a.jsonl").write_text(content + "\n")
    refused(lambda: MultiLabel.read(tmp_path / "a.jsonl"), "a.jsonl:1", part)


def test_a_name_that_begins_with_a_bracket() -> None:
    assert TASK.names("[x] , news") == ["[x]", "news"]
    assert TASK.names("[" * 100_000) == ["[" * 100_000]


def test_every_unknown_name_is_reported_by_line() -> None:
    columns = as_columns(text=["a", "b"], label=["news,gossip", "wine"])
    line = refused(lambda: TASK.targets(columns), "gossip", "wine")
    assert "line 1" in line and "line 2" in line
    refused(lambda: TASK.encode_targets(tf.constant(["news,gossip"])), "'gossip'")


def test_classes_that_do_not_occur_in_the_data() -> None:
    columns = as_columns(text=["a", "b"], label=["", " , "])
    refused(lambda: MultiLabel.from_columns(columns), "must have a class")


def test_answers_by_hand() -> None:
    task = dataclasses.replace(TASK, thresholds=(0.5, 0.9, 0.1), temperature=2.0)
    logits = tf.constant([[2.0, 2.0, -2.0], [-2.0, 8.0, -8.0]])
    answers = {key: value.numpy() for key, value in task.answer(logits, {}).items()}
    sure = 1 / (1 + np.exp(-np.array([[1, 1, -1], [-1, 4, -4]])))
    np.testing.assert_allclose(answers["probabilities"], sure, rtol=1e-6)
    assert answers["labels"].tolist() == [[b"fun", b"", b"sport"], [b"", b"news", b""]]
    rows = rows_of(answers)
    assert [row["labels"] for row in rows] == [["fun", "sport"], ["news"]]
    assert rows[0]["probabilities"]["news"] == pytest.approx(sure[0, 1])


LOGITS = tf.constant([[-1.0, 3.0, -0.2], [-2.0, 1.0, -3.0], [-0.5, 1.0, -3.0]])
ROWS = as_columns(text=["a", "b", "c"], label=["news,sport", "", "fun"])


def answers_of(task: MultiLabel) -> dict[str, Any]:
    return {key: value.numpy() for key, value in task.answer(LOGITS, {}).items()}


def test_thresholds_are_learned_from_dev_rows() -> None:
    before = TASK.score(ROWS, answers_of(TASK))
    tuned = TASK.tune(ROWS, answers_of(TASK))
    after = tuned.score(ROWS, answers_of(tuned))
    assert before["macro_f1"] == pytest.approx((0 + 0.5 + 0) / 3)
    assert after["macro_f1"] == after["exact_match"] == 1.0
    assert tuned.mistakes(ROWS, answers_of(tuned)) == []
    assert tuned.tune(ROWS, answers_of(tuned)) == tuned  # they are given now
    # An epoch is judged by what thresholds that are yet to be found cannot change.
    assert (TASK.best_score, tuned.best_score) == ("mean_average_precision", "micro_f1")


@pytest.mark.parametrize(
    "settings", [{"thresholds": 0.4}, {"threshold_tuning": "none"}]
)
def test_thresholds_that_are_kept(settings: dict[str, Any]) -> None:
    task = dataclasses.replace(TASK, **settings)
    assert task.tune(ROWS, answers_of(task)) == task


def test_the_temperature_lowers_the_loss() -> None:
    task = dataclasses.replace(TASK, calibration="temperature", thresholds=0.5)
    tuned = task.tune(ROWS, answers_of(task))
    assert tuned.temperature != 1
    scores = tuned.score(ROWS, answers_of(tuned))
    plain = task.score(ROWS, answers_of(task))
    assert scores["loss"] < plain["loss"]
    assert scores["uncalibrated_loss"] == pytest.approx(plain["loss"], rel=1e-4)


def test_mistakes_begin_with_the_worst() -> None:
    found = TASK.mistakes(ROWS, answers_of(TASK))
    assert [row["line"] for row in found] == [3, 1, 2]
    assert found[0]["label"] == "fun" and found[0]["prediction"] == "news"
    assert found[2]["label"] == "none"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("classes", ()),
        ("classes", ("a", "a")),
        ("separator", ""),
        ("thresholds", (0.5, 0.5)),
        ("thresholds", (0.5, 0.5, 2.0)),
        ("thresholds", "low"),
        ("thresholds", "0.1,0.2,0.3"),
        ("threshold_tuning", "recall"),
        ("calibration", "platt"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: Any) -> None:
    line = refused(lambda: dataclasses.replace(TASK, **{name: value}), f"`{name}`")
    assert not isinstance(value, str) or f"received {value!r}" in line
