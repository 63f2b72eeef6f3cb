"""Scores against values computed by hand, and the errors of arrays that do not fit."""

import json
import math

import numpy as np
import pytest

from bert_keras.errors import BertKerasError
from bert_keras.scoring.calibration import (
    confidence_scores,
    cross_entropy,
    expected_calibration_error,
)
from bert_keras.scoring.classification import (
    accuracy,
    classification_scores,
    confusion_matrix,
    matthews_correlation,
)

LABELS = np.array([0, 0, 0, 1, 1, 2], np.int32)
PREDICTIONS = np.array([0, 0, 1, 1, 2, 2], np.uint8)


def test_counts_by_hand():
    assert accuracy(LABELS, PREDICTIONS) == 4 / 6
    matrix = confusion_matrix(LABELS, PREDICTIONS, num_classes=3)
    assert matrix.dtype == np.int64
    assert matrix.tolist() == [[2, 1, 0], [0, 1, 1], [0, 0, 1]]


def columns_of(scores):
    """Return precision, recall and F1 of each class."""
    rows = scores["per_class"].values()
    return [[row[key] for row in rows] for key in ("precision", "recall", "f1")]


def test_precision_recall_f1_by_hand():
    scores = classification_scores(LABELS, np.eye(3)[PREDICTIONS], class_names="abc")
    expected = [[1, 1 / 2, 1 / 2], [2 / 3, 1 / 2, 1], [4 / 5, 1 / 2, 2 / 3]]
    np.testing.assert_allclose(columns_of(scores), expected)


def test_classes_that_do_not_occur():
    scores = classification_scores([0, 1], [[1, 0, 0, 0]] * 2, class_names="abcd")
    expected = [[0.5, 0, 0, 0], [1, 0, 0, 0], [2 / 3, 0, 0, 0]]
    np.testing.assert_allclose(columns_of(scores), expected)
    # Classes 2 and 3 are nowhere and do not count; class 1 is missed and does.
    assert scores["macro_f1"] == pytest.approx(1 / 3)


def test_matthews_of_two_classes_is_the_formula_of_the_four_counts():
    labels, predictions = [1] * 6 + [0] * 10, [1] * 4 + [0] * 2 + [1] * 3 + [0] * 7
    hits, misses, alarms, rejections = 4, 2, 3, 7
    numerator = hits * rejections - alarms * misses
    spread = math.sqrt((4 + 3) * (4 + 2) * (7 + 3) * (7 + 2))
    expected = numerator / spread
    assert matthews_correlation(labels, predictions) == pytest.approx(expected)


def test_matthews_of_three_classes_by_hand():
    # trace 4, size 6, predicted 2 2 2, true 3 2 1: (24 - 12) / sqrt((36-12) (36-14))
    expected = 12 / math.sqrt(24 * 22)
    assert matthews_correlation(LABELS, PREDICTIONS) == pytest.approx(expected)
    swapped = matthews_correlation(LABELS + 10**9, PREDICTIONS.astype(int) + 10**9)
    assert swapped == pytest.approx(expected)  # no memory is used for empty classes


@pytest.mark.parametrize(
    ("labels", "predictions", "expected"),
    [
        ([1, 1], [1, 1], 0.0),
        ([0, 1], [1, 1], 0.0),
        ([1, 1], [0, 1], 0.0),
        ([0, 1], [0, 1], 1.0),
        ([0, 1], [1, 0], -1.0),
    ],
)
def test_matthews_at_its_ends(labels, predictions, expected):
    assert matthews_correlation(labels, predictions) == expected


def test_cross_entropy_by_hand():
    p = np.array([[0.5, 0.5], [0.25, 0.75]], np.float32)
    assert cross_entropy([0, 0], p) == pytest.approx(math.log(8) / 2)
    never = cross_entropy([0], [[0.0, 1.0]])
    assert never == pytest.approx(-math.log(np.finfo(np.float32).tiny))
    certain = cross_entropy([1], [[0.0, 1.0]])
    assert certain == 0 and math.copysign(1, certain) == 1


def test_calibration_by_hand():
    # Bin (0.6, 0.8]: confidences 0.65 and 0.75, one hit; bin (0.8, 1]: 0.9, a miss.
    p = [[0.65, 0.35], [0.25, 0.75], [0.9, 0.1]]
    expected = (abs(1 - 1.4) + abs(0 - 0.9)) / 3
    assert expected_calibration_error([0, 0, 1], p, num_bins=5) == pytest.approx(
        expected
    )
    # An edge belongs to the bin below it: 0.5 and 0.4 share (0, 0.5].
    p = [[0.5, 0.5, 0.0], [0.3, 0.3, 0.4]]
    assert expected_calibration_error([0, 0], p, num_bins=2) == pytest.approx(0.05)
    assert expected_calibration_error([0, 1], [[1.0, 0.0], [0.0, 1.0]]) == 0


def test_classification_scores_are_json():
    p = np.full((6, 3), 0.1, np.float16)
    p[np.arange(6), PREDICTIONS] = 0.8
    scores = classification_scores(LABELS, p, class_names=["a", "b", "c"])
    assert json.loads(json.dumps(scores)) == scores
    assert list(scores) == [
        "num_examples",
        "loss",
        "accuracy",
        "macro_f1",
        "matthews_correlation",
        "expected_calibration_error",
        "per_class",
        "confusion_matrix",
        "reliability",
    ]
    assert scores["num_examples"] == 6 and scores["accuracy"] == 4 / 6
    loss = -(4 * math.log(0.8) + 2 * math.log(0.1)) / 6
    assert scores["loss"] == pytest.approx(loss, rel=1e-3)
    gap = scores["expected_calibration_error"]
    assert gap == pytest.approx(0.8 - 4 / 6, abs=1e-3)
    assert scores["macro_f1"] == pytest.approx((4 / 5 + 1 / 2 + 2 / 3) / 3)
    matthews = matthews_correlation(LABELS, PREDICTIONS)
    assert scores["matthews_correlation"] == matthews
    assert scores["confusion_matrix"] == [[2, 1, 0], [0, 1, 1], [0, 0, 1]]
    b = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}
    assert scores["per_class"]["b"] == b


def test_order_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    labels, p = rng.integers(0, 5, 200), rng.dirichlet(np.ones(5), 200)
    order = rng.permutation(200)
    names = list("abcde")
    one = classification_scores(labels, p, class_names=names)
    two = classification_scores(labels[order], p[order], class_names=names)
    for key in ("loss", "expected_calibration_error"):
        assert one.pop(key) == pytest.approx(two.pop(key))
    for mine, other in zip(one.pop("reliability"), two.pop("reliability"), strict=True):
        assert mine == pytest.approx(other)
    assert one == two


def test_reliability_by_hand():
    correct = [True, True, False, False]
    found = confidence_scores([0.9, 0.94, 0.6, 0.9], correct, num_bins=5)
    low, high = found["reliability"]
    assert low == {"confidence": 0.6, "accuracy": 0.0, "support": 1}
    assert high["confidence"] == pytest.approx((0.9 + 0.94 + 0.9) / 3)
    assert (high["accuracy"], high["support"]) == (pytest.approx(2 / 3), 3)


def test_the_f1_of_the_positive_class():
    p = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
    scores = classification_scores([0, 0, 1], p, class_names=["no", "yes"])
    assert (scores["f1"], scores["positive_class"]) == (pytest.approx(2 / 3), "yes")
    settings = {"class_names": ["no", "yes"], "positive_class": "no"}
    scores = classification_scores([0, 0, 1, 1, 1], [*p, [0, 1], [0, 1]], **settings)
    assert scores["f1"] == scores["per_class"]["no"]["f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("labels", "predictions", "message"),
    [
        ([], [], "`labels` must not be empty"),
        ([0, 1], [0], "must have the same length; received 2 and 1"),
        ([[0]], [0], r"`labels` must be of shape \[N\]; received shape \[1, 1\]"),
        ([0.0], [0], "`labels` must be integers; received float64"),
        ([0], [True], "`predictions` must be integers; received bool"),
        ([0, 3], [0, 1], "`labels` must be from 0 to 2; received 3 in row 1"),
        ([0, 1], [-1, 1], "`predictions` must be from 0 to 2; received -1 in row 0"),
    ],
)
def test_arrays_that_do_not_fit(labels, predictions, message):
    with pytest.raises(BertKerasError, match=message):
        confusion_matrix(labels, predictions, num_classes=3)


@pytest.mark.parametrize(
    ("labels", "p", "message"),
    [
        ([0], [0.5, 0.5], r"must be of shape \[1, C\]"),
        ([0, 1], [[0.5, 0.5]], r"must be of shape \[2, C\].* received shape \[1, 2\]"),
        ([0], [[]], r"received shape \[1, 0\]"),
        ([0, 0], [[0.5, 0.5], [2.0, -1.0]], "sum to 1; received .* in row 1"),
        ([0], [[0.5, 0.4]], "sum to 1"),
        ([0], [[math.nan, 1.0]], "sum to 1"),
        ([0], [["a", "b"]], "must be float"),
        ([2], [[0.5, 0.5]], "`labels` must be from 0 to 1; received 2"),
    ],
)
def test_probabilities_that_do_not_fit(labels, p, message):
    with pytest.raises(BertKerasError, match=message):
        classification_scores(labels, p, class_names=["a", "b"])


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_class_names_are_one_for_each_column(names):
    with pytest.raises(BertKerasError, match="one different name for each of the 2"):
        classification_scores([0], [[0.5, 0.5]], class_names=names)


def test_very_many_classes_have_pairs_in_place_of_a_matrix():
    names = [f"c{number}" for number in range(10_000)]
    p = np.zeros((4, 10_000))
    p[[0, 1, 2, 3], [5, 5, 7, 9_999]] = 1
    scores = classification_scores([5, 6, 6, 9_998], p, class_names=names)
    assert "confusion_matrix" not in scores and scores["accuracy"] == 0.25
    assert [tuple(row.values()) for row in scores["confusions"]] == [
        ("c6", "c5", 1), ("c6", "c7", 1), ("c9998", "c9999", 1)
    ]  # fmt: skip
