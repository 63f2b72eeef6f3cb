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
        "mean_sqrt_len_tokens, the sum divided by the root of their number; "
        "weightedmean, by their positions; lasttoken; cls+mean: both. By default as in "
        "the encoder's folder, if it says",
        form=", ".join(POOLINGS),
    )
    normalize: bool = option(
        True, "whether vectors have length 1; as in the encoder's folder, if it says"
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
        "ranking: the pairs belong together; similarity: the cosine similarities learn "
        "the order of the labels; vectors: the vectors of texts, read as queries, "
        "become those of the teacher",
        words=("ranking", "similarity", VECTORS),
        unset="ranking; similarity with labels; vectors of rows that are no pairs",
    )
    similarity_loss: str = option(
        "cosine",
        "what learns the order of the labels: cosine, the cosine similarities "
        "(CoSENT); or angle, the angles between complex vectors, of which half of the "
        "numbers are the real parts (AnglE)",
        words=("cosine", "angle"),
        later=True,
        needs=Condition(
            "objective", "`objective` similarity", lambda t: t.objective == "similarity"
        ),
    )
    scale: float = option(
        20.0,
        "the factor on the cosine similarities, or dot products, in the loss",
        needs=_COMPARED,
        least=1e-6,
        most=1_000_000,
        unset="20; 1 for sparse and tokens",
    )
    kind: str = option(
        "dense",
        "dense: a vector pooled from the tokens; sparse: a weight for each token of "
        "the vocabulary by the masked-LM head, the maximum over the text of "
        "log(1 + relu), compared by dot product (SPLADE); tokens: a vector for each "
        "token, compared by MaxSim: the sum over the query's tokens of the largest "
        "product with a token of the document (late interaction, ColBERT)",
        words=tuple(VECTOR_OUTPUTS),
        unset="the encoder's, or dense",
        later=True,
    )
    query_flops: float = option(
        5e-5,
        "for sparse: the factor of the loss that makes vectors of queries sparse, the "
        "sum of the squared mean weights of a batch (FLOPS)",
        least=0,
        later=True,
    )
    document_flops: float = option(3e-5, "the same for documents", least=0, later=True)
    dimensions: tuple[int, ...] = option(
        (),
        "smaller widths at which the first numbers of the vectors are trained, too, so "
        "that vectors can be shortened to them (Matryoshka)",
        least=1,
        unset="none",
        later=True,
        needs=_COMPARED,
    )
    truncate_dim: int = option(
        0,
        "width to which vectors are shortened; 0: all numbers. As in the encoder's "
        "folder, if it says",
        least=0,
        free=True,
        later=True,
    )
    dense: tuple[Mapping[str, Any], ...] = option(
        (),
        "layers on the pooled vector, each with units, activation and use_bias; and "
        "perhaps use_residual: true adds what the layer reads, by a matrix of weights "
        "if it is not as wide; and on_tokens: true for layers before the pooling",
        form="a list of objects",
        unset="the encoder's, or none; for tokens a linear layer of 128 units",
        later=True,
    )
    prompts: Mapping[str, str] = option(
        {},
        "texts by name, put before a text: in pairs query before the first, and "
        "document, passage or corpus before the second",
        form="an object",
        unset="the encoder's, or none",
        free=True,
        later=True,
    )
    default_prompt: str = option(
        "",
        "the prompt before every text that has no other",
        form="a name",
        unset="the encoder's, or none",
        free=True,
        later=True,
    )
    query_length: int = option(
        0,
        "the most tokens of a query that is truncated, in place of `max_length`: of "
        "texts with the prompt query, and of the first text of a pair; 0: as long as "
        "other texts. As in the encoder's folder, if it says",
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
        "the most tokens of every text that has no other limit; 0: `max_length`",
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
        "for tokens: queries of fewer tokens are padded with [MASK] to so many, and "
        "its vectors count, too; 0: none. As in the encoder's folder, if it says",
        unit="tokens",
        least=0,
        later=True,
        needs=_OF_TOKENS,
    )
    attend_expansion: bool = option(
        False,
        "whether the other tokens of a query see this padding",
        later=True,
        needs=Condition(
            "query_expansion",
            "`query_expansion` above 0",
            lambda task: task.query_expansion > 0,
        ),
    )
    default_side: str = option(
        "document",
        "for tokens: as what texts are read that are named neither query nor document",
        words=("document", "query"),
        free=True,
        later=True,
        needs=_OF_TOKENS,
    )
    include_prompt: bool = option(
        True,
        "whether the tokens of prompts are pooled too; as in the encoder's folder, if "
        "it says",
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
    data="pairs of texts that belong together in the columns text and text_pair, or "
    "with a label for their similarity; for a student of a teacher's vectors text "
    "alone",
    file="train.csv",
    rows="text,text_pair\n"
    "How do I reset my password?,“Forgot password” is on the sign-in page.",
    scores="Spearman and Pearson correlation of cosine similarities; accuracy@1, "
    "recall@k, mean reciprocal rank",
    answers="embedding; for sparse the weights of tokens, indices and values; for "
    "tokens token_embeddings, a vector for each",
    row_forms=(
        RowForm(frozenset((_WEIGHTS,)), _row_of_weights),
        RowForm(frozenset((_TOKENS,)), _row_of_tokens),
    ),
    columns=({"text": "text", "text_pair": "text_pair"}, {"text": "text"}),
    labels=("text_pair", "label"),
)
