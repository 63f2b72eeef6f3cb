"""Temperature and abstention: minima by hand, thresholds, and what a task does."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.data.table import as_columns
from bert_keras.scoring.calibration import (
    abstention_scores,
    abstention_threshold,
    cross_entropy,
    fit_temperature,
    scaled,
    uncalibrated_scores,
)
from bert_keras.tasks import parse_settings
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.classification import Classification


def test_the_temperature_by_hand() -> None:
    # 0.9 : 0.1 is 9 : 1; three of four are right, so 3 : 1 = 9^(1/2) : 1 is best.
    assert fit_temperature([0, 0, 0, 1], [[0.9, 0.1]] * 4) == pytest.approx(2.0)
    assert fit_temperature([0, 0, 0, 1], [[0.75, 0.25]] * 4) == pytest.approx(1.0)


def test_the_temperature_of_logits_that_were_multiplied() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(4000, 3)) * 2
    fair = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (fair.cumsum(axis=1) > draw.random((4000, 1))).argmax(axis=1)
    bold = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=1, keepdims=True)
    found = fit_temperature(labels, bold)
    assert found == pytest.approx(3.0, rel=0.05)
    np.testing.assert_allclose(scaled(bold, 3.0), fair, atol=1e-9)
    losses = [cross_entropy(labels, scaled(bold, found * t)) for t in (0.99, 1, 1.01)]
    assert losses[1] < min(losses[0], losses[2])


@pytest.mark.parametrize(("labels", "bound"), [([0, 0, 0], 0.1), ([1, 1, 1], 10.0)])
def test_rows_that_are_all_right_or_all_wrong_reach_a_bound(labels, bound) -> None:
    assert fit_temperature(labels, [[0.8, 0.2]] * 3) == pytest.approx(bound)


def test_a_probability_of_0_gives_a_finite_loss() -> None:
    found = fit_temperature([0, 1, 0], [[1.0, 0.0], [1.0, 0.0], [0.6, 0.4]])
    assert np.isfinite(found)


def test_scores_before_the_temperature() -> None:
    before = np.array([[0.9, 0.1], [0.2, 0.8]])
    found = uncalibrated_scores([0, 1], scaled(before, 2.0), 2.0)
    assert found["uncalibrated_loss"] == pytest.approx(cross_entropy([0, 1], before))
    assert found["uncalibrated_calibration_error"] == pytest.approx(0.15)
    assert uncalibrated_scores([0, 1], before, 1.0) == {}


CONFIDENCE = np.array([0.9, 0.6, 0.8, 0.8, 0.5])
CORRECT = np.array([True, False, True, False, True])


@pytest.mark.parametrize(
    ("accuracy", "threshold"),
    [(0.6, 0.0), (0.65, 0.7), (0.7, 0.85), (1.0, 0.85)],
)
def test_the_threshold_by_hand(accuracy: float, threshold: float) -> None:
    found = abstention_threshold(CONFIDENCE, CORRECT, accuracy=accuracy)
    assert found == pytest.approx(threshold)
    if found:
        scores = abstention_scores(CONFIDENCE, CORRECT, found)
        assert scores["answered_accuracy"] >= accuracy


def test_an_unattainable_accuracy_answers_nothing() -> None:
    wrong = np.zeros(5, bool)
    assert abstention_threshold(CONFIDENCE, wrong, accuracy=0.5) == 1.0
    scores = abstention_scores(CONFIDENCE, wrong, 1.0)
    assert scores == {"coverage": 0.0}
    assert abstention_scores(CONFIDENCE, wrong, 0.0) == {}


TASK = Classification(("ham", "spam"))
LOGITS = tf.constant([[2.2, 0.0], [0.0, 2.2], [2.2, 0.0], [2.2, 0.0]])
ROWS = as_columns(text=["a", "b", "c", "d"], label=["ham", "spam", "spam", "ham"])


def answers_of(task: Classification) -> dict[str, Any]:
    return {key: value.numpy() for key, value in task.answer(LOGITS, {}).items()}


def test_a_task_learns_its_temperature_from_dev_rows() -> None:
    task = dataclasses.replace(TASK, calibration="temperature", temperature=0.5)
    tuned = task.tune(ROWS, answers_of(task))
    # Three of four are right: 2.2 / T = log 3, whatever the temperature was before.
    assert tuned.temperature == pytest.approx(2.2 / np.log(3), rel=1e-5)
    scores = tuned.score(ROWS, answers_of(tuned))
    assert scores["expected_calibration_error"] == pytest.approx(0, abs=1e-6)
    assert scores["loss"] < scores["uncalibrated_loss"]
    plain = TASK.score(ROWS, answers_of(TASK))
    assert scores["uncalibrated_loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert TASK.tune(ROWS, answers_of(TASK)) == TASK


def test_a_task_abstains_below_its_threshold() -> None:
    unsure = tf.constant([[2.0, 0.0], [0.1, 0.0]])
    task = dataclasses.replace(TASK, abstain_below=0.6)
    answers = {key: value.numpy() for key, value in task.answer(unsure, {}).items()}
    assert answers["label"].tolist() == [b"ham", b""]
    assert answers["abstained"].tolist() == [False, True]
    rows = rows_of(answers)
    assert rows[1]["label"] == "" and rows[1]["abstained"] is True
    assert set(rows[1]["probabilities"]) == {"ham", "spam"}
    assert "abstained" not in TASK.answer(unsure, {})


def test_a_task_learns_its_threshold_from_dev_rows() -> None:
    task = dataclasses.replace(TASK, answered_accuracy=0.9)
    logits = tf.constant([[3.0, 0.0], [0.0, 2.0], [1.0, 0.0], [1.5, 0.0]])
    answers = {key: value.numpy() for key, value in task.answer(logits, {}).items()}
    tuned = task.tune(ROWS, answers)  # the third is wrong, and the least sure
    sure = 1 / (1 + np.exp(-np.array([1.0, 1.5])))
    assert tuned.abstain_below == pytest.approx(sure.mean())
    answers = {key: value.numpy() for key, value in tuned.answer(logits, {}).items()}
    scores = tuned.score(ROWS, answers)
    assert (scores["coverage"], scores["answered_accuracy"]) == (0.75, 1.0)
    assert scores["accuracy"] == 0.75  # of all rows, answered or not


def test_settings_of_the_command_line() -> None:
    rows = as_columns(text=["a", "b"], label=["0", "1"])
    given = ["positive_class=0", "calibration=temperature", 'classes=["0", "1", "2"]']
    task = Classification.from_columns(rows, **parse_settings(Classification, given))
    assert (task.positive_class, task.calibration) == ("0", "temperature")
    assert task.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("calibration", "platt"),
        ("temperature", 0.0),
        ("temperature", float("nan")),
        ("temperature", "warm"),
        ("abstain_below", 1.5),
        ("abstain_below", True),
        ("answered_accuracy", -0.1),
        ("positive_class", "eggs"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: Any) -> None:
    refused(lambda: dataclasses.replace(TASK, **{name: value}), f"`{name}`")
