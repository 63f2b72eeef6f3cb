"""Embeddings trained on pairs, and on similarities, of one layer and of several."""

from __future__ import annotations

import dataclasses

from bert_keras.data.table import as_columns
from bert_keras.tasks.embedding import Embedding
from task_cases import OTHERS, TEXTS, Case

# None is among the texts: a text that is near two others ranks neither first.
PAIRS = [
    *("be there, six", "eat at home", "are you in", "see you for lunch at six"),
    *("cash", "a free prize", "prize for you", "now win free cash"),
    *("half off sale", "shoes, half price", "sale now", "all at half off"),
]


def _ranking(task: Embedding, width: int) -> Case:
    return Case(
        task,
        as_columns(text=TEXTS, text_pair=PAIRS),
        outputs=(12, width),
        loss=0.5,
        others=(OTHERS,),
        wrong=None,
        target="",
        compares=True,
    )


def _similarity() -> Case:
    labels = [f"{(5 * row) % 12 / 2}" for row in range(12)]
    return Case(
        Embedding(objective="similarity", pooling="max", layers=(1, -1)),
        as_columns(text=TEXTS, text_pair=PAIRS, label=labels),
        outputs=(12, 16),
        loss=1.0,
        others=(OTHERS,),
        wrong=("label", "very near"),
        compares=True,
    )


def _with_negatives() -> Case:
    case = _ranking(Embedding(), 16)
    negatives = [[], *([text, "summer sale"] for text in PAIRS[2::-1])] * 3
    columns = as_columns(text=TEXTS, text_pair=PAIRS, negative=negatives)
    return dataclasses.replace(case, columns=columns)


def _sparse() -> Case:
    task = Embedding(kind="sparse", scale=1.0, query_flops=1e-4, document_flops=1e-4)
    return dataclasses.replace(_ranking(task, 16), outputs=(12, None))


def _tokens() -> Case:
    layer = {"units": 6, "activation": "linear", "use_bias": False, "on_tokens": True}
    task = Embedding(
        kind="tokens",
        scale=2.0,
        dense=(layer,),
        prompts={"query": "see you at "},
        skip_words="punctuation",
        query_expansion=7,
    )
    return dataclasses.replace(_ranking(task, 6), outputs=(12, None, 6))


CASES = {
    "ranking": _ranking(Embedding(), 16),
    "negatives": _with_negatives(),
    "similarity": _similarity(),
    "concat": _ranking(Embedding("cls", False, "all", "concat"), 32),
    "prompted": _ranking(
        Embedding(
            "weightedmean",
            prompts={"query": "see you at ", "document": "win "},
            default_prompt="query",
            include_prompt=False,
        ),
        16,
    ),
    "weighted": _ranking(Embedding(layers=(0, 1), combine_layers="weighted"), 16),
    "sparse": _sparse(),
    "tokens": _tokens(),
}
