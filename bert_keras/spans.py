"""Spans of tokens: the loss of their starts and ends, and the best ones of a text.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.2: the score of a span is the
logit of its start plus that of its end; a text without an answer has its start and its
end at `[CLS]`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import ops

from bert_keras.windows import Windows

NEVER = -1e9  # the logit of what cannot be; two of them still have a sum


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

    def call(self, y_true: Any, y_pred: Any) -> Any:
        own = _own_logits(y_true, y_pred)
        losses = ops.logsumexp(own, axis=2) - ops.cast(y_pred, "float32")
        return _mean_of_marks(y_true, losses)

    def counted(self, y_true: Any) -> Any:
        """Return the number of starts and ends that the loss is the mean of."""
        return ops.sum(ops.cast(y_true[..., 1:], "float32"))


@keras.saving.register_keras_serializable(package="bert_keras")
class SpanAccuracy(keras.metrics.Mean):
    """The share of starts and ends with the highest logit of their window.

    Targets and logits are as those of `SpanLoss`.
    """

    def __init__(self, name: str = "span_accuracy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        best = ops.max(_own_logits(y_true, y_pred), axis=2)
        hits = ops.cast(ops.cast(y_pred, "float32") >= best, "float32")
        marks = ops.cast(y_true[..., 1:], "float32")
        # Flat: else Keras takes the mean of each row, and rows are of many lengths.
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


def _mean_of_marks(targets: Any, values: Any) -> Any:
    marks = ops.cast(targets[..., 1:], "float32")
    return ops.sum(values * marks) / ops.maximum(ops.sum(marks), 1.0)


class Spans(NamedTuple):
    """The best spans of N windows, or texts, best first; those missing have `NEVER`.

    Args:
        scores: float32 [N, n], logit of the start plus logit of the end.
        starts, ends: int32 [N, n], first and last context token.
        null: float32 [N], the score of no answer.
        total: float32 [N], the logarithm of the sum of exp(score) of all spans.
    """

    scores: Any
    starts: Any
    ends: Any
    null: Any
    total: Any

    @classmethod
    def none(cls, n_best: int) -> Spans:
        """Return those of no window at all."""
        scores = tf.zeros([0, n_best])
        places = tf.zeros([0, n_best], tf.int32)
        return cls(scores, places, places, tf.zeros([0]), tf.zeros([0]))

    def shapes(self) -> Spans:
        """Return the shapes of any number of windows."""
        return Spans(*(tf.TensorShape([None, *part.shape[1:]]) for part in self))

    def followed_by(self, others: Spans) -> Spans:
        """Return these and then others."""
        pairs = zip(self, others, strict=True)
        return Spans(*(tf.concat(pair, 0) for pair in pairs))

    def take(self, rows: Any) -> Spans:
        """Return some of them, by number, int32 [M]."""
        return Spans(*(tf.gather(part, rows) for part in self))


def window_spans(
    logits: Any, windows: Windows, *, max_tokens: int, n_best: int
) -> Spans:
    """Return the best spans of each window.

    A span starts where its token has most context, so that windows that overlap share
    no span; it ends in the same window.

    Args:
        logits: float32 [S, T, 2] of start and end, window by window.
        windows: the S windows.
        max_tokens: most tokens of a span.
        n_best: spans of a window.
    """
    width = tf.reduce_max(tf.concat([windows.count, [n_best]], 0))
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
    best, index = tf.math.top_k(flat, n_best)
    start = windows.first[:, tf.newaxis] + index // max_tokens
    return Spans(
        best,
        start,
        start + index % max_tokens,
        null=tf.reduce_sum(logits[:, 0], axis=-1),
        total=tf.reduce_logsumexp(flat, axis=1),
    )


def text_spans(spans: Spans, text: Any, *, texts: Any) -> Spans:
    """Return the best spans of each text from those of its windows.

    The null score is that of the window that is surest of an answer.

    Args:
        spans: those of S windows.
        text: int32 [S], the text of each window, in order; each text has one.
        texts: the number of texts, int32.
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
        total=tf.reduce_logsumexp(by_text(spans.total, NEVER), axis=1),
    )


def cut_out(spans: Spans, texts: Any, starts: Any, ends: Any) -> tuple[Any, Any, Any]:
    """Return spans of tokens as parts of the texts that they stand in.

    Marks that combine with the last character, which uncased models drop, belong to it.

    Args:
        spans: those of B texts.
        texts: string [B].
        starts, ends: RaggedTensor int32 [B, None], the characters of the tokens.

    Returns:
        The parts, string [B, n], their first characters and their ends, int32 [B, n];
        "" and -1 where there is no span.
    """
    there = spans.scores > NEVER / 2
    shape = tf.shape(there)
    rows = tf.cast(starts.row_starts(), tf.int32)[:, tf.newaxis]

    def characters(offsets: Any, tokens: Any) -> Any:
        places = tf.where(there, rows + tokens, tf.size(offsets))
        return tf.reshape(tf.gather(tf.pad(offsets, [[0, 1]]), places), [-1])

    first = characters(starts.values, spans.starts)
    end = characters(ends.values, spans.ends)
    # As Python decodes: a sign for each part that is no UTF-8.
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    texts = tf.repeat(texts, shape[1])
    following = tf.strings.substr(texts, end, tf.fill(tf.shape(end), 32), "UTF8_CHAR")
    marks = tf.strings.regex_replace(following, r"^(\pM*)(?s:.*)$", r"\1")
    end += tf.where(end > 0, tf.strings.length(marks, "UTF8_CHAR"), 0)
    parts = tf.strings.substr(texts, first, end - first, "UTF8_CHAR")
    return (
        tf.reshape(parts, shape),
        tf.where(there, tf.reshape(first, shape), -1),
        tf.where(there, tf.reshape(end, shape), -1),
    )


def answers_of(
    best: Spans, contexts: Any, starts: Any, ends: Any, *, threshold: float | None
) -> dict[str, tf.Tensor]:
    """Return what is answered to B questions.

    Args:
        best: the best spans of each context, of `text_spans`.
        contexts: string [B].
        starts, ends: RaggedTensor int32 [B, None], first character and end of each
            token of the contexts.
        threshold: "no answer" is given where its score is above that of the best span
            by more than this, in logits; `None`: some span is always an answer.

    Returns:
        `answer` string [B], an exact part of the context, empty for none; `start` and
        `end` int32 [B], its characters as Python counts them, -1 for none; `score`
        float32 [B], its probability among all spans; `null_score` float32 [B], by how
        much no answer scores above the best span, in logits. `n_best_answers`,
        `n_best_starts`, `n_best_ends`, `n_best_scores` [B, n] are the best spans, best
        first; where there are fewer: "", -1, -1 and 0.
    """
    there = best.scores > NEVER / 2
    answers, start, end = cut_out(best, contexts, starts, ends)
    null_score = best.null - best.scores[:, 0]
    total, none, null = best.total, ~there[:, 0], tf.zeros_like(best.total)
    if threshold is not None:
        total = tf.reduce_logsumexp(tf.stack([total, best.null], 1), axis=1)
        none |= null_score > threshold
        null = tf.exp(best.null - total)
    scores = tf.where(there, tf.exp(best.scores - total[:, tf.newaxis]), 0.0)
    return {
        "answer": tf.where(none, "", answers[:, 0]),
        "start": tf.where(none, -1, start[:, 0]),
        "end": tf.where(none, -1, end[:, 0]),
        "score": tf.where(none, null, scores[:, 0]),
        "null_score": null_score,
        "n_best_answers": answers,
        "n_best_starts": start,
        "n_best_ends": end,
        "n_best_scores": scores,
    }
