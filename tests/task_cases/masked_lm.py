"""The masked language model on texts of a few words, one hidden in each."""

from __future__ import annotations

from conftest import VOCABULARY

from bert_keras.data.table import as_columns
from bert_keras.tasks.masked_lm import MaskedLM
from task_cases import TEXTS, Case

# One mask or several, glued to words, at either end, truncated; none; lower case.
OTHERS = [
    "[MASK] you at six",
    "free cash[MASK]now",
    "",
    "sale " * 30 + "[MASK]",
    "[mask] [SEP] é 日本 🎉",
    "[MASK][MASK] half [MASK] off",
    "zzz",
]


def _case(unit: str) -> Case:
    return Case(
        # One prediction per text, so that batches are weighted by their texts.
        MaskedLM(top_k=3, max_predictions=1, mask_share=1.0, random_share=0.0),
        as_columns(text=TEXTS),
        outputs=(None, None, len(VOCABULARY)),
        loss=0.3,
        others=(OTHERS,),
        wrong=("text", "  "),
        target="",
    )


CASES = {"piece": _case("piece")}
