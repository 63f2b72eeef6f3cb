"""Ranking by words: hand-computed scores, and fused rankings."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bert_keras.scoring.bm25 import BM25, fused

TEXTS = ["Pay a bill, pay soon", "reset a password", "", "é 日本"]


def test_scores_are_the_formula() -> None:
    words = BM25(TEXTS, k1=1.2, b=0.5)
    average = (5 + 3 + 0 + 2) / 4
    idf = math.log(1 + (4 - 1 + 0.5) / (1 + 0.5))
    norm = 1.2 * (0.5 + 0.5 * 5 / average)
    wanted = [idf * 2 / (2 + norm), 0, 0, 0]
    np.testing.assert_allclose(words.scores("PAY!"), wanted, rtol=1e-6)
    assert words.ranked("a password", 9) == [1, 0]
    assert words.ranked("日本", 9) == [3] and words.ranked("tax", 9) == []
    assert BM25(["", ""]).ranked("a", 2) == []


def test_rankings_are_fused_by_reciprocal_ranks() -> None:
    found = fused([[5, 6, 7], [7, 5]], 3)
    assert [row for row, _ in found] == [5, 7, 6]
    assert found[0][1] == pytest.approx(1 / 61 + 1 / 62)
    found = fused([[5, 6], [7]], 3, weights=(1, 3))
    assert found == [(7, 3 / 61), (5, 1 / 61), (6, 1 / 62)]
