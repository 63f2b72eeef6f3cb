"""Scores of embeddings: hand-computed values."""

from __future__ import annotations

import numpy as np
import pytest

from bert_keras.scoring.embeddings import (
    pair_places,
    retrieval_scores,
    similarity_scores,
)


def test_similarity_ignores_the_length_of_vectors() -> None:
    first = np.array([[1.0, 0], [1, 0], [1, 0]])
    second = np.array([[0, 3.0], [1, 1], [7, 0]])  # cosines 0, 0.71, 1
    scores = similarity_scores(first, second, [0.0, 2.5, 5.0])
    assert scores["num_examples"] == 3
    assert scores["spearman"] == pytest.approx(1.0)
    assert scores["pearson"] == pytest.approx(
        np.corrcoef([0, np.sqrt(0.5), 1], [0, 2.5, 5])[0, 1], abs=1e-6
    )


def places(
    first: list[list[float]], second: list[list[float]], **given: list[str]
) -> tuple[list[int], list[int]]:
    found, nearest = pair_places(np.array(first), np.array(second), **given)
    return found.tolist(), nearest.tolist()


def test_places_of_pairs() -> None:
    # The second text is nearest to the pair of the first one.
    found, nearest = places(
        [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]],
        [[1.0, 0.05], [0.0, 1.0], [0.1, 1.0]],
        texts=["a", "b", "c"],
        pairs=["x", "y", "z"],
    )
    assert found == [1, 3, 2]
    assert nearest == [2, 0, 1]
    scores = retrieval_scores(found)
    assert scores["accuracy_at_1"] == pytest.approx(1 / 3)
    assert scores["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 2) / 3)
    assert scores["recall_at_5"] == 1.0
    assert retrieval_scores([6, 11])["recall_at_10"] == 0.5


def test_another_pair_of_the_same_text_is_not_wrong() -> None:
    vectors = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    pairs = [[0.9, 0.1], [0.7, 0.3], [0.0, 1.0]]
    found, _ = places(vectors, pairs, texts=["a", "a", "b"], pairs=["x", "y", "z"])
    assert found == [1, 1, 1]


def test_equal_pairs_are_one_candidate_and_a_text_is_not_its_own_candidate() -> None:
    vectors = [[1.0, 0.0], [0.0, 1.0], [0.9, 0.2]]
    pairs = [[0.9, 0.2], [0.9, 0.2], [1.0, 0.0]]  # x, x and the text "a" itself
    found, nearest = places(
        vectors, pairs, texts=["a", "b", "c"], pairs=["x", "x", "a"]
    )
    assert found == [1, 1, 2]
    assert nearest == [0, 2, 0]


def test_a_model_that_embeds_all_alike_finds_nothing() -> None:
    same = np.ones((4, 2))
    found, _ = pair_places(same, same, texts=list("abcd"), pairs=list("wxyz"))
    assert found.tolist() == [4, 4, 4, 4]


def test_many_texts_are_compared_in_parts() -> None:
    vectors = np.random.default_rng(1).normal(size=(1500, 24))
    names = [str(i) for i in range(1500)]
    found, _ = pair_places(
        vectors, vectors, texts=[f"t{name}" for name in names], pairs=names
    )
    assert (found == 1).all()
