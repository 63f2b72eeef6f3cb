"""Multiple choice with rows of two, three and four choices."""

from __future__ import annotations

from bert_keras.data.table import as_columns
from bert_keras.tasks.multiple_choice import MultipleChoice
from task_cases import Case

ROWS = [
    ("see you at six", ["lunch now", "win cash"], "0"),
    ("free cash prize", ["at home", "win now!", "half off"], "1"),
    ("shoes half price", ["see you", "free prize", "home", "summer sale"], "3"),
    ("lunch at home", ["cash now", "at six?"], "1"),
    ("you win", ["a prize", "at home", "shoes"], "0"),
    ("sale", ["see you", "half off", "lunch"], "1"),
]
CONTEXTS, CHOICES, LABELS = (list(column) for column in zip(*ROWS, strict=True))

CASES = {
    "counts": Case(
        MultipleChoice(temperature=1.5, abstain_below=0.4),
        as_columns(context=CONTEXTS, choices=CHOICES, label=LABELS),
        outputs=(6, 4),
        loss=0.2,
        others=(
            ["", "é 日本 🎉", "WIN " * 30, "see you"],
            [["a", "b"], ["six"], ["see " * 20, "sale", "home"], ["win", "win", "zzz"]],
        ),
        wrong=("label", "2"),
    )
}
