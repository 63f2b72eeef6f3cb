"""How far the scores of entities can be trusted: `FoundEntities`; no TensorFlow.

The score of an entity is the mean probability of its words' tags. It is right if its
type and its words are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.calibration import (
    FACTORS,
    abstention_scores,
    best_factor,
    scaled,
)
from bert_keras.entity_metrics import entities_of
from bert_keras.probability_metrics import confidence_scores


class FoundEntities:
    """The entities that a model finds in labelled sentences, whether given or not.

    Args:
        labels: the tags of each of N sentences.
        classes: the C tags by their numbers.
        probabilities: float [N, W, C], those of the tags of each word; what fills up a
            sentence does not matter.

    Example:
        >>> p = [[[0.1, 0.9], [0.8, 0.2]]]
        >>> FoundEntities([["B-x", "O"]], ("O", "B-x"), p).confidence()
        (array([0.9]), array([ True]))
    """

    def __init__(
        self,
        labels: Sequence[Sequence[str]],
        classes: Sequence[str],
        probabilities: npt.ArrayLike,
    ) -> None:
        self.labels = labels
        self.classes = classes
        p = np.asarray(probabilities)
        rows = [p[row, : len(label)] for row, label in enumerate(labels)]
        self._of_words = np.concatenate(rows).astype(np.float64)  # [words, C]

    def confidence(
        self, factor: float = 1.0
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the score of each entity, float64 [E], and whether it is right.

        Args:
            factor: divides the logits before.
        """
        p = self._of_words if factor == 1 else scaled(self._of_words, factor)
        best, scores = p.argmax(axis=-1), p.max(axis=-1)
        sure, right, first = [], [], 0
        for label in self.labels:
            tags = [self.classes[number] for number in best[first : first + len(label)]]
            real = set(entities_of(label))
            for entity in entities_of(tags):
                sure.append(scores[first + entity.start : first + entity.end].mean())
                right.append(entity in real)
            first += len(label)
        return np.array(sure, np.float64), np.array(right, bool)

    def best_factor(self) -> float:
        """Return which of `FACTORS` makes the scores of entities fit best.

        The tags stay as they are; so do the entities, and which are right.
        """
        found = [self.confidence(factor) for factor in FACTORS]
        sure = np.stack([scores for scores, _ in found], axis=1)
        return FACTORS[best_factor(sure, found[0][1])]

    def scores(self, *, temperature: float, abstain_below: float) -> dict[str, Any]:
        """Return calibration error and diagram, and what temperature and threshold do.

        Args:
            temperature: by which the logits were divided already.
            abstain_below: the least score of an entity that is given.
        """
        sure, right = self.confidence()
        found = {
            **confidence_scores(sure, right),
            **abstention_scores(sure, right, abstain_below),
        }
        if temperature != 1 and sure.size:
            before = confidence_scores(*self.confidence(1 / temperature))
            error = before["expected_calibration_error"]
            found["uncalibrated_calibration_error"] = error
        return found
