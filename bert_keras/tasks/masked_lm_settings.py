"""What is known of the masked language model before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import MASK_RATE, MASK_SHARE, MASK_UNIT, RANDOM_SHARE, option
from bert_keras.tasks.declaration import Row, RowForm, TaskHelp

_MASKING = ("training", "scores")


@dataclasses.dataclass(frozen=True)
class MaskedLMSettings:
    """The settings of `MaskedLM`."""

    top_k: int = option(
        5, "answers for each mask", least=1, most=1000, free=True, read_by=("answers",)
    )
    mask_rate: float = MASK_RATE.field(free=True, read_by=_MASKING)
    mask_share: float = MASK_SHARE.field(free=True, read_by=_MASKING)
    random_share: float = RANDOM_SHARE.field(free=True, read_by=_MASKING)
    max_predictions: int = option(
        80,
        "maximum number of tokens to predict in one text",
        least=1,
        most=100_000,
        free=True,
        read_by=_MASKING,
    )
    mask_unit: str = MASK_UNIT.field(free=True, read_by=_MASKING)
    pseudo_perplexity_texts: int = option(
        0,
        "number of texts for which evaluate computes pseudo-perplexity",
        least=0,
        most=1_000_000,
        free=True,
        read_by=("scores",),
    )


def _row(row: Row) -> Row:
    """Return `masks`, a list of `token` and `probability` for each mask of the text,
    and `sequences`; both empty where the text has no mask.
    """
    masks = [
        [
            {"token": word, "probability": number}
            for word, number in zip(words, numbers, strict=True)
        ]
        for words, numbers in zip(row["tokens"], row["probabilities"], strict=True)
        if words[0]
    ]
    return {"masks": masks, "sequences": row["sequences"] if masks else []}


HELP = TaskHelp(
    place="bert_keras.tasks.masked_lm:MaskedLM",
    settings=MaskedLMSettings,
    summary="the words that fit at each [MASK]; adapts BERT to your own plain text",
    data="the lines of a .txt file, or a column text",
    file="train.txt",
    rows="The cat sat on the mat.\nIt rained all day.",
    scores="loss, perplexity, accuracy, pseudo-perplexity",
    answers="tokens, probabilities [B, E, k], sequences [B, k]",
    row_forms=(RowForm(("tokens", "probabilities", "sequences"), _row),),
    columns=({"text": "text"},),
)
