"""Multi-label scores and thresholds, by hand."""

import numpy as np
import pytest
from conftest import refused

from bert_keras.scoring.multi_label import best_thresholds, multi_label_scores

TARGETS = [[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0]]
P = [[0.9, 0.4, 0.3], [0.2, 0.8, 0.1], [0.6, 0.1, 0.2], [0.7, 0.4, 0.6]]


def scores(targets=TARGETS, p=P, thresholds=(0.5, 0.5, 0.5)):
    names = [f"class {i}" for i in range(len(thresholds))]
    return multi_label_scores(targets, p, thresholds=thresholds, class_names=names)


def test_scores_by_hand():
    found = scores()
    # Predicted: rows 0, 2, 3 of class 0; row 1 of class 1; row 3 of class 2.
    assert found["micro_f1"] == pytest.approx(2 * 3 / (5 + 5))
    first, second, third = found["per_class"].values()
    assert (first["precision"], first["recall"]) == (pytest.approx(2 / 3), 1.0)
    assert second["f1"] == pytest.approx(2 / 3)
    assert (third["f1"], third["support"]) == (0.0, 1)
    assert found["macro_f1"] == pytest.approx((0.8 + 2 / 3 + 0) / 3)
    assert found["exact_match"] == 0.25
    assert found["num_examples"] == 4


def test_ranking_by_hand():
    # Row 0: ranks 1 and 3 of two: (1/1 + 2/3) / 2. Row 3: ranks 1 and 3. Row 2: 1.
    wanted = ((1 + 2 / 3) / 2 + 1 + 1 + (1 + 2 / 3) / 2) / 4
    assert scores()["label_ranking_average_precision"] == pytest.approx(wanted)


def test_average_precision_by_hand():
    # Class 0 ranks 0, 3 first; class 1: 1, then 0 and 3 together; class 2: 3, then 0.
    precisions = [1.0, 1 / 2 + 1 / 2 * 2 / 3, 1 / 2]
    found = [each["average_precision"] for each in scores()["per_class"].values()]
    assert found == pytest.approx(precisions)
    assert scores()["mean_average_precision"] == pytest.approx(np.mean(precisions))


def test_certain_answers_have_a_finite_loss():
    assert scores([[1, 0]], [[1.0, 0.0]], (0.5, 0.5))["loss"] < 1e-6
    assert scores([[0, 1]], [[1.0, 0.0]], (0.5, 0.5))["loss"] == pytest.approx(
        24 * np.log(2)
    )


def test_thresholds_by_hand():
    # Class 0: above 0.6; class 1: from 0.4 on; class 2: from 0.3 on, best is 2/3.
    assert best_thresholds(TARGETS, P) == pytest.approx([0.65, 0.25, 0.25])


def test_the_threshold_nearest_to_a_half_is_used():
    # Both 0.8 and 0.2 predict the one right row first.
    assert best_thresholds([[1], [0], [0]], [[0.9], [0.1], [0.1]]) == [0.5]
    assert best_thresholds([[0], [0]], [[0.9], [0.1]]) == [0.5]  # never right


def test_thresholds_are_the_best_of_all():
    draw = np.random.default_rng(3)
    targets = draw.random((60, 4)) < 0.3
    p = np.round(np.clip(targets * 0.3 + draw.random((60, 4)) * 0.7, 0, 1), 2)
    found = scores(targets, p, best_thresholds(targets, p))["per_class"]
    for number, each in enumerate(found.values()):
        tries = [
            scores(targets, p, np.full(4, t))["per_class"][f"class {number}"]["f1"]
            for t in np.linspace(0, 1, 201)
        ]
        assert each["f1"] == pytest.approx(max(tries))


@pytest.mark.parametrize(
    ("targets", "p", "part"),
    [
        ([[1, 0]], [[0.5]], "the same shape [N, C]; received [1, 2] and [1, 1]"),
        ([[2]], [[0.5]], "`targets` must be 0 or 1; received 2"),
        (
            [[1]],
            [[np.nan]],
            "`probabilities` must be numbers from 0 to 1; received nan",
        ),
        ([[1]], [[1.1]], "received 1.1"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "[0, 2]"),
    ],
)
def test_inputs_that_do_not_fit(targets, p, part):
    refused(lambda: scores(targets, p, (0.5,)), part)


def test_a_threshold_for_each_class():
    refused(lambda: scores(TARGETS, P, (0.5, 0.5)), "`thresholds`")
