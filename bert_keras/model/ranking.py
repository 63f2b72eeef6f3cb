"""Losses of whole queries: the documents of a query are compared with each other.

The rows of a batch are pairs of query and document; a query's rows need not be
adjacent. `y_pred`, float32 [B, 1], is the score of each pair, and `y_true`, float32
[B, 2], its label and a number that pairs of the same query share.

Sources: Cao et al. 2007, "Learning to rank: from pairwise approach to listwise
approach"; Bruch et al. 2019, "An analysis of the softmax cross entropy loss for
learning-to-rank with binary relevance"; Hofstätter et al. 2020 (arXiv:2010.02666) for
margins of a teacher.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_keras.model.distillation import SoftLoss
from bert_keras.model.layers import MASKED


@keras.saving.register_keras_serializable(package="bert_keras")
class ListwiseLoss(keras.losses.Loss):
    """Cross-entropy of a softmax over a query's documents.

    The target of a document is its grade divided by the sum of the query's grades.
    Queries without a grade above 0 have no loss; the mean is over the others.

    Example:
        >>> truth = np.array([[1.0, 7], [0.0, 7]])
        >>> round(float(ListwiseLoss()(truth, np.zeros((2, 1)))), 4)
        0.6931
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"name": "listwise", **kwargs})

    def softened(self, temperature: float) -> SoftLoss:
        """Return the loss of a teacher's scores, see `distillation.softened`."""
        return MarginLoss()

    def call(self, y_true: Any, y_pred: Any) -> Any:
        grades, same, scores = _parts(y_true, y_pred)
        totals = ops.sum(ops.where(same, grades[None, :], 0.0), axis=1)
        has_target = totals > 0
        shares = ops.where(has_target, grades / ops.maximum(totals, 1e-9), 0.0)
        sums = ops.logsumexp(ops.where(same, scores[None, :], MASKED), axis=1)
        return ops.sum(shares * (sums - scores)) / _queries(same, has_target)


@keras.saving.register_keras_serializable(package="bert_keras")
class MarginLoss(SoftLoss):
    """Mean squared error of the differences between a query's documents.

    The labels are a teacher's scores: only their differences are learned. The mean is
    over the pairs of documents of a query, then over queries with several documents.

    Example:
        >>> truth = np.array([[3.0, 7], [1.0, 7]])
        >>> float(MarginLoss()(truth, np.array([[1.0], [0.0]])))
        1.0
    """

    compares = True
    has_temperature = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"name": "margin_mse", **kwargs})

    def softened(self, temperature: float) -> SoftLoss:
        return MarginLoss()

    def targets(self, teacher: Any, labels: Any) -> Any:
        return ops.concatenate([teacher, labels[:, 1:]], axis=1)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        labels, same, scores = _parts(y_true, y_pred)
        gaps = scores - labels
        errors = ops.square(gaps[:, None] - gaps[None, :])
        counts = ops.sum(ops.cast(same, "float32"), axis=1)
        # Documents paired with themselves have no error and are not counted.
        errors = ops.sum(ops.where(same, errors, 0.0), axis=1)
        pairs = ops.maximum(counts * (counts - 1), 1.0)
        return ops.sum(errors / pairs) / _queries(same, counts > 1)


def _parts(y_true: Any, y_pred: Any) -> tuple[Any, Any, Any]:
    """Return labels [B], which pairs share a query, bool [B, B], and scores [B]."""
    truth = ops.cast(y_true, "float32")
    queries = truth[:, 1]
    scores = ops.reshape(ops.cast(y_pred, "float32"), (-1,))
    return truth[:, 0], queries[:, None] == queries[None, :], scores


def _queries(same: Any, counted: Any) -> Any:
    """Return the number of queries of the counted pairs, at least 1."""
    sizes = ops.sum(ops.cast(same, "float32"), axis=1)
    return ops.maximum(ops.sum(ops.where(counted, 1 / sizes, 0.0)), 1.0)
