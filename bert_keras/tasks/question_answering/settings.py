"""What is known of question answering before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import FROM_DATA, option
from bert_keras.tasks.classifier_settings import ConfidenceSettings
from bert_keras.tasks.declaration import Row, RowForm, TaskHelp, records


@dataclasses.dataclass(frozen=True)
class QuestionAnsweringSettings(ConfidenceSettings):
    """The settings of `QuestionAnswering`.

    A window has as many candidate spans as its tokens times the longest answer; the
    best are compared one by one.
    """

    no_answer: bool = option(
        False,
        "whether a question can have no answer in its context",
        unset=FROM_DATA,
        free=True,
    )
    threshold: float = option(
        0.0,
        "no answer is given if its score exceeds the score of the best span by more "
        "than this, in logits; a number other than 0 is not tuned",
        least=-1e10,  # a context without a token scores 1e9 for none
        most=1e10,
        unset="tuned on dev",
        free=True,
        needs=("no_answer", True),
        fitted_by=("no_answer", False),
    )
    stride: int = option(
        128,
        "context tokens from the start of one window to the start of the next, at most "
        "half of a window; for example --set stride=64",
        least=1,
        most=100_000,
        free=True,
    )
    max_answer_tokens: int = option(
        30, "the maximum length of an answer in tokens", least=1, most=512, free=True
    )
    max_question_tokens: int = option(
        64, "longer questions are truncated", least=1, most=100_000, free=True
    )
    n_best: int = option(
        5, "number of distinct answers that are listed", least=1, most=100, free=True
    )


def _row(row: Row) -> Row:
    """Return `answer`, `start`, `end`, `score`, `null_score`, and a list `n_best`."""
    keys = ("answer", "start", "end", "score")
    lists = {key: f"n_best_{key}s" for key in keys}
    shown = {key: value for key, value in row.items() if key not in lists.values()}
    return {**shown, "n_best": records(row, lists)}


HELP = TaskHelp(
    place="bert_keras.tasks.question_answering.task:QuestionAnswering",
    settings=QuestionAnsweringSettings,
    summary="the span of a text that answers a question (SQuAD 1.1 and 2.0)",
    data="JSON files of SQuAD 1.1 or 2.0, or rows of question, context and answers; to "
    "predict only question and context",
    file="train.json",
    rows='{"data": [{"paragraphs": [{"context": "The tower was built in 1889.", '
    '"qas": [{"id": "1", "question": "When was it built?", '
    '"answers": [{"text": "1889", "answer_start": 23}]}]}]}]}',
    scores="EM and F1 as in the official scripts, with and without answer, best "
    "threshold; calibration error",
    answers="answer, start, end (characters, -1 for no answer), score, null_score, "
    "n_best_answers …",
    row_forms=(
        RowForm(
            (
                *("answer", "start", "end", "score", "null_score"),
                *("n_best_answers", "n_best_scores"),
            ),
            _row,
        ),
    ),
    # Rows have their answers in several forms; then SQuAD's file on one line.
    columns=(
        {"question": "question", "context": "context"},
        *({name: name} for name in ("data", "paragraphs", "qas")),
    ),
)
