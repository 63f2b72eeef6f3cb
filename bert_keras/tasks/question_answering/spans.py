"""Spans of tokens: the loss of their starts and ends, and the best ones of a text.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.2: the score of a span is the
sum of the logits of its start and its end; a text without an answer has its start and
its end at `[CLS]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import ops

from bert_keras.model.distillation import SoftLoss
from bert_keras.text.windows import Windows

NEVER = -1e9  # logit of the impossible; the sum of two is still finite


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
class SoftSpanLoss(SoftLoss):
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

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "temperature": self.temperature}


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
    return ops.where(ops.expand_dims(same, -1), spread, NEVER)


class Spans(NamedTuple):
    """The best spans of N windows or texts, best first, padded with score `NEVER`."""

    scores: Any  # float32 [N, n], logit of the start plus logit of the end
    starts: Any  # int32 [N, n], first context token
    ends: Any  # int32 [N, n], last context token
    null: Any  # float32 [N], the score of no answer
    totals: Any  # float32 [N, K], logsumexp of all scores at each of K temperatures

    @property
    def found(self) -> Any:
        """Which are spans, not padding, bool [N, n]."""
        return self.scores > NEVER / 2

    @classmethod
    def none(cls, n_best: int, temperatures: int) -> Spans:
        """Return the spans of zero windows, at a number of temperatures."""
        scores = tf.zeros([0, n_best])
        places = tf.zeros([0, n_best], tf.int32)
        totals = tf.zeros([0, temperatures])
        return cls(scores, places, places, tf.zeros([0]), totals)

    def shapes(self) -> Spans:
        """Return the shapes for any number of windows."""
        return Spans(*(tf.TensorShape([None, *part.shape[1:]]) for part in self))

    def followed_by(self, others: Spans) -> Spans:
        """Concatenate with others."""
        pairs = zip(self, others, strict=True)
        return Spans(*(tf.concat(pair, 0) for pair in pairs))

    def take(self, rows: Any) -> Spans:
        """Select some by index, int32 [M]."""
        return Spans(*(tf.gather(part, rows) for part in self))


def window_spans(
    logits: Any,
    windows: Windows,
    *,
    max_tokens: int,
    n_best: int,
    temperatures: Sequence[float] = (1.0,),
) -> Spans:
    """Return the `n_best` best spans of each of S windows.

    The first token of a span belongs to the window in which it has most context, so
    that overlapping windows share no span; the span ends in the same window.

    Args:
        logits: float32 [S, T, 2] of start and end, window by window.
        windows: the S windows.
        max_tokens: most tokens of a span.
        n_best: spans of a window.
        temperatures: K numbers that divide the scores in `totals`.
    """
    width = tf.reduce_max(tf.concat([windows.count, [1]], 0))
    tokens = tf.range(width)
    places = windows.place[:, tf.newaxis] + tokens
    places = tf.minimum(places, tf.shape(logits)[1] - 1)
    inside = tf.sequence_mask(windows.count, width)[..., tf.newaxis]
    own = tf.where(inside, tf.gather(logits, places, batch_dims=1), NEVER)
    tokens = windows.first[:, tf.newaxis] + tokens
    here = tokens >= windows.own_first[:, tf.newaxis]
    here &= tokens < windows.own_end[:, tf.newaxis]
    starts = tf.where(here, own[..., 0], NEVER)
    ends = tf.pad(own[..., 1], [[0, 0], [0, max_tokens - 1]], constant_values=NEVER)
    reach = tf.range(width)[:, tf.newaxis] + tf.range(max_tokens)
    scores = starts[..., tf.newaxis] + tf.gather(ends, reach, axis=1)
    scores = tf.maximum(scores, NEVER)
    flat = tf.reshape(scores, [-1, width * max_tokens])
    few = tf.pad(flat, [[0, 0], [0, n_best]], constant_values=NEVER)
    best, index = tf.math.top_k(few, n_best)
    start = windows.first[:, tf.newaxis] + index // max_tokens
    totals = [tf.reduce_logsumexp(flat / each, axis=1) for each in temperatures]
    return Spans(
        best,
        start,
        start + index % max_tokens,
        null=tf.reduce_sum(logits[:, 0], axis=-1),
        totals=tf.stack(totals, axis=1),
    )


def text_spans(spans: Spans, text: Any, *, texts: Any) -> Spans:
    """Return the best spans of each text from the best spans of its windows.

    The null score comes from the window most certain of an answer. `text` int32 [S] is
    the text of each window, in order; each of the `texts` has one.
    """
    n_best = spans.scores.shape[1]

    def by_text(values: Any, fill: Any) -> Any:
        return tf.RaggedTensor.from_value_rowids(
            values, text, nrows=tf.cast(texts, text.dtype), validate=False
        ).to_tensor(fill)

    def row_by_row(values: Any, fill: Any) -> Any:
        rows = by_text(values, fill)
        wide = tf.pad(rows, [[0, 0], [0, 1], [0, 0]], constant_values=fill)
        return tf.reshape(wide, [texts, tf.shape(wide)[1] * n_best])

    scores, index = tf.math.top_k(row_by_row(spans.scores, NEVER), n_best)
    return Spans(
        scores,
        tf.gather(row_by_row(spans.starts, 0), index, batch_dims=1),
        tf.gather(row_by_row(spans.ends, 0), index, batch_dims=1),
        null=-tf.reduce_max(by_text(-spans.null, NEVER), axis=1),
        totals=tf.reduce_logsumexp(by_text(spans.totals, NEVER), axis=1),
    )
