"""Spans of tokens: the best ones of a window, and of a text.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.2: the score of a span is the
sum of the logits of its start and its end; a text without an answer has its start and
its end at `[CLS]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_keras.lazy_names import deferred
from bert_keras.text.ragged import taken
from bert_keras.text.windows import Windows

if TYPE_CHECKING:
    import tensorflow as tf
else:
    (tf,) = deferred("tensorflow")

NEVER = -1e9  # logit of the impossible; the sum of two is still finite


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

    def merged(self, n_best: int) -> Spans:
        """Return the best spans of a text, of whose windows these are, as arrays.

        The same as `text_spans` in NumPy. The result has no axis for texts.
        """
        scores = self.scores.ravel()
        order = np.argsort(-scores, kind="stable")[:n_best]
        top = self.totals.max(axis=0)
        return Spans(
            scores[order],
            self.starts.ravel()[order],
            self.ends.ravel()[order],
            null=self.null.min(),
            totals=top + np.log(np.exp(self.totals - top).sum(axis=0)),
        )

    def followed_by(self, others: Spans) -> Spans:
        """Concatenate with others."""
        pairs = zip(self, others, strict=True)
        return Spans(*(tf.concat(pair, 0) for pair in pairs))

    def take(self, rows: Any) -> Spans:
        """Select some by index, int32 [M]."""
        return Spans(*(taken(part, rows) for part in self))


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
