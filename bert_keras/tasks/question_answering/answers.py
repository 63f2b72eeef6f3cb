"""From logits of windows to answers as text, in graph: `AnswerFinder`.

Source: Devlin et al. 2018 (arXiv:1810.04805), sections 4.2 and 4.3.
"""

from __future__ import annotations

import dataclasses
import itertools
import string
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_keras.lazy_names import deferred
from bert_keras.reading.token_rows import TokenizedText
from bert_keras.reading.token_windows import TOKEN_PLACES
from bert_keras.tasks.base import Run
from bert_keras.tasks.question_answering.spans import (
    NEVER,
    Spans,
    text_spans,
    window_spans,
)
from bert_keras.tasks.tagging.words import over_marks
from bert_keras.text.characters import over_marks_of
from bert_keras.text.packing import unpack
from bert_keras.text.ragged import arrays_of
from bert_keras.text.token_ids import as_unicode
from bert_keras.text.windows import Windows

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_keras.text.preprocessor import Preprocessor
else:
    (tf,) = deferred("tensorflow")

_AT_ONCE = 32  # windows computed together, however long the texts are
_LOOKED_AT = 20  # spans per listed answer: many lie near the best one
_ASCII_PUNCTUATION = r"[!-/:-@\[-`{-~]"
_NO_LETTER = r"[^\p{L}\p{M}\p{N}_]"
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = frozenset(("a", "an", "the"))


class QuestionWindows(NamedTuple):
    """The windows of B questions and contexts."""

    windows: Windows
    contexts: Any  # string [B]
    starts: Any  # ragged int32 [B, None], first character of each context token
    ends: Any  # ragged int32 [B, None], and its end


@dataclasses.dataclass(frozen=True)
class AnswerFinder:
    """Finds the answers to questions from the logits of their windows.

    Its methods return `answer` string [B], an exact part of the context, empty for
    none; `start` and `end` int32 [B], its offsets in a Python string, -1 for none;
    `score` float32 [B], its probability among all spans; `null_score` float32 [B], by
    how much no answer scores above the best span, in logits. `n_best_answers`,
    `n_best_starts`, `n_best_ends`, `n_best_scores` [B, n] are the best distinct spans,
    best first; where there are fewer: "", -1, -1 and 0. If it may abstain also
    `abstained` bool [B], with empty answers. For scoring also `span_probabilities` and
    `null_probabilities`, float32 [B, K], the probabilities of the best span and of no
    answer at each temperature.
    """

    max_tokens: int  # of an answer
    n_best: int  # how many distinct answers are listed, see `distinct_spans`
    # "No answer" is given where its score is above the best span's by more than
    # this, in logits; `None`: some span is always an answer.
    threshold: float | None
    # K of them, an odd number, divide the logits; the middle one gives the scores.
    temperatures: tuple[float, ...] = (1.0,)
    abstain_below: float | None = None  # answers with a lower score are withheld
    for_scoring: bool = False  # whether to return the probabilities of both cases too

    def at_once(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return the answers of windows that were computed together.

        `outputs` float32 [R, T, 2] are the logits of start and end; `batch` is the
        batch dict with `questions`, the `QuestionWindows`.
        """
        questions = batch["questions"]
        return self._answers(self._spans(outputs, batch, questions.windows), questions)

    def by_parts(
        self, questions: QuestionWindows, preprocessor: Preprocessor, run: Run
    ) -> dict[str, tf.Tensor]:
        """Return the answers of windows, which `run` computes some at a time.

        Windows of similar length are computed together.
        """
        order = tf.argsort(questions.windows.ids.row_lengths(), stable=True)

        def more(done: Any, found: Spans) -> tuple[Any, Spans]:
            part = questions.windows.take(order[done : done + _AT_ONCE])
            batch = preprocessor.lay(part.ids, part.segments)
            spans = self._spans(run(batch), batch, part)
            return done + _AT_ONCE, found.followed_by(spans)

        none = Spans.none(self._looked_at, len(self.temperatures))
        _, spans = tf.while_loop(
            lambda done, _: done < tf.size(order),
            more,
            (0, none),
            shape_invariants=(tf.TensorShape([]), none.shapes()),
            parallel_iterations=1,
        )
        return self._answers(spans.take(tf.math.invert_permutation(order)), questions)

    def _spans(self, outputs: Any, batch: Mapping[str, Any], windows: Windows) -> Spans:
        return window_spans(
            unpack(outputs, batch).to_tensor(NEVER),
            windows,
            max_tokens=self.max_tokens,
            n_best=self._looked_at,
            temperatures=self.temperatures,
        )

    @property
    def _looked_at(self) -> int:
        return _LOOKED_AT * self.n_best

    def _answers(
        self, spans: Spans, questions: QuestionWindows
    ) -> dict[str, tf.Tensor]:
        windows, contexts, starts, ends = questions
        # As Python decodes: a replacement character for each invalid part.
        contexts = tf.strings.unicode_transcode(
            contexts, "UTF-8", "UTF-8", errors="replace"
        )
        best = text_spans(spans, windows.text, texts=tf.size(contexts))
        best = distinct_spans(best, contexts, starts, ends, n_best=self.n_best)
        return self._chosen(best, *cut_out(best, contexts, starts, ends))

    def numbers(self, outputs: Any, places: Any) -> dict[str, tf.Tensor]:
        """Return the best `Spans` of each window by name, in graph.

        `outputs` float32 [S, T, 2] are of one window a row, and `places` int32 [S, 6]
        is as in `reading.token_windows`.
        """
        text, first, count, place, own_first, own_end = tf.unstack(places, axis=1)
        spans = window_spans(
            tf.cast(outputs, tf.float32),
            Windows(None, None, text, first, count, place, own_first, own_end),
            max_tokens=self.max_tokens,
            n_best=self._looked_at,
            temperatures=self.temperatures,
        )
        return spans._asdict()

    def spelled(
        self, numbers: Mapping[str, np.ndarray], rows: Sequence[TokenizedText]
    ) -> dict[str, np.ndarray]:
        """Return the answers to the questions of rows from `numbers` of their windows.

        The same as `at_once`, in Python.
        """
        windows = Spans(*(numbers[name] for name in Spans._fields))
        ends = np.searchsorted(numbers[TOKEN_PLACES][:, 0], np.arange(len(rows) + 1))
        found = []
        for row, start, end in zip(rows, ends, ends[1:], strict=False):
            merged = windows.take(slice(start, end)).merged(self._looked_at)
            found.append(_distinct(merged, row, self.n_best))
        best, parts, first, end = (list(each) for each in zip(*found, strict=True))
        return self._chosen(
            Spans(*map(np.stack, zip(*best, strict=True))),
            np.array(parts, object),
            np.array(first, np.int32),
            np.array(end, np.int32),
        )

    def _chosen(self, best: Spans, parts: Any, first: Any, end: Any) -> dict[str, Any]:
        """Return the answers, arrays or tensors, from the best distinct spans.

        Args:
            best: n spans of each of B texts.
            parts, first, end: what `cut_out` returns of them.
        """
        arrays, there = arrays_of(best.scores), best.found
        middle = len(self.temperatures) // 2
        p, of_null = self._probabilities(best)
        p = arrays.where(there[..., None], p, np.float32(0))
        null_score = best.null - best.scores[:, 0]
        none = ~there[:, 0]
        if self.threshold is not None:
            none |= null_score > self.threshold
        score = arrays.where(none, of_null[:, middle], p[:, 0, middle])
        found = {"score": score, "null_score": null_score}
        if self.abstain_below is not None:
            found["abstained"] = score < self.abstain_below
            none |= found["abstained"]
        if self.for_scoring:
            found["span_probabilities"] = p[:, 0]
            found["null_probabilities"] = of_null
        return {
            "answer": arrays.where(none, b"", parts[:, 0]),
            "start": arrays.where(none, -1, first[:, 0]),
            "end": arrays.where(none, -1, end[:, 0]),
            **found,
            "n_best_answers": parts,
            "n_best_starts": first,
            "n_best_ends": end,
            "n_best_scores": p[..., middle],
        }

    def _probabilities(self, best: Spans) -> tuple[Any, Any]:
        """Return the probabilities of spans, float32 [B, n, K], and of no answer, [B,
        K], at each temperature. They sum to 1, with no answer if there may be none.
        """
        arrays = arrays_of(best.scores)
        degrees = np.array(self.temperatures, np.float32)
        logits, totals = best.scores[..., None] / degrees, best.totals
        if self.threshold is None:
            return arrays.exp(logits - totals[:, None]), arrays.zeros_like(totals)
        null = best.null[:, None] / degrees
        top = arrays.maximum(totals, null)
        of_null = arrays.exp(null - top)
        whole = arrays.exp(totals - top) + of_null
        return arrays.exp(logits - top[:, None]) / whole[:, None], of_null / whole


def cut_out(spans: Spans, texts: Any, starts: Any, ends: Any) -> tuple[Any, Any, Any]:
    """Return spans of tokens as substrings of their texts, string [B].

    Combining accents after the last character, which uncased models drop, are included.
    `texts` are valid UTF-8; `starts` and `ends` are the characters of the tokens,
    ragged int32 [B, None].

    Returns:
        The parts, string [B, n], their first characters and their ends, int32 [B, n];
        "" and -1 where there is no span.
    """
    there = spans.found
    first, end = _characters(spans, texts, starts, ends)
    parts = _parts(texts, first, end)
    return parts, tf.where(there, first, -1), tf.where(there, end, -1)


def distinct_spans(
    spans: Spans, texts: Any, starts: Any, ends: Any, *, n_best: int
) -> Spans:
    """Return the best distinct answers of each text, [B, n_best], best first.

    Two spans count as one answer, the one with the higher score, if

    - their texts are equal after normalization, see `normalized`, wherever they stand;
    - or they overlap: the characters in both are more than half of the characters in
      either, as of "SoC" and "SoCal".

    If there are fewer distinct ones, the rest have the score `NEVER`. `spans` are the
    M of each of B texts, best first; the other arguments are as in `cut_out`.
    """
    with tf.device("CPU:0"):  # as strings are
        there = spans.found
        rows, most = tf.unstack(tf.shape(there))
        first, end = _characters(spans, texts, starts, ends)
        slots, columns = tf.range(n_best), tf.range(most)

        def look(left: Any, count: Any, chosen: Any, known: Any) -> tuple[Any, ...]:
            """Take the best remaining span of each text, or skip it."""
            pick = tf.argmax(tf.cast(left, tf.int32), axis=1, output_type=tf.int32)
            from_, to = (
                tf.gather(each, pick, batch_dims=1)[:, tf.newaxis]
                for each in (first, end)
            )
            text = normalized(_parts(texts, from_, to))  # [B, 1]
            same = (known == text) & (slots < count[:, tf.newaxis])
            is_new = tf.reduce_any(left, axis=1) & ~tf.reduce_any(same, axis=1)
            is_new = (is_new & (count < n_best))[:, tf.newaxis]
            here = (slots == count[:, tf.newaxis]) & is_new
            chosen = tf.where(here, pick[:, tf.newaxis], chosen)
            known = tf.where(here, text, known)
            both = tf.minimum(end, to) - tf.maximum(first, from_)
            covered = tf.maximum(end, to) - tf.minimum(first, from_)
            left &= ~((2 * both > covered) & is_new)
            left &= columns != pick[:, tf.newaxis]
            return left, count + tf.cast(is_new[:, 0], tf.int32), chosen, known

        _, count, chosen, _ = tf.while_loop(
            lambda left, count, *_: tf.reduce_any(
                left & (count < n_best)[:, tf.newaxis]
            ),
            look,
            (
                there,
                tf.zeros([rows], tf.int32),
                tf.zeros([rows, n_best], tf.int32),
                tf.fill([rows, n_best], ""),
            ),
            parallel_iterations=1,
        )
        scores, starts, ends = (
            tf.gather(part, chosen, batch_dims=1)
            for part in (spans.scores, spans.starts, spans.ends)
        )
        scores = tf.where(slots < count[:, tf.newaxis], scores, NEVER)
        return spans._replace(scores=scores, starts=starts, ends=ends)


def _distinct(
    spans: Spans, row: TokenizedText, n_best: int
) -> tuple[Spans, list[bytes], list[int], list[int]]:
    """Return the best distinct spans of a text, and what `cut_out` returns of them.

    The same as `distinct_spans` in Python. `spans` are of one text, without an axis for
    texts.
    """
    text, places = as_unicode(row.given), row.text.places
    known: dict[str, tuple[int, int]] = {}
    chosen, parts = [], []
    for number in np.flatnonzero(spans.found).tolist():
        first = places[spans.starts[number]][0]
        end = over_marks_of(text, places[spans.ends[number]][1])
        if any(
            2 * (min(end, b) - max(first, a)) > max(end, b) - min(first, a)
            for a, b in known.values()
        ):
            continue
        name = normalized_text(text[first:end])
        if name in known:
            continue
        known[name] = first, end
        chosen.append(number)
        parts.append(text[first:end].encode())
        if len(chosen) == n_best:
            break
    lack = n_best - len(chosen)
    best = spans._replace(
        scores=np.pad(spans.scores[chosen], (0, lack), constant_values=NEVER),
        starts=np.pad(spans.starts[chosen], (0, lack)),
        ends=np.pad(spans.ends[chosen], (0, lack)),
    )
    firsts, ends = ([each[side] for each in known.values()] for side in (0, 1))
    none = [-1] * lack
    return best, [*parts, *[b""] * lack], firsts + none, ends + none


def normalized_text(text: str) -> str:
    """Do the same as `normalized` in Python."""
    text, _, _ = text.partition("\0")  # where TensorFlow ends a text in lower case
    plain = text.lower().translate(_NO_PUNCTUATION)
    runs = itertools.groupby(plain, _is_letter)
    words = ("".join(run) for _, run in runs)
    plain = "".join(" " if word in _ARTICLES else word for word in words)
    spaces = (" " if _is_space(c) else c for c in plain)
    return " ".join(part for part in "".join(spaces).split(" ") if part).strip(" \v")


def _is_letter(character: str) -> bool:
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def _is_space(character: str) -> bool:
    return character in "\t\n\f\r" or unicodedata.category(character)[0] == "Z"


def normalized(texts: Any) -> Any:
    """Return answers, string, as `scoring.answers.normalize_answer` compares them.

    In lower case, without ASCII punctuation, the articles a, an and the, and more than
    one space.
    """
    texts = tf.strings.lower(texts, encoding="utf-8")
    texts = tf.strings.regex_replace(texts, _ASCII_PUNCTUATION, "")
    article = f"(^|{_NO_LETTER})(?:a|an|the)({_NO_LETTER}|$)"
    for _ in range(2):  # two articles share the space between them
        texts = tf.strings.regex_replace(texts, article, r"\1 \2")
    texts = tf.strings.regex_replace(texts, r"[\s\p{Z}]+", " ")
    return tf.strings.strip(texts)


def _characters(spans: Spans, texts: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
    """Return the first characters and the ends of spans, int32 [B, n], 0 for none."""
    there = spans.found
    rows = tf.cast(starts.row_starts(), tf.int32)[:, tf.newaxis]

    def of(offsets: Any, tokens: Any) -> Any:
        places = tf.where(there, rows + tokens, tf.size(offsets))
        return tf.gather(tf.pad(offsets, [[0, 1]]), places)

    first, end = of(starts.values, spans.starts), of(ends.values, spans.ends)
    with tf.device("CPU:0"):  # as strings are
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        count, most = tf.unstack(tf.shape(there, tf.int64))
        text = tf.repeat(tf.range(count), most)
        with_marks = over_marks(decoded, text, tf.reshape(end, [-1]))
    return first, tf.where(there, tf.reshape(with_marks, tf.shape(there)), 0)


def _parts(texts: Any, first: Any, end: Any) -> Any:
    """Return parts of texts, string [B, n], from and to characters, int32 [B, n]."""
    shape = tf.shape(first)
    first, end = tf.reshape(first, [-1]), tf.reshape(end, [-1])
    parts = tf.strings.substr(
        tf.repeat(texts, shape[1]), first, end - first, "UTF8_CHAR"
    )
    return tf.reshape(parts, shape)
