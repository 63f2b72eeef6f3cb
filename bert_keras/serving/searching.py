"""A served model with an index: queries in, the texts that are found out."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.answering.backend import Backend
from bert_keras.errors import ConfigError
from bert_keras.inference.equal_texts import EqualTexts
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.retrieval.index import CANDIDATES, SearchIndex
from bert_keras.runs.notes import say
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.signatures import (
    DEFAULT,
    SEARCH,
    Answers,
    Parts,
    Row,
    Signature,
    TensorInfo,
    signatures_of,
)
from bert_keras.tasks.base import changed
from bert_keras.tasks.catalog import SEARCH as SEARCHING
from bert_keras.tasks.protocols import check_scores_pairs, pair_answers

_NONE = -1.0  # the score where there are no more texts


class SearchSignature(Signature):
    """Texts, answered as an export with an index does: `ids`, `texts`, `scores`.

    With a ranker, `scores` are its scores, and `search_scores` the scores of the
    search.

    Args:
        vectors: computes the vectors of the texts.
        index: the texts that are found.
        top: K, the number of texts of an answer, best first.
        ranker: sorts the texts that are found.
        candidates: number of texts of a query that it sorts.
        search: see `Signature`.
    """

    def __init__(
        self,
        vectors: Signature,
        index: SearchIndex,
        *,
        top: int,
        ranker: _Ranker | None = None,
        candidates: int = 0,
        search: Mapping[str, Any],
    ) -> None:
        count = min(top, len(index.texts))
        kinds = {"ids": "string", "scores": "float32", "texts": "string"}
        if ranker is not None:
            kinds["search_scores"] = "float32"
        outputs = [TensorInfo(*each, (None, count)) for each in sorted(kinds.items())]
        super().__init__(SEARCH, vectors.inputs, outputs, vectors.function)
        self.search, self.choose = search, vectors.choose
        self._vectors, self._index, self._top = vectors, index, count
        self._ranker, self._candidates = ranker, min(candidates, len(index.texts))
        names = index.lines if index.ids is None else index.ids
        # With what stands at -1, where there are no more texts.
        self._ids = np.array([*(str(n).encode() for n in names), b""], object)
        texts = (text.encode("utf-8", "replace") for text in index.texts)
        self._texts = np.array([*texts, b""], object)
        self._by_top = {count: self}  # requests for as many texts are batched

    def with_top(self, top: Any) -> Signature:
        super().with_top(top)
        count = min(top, len(self._index.texts))
        if count not in self._by_top:
            found = copy.copy(self)
            found._top = count
            self._by_top[count] = found
        return self._by_top[count]

    def rows_of(self, parts: Parts) -> list[Row]:
        rows = self._vectors.rows_of(parts)
        return [
            dataclasses.replace(row, values=(query, row))
            for query, row in zip(parts[0], rows, strict=True)
        ]

    def warm_up(self, parts: Parts) -> None:
        """Compute pairs of N texts; the signature of the vectors is warmed up."""
        if self._ranker is not None:
            self._ranker.signature.warm_up([*parts, *parts])

    def compute(self, rows: Sequence[Row]) -> tuple[Answers, int]:
        queries, given = zip(*(row.values for row in rows), strict=True)
        answers, tokens = self._vectors.compute(given)
        (vectors,) = answers.values()
        texts = [query.decode("utf-8", "replace") for query in queries]
        count = self._top if self._ranker is None else self._candidates
        found, scores = self._index.best(texts, vectors, count)
        named = {"scores": np.where(found < 0, _NONE, scores)}
        if self._ranker is not None:
            ranked = self._reranked(self._ranker, queries, found, named["scores"])
            found, named = ranked
        numbers = {name: each.astype(np.float32) for name, each in named.items()}
        answer = {"ids": self._ids[found], "texts": self._texts[found], **numbers}
        return dict(sorted(answer.items())), tokens

    def _reranked(
        self,
        ranker: _Ranker,
        queries: Sequence[bytes],
        found: np.ndarray,
        near: np.ndarray,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the rows of the best texts, and their scores by name, [B, K] each."""
        scores = np.full(found.shape, -np.inf)
        for query, rows, each in zip(queries, found, scores, strict=True):
            is_text = rows >= 0
            each[is_text] = ranker.scores(query, self._texts[rows[is_text]])
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self._top]
        rows, scores, near = (
            np.take_along_axis(each, order, axis=1) for each in (found, scores, near)
        )
        scores = np.where(rows < 0, _NONE, scores)
        return rows, {"scores": scores, "search_scores": near}


class _Ranker:
    """A model that scores a query and each of some texts.

    Args:
        path: as in `load_predictor`.
        config: the engine, and the limit of a batch.
        positive_class: for a classifier of pairs, the class that means relevant.

    Raises:
        ConfigError: it does not score pairs of texts.
    """

    def __init__(
        self, path: str, config: ServeConfig, *, positive_class: str | None
    ) -> None:
        model = load_predictor(path, engine=config.engine).model
        if positive_class is not None:
            model.task = changed(model.task, positive_class=positive_class)
        check_scores_pairs(model.task)
        self._task = model.task
        self.signature = signatures_of(model)[DEFAULT]
        self._path, self._max_tokens = path, config.max_batch_tokens
        self._told = threading.Event()  # that it does not read texts to their end

    def scores(self, query: bytes, texts: Sequence[bytes]) -> np.ndarray:
        """Return the scores of texts, float32 [N]; equal texts have equal ones."""
        equal = EqualTexts(texts)
        texts = [texts[row] for row in equal.first]
        rows = self.signature.rows_of([[query] * len(texts), texts])
        lost = [row.lost for row in rows]
        if any(lost) and not self._told.is_set():
            self._told.set()
            say(f"rerank: {self._path} does not read {sum(lost):,} tokens of a search")
        found = np.zeros(len(rows), np.float32)
        left = list(range(len(rows)))
        while left:
            lengths = [rows[place].length for place in left]
            chosen = self.signature.choose(lengths, self._max_tokens)
            places = [left[each] for each in chosen]
            answers, _ = self.signature.compute([rows[place] for place in places])
            found[places] = pair_answers(self._task, answers)["score"]
            left = sorted({*left} - {*places})
        return found[equal.places]


def search_signature(
    model: Backend,
    signatures: Mapping[str, Signature],
    index: str,
    config: ServeConfig,
    *,
    positive_class: str | None = None,
) -> SearchSignature:
    """Return the signature that searches an index with a model.

    Queries get the model's prompt `query`, if it has one.

    Args:
        model: of the task `embedding`.
        signatures: the model's.
        index: a file that `search` wrote, or a Parquet file of `features`.
        config: how texts are found, and how many.
        positive_class: of a classifier of pairs as `config.rerank`, see `Predictor`.

    Raises:
        ConfigError: a model has another task, or the class ranks nothing.
        DataError: the index is broken, contains no texts, or is of another model.
    """
    if model.task.name != "embedding":
        raise ConfigError(
            f"`index` needs a model of the task embedding; received {model.task.name}"
        )
    ranking: dict[str, Any] = {}
    if config.hybrid:
        ranking = {"hybrid": True, "hybrid_weight": config.hybrid_weight}
    held = SearchIndex.load(
        Predictor(model), index, engine=config.index_engine, **ranking
    )
    if positive_class is not None and config.rerank is None:
        raise ConfigError(
            "`positive_class` of a model with an index needs `rerank`; received "
            f"{positive_class}"
        )
    ranker = None
    if config.rerank is not None:
        ranker = _Ranker(config.rerank, config, positive_class=positive_class)
    top = config.index_top
    if top > len(held.texts):
        say(
            f"index_top {top:,}: the index has {len(held.texts):,} texts, which are "
            "all returned"
        )
    return SearchSignature(
        signatures["query" if "query" in signatures else DEFAULT],
        held,
        top=top,
        ranker=ranker,
        candidates=config.candidates or max(CANDIDATES, top),
        search=_facts(top, kind=held.packed.kind, rerank=ranker is not None, **ranking),
    )


def describe_search(task: Any, signatures: Mapping[str, Signature]) -> None:
    """Set how the signature of an export with an index searches."""
    if task.name == SEARCHING:
        found = signatures[DEFAULT]
        (top,) = {each.shape[1] for each in found.outputs}
        found.search = _facts(
            top,
            kind=task.kind,
            rerank=task.reranks,
            hybrid=task.hybrid,
            hybrid_weight=task.hybrid_weight,
        )


def _facts(
    top: Any,
    *,
    kind: str,
    rerank: bool,
    hybrid: bool = False,
    hybrid_weight: float = 1.0,
) -> dict[str, Any]:
    """Return `ranking` (dense, sparse or hybrid), whether to `rerank`, and `top`."""
    weight = {"hybrid_weight": hybrid_weight} if hybrid else {}
    ranking = "hybrid" if hybrid else kind
    return {"ranking": ranking, **weight, "rerank": rerank, "top": top}
