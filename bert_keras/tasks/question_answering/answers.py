"""Logits of windows to the answers that a person reads, in graph: `AnswerFinder`.

Source: Devlin et al. 2018 (arXiv:1810.04805), sections 4.2 and 4.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_keras.tasks.question_answering.spans import (
    NEVER,
    Spans,
    text_spans,
    window_spans,
)
from bert_keras.tasks.question_answering.windows import AskedWindows, spans_by_parts
from bert_keras.text.packing import unpack
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.windows import Windows


@dataclasses.dataclass(frozen=True)
class AnswerFinder:
    """What is answered to questions, by the logits of their windows.

    Args:
        max_tokens: longest answer.
        n_best: how many spans are listed.
        threshold: "no answer" is given where its score is above that of the best span
            by more than this, in logits; `None`: some span is always an answer.
        temperatures: divide the logits in probabilities; an odd number K of them, and
            scores are told at the one in the middle.
        abstain_below: an answer whose score is below it is not given; `None`: all are.
        for_scoring: whether the probabilities of both cases are wanted, too.

    Its methods return `answer` string [B], an exact part of the context, empty for
    none; `start` and `end` int32 [B], its characters as Python counts them, -1 for
    none; `score` float32 [B], its probability among all spans; `null_score` float32
    [B], by how much no answer scores above the best span, in logits. `n_best_answers`,
    `n_best_starts`, `n_best_ends`, `n_best_scores` [B, n] are the best spans, best
    first; where there are fewer: "", -1, -1 and 0. Where it may abstain also
    `abstained` bool [B], whose answer is that of none. For scoring
    `span_probabilities` and `null_probabilities`, float32 [B, K], are those of the best
    span and of no answer at each temperature.
    """

    max_tokens: int
    n_best: int
    threshold: float | None
    temperatures: tuple[float, ...] = (1.0,)
    abstain_below: float | None = None
    for_scoring: bool = False

    def at_once(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return the answers of windows that were computed together.

        Args:
            outputs: float32 [R, T, 2], logits of start and end.
            batch: the batch dict with `asked`, the `AskedWindows`.
        """
        asked = batch["asked"]
        return self._answers(self._spans(outputs, batch, asked.windows), asked)

    def by_parts(
        self,
        asked: AskedWindows,
        preprocessor: Preprocessor,
        run: Callable[[dict[str, Any]], Any],
    ) -> dict[str, tf.Tensor]:
        """Return the answers of windows, some computed at a time.

        Args:
            asked: the windows.
            preprocessor: lays them.
            run: computes the outputs of a batch.
        """

        def find(part: Windows) -> Spans:
            batch = preprocessor.lay(part.ids, part.segments)
            return self._spans(run(batch), batch, part)

        none = Spans.none(self.n_best, len(self.temperatures))
        return self._answers(spans_by_parts(asked.windows, find, none), asked)

    def _spans(self, outputs: Any, batch: Mapping[str, Any], windows: Windows) -> Spans:
        return window_spans(
            unpack(outputs, batch).to_tensor(NEVER),
            windows,
            max_tokens=self.max_tokens,
            n_best=self.n_best,
            temperatures=self.temperatures,
        )

    def _answers(self, spans: Spans, asked: AskedWindows) -> dict[str, tf.Tensor]:
        windows, contexts, starts, ends = asked
        best = text_spans(spans, windows.text, texts=tf.size(contexts))
        there = best.scores > NEVER / 2
        parts, first, end = cut_out(best, contexts, starts, ends)
        middle = len(self.temperatures) // 2
        totals, of_null = self._of_null(best)
        degrees = tf.constant(self.temperatures, tf.float32)
        logits = best.scores[..., tf.newaxis] / degrees  # [B, n, K]
        p = tf.exp(logits - totals[:, tf.newaxis])
        p = tf.where(there[..., tf.newaxis], p, 0.0)
        null_score = best.null - best.scores[:, 0]
        none = ~there[:, 0]
        if self.threshold is not None:
            none |= null_score > self.threshold
        score = tf.where(none, of_null[:, middle], p[:, 0, middle])
        found = {"score": score, "null_score": null_score}
        if self.abstain_below is not None:
            found["abstained"] = score < self.abstain_below
            none |= found["abstained"]
        if self.for_scoring:
            found["span_probabilities"] = p[:, 0]
            found["null_probabilities"] = of_null
        return {
            "answer": tf.where(none, "", parts[:, 0]),
            "start": tf.where(none, -1, first[:, 0]),
            "end": tf.where(none, -1, end[:, 0]),
            **found,
            "n_best_answers": parts,
            "n_best_starts": first,
            "n_best_ends": end,
            "n_best_scores": p[..., middle],
        }

    def _of_null(self, best: Spans) -> tuple[Any, Any]:
        """Return the totals with no answer among them, where that may be, and the
        probability of none, float32 [B, K].
        """
        if self.threshold is None:
            return best.totals, tf.zeros_like(best.totals)
        null = best.null[:, tf.newaxis] / tf.constant(self.temperatures, tf.float32)
        totals = tf.reduce_logsumexp(tf.stack([best.totals, null]), axis=0)
        return totals, tf.exp(null - totals)


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
