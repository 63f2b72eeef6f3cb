"""Export a SavedModel that searches: the model and an index in one graph."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bert_keras.errors import ConfigError, DataError, shown
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.equal_texts import EqualTexts
from bert_keras.inference.predictor import Predictor
from bert_keras.models.task_model import TaskModel
from bert_keras.retrieval.embedder import with_prompt
from bert_keras.retrieval.index import CANDIDATES, check_hybrid
from bert_keras.retrieval.index_model import read_index_of
from bert_keras.runs.notes import say
from bert_keras.scoring.bm25 import BM25
from bert_keras.scoring.similarity import unit_rows
from bert_keras.settings import check_whole_number
from bert_keras.tasks.protocols import check_scores_pairs
from bert_keras.tasks.searching import (
    Documents,
    RerankedSearch,
    SearchingEmbedding,
    TokenDocuments,
)


def export_search(
    model: TaskModel,
    output: str | os.PathLike[str],
    *,
    index: str | os.PathLike[str],
    top: int = 5,
    rerank: TaskModel | None = None,
    candidates: int = CANDIDATES,
    hybrid: bool = False,
    hybrid_weight: float = 1.0,
) -> Path:
    """Write the next version of a SavedModel that searches; return its folder.

    `serving_default` takes queries, `text`, string [B], and returns the nearest texts
    of the index: `ids` (line numbers, if the index has no names) and `texts`, string
    [B, K], and `scores`, their cosines or, of vectors of tokens, MaxSim, float32
    [B, K]. Queries get the model's prompt `query`, if it has one. Bits are rescored if
    the index holds int8 vectors.

    Args:
        model: a model of the task `embedding`.
        output: folder of the versions, see `export_model`.
        index: a file that `search` wrote, or a Parquet file of `features`.
        top: K; at most the number of texts, with a message.
        rerank: a model that scores pairs of texts and sorts the nearest texts; `scores`
            are then its scores, and `search_scores` the cosines.
        candidates: number of texts that it sorts for a query; at least `top`.
        hybrid, hybrid_weight: as in `SearchIndex`; `scores` are then sums of reciprocal
            ranks.

    Raises:
        ConfigError: a model has another task or sparse vectors, or there are too few
            candidates.
        DataError: the index has no texts, or is of another model, or a text has no
            vectors of tokens.
    """
    check_whole_number("top", top, least=1)
    task: Any = model.task
    if not task.vector_output:
        raise ConfigError(
            f"`index` needs a model of the task embedding; received {task.name}"
        )
    if task.is_sparse:
        raise ConfigError(
            "`index` needs vectors of `kind` dense or tokens to be exported; received "
            f"{task.kind}"
        )
    check_hybrid(hybrid, hybrid_weight)
    if rerank is not None:
        check_scores_pairs(rerank.task)
        check_whole_number("candidates", candidates, least=top)
    found = top if rerank is None else candidates
    documents = _documents(model, index, top, found, hybrid)
    settings = task.with_prompt("query").get_config()
    settings |= {"hybrid": hybrid, "hybrid_weight": float(hybrid_weight)}
    try:
        settings |= {"documents": documents}
        if rerank is None:
            model.task = SearchingEmbedding(**settings)
        else:
            model.task = RerankedSearch(**settings, ranker=rerank, top=top)
        return export_model(model, output)
    finally:
        model.task = task


def _documents(
    model: TaskModel, index: str | os.PathLike[str], top: int, found: int, hybrid: bool
) -> Documents:
    """Return the index, of which `found` texts are nearest to a query."""
    stored = read_index_of(index, with_prompt(Predictor(model), "document"))
    packed: Any = stored.packed
    texts = stored.content or []
    if top > len(texts):
        say(f"top {top:,}: the index has {len(texts):,} texts, which are all returned")
    ids = stored.ids
    if ids is None:
        lines = range(1, len(texts) + 1) if stored.lines is None else stored.lines
        ids = [str(line) for line in lines]
    equal = EqualTexts(texts)
    if equal:  # the vectors of some indexes differ by rounding
        packed = packed.take(equal.first[equal.places])
    shared: dict[str, Any] = {"top": min(found, len(texts))}
    shared["words"] = BM25(texts) if hybrid else None
    if packed.kind == "tokens":
        lost = [text for text, n in zip(texts, packed.counts, strict=True) if not n]
        if lost:
            raise DataError(
                f"contains a text without vectors, {shown(lost[0])}, which an export "
                "cannot leave out",
                path=index,
            )
        given = {"ends": packed.ends, "step": packed.step}
        return TokenDocuments(texts, ids, packed.values, **given, **shared)
    given = {"offset": None, "step": None}
    if packed.ranges is not None:
        given = {"offset": packed.offset, "step": packed.step}
    values = packed.values
    return Documents(
        texts,
        ids,
        unit_rows(values) if packed.dtype == "float32" else values,
        **given,
        rescoring=packed.rescoring,
        width=packed.width,
        **shared,
    )
