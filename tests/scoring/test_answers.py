"""EM and F1 against SQuAD's official scripts (`goldens`) and against hand counts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.scoring.answers import (
    best_threshold,
    exact_match,
    normalize_answer,
    question_score,
    squad1_scores,
    squad2_scores,
    word_f1,
)

GOLDEN = Path(__file__).parents[1] / "goldens/squad_scores.json"
CASES = json.loads(GOLDEN.read_text(encoding="utf-8"))
_ARGUMENTS = ("golds", "predictions")


@pytest.mark.parametrize("case", [case for case in CASES if "squad1" in case])
def test_equal_to_the_script_of_1_1_to_the_last_digit(case: dict[str, Any]) -> None:
    assert squad1_scores(*(case[key] for key in _ARGUMENTS)) == case["squad1"]


@pytest.mark.parametrize("case", CASES)
def test_equal_to_the_script_of_2_0_to_the_last_digit(case: dict[str, Any]) -> None:
    found = squad2_scores(
        *(case[key] for key in _ARGUMENTS),
        null_scores=case["null_scores"],
        threshold=case["threshold"],
    )
    assert found == case["squad2"]


@pytest.mark.parametrize("case", CASES)
def test_the_best_threshold_gives_the_best_f1(case: dict[str, Any]) -> None:
    given, nulls = [case[key] for key in _ARGUMENTS], case["null_scores"]
    threshold = best_threshold(*given, nulls)
    assert threshold not in nulls
    found = squad2_scores(*given, null_scores=nulls, threshold=threshold)
    if len(set(nulls)) == len(nulls):
        assert found["f1"] == pytest.approx(found["best_f1"])
    # Questions of one null score are answered together, which the script passes over.
    assert found["f1"] <= found["best_f1"] + 1e-9
    others = [squad2_scores(*given, null_scores=nulls, threshold=t) for t in nulls]
    assert found["f1"] >= max(other["f1"] for other in others) - 1e-9


def test_normalized_by_hand() -> None:
    assert normalize_answer(" The U.S.'s a-team,\tan  theatre ") == "uss ateam theatre"
    assert normalize_answer("a the AN .") == ""
    assert normalize_answer("É «x»") == "é «x»"  # ASCII punctuation only


def test_f1_by_hand() -> None:
    # 2 of 3 claimed words are among the 4 real ones.
    assert word_f1("big red dog", "big dog ran home") == pytest.approx(2 * 2 / 7)
    assert word_f1("dog dog", "dog") == pytest.approx(2 / 3)
    assert (exact_match("The dog.", "dog"), exact_match("dogs", "dog")) == (1.0, 0.0)


def test_nothing_but_articles() -> None:
    # 1.1 finds the two equal and without a common word; 2.0 counts no gold answer.
    assert squad1_scores([["the"]], ["a"]) == {"exact_match": 100.0, "f1": 0.0}
    assert question_score(["the"], "") == (1.0, 1.0)
    assert question_score(["dog"], "the") == (0.0, 0.0)
    assert question_score([], "dog") == (0.0, 0.0)


def test_splits_and_threshold_by_hand() -> None:
    golds = [["dog"], ["red cat"], [], []]
    found = squad2_scores(
        golds,
        ["dog", "cat", "fish", "bird"],
        null_scores=[-2.0, 3.0, 1.0, 4.0],
        threshold=2.0,
    )
    assert (found["exact"], found["f1"], found["total"]) == (50.0, 50.0, 4)
    assert (found["HasAns_f1"], found["HasAns_total"]) == (50.0, 2)
    assert (found["NoAns_exact"], found["NoAns_total"]) == (50.0, 2)
    # The dog answered alone: its own point and those of both without an answer.
    assert (found["best_exact"], found["best_exact_thresh"]) == (75.0, -2.0)
    nulls = [-2.0, 3.0, 1.0, 4.0]
    assert best_threshold(golds, ["dog", "cat", "x", "y"], nulls) == -1.0


def test_a_threshold_that_answers_nothing() -> None:
    golds: list[list[str]] = [["dog"], [], []]
    assert best_threshold(golds, ["x", "y", "z"], [0.5, 1.0, 2.0]) < 0.5
    assert best_threshold([["dog"]], ["dog"], [0.5]) == 1.5


def test_inputs_that_do_not_fit_are_rejected() -> None:
    refused(lambda: squad1_scores([["a"]], []), "same length", "1 and 0")
    refused(lambda: squad1_scores([], []), "same length")
    refused(lambda: squad1_scores([[]], ["a"]), "`golds` must hold at least one answer")
    refused(
        lambda: squad2_scores([["a"]], ["a"], null_scores=[], threshold=math.inf),
        "same length",
    )
