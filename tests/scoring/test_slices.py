"""Slices partition the rows, and their intervals hold the true score."""

import math

import numpy as np
import pytest

from bert_keras.errors import BertKerasError
from bert_keras.scoring.intervals import wilson_interval
from bert_keras.scoring.slices import (
    jackknife_interval,
    length_slices,
    slice_scores,
    value_slices,
)
from bert_keras.tasks.generation import Translation
from bert_keras.tasks.question_answering.task import QuestionAnswering


@pytest.mark.parametrize(
    ("lengths", "names"),
    [
        ([3, 9, 4, 8, 20, 30], ["3 to 4", "8 to 9", "20 to 30"]),
        ([5] * 9, ["5"]),
        ([5] * 8 + [2000], ["5", "2,000"]),
        ([7], ["7"]),
    ],
)
def test_thirds_of_the_lengths(lengths, names):
    found = length_slices(lengths)
    assert list(found) == names
    assert sorted(np.concatenate(list(found.values()))) == list(range(len(lengths)))


def test_no_slice_has_lengths_on_both_sides_of_an_edge():
    found = length_slices([1, 2, 3, 4, 5, 6, 7, 8, 9], 7)
    assert list(found) == ["1 to 3", "4 to 6", "7", "8 to 9"]


def test_values_of_a_column():
    found = value_slices(["b", "a", "a", ""])
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "a": [1, 2], "b": [0], "": [3]
    }  # fmt: skip
    many = value_slices(["common"] * 2 + list(range(30)))
    assert len(many) == 20 and len(many["common"]) == 2
    assert len(many["others"]) == 30 - 18 and many["others"][-1] == 31


def test_shares_have_the_interval_of_wilson():
    right = np.array([1, 1, 0, 1, 0])
    slices = {"first": np.arange(3), "rest": np.arange(3, 5)}
    first, rest = slice_scores(slices, lambda rows: right[rows].mean(), name="accuracy")
    assert first == {
        "slice": "first", "rows": 3, "accuracy": 2 / 3,
        "low": wilson_interval(2 / 3, 3)[0], "high": wilson_interval(2 / 3, 3)[1],
    }  # fmt: skip
    assert rest["accuracy"] == 0.5 and rest["rows"] == 2


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(0).normal(size=1000)
    low, high = jackknife_interval(
        lambda rows: values[rows].mean(), np.arange(1000), values.mean()
    )
    assert (low + high) / 2 == pytest.approx(values.mean())
    # Ten groups estimate the deviation to about a quarter.
    assert (high - low) / (2 * 2.262) == pytest.approx(1 / math.sqrt(1000), rel=0.5)


@pytest.mark.parametrize(
    "name, scale, least, most",
    [
        ("micro_f1", 1, 0, 1),
        ("bleu", 100, 0, 100),
        ("bleu", 1, 0, 100),  # a poor translation
        ("f1", 100, 0, 100),  # of SQuAD
        ("spearman", 1, -1, 1),
        ("loss", 1, -math.inf, math.inf),
    ],
)
def test_intervals_end_where_the_score_ends(name, scale, least, most):
    values = np.full(20, 0.5)
    values[:2] = 9, -9  # two groups that change the score much
    (found,) = slice_scores(
        {"all": np.arange(20)}, lambda rows: scale * values[rows].mean(), name=name
    )
    low, high = jackknife_interval(
        lambda rows: scale * values[rows].mean(), np.arange(20), found[name]
    )
    assert low < -scale and high > scale
    assert (found["low"], found["high"]) == (max(low, least), min(high, most))


def test_a_low_score_in_percent_is_not_limited_to_one():
    f1 = np.resize([0.0] * 49 + [30.0], 100)
    (found,) = slice_scores(
        {"all": np.arange(100)}, lambda rows: f1[rows].mean(), name="f1", most=100.0
    )
    assert found["f1"] == 0.6 and found["high"] > 1
    assert QuestionAnswering.most_score == Translation.most_score == 100.0


def test_what_is_not_defined_is_none():
    def score(rows):
        if len(rows) < 10:
            raise BertKerasError("too few")
        return math.nan if len(rows) == 10 else 0.5

    slices = {str(size): np.arange(size) for size in (5, 10, 11)}
    few, odd, edge = slice_scores(slices, score, name="f1")
    assert few["f1"] is odd["f1"] is None and few["low"] is None
    assert edge["f1"] == 0.5 and edge["high"] is None  # without a group: 10 rows
    slow = slice_scores({"all": np.arange(50)}, score, name="f1", seconds=0.0)
    assert slow[0]["f1"] == 0.5 and slow[0]["low"] is None
