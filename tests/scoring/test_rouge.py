"""ROUGE is that of the library; the sentences chosen are those of hand-made cases."""

from __future__ import annotations

import sys

import pytest
from conftest import refused

from bert_keras.scoring.rouge import Rouge

ENGLISH = [
    "The cats were sitting on 2 mats; none_left!",
    "A cat sat on the mats. It's 3.5 metres.",
]


def test_english_words_are_those_of_the_library() -> None:
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    for stemmer, name in ((PorterStemmer(), "porter"), (None, "none")):
        rouge = Rouge(name)
        for text in ENGLISH:
            assert rouge.tokenize(text) == tokenize(text, stemmer)
        metrics = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
        scorer = RougeScorer(metrics, use_stemmer=stemmer is not None)
        wanted = {k: v.fmeasure for k, v in scorer.score(*ENGLISH).items()}
        assert rouge.score(ENGLISH[:1], ENGLISH[1:]) == pytest.approx(wanted)


def test_words_of_other_scripts_count() -> None:
    words = Rouge("none").tokenize("Été à Kyōto: 東京に行く, Москва_2")
    assert words == ["été", "à", "kyōto", *"東京に行く", "москва", "2"]


def test_scores_by_hand() -> None:
    # 2 of 3 words and 1 of 2 pairs are shared; then all; then none.
    found = Rouge("none").score(["a b c", "x", "p q"], ["a b d", "x", "r s"])
    assert found["rouge1"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert found["rouge2"] == pytest.approx((1 / 2 + 0 + 0) / 3)


def test_the_best_sentences_by_hand() -> None:
    rouge = Rouge("none")
    sentences = ["x y", "c d", "a b", "a b", "z"]
    assert rouge.best_sentences(sentences, "a b c d", most=3) == [1, 2]
    assert rouge.best_sentences(sentences, "a b c d", most=1) == [1]
    assert rouge.best_sentences(sentences, "nothing shared", most=3) == []
    # A long sentence that adds one word costs more than it brings.
    assert rouge.best_sentences(["a b", "c u v w x y"], "a b c", most=2) == [0]
    assert rouge.best_sentences([], "a", most=2) == []


def test_greedy_steps_are_the_best_ones() -> None:
    """Each step is that of trying every sentence, with plain counting."""
    rouge = Rouge("none")
    sentences = ["a b c", "c d a", "e a b", "d e", "a a a", "b c d e f"]
    summary = "a b c d e a"

    def total(chosen: list[int]) -> float:
        score = 0.0
        for n in (1, 2):
            wanted = _grams(summary, n)
            found = [gram for i in chosen for gram in _grams(sentences[i], n)]
            hits = sum(min(found.count(g), wanted.count(g)) for g in set(wanted))
            score += 2 * hits / (len(wanted) + len(found))
        return score

    chosen: list[int] = []
    while True:
        options = [chosen + [i] for i in range(len(sentences)) if i not in chosen]
        best = max(options, key=total)
        if total(best) <= total(chosen) + 1e-12:
            break
        chosen = best
    assert len(chosen) > 1
    assert rouge.best_sentences(sentences, summary, most=6) == sorted(chosen)


def _grams(text: str, n: int) -> list[str]:
    words = text.split()
    return [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]


def test_mistakes_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(lambda: Rouge("snowball"), "`stemmer` must be one of porter, none")
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    refused(lambda: Rouge(), "pip install 'bert_keras[summarization]'")
