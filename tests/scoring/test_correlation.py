"""Correlations: values by hand, ties, and what is undefined."""

import numpy as np
import pytest
from conftest import refused

from bert_keras.scoring.correlation import pearson, spearman


def test_pearson_by_hand():
    # Deviations (-2, 0, 2) and (-1, -1, 2): 6 / sqrt(8 * 6).
    assert pearson([1, 3, 5], [2, 2, 5]) == pytest.approx(6 / 48**0.5)
    assert pearson([1, 2, 3], [30, 20, 10]) == -1.0


def test_spearman_by_hand_with_ties():
    # Ranks (1, 2.5, 2.5, 4) and (2, 1, 3, 4), around 2.5: 3 / sqrt(4.5 * 5).
    found = spearman([0.1, 0.5, 0.5, 9.0], [20, 10, 30, 40])
    assert found == pytest.approx(3.0 / (4.5 * 5.0) ** 0.5)


def test_only_the_order_matters_to_spearman():
    x = np.random.default_rng(1).normal(size=50)
    assert spearman(x, np.exp(x)) == 1.0
    assert pearson(x, np.exp(x)) < 0.95


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_a_constant_side_has_correlation_0(correlation):
    assert correlation([1, 2, 3], [0.1, 0.1, 0.1]) == 0.0
    assert correlation([5], [5]) == 0.0


def test_extreme_sizes_do_not_overflow():
    assert pearson([1e200, 2e200, 3e200], [1e-200, 2e-200, 3e-200]) == 1.0


@pytest.mark.parametrize(
    ("targets", "predictions", "part"),
    [
        ([], [], "`targets`"),
        ([1, 2], [1, np.nan], "`predictions` must be finite; received nan"),
        ([1, 2], [1, 2, 3], "the same length; received 2 and 3"),
        ([[1], [2]], [1, 2], "[2, 1]"),
        (["1", "2"], [1, 2], "`targets` must be numbers; received <U1"),
    ],
)
def test_inputs_that_are_not_pairs_of_numbers(targets, predictions, part):
    refused(lambda: spearman(targets, predictions), part)
