"""A served model with an index: queries in, the nearest texts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bert_keras.errors import ConfigError
from bert_keras.inference.predictor import Predictor
from bert_keras.inference.search import SearchIndex
from bert_keras.models.backend import Backend
from bert_keras.runs.progress import say
from bert_keras.serving.signatures import Answers, Parts, Row, Signature, TensorInfo

SEARCH = "search"  # the signature
DEFAULT = "serving_default"
_NONE = -1.0  # the score where faiss finds no more texts


class SearchSignature(Signature):
    """Texts, answered as an export with an index does: `ids`, `texts`, `scores`.

    Args:
        vectors: computes the vectors of the texts.
        index: the texts that are found.
        top: K, the number of texts of an answer, nearest first.
    """

    def __init__(self, vectors: Signature, index: SearchIndex, top: int) -> None:
        kinds = {"ids": "string", "scores": "float32", "texts": "string"}
        outputs = [TensorInfo(*each, (None, top)) for each in kinds.items()]
        super().__init__(SEARCH, vectors.inputs, outputs, vectors.function)
        self._vectors, self._index, self._top = vectors, index, top
        names = index.lines if index.ids is None else index.ids
        # With what stands at -1, where there are no more texts.
        self._ids = np.array([*(str(n).encode() for n in names), b""], object)
        texts = (text.encode("utf-8", "replace") for text in index.texts)
        self._texts = np.array([*texts, b""], object)

    def rows_of(self, parts: Parts) -> list[Row]:
        return self._vectors.rows_of(parts)

    def choose(self, lengths: Sequence[int], max_tokens: int) -> list[int]:
        return self._vectors.choose(lengths, max_tokens)

    def warm_up(self, parts: Parts) -> None:
        """Do nothing: the signature of the vectors is warmed up."""

    def compute(self, rows: Sequence[Row]) -> tuple[Answers, int]:
        answers, tokens = self._vectors.compute(rows)
        (vectors,) = answers.values()
        found, scores = self._index.nearest(vectors, self._top)
        answer = {
            "ids": self._ids[found],
            "scores": np.where(found < 0, _NONE, scores).astype(np.float32),
            "texts": self._texts[found],
        }
        return answer, tokens


def search_signature(
    model: Backend,
    signatures: Mapping[str, Signature],
    index: str,
    *,
    top: int,
    engine: str,
) -> SearchSignature:
    """Return the signature that searches an index with a model.

    Queries get the model's prompt `query`, if it has one.

    Args:
        model: of the task `embedding`.
        signatures: the model's.
        index: a file that `search` wrote, or a Parquet file of `features`.
        top: texts of an answer; at most the number of texts in the index.
        engine: see `SearchIndex.load`.

    Raises:
        ConfigError: the model has another task.
        DataError: the index is broken, contains no texts, or is of another model.
    """
    if model.task.name != "embedding":
        raise ConfigError(
            f"`index` needs a model of the task embedding; received {model.task.name}"
        )
    held = SearchIndex.load(Predictor(model), index, engine=engine)
    vectors = signatures["query" if "query" in signatures else DEFAULT]
    if top > len(held.texts):
        say(
            f"index_top {top:,}: the index has {len(held.texts):,} texts, which are "
            "all returned"
        )
    return SearchSignature(vectors, held, min(top, len(held.texts)))
