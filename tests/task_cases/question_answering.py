"""Question answering where each question has an answer, and where some have none."""

from __future__ import annotations

from bert_keras.data.table import as_columns
from bert_keras.tasks.question_answering.task import QuestionAnswering
from task_cases import OTHERS, Case

# Contexts longer than a window of 24 tokens, too, with the answer late in them.
_ASKED = [
    ("when?", "see you at six", "six"),
    ("where?", "lunch at home now", "home"),
    ("who?", "you win a prize", "you"),
    ("what?", "free cash, win now", "cash"),
    (
        "when?",
        "sale: shoes half off now, free cash prize at home. see you at six",
        "six",
    ),
    ("where?", "win free cash now, you see. lunch at home", "home"),
    ("who?", "half off at the sale", ""),
    ("what?", "see you at six", ""),
]


def _case(
    asked: list[tuple[str, str, str]], *, no_answer: bool, **confidence: float
) -> Case:
    questions, contexts, texts = (list(part) for part in zip(*asked, strict=True))
    answers = [
        [(text, context.index(text))] if text else []
        for context, text in zip(contexts, texts, strict=True)
    ]
    return Case(
        QuestionAnswering(no_answer=no_answer, stride=4, **confidence),
        as_columns(question=questions, context=contexts, answers=answers),
        outputs=(None, None, 2),
        loss=0.1,
        others=(OTHERS, [*OTHERS[1:], ""]),
        wrong=("answers", "no list"),
        target="",
    )


CASES = {
    "answered": _case(_ASKED[:-2], no_answer=False),
    "unanswerable": _case(_ASKED, no_answer=True, temperature=1.5, abstain_below=0.3),
}
