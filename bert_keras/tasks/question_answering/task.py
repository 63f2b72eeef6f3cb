"""Question answering: the span of a text that answers a question, or that none does.

Source: Devlin et al. 2018 (arXiv:1810.04805), sections 4.2 and 4.3 (SQuAD 1.1, 2.0).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.data.row_source import RowSource
from bert_keras.data.squad import (
    NO_ANSWER,
    UNKNOWN,
    is_answers,
    place_of,
    read_questions,
    read_squad,
    stands_at,
)
from bert_keras.errors import ConfigError, DataError, first_of, received, shown
from bert_keras.lazy_names import deferred, serializable
from bert_keras.reading.token_rows import TokenizedText
from bert_keras.reading.token_windows import TOKEN_PLACES, TokenWindows
from bert_keras.scoring.answers import ScoredAnswers, question_score
from bert_keras.scoring.calibration import FACTORS, best_factor
from bert_keras.settings import with_options_documented
from bert_keras.tasks.base import (
    Answers,
    Batch,
    Column,
    Run,
    Task,
    by_reader,
    refuse_weights,
)
from bert_keras.tasks.classifier import Confidence
from bert_keras.tasks.given_labels import checked
from bert_keras.tasks.hugging_face import HeadCodec
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.protocols import string_parts
from bert_keras.tasks.question_answering.answers import AnswerFinder, QuestionWindows
from bert_keras.tasks.question_answering.explanation import explained_span
from bert_keras.tasks.question_answering.settings import QuestionAnsweringSettings
from bert_keras.text.ragged import sizes_of
from bert_keras.text.windows import cut_windows, mark_windows

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target
    from bert_keras.model import heads, span_loss
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor
else:
    (tf,) = deferred("tensorflow")
    heads, span_loss = deferred("bert_keras.model.heads", "bert_keras.model.span_loss")


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class QuestionAnswering(QuestionAnsweringSettings, Confidence, Task):
    """The answer to a question, a span of a context of any length.

    Contexts too long for one row with the question are read in overlapping windows.
    Where the score is below `abstain_below`, the answer is "" and `abstained` true.
    """

    name = "question-answering"
    # The config does not say whether it was trained on unanswerable questions.
    head_codec = HeadCodec("BertForQuestionAnswering")
    roles = ("question", "context")
    columns = {
        "question": "question",
        "context": "context",
        "answers": "answers",
        "id": Column("id", optional=True),
    }
    needs = Needs(pooler=False, max_length=384, rows_per_text=None)
    most_score = 100.0

    @property
    def best_score(self) -> str:  # type: ignore[override]
        return "best_f1" if self.no_answer else "f1"

    # Data.

    @classmethod
    def read_own(cls, source: RowSource) -> Columns | None:
        """Return the questions of a SQuAD file; without answers it may be a table."""
        if source.labelled:
            return read_squad(source.data, columns=source.columns, **source.rules)
        return None if source.columns else read_questions(source.data)

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> QuestionAnswering:
        """Return the task, `no_answer` if some question has no answer."""
        task = cls(no_answer=not all(columns["answers"]))
        targets = task.targets(columns)
        if not (targets >= 0).any():
            wrong = task.notes(columns)
            message = wrong[-1] if wrong else "no question has an answer to learn from"
            raise DataError(message, path=None if wrong else columns.path)
        return dataclasses.replace(task, **settings)

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        # Replaces lone surrogates by one character, which keeps offsets right.
        return tuple(
            [text.encode("utf-8", "replace").decode("utf-8") for text in part]
            for part in string_parts(items, 2)
        )

    def targets(self, columns: Columns) -> np.ndarray:
        """Return start and end in characters of each question's answer, int32 [N, 2].

        Of several answers the first whose text is at its `answer_start`; -1 if there
        is no answer, -2 if none is at its place: it is not trained on, see `notes`.
        """
        columns.refuse(
            [
                (row, f"`answers` must be a list of (text, start); {received(answers)}")
                for row, answers in enumerate(columns["answers"])
                if not is_answers(answers)
            ]
        )
        pairs = zip(columns["context"], columns["answers"], strict=True)
        return np.array([place_of(*pair) for pair in pairs], "int32").reshape(-1, 2)

    def encode_targets(self, targets: Any) -> Any:
        """Check the form of start and end of each answer, see `targets`."""
        targets = tf.convert_to_tensor(targets)
        is_pairs = targets.shape.is_compatible_with([None, 2])
        if not targets.dtype.is_integer or not is_pairs:
            raise ConfigError(
                "`y` must be the first character of each answer and the one after its "
                "last, integers [N, 2], -1 and -1 for no answer; received "
                f"{targets.dtype.name} {tuple(targets.shape)}"
            )
        return targets

    def notes(self, columns: Columns) -> list[str]:
        """Return warnings about answers that are not at their `answer_start`.

        One line counts and names these; another, the questions without a valid answer.
        """
        wrong = misplaced_answers(columns)
        if not wrong:
            return []
        names = names_of(columns)
        total = sum(map(len, columns["answers"]))
        count = len({row for row, _, _ in wrong})
        places = [
            f"{names[row]} ({shown(text, longest=40)} at {at})"
            for row, text, at in wrong
        ]
        lines = [
            f"{columns.path}: {len(wrong):,} of {total:,} answers, of {count:,} of "
            f"{len(columns):,} questions, do not stand where `answer_start` says: "
            f"{first_of(places)}"
        ]
        lost = np.flatnonzero(self.targets(columns)[:, 0] == UNKNOWN)
        if len(lost):
            lines.append(
                f"{columns.path}: {len(lost):,} of {len(columns):,} questions are not "
                "trained on: none of their answers is at its `answer_start`: "
                f"{first_of([names[row] for row in lost])}"
            )
        return lines

    def describe(self, columns: Columns) -> dict[str, Any]:
        answered = sum(bool(answers) for answers in columns["answers"])
        return {
            "rows": len(columns),
            "contexts": len(set(columns["context"])),
            "with_answer": answered,
            "without_answer": len(columns) - answered,
            "misplaced_answers": len(misplaced_answers(columns)),
            "wrong_offsets": int((self.targets(columns) == UNKNOWN).any(1).sum()),
        }

    # From strings to windows, in graph.

    @property
    def reader(self) -> TokenWindows:
        return TokenWindows(
            stride=self.stride, max_first_tokens=self.max_question_tokens
        )

    @by_reader
    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        questions = self._windows(preprocessor, texts)
        batch = preprocessor.lay(questions.windows.ids, questions.windows.segments)
        return {**batch, "questions": questions}

    def examples(
        self, preprocessor: Preprocessor, texts: Any, targets: Any, weights: Any = None
    ) -> tuple[Batch, Any, Any]:
        """Return windows as a batch, and the targets of `SpanLoss`, int32 [R, T, 3]."""
        refuse_weights(self, weights)
        windows, contexts, starts, ends = self._windows(preprocessor, texts)
        places = _checked_places(self.encode_targets(targets), contexts)
        start, end = mark_windows(windows, starts, ends, places)
        batch = preprocessor.lay(windows.ids, windows.segments, start=start, end=end)
        marks = [tf.maximum(batch.pop(key), 0) for key in ("start", "end")]
        own = batch.get("sequence_ids", batch["padding_mask"])
        return batch, tf.stack([own, *marks], axis=-1), None

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        """Return the tokens of question and context, and the question's truncated ones.

        Special tokens are included, as if one row could hold all.
        """
        question, size = (sizes_of(preprocessor.tokenizer(text)) for text in texts)
        room = (preprocessor.max_length - 3) // 2
        lost = tf.maximum(question - min(self.max_question_tokens, room), 0)
        return question + size + 3 - lost, lost

    def _windows(self, preprocessor: Preprocessor, texts: Any) -> QuestionWindows:
        question, context = texts
        tokenizer = preprocessor.tokenizer
        pieces, starts, ends = tokenizer.tokenize_with_offsets(
            context, unit="characters"
        )
        windows = cut_windows(
            tokenizer(question),
            pieces,
            self.reader.cut(preprocessor.max_length),
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
        )
        return QuestionWindows(windows, context, starts, ends)

    # The model.

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        head = heads.PooledHead.on(
            encoder, 2, seed=seed, dropout_rate=0.0, name="qa_outputs"
        )
        return head(encoder(inputs)["sequence_output"])

    def named_outputs(self, outputs: Any, model: Any) -> dict[str, Any]:
        return {"start_logits": outputs[..., 0], "end_logits": outputs[..., 1]}

    def from_named(self, named: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        return tf.stack([named["start_logits"], named["end_logits"]], axis=-1)

    def loss(self) -> keras.losses.Loss:
        return span_loss.SpanLoss()

    def metrics(self) -> list[Any]:
        return [span_loss.SpanAccuracy()]

    # Answers and scores.

    def respond(
        self, texts: Any, preprocessor: Preprocessor, run: Run, *, scored: bool = False
    ) -> dict[str, tf.Tensor]:
        """Return the answers, from batches of windows of similar length.

        To be scored, spans are compared at each temperature that `tune` may choose.
        """
        finder = self._finder()
        if scored:
            factors = FACTORS if self.calibration == "temperature" else (1.0,)
            finder = dataclasses.replace(
                finder,
                temperatures=tuple(self.temperature * factor for factor in factors),
                for_scoring=True,
            )
        return finder.by_parts(self._windows(preprocessor, texts), preprocessor, run)

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return the answers of windows computed at once, see `AnswerFinder`."""
        return self._finder().at_once(outputs, batch)

    def numbers(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return the best `Spans` of each window, in graph."""
        return self._finder().numbers(outputs, batch[TOKEN_PLACES])

    def spelled(
        self,
        numbers: Mapping[str, np.ndarray],
        rows: Sequence[TokenizedText],
        *,
        scored: bool = False,
    ) -> dict[str, np.ndarray]:
        finder = dataclasses.replace(self._finder(), for_scoring=scored)
        return finder.spelled(numbers, rows)

    def recipe(self) -> dict[str, Any]:
        return {
            "meaning": "[CLS] question [SEP] part of the context [SEP]; start_logits "
            "and end_logits are of the first and the last token of the answer; the "
            "best span over all parts has the highest sum, divided by temperature",
            "activation": "softmax",
            "temperature": self.temperature,
            "stride": self.stride,
            "max_question_tokens": self.max_question_tokens,
            "max_answer_tokens": self.max_answer_tokens,
            "no_answer": self.no_answer,
            "threshold": self.threshold,
        }

    def _finder(self) -> AnswerFinder:
        return AnswerFinder(
            max_tokens=self.max_answer_tokens,
            n_best=self.n_best,
            threshold=self._limit,
            temperatures=(self.temperature,),
            abstain_below=self.abstain_below if self.may_abstain else None,
        )

    @property
    def _limit(self) -> float | None:
        return self.threshold if self.no_answer else None

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return the scores of all questions, see `ScoredAnswers`."""
        scored = self._scored(columns, answers)
        return scored.scores(abstain_below=self.abstain_below)

    def tune(self, columns: Columns, answers: Answers) -> QuestionAnswering:
        """Return the task with threshold, temperature and confidence fitted on dev
        rows.
        """
        task, found, factor = self, self._scored(columns, answers), 0
        if self.no_answer and not self.threshold:
            task = dataclasses.replace(task, threshold=found.best_threshold())
            found = task._scored(columns, answers)
        if self.calibration == "temperature":
            factor = best_factor(found.confidence, found.right)
            task = task.with_temperature(FACTORS[factor])
        return task.with_threshold(found.confidence[:, factor], found.right)

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return the questions with a wrong answer, most confident first."""
        given, p = self._scored(columns, answers).given, answers["score"]
        golds, names = gold_texts(columns), names_of(columns)
        scores = [question_score(*pair) for pair in zip(golds, given, strict=True)]
        wrong = [row for row, score in enumerate(scores) if score.exact < 1]
        return [
            {
                "id": names[row],
                "text": columns["question"][row],
                "answers": " | ".join(dict.fromkeys(golds[row])),
                "prediction": given[row],
                "f1": scores[row].f1,
                "probability": float(p[row]),
            }
            for row in sorted(wrong, key=lambda row: -p[row])
        ]

    def explained(self, item: Item) -> list[Target]:
        return explained_span(item, temperature=self.temperature)

    def _scored(self, columns: Columns, answers: Answers) -> ScoredAnswers:
        return ScoredAnswers(gold_texts(columns), answers, threshold=self._limit)


def _checked_places(places: Any, contexts: Any) -> Any:
    """Return places, int [N, 2], after checking that they are in their contexts."""
    start, end = places[:, 0], places[:, 1]
    length = tf.cast(tf.strings.length(contexts, unit="UTF8_CHAR"), end.dtype)
    is_code = (start == end) & ((start == NO_ANSWER) | (start == UNKNOWN))
    known = is_code | ((start >= 0) & (start < end) & (end <= length))
    written = tf.strings.reduce_join(tf.strings.as_string(places), 1, separator=", ")
    rule = "first character and end of an answer in its context, or -1, -1 for none"
    return checked(places, written, known, rule)


def misplaced_answers(columns: Columns) -> list[tuple[int, str, int]]:
    """Return row, text and start of each answer whose text is not at its start."""
    pairs = zip(columns["context"], columns["answers"], strict=True)
    return [
        (row, text, start)
        for row, (context, answers) in enumerate(pairs)
        for text, start in answers
        if not stands_at(context, text, start)
    ]


def names_of(columns: Columns) -> list[Any]:
    """Return the ids of questions, or their lines where they have none."""
    return columns["id"] if "id" in columns else list(columns.lines)


def gold_texts(columns: Columns) -> list[list[str]]:
    """Return the texts of each question's answers."""
    return [[answer[0] for answer in given] for given in columns["answers"]]
