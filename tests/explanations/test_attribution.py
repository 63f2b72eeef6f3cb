"""The methods on functions whose attributions are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bert_keras.explanations.attribution import METHODS, Path
from bert_keras.settings import ATTRIBUTIONS

WORDS = np.array([[-1, 0, 0, 1, 2, -1]])  # a special, three words of four pieces
TEXT = np.array([[[5.0], [1.0], [2.0], [3.0], [4.0], [5.0]]])
BASELINE = np.where(WORDS[..., None] < 0, TEXT, 0.5)


def path(
    value: Callable[[np.ndarray], np.ndarray],
    slope: Callable[[np.ndarray], np.ndarray],
    at_once: int = 7,
) -> Path:
    """Return a path of a function of points [k, 1, 6, 1], with its gradient."""
    return Path(TEXT, BASELINE, WORDS, 3, value, slope, at_once)


def linear(at_once: int = 7) -> Path:
    weights = np.array([7.0, 1.0, -1.0, 2.0, 3.0, 7.0])[None, :, None]
    return path(
        lambda points: (points * weights).sum((1, 2, 3)),
        lambda points: np.broadcast_to(weights, points.shape),
        at_once,
    )


# Of the words [1, 2], [3] and [4] less the baseline, by those weights.
LINEAR = [0.5 - 1.5, 2 * 2.5, 3 * 3.5]


@pytest.mark.parametrize("name", [m for m in ATTRIBUTIONS if m != "gradient-input"])
def test_a_linear_function_is_attributed_exactly(name: str) -> None:
    result = METHODS[name](linear())
    np.testing.assert_allclose(result.attributions, LINEAR)
    assert result.value - result.baseline_value == pytest.approx(sum(LINEAR))


def test_gradient_times_input_has_no_baseline() -> None:
    result = METHODS["gradient-input"](linear())
    np.testing.assert_allclose(result.attributions, [1 - 2, 2 * 3, 3 * 4])
    assert result.gap is None


@pytest.mark.parametrize("name", ATTRIBUTIONS)
def test_parts_give_the_same(name: str) -> None:
    method = METHODS[name]
    whole, parts = method(linear(1000)), method(linear(1))
    np.testing.assert_allclose(whole.attributions, parts.attributions)


def product() -> Path:
    """Return a path of the product of the words' first pieces."""

    def value(points: np.ndarray) -> np.ndarray:
        return points[:, 0, 1, 0] * points[:, 0, 3, 0] * points[:, 0, 4, 0]

    def slope(points: np.ndarray) -> np.ndarray:
        gradient = np.zeros_like(points)
        for column, others in ((1, (3, 4)), (3, (1, 4)), (4, (1, 3))):
            gradient[:, 0, column, 0] = points[:, 0, others, 0].prod(-1)
        return gradient

    return path(value, slope)


def test_the_integral_of_a_cubic_needs_two_points() -> None:
    result = METHODS["integrated-gradients"](product(), steps=2)
    assert result.gap == pytest.approx(0, abs=1e-6)
    assert result.attributions.sum() == pytest.approx(12 - 0.125)


def test_shapley_values_are_those_of_all_orders() -> None:
    text, base = np.array([1.0, 3.0, 4.0]), np.full(3, 0.5)

    def of(kept: set[int]) -> float:
        return float(np.prod([text[i] if i in kept else base[i] for i in range(3)]))

    exact = np.zeros(3)
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    for order in orders:
        for place, word in enumerate(order):
            exact[word] += of(set(order[: place + 1])) - of(set(order[:place]))
    result = METHODS["shapley"](product(), steps=600)
    np.testing.assert_allclose(result.attributions, exact / 6, rtol=0.05)
    assert result.gap == pytest.approx(0, abs=1e-9)


def test_a_kink_takes_more_steps() -> None:
    """The gradient of this function is concentrated in a tenth of the path."""

    def value(points: np.ndarray) -> np.ndarray:
        return np.tanh(200 * (points[:, 0, 1, 0] - 0.7))

    def slope(points: np.ndarray) -> np.ndarray:
        gradient = np.zeros_like(points)
        gradient[:, 0, 1, 0] = 200 * (1 - value(points) ** 2)
        return gradient

    sharp = path(value, slope)
    few = METHODS["integrated-gradients"](sharp, steps=10)
    assert few.gap is not None and few.gap > 0.01 and few.steps == 10
    more = METHODS["integrated-gradients"](sharp)
    assert more.gap is not None and more.gap <= 0.01 and more.steps > 16


@pytest.mark.parametrize("name", ATTRIBUTIONS)
def test_a_text_without_words(name: str) -> None:
    points = Path(
        TEXT[:, :1],
        TEXT[:, :1],
        WORDS[:, :1],
        0,
        lambda x: x.sum((1, 2, 3)),
        np.ones_like,
        4,
    )
    result = METHODS[name](points)
    assert result.attributions.shape == (0,)
    assert result.value == result.baseline_value


def test_values_are_summed_by_word() -> None:
    words = np.array([[-1, 0, 0, -1], [-1] * 4])
    two_rows = linear()._replace(words=words, num_words=2)
    sums = two_rows.by_word(np.array([[9.0, 1.0, 2.0, 9.0], [9.0] * 4]))
    assert sums.tolist() == [3.0, 0.0]
