"""Tags of words: sentences in one row each, and sentences longer than a row."""

from __future__ import annotations

from bert_keras.data.table import as_columns
from bert_keras.tasks.tagging.task import TokenClassification
from task_cases import Case

NAMES = ["win", "cash", "lunch", "sale", "free"]
CLASSES = ("O", "B-deal", "I-deal", "B-time", "I-time")


def rows(words: int) -> tuple[list[list[str]], list[list[str]]]:
    """Return fifteen sentences of this many words each, and their tags.

    Batches of five then weigh alike: the loss is a mean over words.
    """
    texts, tags = [], []
    for number in range(15):
        sentence, labels = ["see"] * words, ["O"] * words
        deal, time = number % (words - 2), (number + 2) % (words - 1)
        sentence[deal : deal + 2] = [NAMES[number % 5], "prize"]
        labels[deal : deal + 2] = ["B-deal", "I-deal"]
        if labels[time] == "O":
            sentence[time], labels[time] = "six", "B-time"
        texts.append(sentence)
        tags.append(labels)
    return texts, tags


# No words at all; words that the tokenizer drops, splits and does not know.
OTHERS = [[], ["\u200b", "U.S.", "é日本", "🎉"], ["WIN"] * 40, ["see", "you"], ["zzz"]]


def _case(words: int, steps: int, **settings: float) -> Case:
    texts, tags = rows(words)
    return Case(
        TokenClassification(CLASSES, **settings),
        as_columns(text=texts, label=tags),
        outputs=(None, None, len(CLASSES)),
        loss=0.2,
        steps=steps,
        others=(OTHERS,),
        wrong=("label", "B-nothing"),
        target="",
    )


CASES = {
    "rows": _case(5, steps=40),
    "windows": _case(35, steps=80, temperature=1.5, abstain_below=0.4),
}
