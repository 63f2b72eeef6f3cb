"""Scores of rankings, against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import refused

from bert_keras.scoring.ranking import grouped_rankings, ranking_scores, run_rankings


def test_scores_by_hand() -> None:
    scores = ranking_scores([[0, 2, 1], [1, 0], [0, 0]], [[0, 2, 1, 1], [1, 0], [0, 0]])
    assert (scores["num_queries"], scores["without_relevant"]) == (2, 1)
    gain = 2 / np.log2(3) + 1 / np.log2(4)
    ideal = 2 / np.log2(2) + 1 / np.log2(3) + 1 / np.log2(4)
    wanted = {
        "ndcg_at_10": (gain / ideal + 1) / 2,
        "mrr_at_10": (1 / 2 + 1) / 2,
        "map": ((1 / 2 + 2 / 3) / 3 + 1) / 2,
        "recall_at_10": (2 / 3 + 1) / 2,
        "precision_at_1": 0.5,
    }
    assert {name: scores[name] for name in wanted} == pytest.approx(wanted)
    interval = scores["intervals"]["mrr_at_10"]
    half = 1.959964 * np.std([0.5, 1.0], ddof=1) / np.sqrt(2)
    assert interval == pytest.approx({"low": 0.75 - half, "high": 1.0}, abs=1e-6)


def test_only_ten_documents_count() -> None:
    scores = ranking_scores([[0] * 10 + [1]])
    assert scores["ndcg_at_10"] == scores["mrr_at_10"] == scores["recall_at_10"] == 0
    assert scores["map"] == pytest.approx(1 / 11) and scores["recall_at_100"] == 1
    assert "intervals" not in scores


def test_equal_scores_do_not_help() -> None:
    found = grouped_rankings(["a", "b", "a", "a"], [1, 1, 0, 2], [0.5, 1, 0.5, 0.1])
    assert [each.tolist() for each in found] == [[0, 1, 2], [1]]


def test_a_run_is_scored_on_the_queries_of_the_qrels() -> None:
    qrels = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d3": 1.0}}
    run = {"q1": {"d9": 3.0, "d1": 2.0}, "q3": {"d1": 1.0}}
    rankings, relevant = run_rankings(qrels, run)
    assert [each.tolist() for each in rankings] == [[0, 2], [0]] or (
        [each.tolist() for each in rankings] == [[0, 2], []]
    )
    scores = ranking_scores(rankings, relevant)
    assert scores["recall_at_10"] == pytest.approx((1 / 2 + 0) / 2)


def test_bad_grades_are_refused() -> None:
    refused(lambda: ranking_scores([[0, float("nan")]]), "a finite number")
    refused(lambda: ranking_scores([[0, 0], [0]]), "none of 2 queries")
