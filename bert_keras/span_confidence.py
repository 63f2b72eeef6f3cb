"""How far the scores of answers can be trusted: `ScoredAnswers`; no TensorFlow.

The score of an answer is its probability among all spans of its context, and no answer
beside them. At another temperature that probability is another one, which the best
spans alone do not tell; so the model gives it at each of `calibration.FACTORS`, and the
best of these is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.calibration import abstention_scores
from bert_keras.probability_metrics import confidence_scores
from bert_keras.span_metrics import best_threshold, question_score, squad_scores


class ScoredAnswers:
    """The answers to N questions and their scores, before any is abstained from.

    Args:
        golds: the gold answers of each question, none where it has no answer.
        answers: what `AnswerFinder` gives for scoring, as arrays.
        threshold: none is answered where `null_score` is above it; `None`: never.

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
        """Return the threshold for none that gives the best F1."""
        return best_threshold(self._golds, self._best, self._nulls)

    def scores(self, *, abstain_below: float) -> dict[str, Any]:
        """Return the scores of the official script, 2.0 where some have no answer, and
        calibration error, diagram, and what abstaining does.

        Args:
            abstain_below: the least score of an answer that is given.
        """
        sure = self.confidence[:, self.confidence.shape[1] // 2]
        return {
            **squad_scores(
                self._golds, self._best, self._nulls, threshold=self._threshold
            ),
            **confidence_scores(sure, self.right),
            **abstention_scores(sure, self.right, abstain_below),
        }
