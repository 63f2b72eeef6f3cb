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

    Attributes:
        right: bool [E], whether each entity is right, at any temperature.

    Example:
        >>> p = [[[0.1, 0.9], [0.8, 0.2]]]
        >>> found = FoundEntities([["B-x", "O"]], ("O", "B-x"), p)
        >>> found.confidence(), found.right
        (array([0.9]), array([ True]))
    """

    def __init__(
        self,
        labels: Sequence[Sequence[str]],
        classes: Sequence[str],
        probabilities: npt.ArrayLike,
    ) -> None:
        p = np.asarray(probabilities)
        rows = [p[row, : len(label)] for row, label in enumerate(labels)]
        self._of_words = np.concatenate(rows).astype(np.float64)  # [words, C]
        best = self._of_words.argmax(axis=-1)
        self._places: list[slice] = []  # of each entity among all words
        right, first = [], 0
        for label in labels:
            tags = [classes[number] for number in best[first : first + len(label)]]
            real = set(entities_of(label))
            for entity in entities_of(tags):
                self._places.append(slice(first + entity.start, first + entity.end))
                right.append(entity in real)
            first += len(label)
        self.right = np.array(right, bool)

    def confidence(self, factor: float = 1.0) -> npt.NDArray[np.float64]:
        """Return the score of each entity, float64 [E].

        Args:
            factor: divides the logits before; the tags stay as they are.
        """
        p = self._of_words if factor == 1 else scaled(self._of_words, factor)
        scores = p.max(axis=-1)
        return np.array([scores[place].mean() for place in self._places], np.float64)

    def best_factor(self) -> float:
        """Return which of `FACTORS` makes the scores of entities fit best."""
        sure = np.stack([self.confidence(factor) for factor in FACTORS], axis=1)
        return FACTORS[best_factor(sure, self.right)]

    def scores(self, *, temperature: float, abstain_below: float) -> dict[str, Any]:
        """Return calibration error and diagram, and what temperature and threshold do.

        Args:
            temperature: by which the logits were divided already.
            abstain_below: the least score of an entity that is given.
        """
        sure = self.confidence()
        found = {
            **confidence_scores(sure, self.right),
            **abstention_scores(sure, self.right, abstain_below),
        }
        if temperature != 1 and sure.size:
            before = confidence_scores(self.confidence(1 / temperature), self.right)
            error = before["expected_calibration_error"]
            found["uncalibrated_calibration_error"] = error
        return found
