"""The loss and the accuracy of the starts and ends of spans of tokens: `SpanLoss`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.2.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_keras.model.distillation import SoftLoss
from bert_keras.model.layers import MASKED, Configured


@keras.saving.register_keras_serializable(package="bert_keras")
class SpanLoss(keras.losses.Loss):
    """Cross-entropy of the start and of the end of a span, the mean over all windows.

    Each window has a softmax over its own tokens, whether rows hold one or several.

    Call: targets int32 [R, T, 3] (which window of its row a token belongs to, from 1,
    or 0 for padding; 1 at the start; 1 at the end) and logits float32 [R, T, 2] of
    start and end. A window without start and end has no loss. Returns a scalar.
    """

    def __init__(self, name: str = "span_loss", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def softened(self, temperature: float) -> SoftLoss:
        """Return the loss of a teacher's logits, see `distillation.softened`."""
        return SoftSpanLoss(temperature)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        own = _own_logits(y_true, y_pred)
        losses = ops.logsumexp(own, axis=2) - ops.cast(y_pred, "float32")
        marks = ops.cast(y_true[..., 1:], "float32")
        return ops.sum(losses * marks) / ops.maximum(ops.sum(marks), 1.0)

    def counted(self, y_true: Any) -> Any:
        """Return the number of starts and ends that the loss averages over."""
        return ops.sum(ops.cast(y_true[..., 1:], "float32"))


@keras.saving.register_keras_serializable(package="bert_keras")
class SoftSpanLoss(Configured, SoftLoss):
    """Divergence of a student's starts and ends from its teacher's: `SoftTargetLoss`.

    Each window has a softmax over its own tokens, as in `SpanLoss`. The mean is over
    the starts and ends of all windows.

    Args:
        temperature: divides the logits of both; its square is a factor of the loss.

    Call: the teacher's targets float32 [R, T, 3] (window, start, end: as in `SpanLoss`,
    with its logits in place of marks) and logits float32 [R, T, 2]. Returns a scalar.
    """

    def __init__(self, temperature: float = 2.0, **kwargs: Any) -> None:
        super().__init__(**{"name": "soft_spans", **kwargs})
        self.temperature = temperature

    def targets(self, teacher: Any, labels: Any) -> Any:
        windows = ops.cast(labels[..., :1], teacher.dtype)
        return ops.concatenate([windows, teacher], axis=-1)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        p, q = (self._log_shares(y_true, each) for each in (y_true[..., 1:], y_pred))
        found = ops.sum(ops.exp(p) * (p - q))
        return self.temperature**2 * found / ops.maximum(self.counted(y_true), 1.0)

    def _log_shares(self, y_true: Any, logits: Any) -> Any:
        """Return the log-softmax of each token in its window, float32 [R, T, 2].

        0 for padding, before it is exponentiated: of infinite numbers that `where`
        leaves out, gradients are NaN.
        """
        logits = ops.cast(logits, "float32") / self.temperature
        found = logits - ops.logsumexp(_own_logits(y_true, logits), axis=2)
        return ops.where(ops.expand_dims(y_true[..., 0] > 0, -1), found, 0.0)

    def counted(self, y_true: Any) -> Any:
        """Return the number of starts and ends that the loss averages over."""
        windows = ops.max(y_true[..., 0], axis=1)  # of each row, numbered from 1
        return 2 * ops.sum(ops.cast(windows, "float32"))


@keras.saving.register_keras_serializable(package="bert_keras")
class SpanAccuracy(keras.metrics.Mean):
    """Accuracy of starts and ends: the share with the highest logit of their window.

    Targets and logits are as in `SpanLoss`.
    """

    def __init__(self, name: str = "span_accuracy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        best = ops.max(_own_logits(y_true, y_pred), axis=2)
        hits = ops.cast(ops.cast(y_pred, "float32") >= best, "float32")
        marks = ops.cast(y_true[..., 1:], "float32")
        # Flat, else Keras averages each row first, and rows differ in length.
        return super().update_state(ops.ravel(hits), ops.ravel(marks))


def _own_logits(targets: Any, logits: Any) -> Any:
    """Return for each token the logits of its window, float32 [R, T, T, 2]."""
    window = targets[..., 0]
    same = ops.logical_and(
        ops.expand_dims(window, 1) == ops.expand_dims(window, 2),
        ops.expand_dims(window, 1) > 0,
    )
    spread = ops.expand_dims(ops.cast(logits, "float32"), 1)
    return ops.where(ops.expand_dims(same, -1), spread, MASKED)
