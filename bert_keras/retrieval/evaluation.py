"""How well models search and rerank: `evaluate_collection` on judged queries."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.data.collection import (
    JudgedCollection,
    Run,
    check_run,
    is_collection,
    read_collection,
    write_run,
)
from bert_keras.errors import ConfigError, counted, received
from bert_keras.files.atomic import check_output_place
from bert_keras.inference.equal_texts import EqualTexts
from bert_keras.inference.predictor import Predictor
from bert_keras.retrieval.embedder import (
    Source,
    stored_vectors,
    vectors_of,
    with_prompt,
)
from bert_keras.retrieval.index_model import indexed_vectors, query_encoder_of
from bert_keras.retrieval.packed_vectors import in_order
from bert_keras.retrieval.vector_store import VectorStore
from bert_keras.runs.notes import say
from bert_keras.runs.progress import Progress
from bert_keras.scoring.bm25 import BM25, FUSED
from bert_keras.scoring.ranking import (
    BY_WORDS,
    RERANKED,
    compared_rankings,
    ranking_scores,
    run_rankings,
)
from bert_keras.settings import HYBRID_WEIGHT, RERANK_WEIGHT, check_whole_number
from bert_keras.tasks.base import Task
from bert_keras.tasks.catalog import SEARCH
from bert_keras.tasks.protocols import check_scores_pairs

TOP = 100  # documents of a query that are ranked
_RESCORE = 4  # times as many candidates that bits find are compared again
_AT_ONCE = 256  # queries compared at once
WEIGHTS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)  # of BM25, tried
HYBRID = "hybrid"


def evaluate_collection(
    predictor: Predictor,
    data: Any,
    *,
    top: int = TOP,
    batch_size: int = 32,
    max_batch_tokens: int | None = None,
    save_run: str | os.PathLike[str] | None = None,
    index: str | os.PathLike[str] | None = None,
    hybrid_weight: float = 1.0,
    tune: bool = False,
    query_encoder: Source | None = None,
    rerank_weight: float | None = None,
) -> dict[str, Any]:
    """Return the scores of a model's rankings, beside others of the same documents.

    A document with the id of a query is no hit of it, as in BEIR, unless a judgement
    says so. Equal texts have equal scores; ties go to the earlier document, or to the
    earlier line of a run.

    Args:
        predictor: a model of embedding, which searches all documents, or one that
            scores pairs, which sorts the candidates of the collection's run, or of
            BM25 if it has none.
        data: a `JudgedCollection`, or its folder.
        top: number of documents that are ranked for a query. The others of a run keep
            their order behind those that the model sorts.
        batch_size, max_batch_tokens: as in `Predictor.predict`.
        save_run: a file for the model's run in TREC's form.
        index: a file with the vectors of the documents by this model, which are not
            computed again; of int8 or bits, no other type is scored. It may hold other
            texts, too, if it holds the texts themselves.
        hybrid_weight: of BM25 in `hybrid`, beside 1 of the vectors.
        tune: whether the weight is chosen of `WEIGHTS` on every second query.
        query_encoder: a student of the model, which computes the vectors of queries in
            its place, as in `SearchIndex.of`.
        rerank_weight: of the score of a model that sorts candidates, which is added to
            their scores in the run; `None` sorts by the model's score alone.

    Returns:
        The scores of the model, see `ranking_scores`, and `rankings`: the scores of
        each ranking by name. Of an embedding they are by type of the vectors and by
        width, of BM25, of both fused (`hybrid`), and of the run that was given; of
        other models the order of the candidates. With `tune`, also `hybrid_weight`,
        the best on the other half, `None` if vectors alone are as good there, and
        `hybrid_weights`: by weight, 0 for vectors alone, `ndcg_at_10_on_tuned_half`
        and `ndcg_at_10_on_other_half`.

    Raises:
        ConfigError: the model does neither, or an argument is out of range.
        DataError: the collection is broken, or the index is of other texts or of
            another model.
    """
    check_whole_number("top", top, least=1)
    HYBRID_WEIGHT.check(hybrid_weight)
    RERANK_WEIGHT.check(rerank_weight)
    if not is_collection(data):
        raise ConfigError(
            f"`data` must be the folder of a collection; {received(data)}"
        )
    if save_run is not None:
        place = data.path if isinstance(data, JudgedCollection) else data
        check_output_place("save_run", save_run, {"data": place}, around=True)
        check_output_place("save_run", save_run, {"index": index})
    task = predictor.model.task
    check_ranks(task)
    given: dict[str, Any] = {"rerank_weight": rerank_weight}
    if not task.vector_output:
        given = {
            "index": index,
            "tune": tune or None,
            "hybrid_weight": None if hybrid_weight == 1 else hybrid_weight,
            "query_encoder": query_encoder,
        }
    for name, value in given.items():
        if value is not None:
            kind = "that sort pairs" if task.vector_output else "of embedding"
            raise ConfigError(
                f"`{name}` is for models {kind}; received {value} for {task.name}"
            )
    collection = data if isinstance(data, JudgedCollection) else read_collection(data)
    # Before the model runs.
    if tune:
        _answered(collection.qrels)
    if save_run is not None:
        check_run(save_run, (*collection.queries, *collection.documents))
    for note in collection.notes:
        say(note)
    if task.vector_output or collection.candidates is None:
        _tell_depths(top, len(collection.documents))
    more = {}
    limits = {"batch_size": batch_size, "max_batch_tokens": max_batch_tokens}
    if task.vector_output:
        runs, hybrid = search_runs(
            predictor,
            collection,
            top=top,
            index=index,
            hybrid_weight=hybrid_weight,
            query_encoder=query_encoder,
            **limits,
        )
        if tune:
            more = tuned_weight(collection.qrels, hybrid, next(iter(runs.values())))
    else:
        runs = reranked_runs(
            predictor, collection, top=top, weight=rerank_weight, **limits
        )
    if save_run is not None:
        write_run(save_run, next(iter(runs.values())))
    return {**run_scores(collection.qrels, runs), **more}


def tuned_weight(
    qrels: Run, hybrid: Callable[[float], Run], vectors: Run
) -> dict[str, Any]:
    """Return the weight of BM25 to use, if any, and scores; a message advises.

    Every second query with a relevant document chooses; the others tell what is gained.

    Args:
        qrels: query id to document id to grade.
        hybrid: returns the run of a weight.
        vectors: the run of the vectors alone.
    """
    judged = _answered(qrels)
    dev, others = ({name: qrels[name] for name in judged[n::2]} for n in range(2))

    def score(part: Run, run: Run) -> float:
        return float(ranking_scores(*run_rankings(part, run))["ndcg_at_10"])

    runs = {weight: hybrid(weight) for weight in WEIGHTS}
    tried = {weight: score(dev, run) for weight, run in runs.items()}
    rest = {weight: score(others, run) for weight, run in runs.items()}
    # Of equal ones the nearest to 1, which needs no choice.
    best = max(WEIGHTS, key=lambda each: (tried[each], -abs(math.log(each))))
    compared = {"vectors alone": score(others, vectors), "weight 1": rest[1.0]}
    where = "" if best == 1 else " (the best on the tuned half)"
    compared |= {f"weight {best:g}{where}": rest[best]}
    chosen = max(compared, key=compared.__getitem__)  # of equal ones the simplest
    weight: float | None = best
    advice = f"use --hybrid --hybrid-weight {best:g}, or `hybrid_weight={best:g}`"
    if chosen == "vectors alone":
        advice, weight = "leave out --hybrid", None
    elif chosen == "weight 1":
        advice, weight = "use --hybrid as it is, with weight 1", 1.0
    found = ", ".join(f"{value:.4f} with {name}" for name, value in compared.items())
    say(f"{advice}: on {len(others):,} of the judged queries, nDCG@10 is {found}")
    tried[0.0], rest[0.0] = score(dev, vectors), compared["vectors alone"]
    rows = {
        f"{weight:g}": {
            "ndcg_at_10_on_tuned_half": tried[weight],
            "ndcg_at_10_on_other_half": rest[weight],
        }
        for weight in (0.0, *WEIGHTS)
    }
    return {"hybrid_weight": weight, "hybrid_weights": rows}


def _answered(qrels: Run) -> list[str]:
    """Return the queries with a relevant document, two at least, for `tune`."""
    found = [name for name, grades in qrels.items() if max(grades.values()) > 0]
    if len(found) < 2:
        raise ConfigError(
            f"`tune` needs two queries with a relevant document; received {len(found)}"
        )
    return found


def _tell_depths(top: int, count: int) -> None:
    """Report the scores that need more documents than are ranked for a query."""
    deeper = [str(depth) for depth in (10, 100) if top < min(depth, count)]
    if deeper:
        say(
            f"top {top:,}: the scores at {' and '.join(deeper)} are of the first "
            f"{counted(top, 'documents')} alone"
        )


def check_ranks(task: Task) -> None:
    """Raise ConfigError unless a task gives vectors of texts or scores of pairs."""
    if not task.vector_output:
        check_scores_pairs(task)
    elif task.name == SEARCH:
        raise ConfigError(
            "an export that searches has its own documents: evaluate the model folder"
        )


def run_scores(qrels: Run, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Return the scores of the first run, and of all by name in `rankings`."""
    return compared_rankings(
        {name: ranking_scores(*run_rankings(qrels, run)) for name, run in runs.items()}
    )


class _Search:
    """Rankings of the documents of a collection, and runs of them.

    A ranking has rows and scores for each query, [Q, K]. Rows are -1 where there are no
    more. A document with the id of its query is left out, see `JudgedCollection.own`.
    """

    def __init__(self, collection: JudgedCollection, top: int) -> None:
        self.queries, self.names = [*collection.queries], [*collection.documents]
        self.equal = EqualTexts([*collection.documents.values()])
        self.top = min(top, len(self.names))
        self.depth = min(max(FUSED, top), len(self.names))  # that hybrids fuse
        row = {name: row for row, name in enumerate(self.names)}
        own = [row[name] if name in collection.own else -2 for name in self.queries]
        self._own = np.array(own)[:, np.newaxis]
        self._more = int(bool(collection.own))
        self.dropped: set[str] = set()  # queries whose own document was found

    def nearest(
        self, packed: VectorStore, queries: np.ndarray, top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ranking by vectors."""
        count = min(top + self._more, len(self.names))
        parts = range(0, len(queries), _AT_ONCE)
        found = []
        with Progress("searching", unit="queries", total=len(queries)) as shown:
            for part in (queries[start : start + _AT_ONCE] for start in parts):
                near = packed.nearest(part, count, rescore=_RESCORE)
                found.append(self.equal.ranked(*near, count))
                shown.add(len(part))
        return self._without_own(found, top)

    def by_words(
        self, collection: JudgedCollection, top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ranking by BM25, without documents that score 0."""
        words = BM25([*collection.documents.values()])
        count = min(top + self._more, len(self.names))
        found = []
        with Progress("BM25", unit="queries", total=len(self.queries)) as shown:
            for text in collection.queries.values():
                scores = words.scores(text)
                rows = np.argsort(-scores, kind="stable")[:count]
                found.append((np.where(scores[rows] > 0, rows, -1), scores[rows]))
                shown.add()
        return self._without_own(found, top)

    def fused(
        self, first: np.ndarray, second: np.ndarray, weight: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return two rankings, given by their rows, fused; the second has a weight."""
        count = self.top + self._more
        weights = (1.0, weight)
        found = []
        for pair in zip(first, second, strict=True):
            near = [rows[rows >= 0].tolist() for rows in pair]
            found.append(self.equal.fused(near, count, weights=weights))
        return self._without_own(found, self.top)

    def _without_own(
        self, found: Sequence[tuple[np.ndarray, np.ndarray]], top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and scores that come in parts, without the queries' documents."""
        rows, scores = (np.vstack(each) for each in zip(*found, strict=True))
        is_own = rows == self._own
        self.dropped.update(
            self.queries[place] for place in np.flatnonzero(is_own.any(axis=1))
        )
        order = np.argsort(is_own, axis=1, kind="stable")[:, :top]
        return in_order(order, np.where(is_own, -1, rows), scores)

    def run(self, rows: np.ndarray, scores: np.ndarray) -> Run:
        """Return the run of a ranking, cut to the documents that are scored."""
        top = slice(self.top)
        return {
            query: {
                self.names[row]: score
                for row, score in zip(near[top].tolist(), of[top].tolist(), strict=True)
                if row >= 0
            }
            for query, near, of in zip(self.queries, rows, scores, strict=True)
        }


def search_runs(
    predictor: Predictor,
    collection: JudgedCollection,
    *,
    top: int,
    index: str | os.PathLike[str] | None = None,
    hybrid_weight: float = 1.0,
    query_encoder: Source | None = None,
    **limits: Any,
) -> tuple[dict[str, Run], Callable[[float], Run]]:
    """Return the runs of an embedding by type and width, of BM25, and of both fused.

    Also a function that returns the fused run for another weight.
    """
    search = _Search(collection, top)
    asking = query_encoder_of(predictor, query_encoder)
    asking = with_prompt(asking, "query")
    packed = _packed(predictor, collection, index, limits)
    texts = [*collection.queries.values()]
    queries = vectors_of(asking, texts, progress="vectors of queries", **limits)
    runs: dict[str, Run] = {}
    deep = np.zeros((0, 0), np.int64)  # of the first type
    task: Any = predictor.model.task
    for name, vectors in packed.variants(task.dimensions):
        given = vectors.asked(queries)
        found = search.nearest(vectors, given, search.top)
        if not runs:
            deep = found[0]
            if search.depth > search.top:
                deep, _ = search.nearest(vectors, given, search.depth)
        runs[name] = search.run(*found)
    words = search.by_words(collection, search.depth)
    runs[BY_WORDS] = search.run(*words)

    def hybrid(weight: float) -> Run:
        return search.run(*search.fused(deep, words[0], weight))

    runs[HYBRID] = hybrid(hybrid_weight)
    runs |= _given(collection, search.dropped)
    _tell_dropped(collection, search.dropped)
    return runs, hybrid


def _packed(
    predictor: Predictor,
    collection: JudgedCollection,
    index: str | os.PathLike[str] | None,
    limits: Mapping[str, Any],
) -> VectorStore:
    """Return the vectors of the documents, computed or from an index."""
    reader, texts = with_prompt(predictor, "document"), [*collection.documents.values()]
    if index is not None:
        return indexed_vectors(index, reader, texts)
    return stored_vectors(reader, texts, progress="vectors of documents", **limits)


def _given(collection: JudgedCollection, dropped: set[str]) -> dict[str, Run]:
    """Return the run that was given, by the name of its file.

    Documents with the id of their query are left out, and their ids added to `dropped`.
    """
    if collection.candidates is None:
        return {}
    run = {query: dict(found) for query, found in collection.candidates.items()}
    for query in collection.own:
        if run.get(query, {}).pop(query, None) is not None:
            dropped.add(query)
    return {os.path.basename(collection.candidates_path) or "run": run}


def _tell_dropped(collection: JudgedCollection, dropped: set[str]) -> None:
    if dropped:
        are = "is" if len(dropped) == 1 else "are"
        say(
            f"{collection.path}: {counted(len(dropped), 'hits')} {are} dropped: as in "
            "BEIR, a document with the id of the query is taken for the query itself. "
            "If these ids are only equal by chance, rename some, such as by a prefix"
        )


def reranked_runs(
    predictor: Predictor,
    collection: JudgedCollection,
    *,
    top: int,
    weight: float | None = None,
    **limits: Any,
) -> dict[str, Run]:
    """Return the candidates of each query in the order of a model, and as given.

    The model sorts the first ones, by its scores or, with a weight, by the sum of the
    score given and its own; the others follow in the order given, so that both runs
    have the same documents.
    """
    dropped: set[str] = set()
    given = _given(collection, dropped)
    if not given:
        search = _Search(collection, top)
        words = search.by_words(collection, search.top)
        given, dropped = {BY_WORDS: search.run(*words)}, search.dropped
    _tell_dropped(collection, dropped)
    ((name, candidates),) = given.items()
    texts = collection.documents
    ordered = {q: _in_order(candidates.get(q, {})) for q in collection.queries}
    chosen = {
        query: [each for each in found if each in texts][:top]
        for query, found in ordered.items()
    }
    pairs = [
        (collection.queries[query], texts[each])
        for query, found in chosen.items()
        for each in found
    ]
    if not pairs:
        raise ConfigError(f"`run` must have documents of the judged queries; {name}")
    with Progress("scores of pairs", unit="pairs", total=len(pairs)) as shown:
        scores = iter(predictor.score_pairs(pairs, seen=shown.add, **limits))
    run = {
        query: {each: float(next(scores)["score"]) for each in found}
        for query, found in chosen.items()
    }
    if weight is not None:
        run = {
            query: {
                each: candidates[query][each] + weight * score
                for each, score in found.items()
            }
            for query, found in run.items()
        }
    if any(len(found) < len(candidates.get(query, {})) for query, found in run.items()):
        say(
            f"{name}: the first {top:,} documents with text of each query are sorted; "
            "the others follow in their order"
        )
    run = {
        query: _with_others(found, candidates.get(query, {}))
        for query, found in run.items()
    }
    return {RERANKED: run, name: candidates}


def _with_others(
    found: Mapping[str, float], candidates: Mapping[str, float]
) -> dict[str, float]:
    """Return scores with those of the other candidates below them, in their order."""
    others = [each for each in _in_order(candidates) if each not in found]
    lowest = min(found.values(), default=0.0)
    return {**found, **{each: lowest - n for n, each in enumerate(others, 1)}}


def _in_order(found: Mapping[str, float]) -> list[str]:
    return sorted(found, key=lambda each: -found[each])
