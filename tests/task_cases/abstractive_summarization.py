"""Headlines: the last word of a text, and the word that it is about."""

from __future__ import annotations

from conftest import VOCABULARY

from bert_keras.data.table import as_columns
from bert_keras.tasks.generation import AbstractiveSummarization
from task_cases import OTHERS, TEXTS, Case

_LABELS = ["home", "home", "home", "home", "cash", "cash", "prize", "prize", "sale"]
_COUNT = len(_LABELS)

CASES = {
    "headline": Case(
        AbstractiveSummarization(
            label_smoothing=0.0, beams=2, max_target_length=6, no_repeat_ngram=2
        ),
        as_columns(source=TEXTS[:_COUNT], target=_LABELS),
        outputs=(None, None, len(VOCABULARY)),
        loss=0.2,
        others=(OTHERS,),
        wrong=("target", " "),
        target="",
        steps=60,
    )
}
