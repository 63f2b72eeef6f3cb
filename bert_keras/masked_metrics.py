"""Metrics of tokens to predict, where labels below 0 do not count."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

NO_LABEL = -1  # stands where a row has fewer tokens to predict


@keras.saving.register_keras_serializable(package="bert_keras")
class MaskedAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """The share of the labels, int [R, P], that logits [R, P, V] are highest at."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        # Flat: else Keras takes the mean of each row, and rows are of many lengths.
        logits = ops.reshape(y_pred, (-1, ops.shape(y_pred)[-1]))
        weights = ops.ravel(_weights(y_true, sample_weight))
        return super().update_state(ops.ravel(y_true), logits, weights)


@keras.saving.register_keras_serializable(package="bert_keras")
class MaskedPerplexity(keras.metrics.Mean):
    """e to the mean cross-entropy (nats) of labels int [R, P], logits [R, P, V].

    Example:
        >>> metric = MaskedPerplexity()
        >>> metric.update_state([[3, -1]], np.zeros((1, 2, 8)))
        >>> round(float(metric.result()), 3)
        8.0
    """

    def __init__(self, name: str = "perplexity", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        labels = ops.maximum(ops.convert_to_tensor(y_true), 0)
        losses = ops.sparse_categorical_crossentropy(
            labels, ops.cast(y_pred, "float32"), from_logits=True
        )
        weights = ops.ravel(_weights(y_true, sample_weight))
        return super().update_state(ops.ravel(losses), weights)

    def result(self) -> Any:
        return ops.exp(super().result())


def _weights(labels: Any, sample_weight: Any) -> Any:
    """Return 0 where a label does not count, else its weight or 1."""
    counted = ops.cast(ops.convert_to_tensor(labels) >= 0, "float32")
    return counted if sample_weight is None else counted * sample_weight
