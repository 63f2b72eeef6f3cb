"""Multi-label classification of single texts and of pairs."""

from __future__ import annotations

from bert_keras.data.table import as_columns
from bert_keras.tasks.multi_label import MultiLabel
from task_cases import LABELS, OTHERS, TEXTS, Case

# Two classes, one and none.
NAMES = {"ham": "", "promo": "shop", "spam": "shop, fraud"}

CASES = {
    "single": Case(
        MultiLabel(("fraud", "shop")),
        as_columns(text=TEXTS, label=[NAMES[label] for label in LABELS]),
        outputs=(12, 2),
        loss=0.1,
        others=(OTHERS,),
        wrong=("label", "no such label"),
    ),
    "pairs": Case(
        MultiLabel(
            ("fraud", "shop"),
            pairs=True,
            separator="|",
            thresholds=(0.4, 0.6),
            temperature=0.5,
        ),
        as_columns(
            text=TEXTS,
            text_pair=TEXTS[-1:] + TEXTS[:-1],
            label=[NAMES[label].replace(",", "|") for label in LABELS],
        ),
        outputs=(12, 2),
        loss=0.1,
        others=(OTHERS, OTHERS),
        wrong=("label", "no such label"),
    ),
}
