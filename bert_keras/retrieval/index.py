"""Semantic search: `SearchIndex` over vectors, exact or by an engine, see `engines`.

Source: Reimers and Gurevych 2019 (arXiv:1908.10084).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.data.items import as_strings
from bert_keras.errors import ConfigError, DataError, first_of, received
from bert_keras.files.atomic import check_output_place, replaced_file, writing
from bert_keras.files.json_file import is_unicode
from bert_keras.files.parquet import check_arrow, is_parquet
from bert_keras.inference.equal_texts import EqualTexts
from bert_keras.inference.predictor import Predictor
from bert_keras.retrieval import engines
from bert_keras.retrieval.embedder import (
    Source,
    load_embedder,
    shared_settings,
    stored_vectors,
    vectors_of,
    with_given_prompt,
    with_prompt,
)
from bert_keras.retrieval.features import (
    Part,
    check_dtype,
    check_output,
    feature_writer,
)
from bert_keras.retrieval.index_model import (
    mismatch,
    model_hash,
    query_encoder_of,
    read_index_of,
)
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.vector_file import (
    TextsHash,
    VectorFile,
    check_index,
    entries_of,
    read_vectors,
)
from bert_keras.retrieval.vector_store import VectorStore, store_of
from bert_keras.runs.notes import say, show
from bert_keras.scoring.bm25 import BM25, FUSED
from bert_keras.scoring.similarity import unit_rows
from bert_keras.settings import (
    HYBRID_WEIGHT,
    RERANK_WEIGHT,
    check_choice,
    check_whole_number,
)

CANDIDATES = 100  # texts of a query that a reranking model sorts
RESCORE = 4  # times as many candidates as answers are compared again


class SearchIndex:
    """Finds the texts nearest to a query by the cosine of their vectors.

    Args:
        predictor: from `load_embedder`; texts get the folder's prompt `document`, if
            it has one.
        texts: N strings, see `data.items.as_items`.
        vectors: their vectors, float [N, D]; of any norm except 0. Or a `VectorStore`.
        lines: their line numbers in the file; 1, 2 … by default.
        ids: their names, which results then have too.
        engine: `exact` compares with every text in NumPy; `faiss` searches an HNSW
            graph, and `centroids` finds candidates for MaxSim (`kind` tokens): both
            are faster for very many texts, but may miss some.
        graph: faiss's graph of these vectors, if it already exists.
        prompt: the folder's prompt of queries; by default `query`, if it has one.
        rescore: for bits, how many times as many candidates as answers are compared
            again, with the int8 vectors of the index if it holds them; 0: none.
        hybrid: whether the ranking by vectors is fused with a ranking by words (BM25);
            `score` is then a sum of reciprocal ranks.
        hybrid_weight: of the ranking by words in this sum; other rankings have 1.
        other: a search over the same texts by another model, whose ranking is fused,
            too.

    Raises:
        ConfigError: the engine is unknown, or its package is missing.
        DataError: there is no text, or not exactly one vector per text.

    Example:
        >>> search = SearchIndex.of("models/help", ["reset a password", "pay a bill"])
        >>> search(["I forgot my login"], top=1)[0][0]["text"]
        'reset a password'
    """

    def __init__(
        self,
        predictor: Predictor,
        texts: Iterable[str],
        vectors: Any,
        *,
        lines: Sequence[int] | None = None,
        ids: Sequence[str] | None = None,
        engine: str = "exact",
        graph: Any = None,
        prompt: str | None = None,
        rescore: int = RESCORE,
        hybrid: bool = False,
        hybrid_weight: float = 1.0,
        other: SearchIndex | None = None,
    ) -> None:
        engines.check_engine(engine)
        prompted = with_prompt if prompt is None else with_given_prompt
        self.predictor = prompted(predictor, prompt or "query")
        self.texts = as_strings(texts)
        count = len(self.texts)
        if not count or count != len(vectors):
            raise DataError(
                "`texts` must be at least one, with a vector each; received "
                f"{count} texts and {len(vectors)} vectors"
            )
        if not hasattr(vectors, "compared"):
            vectors = PackedVectors.of(np.asarray(vectors, np.float32))
        self.packed: VectorStore = vectors.compared()
        self.rescore = rescore
        check_whole_number("rescore", rescore, least=0)
        self.lines = list(range(1, count + 1) if lines is None else lines)
        self.ids = None if ids is None else as_strings(ids, name="ids")
        for name, each in (("lines", self.lines), ("ids", self.ids)):
            if each is not None and len(each) != count:
                raise DataError(
                    f"`{name}` must be one for each text; received {len(each)} {name} "
                    f"and {count} texts"
                )
        self._equal = EqualTexts(self.texts)
        check_hybrid(hybrid, hybrid_weight)
        self._words = BM25(self.texts) if hybrid else None
        self._words_weight = hybrid_weight
        self._other = other
        if other is not None and other.texts != self.texts:
            raise DataError("`other` must be a search over the same texts")
        kind = getattr(predictor.model.task, "kind", self.packed.kind)
        if kind != self.packed.kind:
            raise DataError(
                f"`vectors` must be of `kind` {kind}, as the predictor's; received "
                f"vectors of `kind` {self.packed.kind}"
            )
        engines.check_store(engine, self.packed)
        self.graph = graph
        if engine == "faiss" and graph is None:
            self.graph = engines.new_graph(self.packed.numbers(slice(None)))
        self._has_centroids = engine == "centroids"
        if self._has_centroids:
            self.packed = engines.with_centroids(self.packed)

    @property
    def vectors(self) -> np.ndarray:
        """The vectors of the texts, of length 1, float32 [N, D]."""
        return unit_rows(self.packed.numbers(slice(None)))

    @classmethod
    def of(
        cls,
        source: Source,
        texts: Iterable[str],
        *,
        lines: Sequence[int] | None = None,
        ids: Sequence[str] | None = None,
        engine: str = "exact",
        index: str | os.PathLike[str] | None = None,
        batch_size: int = 32,
        prompt: str | None = None,
        dtype: str | None = None,
        rescore: int | None = None,
        hybrid: bool = False,
        hybrid_weight: float = 1.0,
        fuse: Source | None = None,
        query_encoder: Source | None = None,
        progress: str = "vectors",
        **settings: Any,
    ) -> SearchIndex:
        """Return a search over texts, with vectors computed or read from a file.

        Args:
            source: a model, as in `load_embedder`.
            texts, lines, ids, engine, prompt, hybrid, hybrid_weight: as above.
            index: a file for the vectors, and for faiss's graph, or one that `features`
                wrote. It is reused if it matches these texts and this model; otherwise
                it is written. If it matches but for the `lines` or `ids` that are
                given, these are stored. One that ends with `.parquet` holds the texts,
                too, but no graph, and is never replaced.
            batch_size: texts computed at once.
            dtype: `float32`, `int8` or `binary`, see `PackedVectors`; by default the
                index's, or float32. An index of another one is rebuilt.
            rescore: as above; for `binary` alone, by default 4, or 0 for an index of
                bits without int8 vectors.
            fuse: another model, such as one of sparse vectors, whose ranking is fused,
                too, with the prompt and settings that it takes; its vectors are
                computed each time.
            query_encoder: a student of the source, which computes the vectors of
                queries in its place, see `Embedding.aligned_to`.
            progress: what the computing of vectors is called while it is shown.
            **settings: arguments of `load_embedder`, for the source.

        Raises:
            ConfigError: an argument is out of range, or `rescore` needs int8 vectors,
                which the index lacks.
            DataError: `index` is a file but not an index, or of another `kind` of
                vectors, or is Parquet of other texts or another model.
        """
        engines.check_engine(engine)
        check_hybrid(hybrid, hybrid_weight)
        if index is not None:
            check_output_place("index", index, {"source": source})
        check_dtype(dtype or "float32", index)
        texts, ids = _checked(texts, ids, is_stored=index is not None)
        predictor = load_embedder(source, **settings)
        store = store_of(predictor.model.task, dtype)
        if index is not None and is_parquet(index) and store.kind != "dense":
            raise ConfigError(
                f"`index` must be npz for vectors of `kind` {store.kind}; received "
                f"{index}"
            )
        engines.check_kind(engine, store.kind)
        reader = with_prompt(predictor, "document")
        asking = query_encoder_of(predictor, query_encoder)
        with_prompt(asking, prompt or "query")  # raises before texts are computed
        stored = None
        if index is not None:
            if is_parquet(index):
                check_arrow()
            stored = _read_index(Path(index), reader, texts, dtype)
        held = (dtype or "float32") if stored is None else stored.packed.dtype
        if rescore is not None and held != "binary":
            raise ConfigError(
                "`rescore` has an effect only with `dtype` binary; received "
                f"{rescore} and {held}"
            )
        if stored is not None:
            packed = stored.packed
            _check_rescoring(packed, rescore, index)
        else:
            packed = stored_vectors(
                reader,
                texts,
                batch_size,
                dtype=dtype,
                rescored=rescore != 0,
                progress=progress,
            )
        other = None
        if fuse is not None:
            shared = shared_settings(fuse, prompt=prompt, **settings)
            shared["progress"] = "vectors of the fused model"
            other = cls.of(fuse, texts, batch_size=batch_size, **shared)
        made = cls(
            asking,
            texts,
            packed,
            lines=lines,
            ids=ids,
            engine=engine,
            graph=engines.stored_graph(stored) if engine == "faiss" else None,
            prompt=prompt,
            rescore=RESCORE if rescore is None else rescore,
            hybrid=hybrid,
            hybrid_weight=hybrid_weight,
            other=other,
        )
        if index is not None:
            is_named = lines is not None or ids is not None
            _keep_index(Path(index), packed, made, stored, reader, is_named=is_named)
        return made

    @classmethod
    def load(
        cls,
        source: Source,
        index: str | os.PathLike[str],
        *,
        engine: str = "auto",
        large: int = engines.LARGE,
        prompt: str | None = None,
        hybrid: bool = False,
        hybrid_weight: float = 1.0,
        **settings: Any,
    ) -> SearchIndex:
        """Return a search over the texts that an index holds.

        Args:
            source: a model, as in `load_embedder`.
            index: a file that `search` wrote, or a Parquet file of `features`.
            engine: as above; `auto` is, with a message, centroids for vectors of tokens
                of `large` texts or more, or of an index that has them, and faiss for so
                many float32 vectors if it is installed.
            large: see `engine`.
            prompt, hybrid, hybrid_weight: as above.
            **settings: arguments of `load_embedder`.

        Raises:
            ConfigError: the engine is unknown, or its package is missing.
            DataError: the index contains no texts, or vectors of another model.
        """
        check_choice("engine", engine, (engines.AUTO, *engines.ENGINES))
        predictor = load_embedder(source, **settings)
        stored = read_index_of(index, with_prompt(predictor, "document"))
        if engine == engines.AUTO:
            engine = engines.engine_for(stored, large)
            if engine != "exact":
                say(
                    f"{index}: {len(stored.packed):,} texts are searched with "
                    f"{engine}, which may miss some; the engine exact compares all"
                )
        engines.check_kind(engine, stored.packed.kind)
        graph = engines.stored_graph(stored) if engine == "faiss" else None
        engines.tell_unstored(engine, stored, index)
        return cls(
            predictor,
            stored.content or [],
            stored.packed,
            lines=None if stored.lines is None else stored.lines.tolist(),
            ids=stored.ids,
            engine=engine,
            graph=graph,
            prompt=prompt,
            hybrid=hybrid,
            hybrid_weight=hybrid_weight,
        )

    def nearest(self, vectors: np.ndarray, top: int) -> tuple[Any, Any]:
        """Return rows of texts and their scores, [Q, top] each, nearest first.

        Equal texts have equal scores; ties go to the earlier row.

        Args:
            vectors: of queries, float [Q, D].
            top: at most the number of texts.

        Returns:
            Rows are -1 where faiss, or a sparse vector, finds no more texts.
        """
        vectors = self.packed.asked(vectors)
        if self.graph is not None:
            found = engines.nearest_of_graph(self.graph, vectors, top)
        elif self._has_centroids:
            found = self.packed.near(vectors, top)  # type: ignore[attr-defined]
        else:
            found = self.packed.nearest(vectors, top, rescore=self.rescore)
        return self._equal.ranked(*found, top)

    def __call__(
        self, queries: Iterable[str], *, top: int = 5
    ) -> list[list[dict[str, Any]]]:
        """Return the best texts for each query, nearest first.

        Args:
            queries: Q strings.
            top: maximum texts per query.

        Returns:
            Q lists of dicts: `rank` from 1, `score` (cosine, -1 to 1, or the dot
            product of sparse vectors, unless the search is hybrid), `text`, `line` and,
            if there are names, `id`. Sparse vectors find only texts with a common
            token, perhaps none.
        """
        check_whole_number("top", top, least=1)
        queries = as_strings(queries, name="queries")
        if not queries:
            return []
        blank = [place for place, query in enumerate(queries) if not query.strip()]
        if blank:
            raise DataError(
                f"`queries` must not be empty; {received(queries[blank[0]])} at index "
                f"{blank[0]}"
            )
        vectors = vectors_of(self.predictor, queries, 32)
        found = self.best(queries, vectors, min(top, len(self.texts)))
        return [
            [
                {
                    "rank": rank,
                    "score": float(score),
                    "text": self.texts[row],
                    "line": self.lines[row],
                    **({} if self.ids is None else {"id": self.ids[row]}),
                }
                for rank, (row, score) in enumerate(zip(rows, scores, strict=True), 1)
                if row >= 0
            ]
            for rows, scores in zip(*found, strict=True)
        ]

    def best(
        self, queries: Sequence[str], vectors: np.ndarray, top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of texts and their scores, [Q, top] each, best first.

        Args:
            queries: Q strings, which a hybrid search ranks by their words.
            vectors: theirs, float [Q, D].
            top: at most the number of texts.

        Returns:
            Rows are -1 where there are no more texts, see `nearest`.
        """
        if self._words is None and self._other is None:
            return self.nearest(vectors, top)
        count = min(max(FUSED, top), len(self.texts))
        rankings, weights = [self._ranked(vectors, count)], [1.0]
        if self._other is not None:
            given = vectors_of(self._other.predictor, queries, 32)
            rankings.append(self._other._ranked(given, count))
            weights.append(1.0)
        if self._words is not None:
            rankings.append([self._words.ranked(query, count) for query in queries])
            weights.append(self._words_weight)
        found = [
            self._equal.fused(each, top, weights=weights)
            for each in zip(*rankings, strict=True)
        ]
        rows, scores = zip(*found, strict=True)
        return np.stack(rows), np.stack(scores)

    def _ranked(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """Return the rows nearest to each vector, as far as they are found."""
        near, _ = self.nearest(vectors, count)
        return [[int(row) for row in rows if row >= 0] for rows in near]


def _checked(
    texts: Iterable[str], ids: Iterable[str] | None, *, is_stored: bool
) -> tuple[list[str], list[str] | None]:
    """Return texts and their ids as lists; a repeated id is told.

    Raises:
        DataError: there is no text, one is no string, or cannot be stored.
    """
    given = {"texts": as_strings(texts)}
    if not given["texts"]:
        raise DataError("`texts` must be at least one; received none")
    if ids is not None:
        given["ids"] = as_strings(ids, name="ids")
    for name, items in given.items() if is_stored else ():
        for row, each in enumerate(items):
            if not is_unicode(each):
                raise DataError(
                    f"each item of `{name}` must be Unicode text for `index`; "
                    f"received half of a surrogate pair at index {row}"
                )
    counts = Counter(given.get("ids", ()))
    if repeated := [name for name, n in counts.items() if name and n > 1]:
        say(f"several texts have the same id: {first_of(repeated)}")
    return given["texts"], given.get("ids")


def reranked(
    predictor: Predictor,
    query: str,
    found: Sequence[Mapping[str, Any]],
    *,
    top: int,
    batch_size: int = 32,
    weight: float | None = None,
) -> list[dict[str, Any]]:
    """Return the best results of a search in the order of another model's scores.

    Args:
        predictor: scores pairs of texts, see `Predictor.rank`.
        query: the text that was searched for.
        found: what `SearchIndex` returns for it.
        top: maximum results to return.
        batch_size: pairs computed at once.
        weight: of the model's score, which is added to the score of the search; `None`
            sorts by the model's score alone.

    Returns:
        The results with their new `rank` and `score`; the score of the search is
        `search_score`, and with a weight, the model's is `rerank_score`.

    Raises:
        ConfigError: `top` or `weight` is out of range.
    """
    RERANK_WEIGHT.check(weight)
    texts = [row["text"] for row in found]
    best = top if weight is None else len(texts)
    ranked = [
        {
            **found[row["index"]],
            "rank": row["rank"],
            "score": row["score"],
            "search_score": found[row["index"]]["score"],
        }
        for row in predictor.rank(query, texts, top=best, batch_size=batch_size)
    ]
    if weight is None:
        return ranked
    for row in ranked:
        row["rerank_score"] = row["score"]
        row["score"] = row["search_score"] + weight * row["rerank_score"]
    ranked.sort(key=lambda row: (-row["score"], row["rank"]))
    return [{**row, "rank": rank} for rank, row in enumerate(ranked[:top], start=1)]


def search(
    source: Source, texts: Iterable[str], query: str, *, top: int = 5, **settings: Any
) -> list[dict[str, Any]]:
    """Return the texts nearest to one query; see `SearchIndex` for many queries.

    Args:
        source: a model, as in `load_embedder`.
        texts: the texts to search.
        query: the text to search for.
        top: maximum texts to return.
        **settings: arguments of `SearchIndex.of`.
    """
    (query,) = as_strings([query], name="query")
    return SearchIndex.of(source, texts, **settings)([query], top=top)[0]


def check_hybrid(hybrid: bool, hybrid_weight: float) -> None:
    """Raise ConfigError unless the weight is allowed, and of a hybrid search."""
    HYBRID_WEIGHT.check(hybrid_weight)
    if not hybrid and hybrid_weight != HYBRID_WEIGHT.default:
        raise ConfigError(f"`hybrid_weight` needs `hybrid`; received {hybrid_weight}")


def _check_rescoring(packed: VectorStore, rescore: int | None, index: Any) -> None:
    """Raise ConfigError, or tell, if bits of an index cannot be compared again."""
    has_both = getattr(packed, "rescoring", None) is not None
    if packed.dtype != "binary" or has_both or rescore == 0:
        return
    if rescore is not None:
        raise ConfigError(
            f"`rescore` must be 0 for {index}, which contains bits without int8 "
            f"vectors; received {rescore}: name another index"
        )
    say(
        f"{index}: contains bits without int8 vectors, so their distance alone "
        "decides; another index of `search --dtype binary` contains both"
    )


def _keep_index(
    path: Path,
    packed: VectorStore,
    made: SearchIndex,
    stored: VectorFile | None,
    reader: Predictor,
    *,
    is_named: bool,
) -> None:
    """Write the index of a search unless the file holds it, or is never replaced.

    Args:
        path: of the index.
        packed: the vectors, of any length.
        made: the search.
        stored: what the file holds, if it is of these texts and this model.
        reader: computed the vectors.
        is_named: whether lines or ids were given.
    """
    is_kept = is_parquet(path)
    graph = None if stored is None else stored.graph
    has_new = made.graph is not None and graph is None
    centroids = getattr(made.packed, "centroids", None)
    if centroids is not None and getattr(packed, "centroids", None) is None:
        packed, has_new = made.packed, True
    renamed = is_named and stored is not None and _has_other_names(stored, made)
    if renamed and is_kept:
        say(
            f"{path}: has other line numbers or ids, which `export` and `serve` will "
            "return: a Parquet file is never replaced"
        )
    elif stored is None or renamed or (has_new and not is_kept):
        model = stored.model if stored is not None else ""
        _write_index(path, packed, made, model or model_hash(reader), graph)
        if stored is None:
            show(f"{path}: written, with the vectors of {len(made.texts):,} texts")
    else:
        show(f"{path}: contains the vectors of these {len(made.texts):,} texts")
    if made.graph is not None and is_kept:
        say(
            f"{path}: a Parquet file contains no graph of faiss, so it is built each "
            "time; an .npz file keeps it"
        )


def _has_other_names(stored: VectorFile, made: SearchIndex) -> bool:
    """Return whether an index that holds the texts has other lines or ids for them."""
    if stored.content is None:
        return False
    held = range(1, len(made.texts) + 1) if stored.lines is None else stored.lines
    return (list(held), stored.ids) != (made.lines, made.ids)


def _write_index(
    path: Path, packed: VectorStore, made: SearchIndex, model: str, graph: Any
) -> None:
    """Write an index; `graph` is faiss's as stored, if the search has none."""
    if is_parquet(path):
        vectors = packed.numbers(slice(None))
        with feature_writer(path, model=model) as writer:
            writer.add(Part(made.lines, made.texts, vectors, ids=made.ids))
        return
    arrays = entries_of(
        packed,
        str(TextsHash(made.texts)),
        lines=made.lines,
        content=made.texts,
        ids=made.ids,
        model=model,
    )
    if made.graph is not None:
        graph = engines.stored_form(made.graph)
    if graph is not None:
        arrays["graph"] = graph
    with writing(path), replaced_file(path) as temporary:
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)


def _read_index(
    path: Path, predictor: Predictor, texts: Sequence[str], dtype: str | None
) -> VectorFile | None:
    """Return the index if it matches these texts, this model and the type.

    Raises:
        DataError: the file is not an index, or one that is not replaced, such as of
            vectors of another `kind`; or it cannot be written.
    """
    check_index(path, may_be_new=True)
    if not path.exists():
        if is_parquet(path):
            check_output(path)
        return None
    stored = read_vectors(path)
    task: Any = predictor.model.task
    if stored.packed.kind != task.kind:
        raise DataError(
            f"contains vectors of `kind` {stored.packed.kind}, where the model has "
            f"{task.kind}: name another index",
            path=path,
        )
    reason = "other texts"
    if stored.is_of(texts):
        reason = mismatch(stored, predictor, texts, path)
        if not reason:
            if dtype in (None, stored.packed.dtype):
                return stored
            reason = f"dtype {stored.packed.dtype}"
    # One that `search` did not write, or that other programs read, is not replaced,
    # nor is a larger model's by a student's.
    is_own = not task.aligned_to or stored.model == model_hash(predictor)
    if not stored.texts or is_parquet(path) or not is_own:
        raise DataError(f"contains vectors of {reason}: name another index", path=path)
    say(f"{path}: contained vectors of {reason}: rebuilt")
    return None
