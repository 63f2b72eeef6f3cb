"""Regression of single texts and of pairs."""

from __future__ import annotations

from bert_keras.data.table import as_columns
from bert_keras.tasks.regression import Regression
from task_cases import LABELS, OTHERS, TEXTS, Case

NUMBERS = {"ham": "1.05", "promo": "2", "spam": "-3e0"}

CASES = {
    "single": Case(
        Regression(mean=0.02, std=2.14),
        as_columns(text=TEXTS, label=[NUMBERS[label] for label in LABELS]),
        outputs=(12, 1),
        loss=0.05,
        others=(OTHERS,),
        wrong=("label", "ten"),
    ),
    "pairs": Case(
        Regression(scaling="none", pairs=True),
        as_columns(
            text=TEXTS,
            text_pair=TEXTS[-1:] + TEXTS[:-1],
            label=[str(float(LABELS[i] == LABELS[i - 1])) for i in range(len(TEXTS))],
        ),
        outputs=(12, 1),
        loss=0.05,
        others=(OTHERS, OTHERS),
        wrong=("label", "nan"),
    ),
}
