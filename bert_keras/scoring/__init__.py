"""Answers against truth: scores, calibration and thresholds, in NumPy alone.

Read `classification` and `calibration` first; each other file holds the scores of one
kind of answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.scoring.answers import squad_scores as squad_scores
    from bert_keras.scoring.calibration import confidence_scores as confidence_scores
    from bert_keras.scoring.calibration import (
        expected_calibration_error as expected_calibration_error,
    )
    from bert_keras.scoring.classification import (
        classification_scores as classification_scores,
    )
    from bert_keras.scoring.classification import (
        matthews_correlation as matthews_correlation,
    )
    from bert_keras.scoring.correlation import pearson as pearson
    from bert_keras.scoring.correlation import spearman as spearman
    from bert_keras.scoring.embeddings import retrieval_scores as retrieval_scores
    from bert_keras.scoring.embeddings import similarity_scores as similarity_scores
    from bert_keras.scoring.entities import entity_scores as entity_scores
    from bert_keras.scoring.multi_label import multi_label_scores as multi_label_scores

_PLACES = {
    "classification_scores": "classification",
    "confidence_scores": "calibration",
    "entity_scores": "entities",
    "expected_calibration_error": "calibration",
    "matthews_correlation": "classification",
    "multi_label_scores": "multi_label",
    "pearson": "correlation",
    "retrieval_scores": "embeddings",
    "similarity_scores": "embeddings",
    "spearman": "correlation",
    "squad_scores": "answers",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # otherwise type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
