"""ROC and precision-recall curves, and the best threshold, by hand."""

import numpy as np
import pytest
from conftest import refused

from bert_keras.scoring.curves import (
    average_precision,
    best_threshold,
    decision_curves,
    precision_recall_curve,
    roc_auc,
    roc_curve,
    scores_at,
)

LABELS = [0, 0, 1, 1]
SCORES = [0.1, 0.4, 0.35, 0.8]


def test_curves_by_hand():
    x, y = roc_curve(LABELS, SCORES)
    assert x.tolist() == [0, 0, 0.5, 0.5, 1] and y.tolist() == [0, 0.5, 0.5, 1, 1]
    precision, recall, thresholds = precision_recall_curve(LABELS, SCORES)
    assert precision.tolist() == [1, 0.5, 2 / 3, 0.5]
    assert recall.tolist() == [0.5, 0.5, 1, 1]
    assert thresholds.tolist() == [0.8, 0.4, 0.35, 0.1]
    assert roc_auc(LABELS, SCORES) == 0.75  # 3 of 4 pairs are in order
    assert average_precision(LABELS, SCORES) == pytest.approx(0.5 + 0.5 * 2 / 3)


def test_equal_scores_are_one_point():
    x, y = roc_curve([0, 1, 1], [0.5, 0.5, 0.5])
    assert x.tolist() == y.tolist() == [0, 1]
    assert roc_auc([0, 1, 1], [0.5, 0.5, 0.5]) == 0.5


def test_the_best_threshold_is_compared_with_half():
    # F1 is 0.8 with all at or above 0.35, and 2/3 at 0.5.
    assert best_threshold(LABELS, SCORES) == pytest.approx((0.35 + 0.1) / 2)
    assert best_threshold([0, 0], [0.1, 0.9]) == 0.5
    found = decision_curves(LABELS, SCORES)
    half, best = found["at"]
    assert half == {
        "threshold": 0.5, "precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3)
    }  # fmt: skip
    assert best["f1"] == pytest.approx(0.8) and best["recall"] == 1.0
    chosen_on_dev = decision_curves(LABELS, SCORES, threshold=0.9)["at"][1]
    assert chosen_on_dev == scores_at(LABELS, SCORES, 0.9)
    assert chosen_on_dev["f1"] == chosen_on_dev["precision"] == 0.0


def test_points_for_a_report_are_few():
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 5000), rng.random(5000)
    found = decision_curves(labels, scores)
    assert len(found["roc"]) == len(found["by_threshold"]) == 200
    assert found["roc"][0] == [0, 0] and found["roc"][-1] == [1, 1]
    threshold, precision, recall, f1 = found["by_threshold"][100]
    assert f1 == pytest.approx(2 * precision * recall / (precision + recall), abs=1e-4)
    assert "roc" not in decision_curves(labels, scores, with_points=False)


def test_one_kind_of_label_has_no_curves():
    assert decision_curves([1, 1], [0.5, 0.6]) == {}
    refused(lambda: roc_auc([1, 1], [0.5, 0.6]), "`labels`", "ones only")
    refused(
        lambda: average_precision([0, 0], [0.5, 0.6]), "at least one 1; received [0]"
    )
    refused(lambda: roc_auc([0, 2], [0.5, 0.6]), "0 or 1", "received [0, 2]")
    refused(lambda: roc_auc([0, 1], [0.5]), "same shape", "[2] and [1]")
    refused(lambda: roc_auc([0, 1], [0.5, float("nan")]), "NaN")
