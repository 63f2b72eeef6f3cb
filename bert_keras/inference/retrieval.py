"""How well models search and rerank: `evaluate_collection` on judged queries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.data.collection import (
    JudgedCollection,
    Run,
    is_collection,
    read_collection,
    write_run,
)
from bert_keras.errors import ConfigError, counted, received
from bert_keras.files.atomic import check_output_place
from bert_keras.inference.embedder import (
    sparse_vectors_of,
    vectors_of,
    with_prompt,
)
from bert_keras.inference.packed_vectors import PackedVectors
from bert_keras.inference.predictor import Predictor
from bert_keras.inference.sparse_vectors import SparseVectors
from bert_keras.runs.progress import say
from bert_keras.scoring.bm25 import BM25, fused
from bert_keras.scoring.embeddings import unit_rows
from bert_keras.scoring.ranking import (
    BY_WORDS,
    RERANKED,
    compared_rankings,
    ranking_scores,
    run_rankings,
)
from bert_keras.settings import DTYPES, check_whole_number
from bert_keras.tasks.base import Task
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.protocols import check_scores_pairs
from bert_keras.tasks.searching import SearchingEmbedding

TOP = 100  # documents of a query that are ranked
_RESCORE = 4  # times as many candidates that bits find are compared again
_AT_ONCE = 256  # queries compared at once
HYBRID = "hybrid"


def evaluate_collection(
    predictor: Predictor,
    data: Any,
    *,
    top: int = TOP,
    batch_size: int = 32,
    max_batch_tokens: int | None = None,
    save_run: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Return the scores of a model's rankings, beside others of the same documents.

    Args:
        predictor: a model of embedding, which searches all documents, or one that
            scores pairs, which sorts the candidates of the collection's run, or of
            BM25 if it has none.
        data: a `JudgedCollection`, or its folder.
        top: number of documents that are ranked for a query. The others of a run keep
            their order behind those that the model sorts.
        batch_size, max_batch_tokens: as in `Predictor.predict`.
        save_run: a file for the model's run in TREC's form.

    Returns:
        The scores of the model, see `ranking_scores`, and `rankings`: the scores of
        each ranking by name. Of an embedding they are by type of the vectors and by
        width, of BM25, of both fused (`hybrid`), and of the run that was given; of
        other models the order of the candidates.

    Raises:
        ConfigError: the model does neither, or an argument is out of range.
        DataError: the collection is broken.
    """
    check_whole_number("top", top, least=1)
    if not is_collection(data):
        raise ConfigError(
            f"`data` must be the folder of a collection; {received(data)}"
        )
    if save_run is not None:
        place = data.path if isinstance(data, JudgedCollection) else data
        check_output_place("save_run", save_run, {"data": place}, around=True)
    task = predictor.model.task
    check_ranks(task)
    collection = data if isinstance(data, JudgedCollection) else read_collection(data)
    for note in collection.notes:
        say(note)
    if isinstance(task, Embedding) or collection.candidates is None:
        _tell_depths(top, len(collection.documents))
    limits = {"batch_size": batch_size, "max_batch_tokens": max_batch_tokens}
    if isinstance(task, Embedding):
        runs = search_runs(predictor, collection, top=top, batch_size=batch_size)
    else:
        runs = reranked_runs(predictor, collection, top=top, **limits)
    if save_run is not None:
        write_run(save_run, next(iter(runs.values())))
    return run_scores(collection.qrels, runs)


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
    if not isinstance(task, Embedding):
        check_scores_pairs(task)
    elif isinstance(task, SearchingEmbedding):
        raise ConfigError(
            "an export that searches has its own documents: evaluate the model folder"
        )


def run_scores(qrels: Run, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Return the scores of the first run, and of all by name in `rankings`."""
    return compared_rankings(
        {name: ranking_scores(*run_rankings(qrels, run)) for name, run in runs.items()}
    )


def search_runs(
    predictor: Predictor, collection: JudgedCollection, *, top: int, batch_size: int
) -> dict[str, Run]:
    """Return the runs of an embedding by type and width, of BM25, and of both fused."""
    queries = [*collection.queries]
    top = min(top, len(collection.documents))
    task: Any = predictor.model.task
    find = _sparse_runs if task.is_sparse else _dense_runs
    runs = find(predictor, collection, top, batch_size)
    words = _by_words(collection, top)
    runs[BY_WORDS] = words
    first = next(iter(runs.values()))
    runs[HYBRID] = {name: _fused(first[name], words[name], top) for name in queries}
    return runs | _given(collection)


def _sparse_runs(
    predictor: Predictor, collection: JudgedCollection, top: int, batch_size: int
) -> dict[str, Run]:
    """Return the run of sparse vectors, by an inverted index."""
    reader, asking = (with_prompt(predictor, each) for each in ("document", "query"))
    texts = [*collection.documents.values()]
    vectors = sparse_vectors_of(reader, texts, batch_size)
    queries = vectors_of(asking, [*collection.queries.values()], batch_size)
    found = _nearest(vectors, queries, top)
    return {"sparse": _run([*collection.queries], [*collection.documents], found)}


def _dense_runs(
    predictor: Predictor, collection: JudgedCollection, top: int, batch_size: int
) -> dict[str, Run]:
    """Return the runs of each type of vectors and width."""
    names, queries = [*collection.documents], [*collection.queries]
    documents, given = (
        vectors_of(with_prompt(predictor, prompt), [*texts.values()], batch_size)
        for prompt, texts in (
            ("document", collection.documents),
            ("query", collection.queries),
        )
    )
    task: Any = predictor.model.task
    width = documents.shape[1]
    runs: dict[str, Run] = {}
    for size in (width, *sorted(task.dimensions, reverse=True)):
        if size > width or (size == width and runs):
            continue
        near, vectors = (unit_rows(each[:, :size]) for each in (given, documents))
        for dtype in DTYPES:
            name = dtype if size == width else f"{dtype}, width {size}"
            packed = PackedVectors.of(vectors, dtype)
            found = _nearest(packed, near, top)
            runs[name] = _run(queries, names, found)
    return runs


def _nearest(
    packed: PackedVectors | SparseVectors, queries: np.ndarray, top: int
) -> Iterator[tuple[Sequence[int], Sequence[float]]]:
    """Yield rows and cosines of the documents nearest to each query."""
    for start in range(0, len(queries), _AT_ONCE):
        part = queries[start : start + _AT_ONCE]
        yield from zip(*packed.nearest(part, top, rescore=_RESCORE), strict=True)


def _run(queries: Sequence[str], names: Sequence[str], found: Any) -> Run:
    return {
        query: {
            names[row]: float(score)
            for row, score in zip(rows, scores, strict=True)
            if row >= 0
        }
        for query, (rows, scores) in zip(queries, found, strict=True)
    }


def _by_words(collection: JudgedCollection, top: int) -> Run:
    """Return the run of BM25, without documents that have no word of the query."""
    names, words = [*collection.documents], BM25([*collection.documents.values()])
    found: Run = {}
    for query, text in collection.queries.items():
        scores = words.scores(text)
        rows = np.argsort(-scores, kind="stable")[:top]
        found[query] = {
            names[row]: float(scores[row]) for row in rows if scores[row] > 0
        }
    return found


def _fused(first: Mapping[str, float], second: Mapping[str, float], top: int) -> Any:
    """Return documents of two rankings with their fused scores."""
    names = list(dict.fromkeys([*first, *second]))
    number = {name: place for place, name in enumerate(names)}
    rankings = [[number[name] for name in each] for each in (first, second)]
    return {names[row]: score for row, score in fused(rankings, top)}


def _given(collection: JudgedCollection) -> dict[str, Run]:
    """Return the run that was given, by the name of its file."""
    if collection.candidates is None:
        return {}
    return {
        os.path.basename(collection.candidates_path) or "run": collection.candidates
    }


def reranked_runs(
    predictor: Predictor, collection: JudgedCollection, *, top: int, **limits: Any
) -> dict[str, Run]:
    """Return the candidates of each query in the order of a model, and as given.

    The model sorts the first ones; the others follow in the order given, so that both
    runs have the same documents.
    """
    given = _given(collection) or {BY_WORDS: _by_words(collection, top)}
    ((name, candidates),) = given.items()
    chosen = {
        query: _first(candidates.get(query, {}), top, collection.documents)
        for query in collection.queries
    }
    texts = collection.documents
    pairs = [
        (collection.queries[query], texts[each])
        for query, found in chosen.items()
        for each in found
    ]
    if not pairs:
        raise ConfigError(f"`run` must have documents of the judged queries; {name}")
    scores = iter(predictor.score_pairs(pairs, **limits))
    run = {
        query: {each: float(next(scores)["score"]) for each in found}
        for query, found in chosen.items()
    }
    if any(len(found) < len(candidates.get(query, {})) for query, found in run.items()):
        say(
            f"{name}: of each query's documents, the first {top:,} with text are "
            "sorted; the others keep their order behind them"
        )
    run = {
        query: _with_others(found, candidates.get(query, {}))
        for query, found in run.items()
    }
    return {RERANKED: run, name: candidates}


def _first(
    found: Mapping[str, float], top: int, documents: Mapping[str, str]
) -> list[str]:
    """Return the best documents of a ranking that have text."""
    return [each for each in _in_order(found) if each in documents][:top]


def _with_others(
    found: Mapping[str, float], candidates: Mapping[str, float]
) -> dict[str, float]:
    """Return scores with those of the other candidates below them, in their order."""
    others = [each for each in _in_order(candidates) if each not in found]
    lowest = min(found.values(), default=0.0)
    return {**found, **{each: lowest - n for n, each in enumerate(others, 1)}}


def _in_order(found: Mapping[str, float]) -> list[str]:
    return sorted(found, key=lambda each: -found[each])
