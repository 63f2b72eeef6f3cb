"""Exact match and F1 of answers, as SQuAD's official scripts compute them.

`squad1_scores` is `evaluate-v1.1.py`, `squad2_scores` is `evaluate-v2.0.py` with its
`--na-prob-file`: the same keys and, to the last digit, the same values in percent. They
differ if an answer consists only of articles and punctuation: 1.1 gives it no F1, 2.0
does not count it as an answer. No TensorFlow.

Sources: Rajpurkar et al. 2016 (arXiv:1606.05250), section 6.1; Rajpurkar et al. 2018
(arXiv:1806.03822), section 4.2, for thresholds.
"""

from __future__ import annotations

import collections
import math
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError
from bert_keras.scoring.calibration import abstention_scores, confidence_scores

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower-case an answer; remove ASCII punctuation, articles and extra spaces.

    Example:
        >>> normalize_answer("The  Denver Broncos!")
        'denver broncos'
    """
    plain = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(prediction: str, gold: str) -> float:
    """Return 1.0 if two answers are equal once normalized, else 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def word_f1(prediction: str, gold: str) -> float:
    """Return the F1 of the words that two answers share, 0.0 if they share none."""
    claimed = normalize_answer(prediction).split()
    real = normalize_answer(gold).split()
    common = collections.Counter(claimed) & collections.Counter(real)
    shared = sum(common.values())
    if not shared:
        return 0.0
    precision, recall = shared / len(claimed), shared / len(real)
    return 2 * precision * recall / (precision + recall)


def squad1_scores(
    golds: Sequence[Sequence[str]], predictions: Sequence[str]
) -> dict[str, float]:
    """Return `exact_match` and `f1` in percent, by each question's best gold answer.

    Raises:
        BertKerasError: the lengths differ, or a question has no gold answer.

    Example:
        >>> squad1_scores([["the cat", "a dog"]], ["Cat"])
        {'exact_match': 100.0, 'f1': 100.0}
    """
    _check_lengths(golds, predictions)
    if not all(golds):
        raise BertKerasError("`golds` must hold at least one answer for each question")
    exact = f1 = 0.0
    for real, given in zip(golds, predictions, strict=True):
        # Not `sum`, which rounds differently since Python 3.12.
        exact += max(exact_match(given, gold) for gold in real)
        f1 += max(word_f1(given, gold) for gold in real)
    count = len(golds)
    return {"exact_match": 100.0 * exact / count, "f1": 100.0 * f1 / count}


class QuestionScore(NamedTuple):
    """Exact match and F1 of an answer to one question, 0 to 1."""

    exact: float
    f1: float


def question_score(golds: Sequence[str], prediction: str) -> QuestionScore:
    """Return the scores of SQuAD 2.0 for one question, unanswerable without gold."""
    counted = [gold for gold in golds if normalize_answer(gold)]
    if not counted or not normalize_answer(prediction):
        right = float(not counted and not normalize_answer(prediction))
        return QuestionScore(right, right)
    return QuestionScore(
        max(exact_match(prediction, gold) for gold in counted),
        max(word_f1(prediction, gold) for gold in counted),
    )


def squad2_scores(
    golds: Sequence[Sequence[str]],
    predictions: Sequence[str],
    *,
    null_scores: Sequence[float],
    threshold: float,
) -> dict[str, Any]:
    """Return the scores of SQuAD 2.0 in percent.

    Args:
        golds: the gold answers of each question, none if it is unanswerable.
        predictions: the best answer to each, whether given or not.
        null_scores: how likely each question is unanswerable, in any unit.
        threshold: questions whose null score is above it are not answered.

    Returns:
        `exact`, `f1`, `total`; the same after `HasAns_` and `NoAns_`, for questions
        with and without an answer, if there are any; `best_exact` and `best_f1`,
        the scores at the best threshold, and `best_exact_thresh`, `best_f1_thresh`.

    Raises:
        BertKerasError: the lengths differ.
    """
    _check_lengths(golds, predictions)
    _check_lengths(golds, null_scores)
    raw = [question_score(g, p) for g, p in zip(golds, predictions, strict=True)]
    has_answer = [bool(gold) for gold in golds]
    final = [
        QuestionScore(float(not has), float(not has)) if null > threshold else score
        for score, null, has in zip(raw, null_scores, has_answer, strict=True)
    ]
    scores = _means("", final)
    with_answer = [s for s, has in zip(final, has_answer, strict=True) if has]
    without = [s for s, has in zip(final, has_answer, strict=True) if not has]
    scores |= _means("HasAns_", with_answer) | _means("NoAns_", without)
    nothing = 0.0, float(has_answer.count(False))  # if no question is answered
    for place, name in enumerate(QuestionScore._fields):
        values = [score[place] for score in raw]
        sums = _sums(values, has_answer, predictions, null_scores)
        where, best = max([nothing, *sums], key=lambda each: each[1])
        scores[f"best_{name}"] = 100.0 * best / len(values)
        scores[f"best_{name}_thresh"] = where
    return scores


def squad_scores(
    golds: Sequence[Sequence[str]],
    predictions: Sequence[str],
    null_scores: Sequence[float],
    *,
    threshold: float | None,
) -> dict[str, Any]:
    """Return `squad1_scores` if each question has and gets an answer, else 2.0's.

    Arguments are as in `squad2_scores`; without a threshold all are answered.
    """
    if threshold is None and all(golds):
        return squad1_scores(golds, predictions)
    threshold = math.inf if threshold is None else threshold
    return squad2_scores(
        golds, predictions, null_scores=null_scores, threshold=threshold
    )


def best_threshold(
    golds: Sequence[Sequence[str]],
    predictions: Sequence[str],
    null_scores: Sequence[float],
) -> float:
    """Return a threshold that gives `best_f1`, halfway between two null scores.

    The official threshold is the last null score that is answered, which a rounding
    error would cross, and 0 if it is best to answer nothing.
    """
    values = [question_score(g, p).f1 for g, p in zip(golds, predictions, strict=True)]
    has_answer = [bool(gold) for gold in golds]
    # Questions with equal null scores are answered together: the last sum counts.
    sums = dict(_sums(values, has_answer, predictions, null_scores))
    nulls = list(sums)
    best = max(nulls, key=lambda null: sums[null])
    if sums[best] <= has_answer.count(False):
        return nulls[0] - 1.0
    above = nulls[nulls.index(best) + 1 :] or [best + 2.0]
    return best + min((above[0] - best) / 2, 1.0)


def _means(prefix: str, scores: list[QuestionScore]) -> dict[str, Any]:
    if not scores:
        return {}
    total = len(scores)
    return {
        f"{prefix}exact": 100.0 * sum(score.exact for score in scores) / total,
        f"{prefix}f1": 100.0 * sum(score.f1 for score in scores) / total,
        f"{prefix}total": total,
    }


def _sums(
    values: Sequence[float],
    has_answer: Sequence[bool],
    predictions: Sequence[str],
    null_scores: Sequence[float],
) -> Iterator[tuple[float, float]]:
    """Yield null scores, ascending, and the sum if all up to there are answered."""
    total = float(has_answer.count(False))
    for row in sorted(range(len(values)), key=lambda row: null_scores[row]):
        if has_answer[row]:
            total += values[row]
        elif predictions[row]:
            total -= 1
        yield float(null_scores[row]), total


def _check_lengths(golds: Sequence[Any], others: Sequence[Any]) -> None:
    if len(golds) != len(others) or not len(golds):
        raise BertKerasError(
            "`golds`, `predictions` and `null_scores` must have the same length, at "
            f"least 1; received {len(golds)} and {len(others)}"
        )


class ScoredAnswers:
    """The answers to N questions and their scores, before abstaining.

    Args:
        golds: the gold answers of each question, none if it is unanswerable.
        answers: `AnswerFinder`'s output for scoring, as arrays.
        threshold: questions with a higher `null_score` are not answered; `None`: all
            are.

    Attributes:
        given: the answer to each question, "" for none.
        right: bool [N], whether it matches a gold answer exactly.
        confidence: float64 [N, K], its score at each temperature.
    """

    def __init__(
        self,
        golds: Sequence[Sequence[str]],
        answers: Mapping[str, npt.NDArray[Any]],
        *,
        threshold: float | None,
    ) -> None:
        self._golds = golds
        self._threshold = threshold
        spans = answers["n_best_answers"][:, 0]
        self._best = [text.decode("utf-8", "replace") for text in spans]
        self._nulls = answers["null_score"].tolist()
        limit = math.inf if threshold is None else threshold
        none = np.array(self._nulls) > limit
        pairs = zip(self._best, none, strict=True)
        self.given = ["" if is_none else text for text, is_none in pairs]
        scores = map(question_score, golds, self.given)
        self.right = np.array([score.exact == 1 for score in scores], bool)
        of_span, of_null = (
            answers[f"{name}_probabilities"].astype(np.float64)
            for name in ("span", "null")
        )
        self.confidence = np.where(none[:, np.newaxis], of_null, of_span)

    def best_threshold(self) -> float:
        """Return the threshold for no answer with the best F1."""
        return best_threshold(self._golds, self._best, self._nulls)

    def scores(self, *, abstain_below: float) -> dict[str, Any]:
        """Return the official scores, calibration and the effect of abstaining.

        The official scores follow SQuAD 2.0 if a question has no answer.
        """
        sure = self.confidence[:, self.confidence.shape[1] // 2]
        return {
            **squad_scores(
                self._golds, self._best, self._nulls, threshold=self._threshold
            ),
            **confidence_scores(sure, self.right),
            **abstention_scores(sure, self.right, abstain_below),
        }
