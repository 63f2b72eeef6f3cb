"""Next sentence prediction."""

from __future__ import annotations

from bert_keras.data.table import as_columns
from bert_keras.tasks.next_sentence import NextSentence
from task_cases import LABELS, OTHERS, TEXTS, Case

_NEXT = [LABELS[i] == LABELS[i - 1] for i in range(len(TEXTS))]
_PAIRS = {"text": TEXTS[-1:] + TEXTS[:-1], "text_pair": TEXTS}

CASES = {
    "pairs": Case(
        NextSentence(),
        as_columns(label=["next" if each else "not_next" for each in _NEXT], **_PAIRS),
        outputs=(12, 2),
        loss=0.1,
        others=(OTHERS, OTHERS),
        wrong=("label", "0"),
    ),
    "other words": Case(
        NextSentence(labels=("1", "0"), calibration="temperature", temperature=2.0),
        as_columns(label=[str(int(each)) for each in _NEXT], **_PAIRS),
        outputs=(12, 2),
        loss=0.1,
        others=(OTHERS, OTHERS),
        wrong=("label", "next"),
    ),
}
