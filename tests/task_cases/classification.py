"""Classification of single texts and of pairs."""

from __future__ import annotations

from bert_keras.data.table import as_columns
from bert_keras.tasks.classification import Classification
from task_cases import LABELS, OTHERS, TEXTS, Case


def _pairs() -> Case:
    same = [LABELS[i] == LABELS[i - 1] for i in range(len(TEXTS))]
    columns = as_columns(
        text=TEXTS,
        text_pair=TEXTS[-1:] + TEXTS[:-1],
        label=["same" if value else "different" for value in same],
    )
    task = Classification(("different", "same"), pairs=True)
    return Case(
        task,
        columns,
        outputs=(12, 2),
        loss=0.1,
        others=(OTHERS, OTHERS),
        wrong=("label", "no such label"),
    )


CASES = {
    "single": Case(
        Classification(("ham", "promo", "spam")),
        as_columns(text=TEXTS, label=LABELS),
        outputs=(12, 3),
        loss=0.1,
        others=(OTHERS,),
        wrong=("label", "no such label"),
    ),
    "pairs": _pairs(),
    "windows": Case(
        Classification(("ham", "promo", "spam"), long="windows", combine="attention"),
        as_columns(text=TEXTS, label=LABELS),
        outputs=(12, 3),
        loss=0.1,
        others=(OTHERS,),
        wrong=("label", "no such label"),
    ),
    "calibrated": Case(
        Classification(
            ("ham", "promo", "spam"),
            calibration="temperature",
            temperature=1.5,
            abstain_below=0.6,
        ),
        as_columns(text=TEXTS, label=LABELS),
        outputs=(12, 3),
        loss=0.1,
        others=(OTHERS,),
        wrong=("label", "no such label"),
    ),
    # An output for each class from a head of three, which a text is read for.
    "entailment": Case(
        Classification(
            ("ham", "promo", "spam"),
            entailment=("contradiction", "entailment", "neutral"),
            template="see {} .",
        ),
        as_columns(text=TEXTS, label=LABELS),
        outputs=(12, 3),
        loss=0.4,
        others=(OTHERS,),
        wrong=("label", "no such label"),
    ),
}
