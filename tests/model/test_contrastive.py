"""Losses of pairs: hand-computed values."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from conftest import refused

from bert_keras.model.contrastive import (
    AngleOrderLoss,
    RankingLoss,
    SharedClassLoss,
    SimilarityOrderLoss,
)

# Three pairs, one after the other, of any length.
FIRST = np.array([[2.0, 0], [0, 1], [1, 1]])
SECOND = np.array([[1.0, 0], [1, 1], [0, 5]])
ROWS = np.stack([FIRST, SECOND], axis=1).reshape(6, 2).astype("float32")
HALF = 0.5**0.5
COSINES = np.array([[1, HALF, 0], [0, HALF, 1], [HALF, 1, HALF]])
DIFFERENT = np.arange(6).reshape(3, 2)


def cross_entropy(scores: np.ndarray, keep: np.ndarray) -> float:
    exponents = np.where(keep, np.exp(scores), 0)
    forth = np.log(exponents.sum(1)) - np.diag(scores)
    back = np.log(exponents.sum(0)) - np.diag(scores)
    return float((forth + back).mean() / 2)


def test_ranking_is_cross_entropy_in_both_directions() -> None:
    wanted = cross_entropy(3 * COSINES, np.ones((3, 3), bool))
    assert float(RankingLoss(3.0)(DIFFERENT, ROWS)) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("numbers", "left_out"),
    [
        ([[0, 1], [0, 2], [3, 4]], [(0, 1), (1, 0)]),  # one text twice
        ([[0, 1], [2, 3], [4, 1]], [(0, 2), (2, 0)]),  # one pair twice
        ([[0, 1], [2, 0], [3, 4]], [(0, 1)]),  # a text that is the pair of another
        # A pair of the text in another row.
        ([[0, 1], [2, 3], [0, 3]], [(0, 1), (0, 2), (1, 2), (2, 0), (2, 1)]),
    ],
)
def test_the_same_text_is_not_a_negative(
    numbers: list[list[int]], left_out: list[tuple[int, int]]
) -> None:
    keep = np.ones((3, 3), bool)
    keep[tuple(zip(*left_out, strict=True))] = False
    found = float(RankingLoss(3.0)(np.array(numbers), ROWS))
    assert found == pytest.approx(cross_entropy(3 * COSINES, keep), rel=1e-5)


def test_negatives_are_candidates_of_first_texts_alone() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 4, 2)).astype("float32")  # two negatives each
    # The second row's are a pair of its text and one negative twice; one is missing.
    numbers = np.array([[0, 1, 9, -1], [2, 3, 3, 9], [4, 5, 6, 0]])
    units = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    candidates = np.concatenate([units[:, 1], units[:, 2:].reshape(-1, 2)])
    scores = 3 * units[:, 0] @ candidates.T
    keep = np.ones(scores.shape, bool)
    keep[:, [4, 5, 6]] = False
    keep[0, 8] = False  # the first text itself
    forth = np.log(np.where(keep, np.exp(scores), 0).sum(1)) - np.diag(scores)
    back = np.log(np.exp(scores[:, :3]).sum(0)) - np.diag(scores)
    found = float(RankingLoss(3.0)(numbers, rows.reshape(12, 2)))
    assert found == pytest.approx(float((forth + back).mean() / 2), rel=1e-5)


def test_similarity_order_sums_the_pairs_in_the_wrong_order() -> None:
    # Cosines of the pairs: 1, HALF, HALF; gold wants 0 < 1 and 0 < 2, and 1 = 2.
    loss = SimilarityOrderLoss(3.0)(np.array([1.0, 4.0, 4.0]), ROWS)
    wanted = np.log(1 + 2 * np.exp(3 * (1 - HALF)))
    assert float(loss) == pytest.approx(wanted, rel=1e-5)


def test_angles_between_complex_vectors() -> None:
    """Of the pairs z, w, by |Re(z / w) + Im(z / w)| with z and w of length 1."""
    gold = np.array([1.0, 4.0, 2.0])
    z, w = (x[:, 0] + 1j * x[:, 1] for x in (FIRST, SECOND))
    quotients = z / w / abs(z / w)
    found = np.abs(quotients.real + quotients.imag)
    wrong = [
        found[j] - found[i] for i in range(3) for j in range(3) if gold[i] > gold[j]
    ]
    wanted = np.log(1 + np.exp(3 * np.array(wrong)).sum())
    assert float(AngleOrderLoss(3.0)(gold, ROWS)) == pytest.approx(wanted, rel=1e-5)
    odd = np.ones((2, 3), "float32")
    refused(lambda: AngleOrderLoss()(gold[:1], odd), "must have an even number", "3")


def test_equal_gold_labels_give_no_loss() -> None:
    assert float(SimilarityOrderLoss()(np.ones(3), ROWS)) == 0.0


@pytest.mark.parametrize("kind", [RankingLoss, SimilarityOrderLoss])
def test_smaller_widths_are_losses_of_shortened_vectors(kind: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
    targets = np.arange(3.0) if kind is SimilarityOrderLoss else DIFFERENT
    wanted = [float(kind(3.0)(targets, rows[:, :width])) for width in (5, 3, 2)]
    found = float(kind(3.0, dimensions=(3, 2, 5))(targets, rows))
    assert found == pytest.approx(sum(wanted), rel=1e-5)


@pytest.mark.parametrize("loss", [RankingLoss(7.0), AngleOrderLoss(7.0, (8,))])
def test_a_loss_is_restored_from_its_config(loss: Any) -> None:
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    )
    assert again.get_config() == loss.get_config()
    assert again.scale == 7.0


def test_texts_of_a_class_are_pairs_by_its_number_or_by_its_column() -> None:
    numbers = np.array([2, 0, 2, 1, 0, 2])
    x = (
        np.repeat(FIRST, 2, axis=0)
        / np.linalg.norm(np.repeat(FIRST, 2, 0), axis=1)[:, None]
    )
    same = (numbers[:, None] == numbers) & ~np.eye(6, dtype=bool)
    others = numbers[:, None] != numbers
    cosines = x @ x.T
    wanted = ((cosines - 1) ** 2)[same].mean() / 2 + (cosines**2)[others].mean() / 2
    for classes in (numbers, np.eye(3)[numbers]):
        found = float(SharedClassLoss()(classes, x))
        assert found == pytest.approx(wanted, rel=1e-5)


def test_a_scale_that_is_not_above_0_is_rejected() -> None:
    refused(lambda: RankingLoss(0.0), "`scale`", "0.0")
