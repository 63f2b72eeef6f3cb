"""How `SearchIndex` finds the nearest vectors: exactly, or by candidates.

`faiss` searches a graph of whole vectors, `centroids` candidates for MaxSim, see
`TokenCentroids`. Both are faster for very many texts, and may miss some.

Source: Malkov and Yashunin 2016 (arXiv:1603.09320) for the graph that faiss builds.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np

from bert_keras.errors import ConfigError, needs
from bert_keras.retrieval.packed_vectors import in_order
from bert_keras.retrieval.vector_file import VectorFile
from bert_keras.retrieval.vector_store import VectorStore
from bert_keras.runs.notes import say
from bert_keras.runs.progress import Progress
from bert_keras.settings import SEARCH_ENGINES, check_choice

ENGINES, AUTO = SEARCH_ENGINES, "auto"
LARGE = 100_000  # texts for which `auto` does not compare all
_LINKS = 32  # per text in faiss's graph
# Candidates that faiss keeps: of 100,000 short texts it found 98.8% of the nearest ten
# to each of 200 queries with 256, 97.3% with 128, in half the time.
_KEPT = 256


def check_engine(engine: str) -> None:
    """Raise ConfigError unless there is such an engine, and its package."""
    check_choice("engine", engine, ENGINES)
    if engine == "faiss":
        _faiss()


def check_kind(engine: str, kind: str) -> None:
    """Raise ConfigError unless an engine finds vectors of a kind."""
    needed = {"faiss": "dense", "centroids": "tokens"}.get(engine, kind)
    if kind != needed:
        raise ConfigError(
            f"`engine` {engine} needs vectors of `kind` {needed}; received {kind}"
        )


def check_store(engine: str, packed: VectorStore) -> None:
    """Raise ConfigError unless an engine finds vectors of this kind and type."""
    check_kind(engine, packed.kind)
    if engine == "faiss" and packed.dtype != "float32":
        raise ConfigError(
            f"`dtype` must be float32 for the engine faiss; received {packed.dtype}"
        )


def engine_for(stored: VectorFile, large: int) -> str:
    """Return the engine for an index: of many texts, the one that is there."""
    packed = stored.packed
    is_large = len(packed) >= large
    if packed.kind == "tokens":
        has_centroids = getattr(packed, "centroids", None) is not None
        return "centroids" if is_large or has_centroids else "exact"
    is_large = is_large and (packed.kind, packed.dtype) == ("dense", "float32")
    return "faiss" if is_large and importlib.util.find_spec("faiss") else "exact"


def tell_unstored(
    engine: str, stored: VectorFile, index: str | os.PathLike[str]
) -> None:
    """Tell if an engine builds anew at each start what an index could hold."""
    held = {
        "faiss": stored.graph,
        "centroids": getattr(stored.packed, "centroids", None),
    }
    if engine in held and held[engine] is None:
        named = {
            "faiss": "graph of faiss, so it is",
            "centroids": "centroids: they are",
        }
        say(
            f"{index}: contains no {named[engine]} built each time; `search --engine "
            f"{engine}` stores {'it' if engine == 'faiss' else 'them'}"
        )


def with_centroids(packed: Any) -> Any:
    """Return vectors of tokens with centroids, and show how they are made."""
    is_shown = packed.centroids is None
    with Progress(
        "centroids", unit="texts", total=len(packed), is_shown=is_shown
    ) as bar:
        return packed.with_centroids(seen=bar.add)


def _faiss() -> Any:
    with needs("the engine faiss", extra="search", runtime_extra="search"):
        return importlib.import_module("faiss")


def stored_graph(stored: VectorFile | None) -> Any:
    """Return faiss's graph of an index, or `None` if it holds none."""
    if stored is None or stored.graph is None:
        return None
    return _faiss().deserialize_index(np.asarray(stored.graph))


def stored_form(graph: Any) -> np.ndarray:
    """Return faiss's graph as bytes."""
    found: np.ndarray = _faiss().serialize_index(graph)
    return found


def new_graph(vectors: np.ndarray) -> Any:
    """Return faiss's graph of unit vectors, float32 [N, D]."""
    faiss = _faiss()
    graph = faiss.IndexHNSWFlat(vectors.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.add(vectors)
    return graph


def nearest_of_graph(
    graph: Any, queries: np.ndarray, top: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and cosines [Q, top] from a graph; ties go to the earlier row.

    Of equal scores at the end of an answer, the graph finds any.
    """
    graph.hnsw.efSearch = max(_KEPT, 2 * top)
    scores, rows = graph.search(queries, top)
    order = np.lexsort((rows, -scores), axis=1)
    return in_order(order, rows, scores)
