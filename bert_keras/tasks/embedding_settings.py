"""What is known of embedding before TensorFlow is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_keras.reading.layers import LAST, Layers
from bert_keras.settings import (
    COMBINATIONS,
    POOLINGS,
    VECTOR_OUTPUTS,
    Condition,
    option,
)
from bert_keras.tasks.declaration import Row, RowForm, TaskHelp
from bert_keras.tasks.long_text_settings import LongTextSettings

VECTORS = "vectors"  # an objective
_WEIGHTS, _TOKENS = VECTOR_OUTPUTS["sparse"], VECTOR_OUTPUTS["tokens"]


def _combines(task: Any) -> bool:
    """Return whether `combine_layers` has an effect: on one layer, sum is none."""
    return task.combine_layers == "sum" or len(task.layers) > 1


_OF_TOKENS = Condition("kind", "`kind` tokens", lambda task: task.kind == "tokens")
_COMPARED = Condition(
    "objective",
    "`objective` ranking or similarity",
    lambda task: task.objective != VECTORS,
)
_CUT = Condition(
    "long", "`long` truncate or head-tail", lambda task: task.long != "windows"
)


@dataclasses.dataclass(frozen=True)
class EmbeddingSettings(LongTextSettings):
    """The settings of `Embedding`."""

    pooling: str = option(
        "mean",
        "mean or max over the tokens of a text; cls, the vector of [CLS]; "
        "mean_sqrt_len_tokens, the sum divided by the square root of their number; "
        "weightedmean, weighted by position; lasttoken; or a concatenation such as "
        "cls+mean. The encoder's folder sets the default if it has a pooling",
        form=", ".join(POOLINGS),
    )
    normalize: bool = option(
        True,
        "whether vectors are normalized to length 1. The encoder's folder may set "
        "another default",
    )
    layers: Layers = option(
        LAST,
        "the hidden states used: embeddings, last, second-to-last, last-four, all, or "
        "numbers (0: embeddings, -1: the last block). Blocks above the highest one are "
        "not trained",
        form="a word or numbers",
        unset="last",
    )
    combine_layers: str = option(
        "sum",
        "how several layers are combined: sum, concat, or weighted, a sum with learned "
        "weights",
        words=COMBINATIONS,
        needs=Condition("layers", "several `layers`", _combines),
    )
    objective: str = option(
        "ranking",
        "ranking: the texts of a pair belong together; similarity: the cosine "
        "similarities learn the order of the labels; vectors: the vectors of texts, "
        "read as queries, become those of the teacher",
        words=("ranking", "similarity", VECTORS),
        unset="ranking; similarity with labels; vectors for single texts",
    )
    similarity_loss: str = option(
        "cosine",
        "the loss of the objective similarity: cosine, of cosine similarities "
        "(CoSENT); or angle, of angles between complex vectors, whose real parts are "
        "the first half of the numbers (AnglE)",
        words=("cosine", "angle"),
        later=True,
        needs=Condition(
            "objective", "`objective` similarity", lambda t: t.objective == "similarity"
        ),
    )
    scale: float = option(
        20.0,
        "factor by which the loss multiplies cosine similarities or dot products",
        needs=_COMPARED,
        least=1e-6,
        most=1_000_000,
        unset="20; 1 for sparse and tokens",
    )
    kind: str = option(
        "dense",
        "dense: one vector, pooled from the tokens; sparse: a weight for each token of "
        "the vocabulary, computed by the masked-LM head and compared by dot product "
        "(SPLADE); tokens: a vector for each token, compared by MaxSim, the sum over "
        "the query's tokens of the largest product with a token of the document "
        "(late interaction, ColBERT)",
        words=tuple(VECTOR_OUTPUTS),
        unset="the encoder's, or dense",
        later=True,
    )
    query_flops: float = option(
        5e-5,
        "for sparse: factor of the FLOPS loss, which makes the vectors of queries "
        "sparse",
        least=0,
        later=True,
    )
    document_flops: float = option(3e-5, "the same for documents", least=0, later=True)
    dimensions: tuple[int, ...] = option(
        (),
        "smaller widths that are trained as well, so that vectors can be shortened to "
        "them (Matryoshka)",
        least=1,
        unset="none",
        later=True,
        needs=_COMPARED,
    )
    truncate_dim: int = option(
        0,
        "width to which vectors are shortened; 0: all numbers. The encoder's folder "
        "may set another default",
        least=0,
        free=True,
        later=True,
    )
    dense: tuple[Mapping[str, Any], ...] = option(
        (),
        "Dense layers after the pooling, each with units, activation and use_bias; "
        "optionally use_residual, which adds the layer's input (projected if the "
        "widths differ), and on_tokens, for layers before the pooling",
        form="a list of objects",
        unset="the encoder's, or none; for tokens a linear layer of 256 units",
        later=True,
    )
    prompts: Mapping[str, str] = option(
        {},
        "prompts by name. In pairs, query is put before the first text, and document, "
        "passage or corpus before the second",
        form="an object",
        unset="the encoder's, or none",
        free=True,
        later=True,
    )
    default_prompt: str = option(
        "",
        "name of the prompt for texts that have no other prompt",
        form="a name",
        unset="the encoder's, or none",
        free=True,
        later=True,
    )
    query_length: int = option(
        0,
        "maximum length of queries (texts with the prompt query, and the first text of "
        "a pair); 0: as for other texts. The encoder's folder may set another default",
        unit="tokens",
        least=0,
        free=True,
        later=True,
        needs=_CUT,
    )
    document_length: int = option(
        0,
        "the same for documents: texts with the prompt document, passage or corpus, "
        "and the second text of a pair",
        unit="tokens",
        least=0,
        free=True,
        later=True,
        needs=_CUT,
    )
    default_length: int = option(
        0,
        "maximum length of texts that have no other limit; 0: `max_length`",
        unit="tokens",
        least=0,
        free=True,
        later=True,
        needs=_CUT,
    )
    skip_words: tuple[str, ...] = option(
        (),
        "for tokens: words of the vocabulary whose vectors are left out of documents",
        form="punctuation, or a list of words",
        unset="the encoder's, or punctuation",
        later=True,
        needs=_OF_TOKENS,
    )
    query_expansion: int = option(
        0,
        "for tokens: shorter queries are padded to this length with [MASK], whose "
        "vectors count, too; 0: no padding. The encoder's folder may set another "
        "default",
        unit="tokens",
        least=0,
        later=True,
        needs=_OF_TOKENS,
    )
    attend_expansion: bool = option(
        False,
        "whether the other tokens of a query attend to this padding",
        later=True,
        needs=Condition(
            "query_expansion",
            "`query_expansion` above 0",
            lambda task: task.query_expansion > 0,
        ),
    )
    default_side: str = option(
        "document",
        "for tokens: how texts are read that are not marked as query or document",
        words=("document", "query"),
        free=True,
        later=True,
        needs=_OF_TOKENS,
    )
    include_prompt: bool = option(
        True,
        "whether the tokens of prompts are pooled, too. The encoder's folder may set "
        "another default",
        later=True,
    )
    aligned_to: str = option(
        "",
        "the hash of the model whose vectors a student has learned, and whose indexes "
        "it searches; training with the objective vectors writes it",
        form="a hash",
        unset="none",
        later=True,
    )


def _row_of_tokens(row: Row) -> Row:
    """Return the vectors of the tokens that count."""
    return {_TOKENS: [vector for vector in row[_TOKENS] if any(vector)]}


def _row_of_weights(row: Row) -> Row:
    """Return the weights above 0, the highest first, and the ids of their tokens."""
    weights = row[_WEIGHTS]
    ids = [place for place, weight in enumerate(weights) if weight > 0]
    ids.sort(key=lambda place: -weights[place])
    return {"indices": ids, "values": [weights[place] for place in ids]}


HELP = TaskHelp(
    place="bert_keras.tasks.embedding:Embedding",
    settings=EmbeddingSettings,
    summary="a vector for a text, trained on pairs (search, similarity, features …)",
    data="pairs of texts in the columns text and text_pair, which belong together or "
    "have a similarity in the column label; with --teacher, texts alone",
    file="train.csv",
    rows="text,text_pair\n"
    "How do I reset my password?,“Forgot password” is on the sign-in page.",
    scores="Spearman and Pearson correlation of cosine similarities; accuracy@1, "
    "recall@k, mean reciprocal rank",
    answers="embedding; for kind sparse, indices and values (the tokens and their "
    "weights); for kind tokens, token_embeddings",
    row_forms=(
        RowForm((_WEIGHTS,), _row_of_weights),
        RowForm((_TOKENS,), _row_of_tokens),
    ),
    columns=({"text": "text", "text_pair": "text_pair"},),
    labels=("text_pair", "label"),
    student_needs_labels=False,  # of vectors, which reads texts alone
)
