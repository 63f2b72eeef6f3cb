"""What is known of reranking before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import FROM_DATA, WINDOW_COMBINATIONS, option
from bert_keras.tasks.classifier_settings import POOLING
from bert_keras.tasks.declaration import Row, RowForm, TaskHelp
from bert_keras.tasks.long_text_settings import IN_WINDOWS, LongTextSettings

BEST = "best"
# The columns of query and document.
LAYOUTS = (("query", "document"), ("text", "text_pair"), ("text_a", "text_b"))
NEGATIVES = ("negative", "negatives")


@dataclasses.dataclass(frozen=True)
class RerankingSettings(LongTextSettings):
    """The settings of `Reranking`."""

    objective: str = option(
        "pointwise",
        "the loss. pointwise: binary cross-entropy of each document's grade; listwise: "
        "a softmax over the documents of a query; margin-mse: the differences between "
        "a teacher's scores, which are the labels. With the last two, --batch-size "
        "counts queries",
        words=("pointwise", "listwise", "margin-mse"),
    )
    activation: str = option(
        "sigmoid",
        "the function that turns the output into the score, as in a CrossEncoder",
        words=("sigmoid", "linear"),
        unset="sigmoid, or linear for margin-mse",
    )
    largest_grade: float = option(
        1.0,
        "the grade that counts as 1 for pointwise",
        least=1e-6,
        most=1_000_000,
        unset=FROM_DATA,
    )
    _: dataclasses.KW_ONLY
    combine: str = option(
        BEST,
        "how a document's windows are combined: best, the highest of their scores; or "
        "one score of their combined vectors: mean; max, of each number; attention, a "
        "sum with learned weights; or first, the first window alone",
        words=(BEST, *WINDOW_COMBINATIONS),
        later=True,
        needs=IN_WINDOWS,
    )
    pooling: str = dataclasses.replace(
        POOLING,
        unset="as in the folder of an encoder of sentence-transformers, or pooler",
    ).field()


def _row_of_query(row: Row) -> Row:
    """Return `scores` and `places` of a query's documents, without padding."""
    count = sum(place >= 0 for place in row["places"])
    return {key: values[:count] for key, values in row.items()}


HELP = TaskHelp(
    place="bert_keras.tasks.reranking:Reranking",
    settings=RerankingSettings,
    summary="how well a document answers a query, to rank what a search found",
    data="query, document and label (0, 1 or a grade); or query, positive and "
    "negatives, in JSONL a list; or what `mine` writes",
    file="train.csv",
    rows="query,document,label\n"
    "reset password,“Forgot password” is on the sign-in page.,1\n"
    "reset password,We deliver within three days.,0",
    scores="nDCG@10, MRR@10, MAP, recall@k, precision@1, with intervals over queries, "
    "compared with BM25",
    answers="score",
    row_forms=(RowForm(("scores", "places"), _row_of_query),),
    columns=(
        *({"text": q, "text_pair": d, "label": "label"} for q, d in LAYOUTS),
        *({"text": q, "text_pair": d, n: n} for n in NEGATIVES for q, d in LAYOUTS),
        *({"text": "query", "positive": "positive", n: n} for n in NEGATIVES),
    ),
    labels=("label", "positive", *NEGATIVES),
)
