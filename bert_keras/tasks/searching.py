"""An embedding whose graph holds an index: a query in, the nearest documents out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.data.table import Columns
from bert_keras.errors import ConfigError
from bert_keras.model.pooling import unit_vectors
from bert_keras.tasks.base import Batch
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.protocols import role_signatures, string_parts
from bert_keras.tasks.reranking import non_empty_queries, refuse_empty_queries
from bert_keras.text.preprocessor import Preprocessor

_AT_ONCE = 8192  # documents compared at once, in addition to the best ones
_LOWEST = -2.0  # below any cosine
_RESCORED = 4  # times as many candidates as answers are compared again


@dataclasses.dataclass(frozen=True)
class SearchingEmbedding(Embedding):
    """Answers a query with the documents of an index nearest to it.

    It has the settings of `Embedding`; `with_documents` gives it the index, which
    only the graph of an export holds.
    """

    name = "search"

    def with_documents(self, documents: Documents) -> SearchingEmbedding:
        """Return the task with an index; it is put into the graph that is traced."""
        found = dataclasses.replace(self)
        object.__setattr__(found, "documents", documents)  # no setting
        return found

    def signatures(self) -> dict[str, tuple[tf.TensorSpec, ...]]:
        return role_signatures(self)

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        (queries,) = string_parts(items, 1)
        refuse_empty_queries(queries)
        return (queries,)

    def _batch(
        self,
        preprocessor: Preprocessor,
        prompts: Any,
        lengths: Any,
        texts: Any,
        draws: Any = None,
    ) -> Batch:
        queries = non_empty_queries(texts)
        return super()._batch(preprocessor, prompts, lengths, queries, draws)

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `ids` and `texts`, string [B, K], and their cosines, `scores`.

        Nearest first, scores float32 [B, K].
        """
        documents: Documents = vars(self)["documents"]
        vectors = super().answer(outputs, batch)["embedding"]
        return documents.answers(unit_vectors(vectors))

    def texts(self, columns: Columns, *, use: str) -> tuple[list[Any], ...]:
        if use != "answer":
            raise ConfigError(
                "an export that searches returns documents, no vectors to score: "
                "evaluate the model folder"
            )
        return super().texts(columns, use=use)


@dataclasses.dataclass(frozen=True)
class RerankedSearch(SearchingEmbedding):
    """Answers a query with the nearest documents in the order of a reranking model.

    `with_ranker` gives it the model, which only the graph of an export holds.
    """

    def with_ranker(self, ranker: Any, *, top: int) -> RerankedSearch:
        """Return the task, with documents, and with a model that scores pairs.

        Args:
            ranker: a `TaskModel`; it sorts all documents that the index returns.
            top: number of documents of an answer.
        """
        found = self.with_documents(vars(self)["documents"])
        object.__setattr__(found, "ranker", ranker)  # no setting
        object.__setattr__(found, "top", top)
        return found  # type: ignore[return-value]

    @property
    def holds(self) -> tuple[Any, ...]:
        """Other models whose tables the graph needs."""
        return (vars(self)["ranker"],)

    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        return {**super().features(preprocessor, texts), "queries": texts}

    @property
    def answers_ids(self) -> bool:
        return False

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `ids`, `texts`, `scores` and `search_scores`, the cosines, [B, K]."""
        near = super().answer(outputs, batch)
        ranker: Any = vars(self)["ranker"]
        count = near["texts"].shape[1]
        queries = tf.repeat(batch["queries"], count)
        pairs = (queries, tf.reshape(near["texts"], [-1]))
        scores = tf.reshape(ranker.answer(pairs)["score"], [-1, count])
        best, places = tf.math.top_k(scores, min(vars(self)["top"], count))
        found = {k: tf.gather(v, places, batch_dims=1) for k, v in near.items()}
        return {**found, "scores": best, "search_scores": found["scores"]}


class Documents(tf.Module):
    """N documents with their vectors, as variables of a graph.

    Args:
        texts, ids: N strings each.
        values: their vectors: float32 [N, D] of length 1, int8 [N, D] or bits, uint8
            [N, D / 8] rounded up; see `PackedVectors`.
        offset, step: float32 [D]; int8 times `step` plus `offset` is a number.
        rescoring: int8 [N, D], for candidates that bits find.
        width: D.
        top: K, at most N.
    """

    def __init__(
        self,
        texts: Sequence[str],
        ids: Sequence[str],
        values: np.ndarray,
        *,
        offset: np.ndarray | None,
        step: np.ndarray | None,
        rescoring: np.ndarray | None,
        width: int,
        top: int,
    ) -> None:
        super().__init__()
        self.width, self.top, self.count = width, top, len(texts)
        with tf.device("CPU"):
            self.texts = tf.Variable(list(texts), trainable=False)
            self.ids = tf.Variable(list(ids), trainable=False)
            self.values = tf.Variable(values, trainable=False)
            self.rescoring = None
            if rescoring is not None:
                self.rescoring = tf.Variable(rescoring, trainable=False)
        self.offset, self.step = offset, step

    def answers(self, queries: Any) -> dict[str, tf.Tensor]:
        """Return `ids`, `texts` and `scores` [B, K] of unit vectors, float [B, D]."""
        rows, scores = self.nearest(queries)
        return {
            "ids": tf.gather(self.ids, rows),
            "texts": tf.gather(self.texts, rows),
            "scores": scores,
        }

    def nearest(self, queries: Any) -> tuple[Any, Any]:
        """Return rows, int32 [B, K], and cosines; ties go to the earlier row."""
        if self.values.dtype != tf.uint8:
            return self._best(queries, self.top, self._cosines)
        bits = _bits(queries, int(self.values.shape[1]))
        if self.rescoring is None:
            return self._best(bits, self.top, self._agreement)
        count = min(_RESCORED * self.top, self.count)
        rows = tf.sort(self._best(bits, count, self._agreement)[0], axis=1)
        found = unit_vectors(self._numbers(tf.gather(self.rescoring, rows)))
        cosines = tf.einsum("bd,bkd->bk", queries, found)
        scores, places = tf.math.top_k(cosines, self.top)
        return tf.gather(rows, places, batch_dims=1), scores

    def _numbers(self, values: Any) -> Any:
        return tf.cast(values, tf.float32) * self.step + self.offset

    def _cosines(self, queries: Any, values: Any) -> Any:
        if self.step is not None:
            values = unit_vectors(self._numbers(values))
        return tf.matmul(queries, values, transpose_b=True)

    def _agreement(self, bits: Any, values: Any) -> Any:
        differ = tf.bitwise.bitwise_xor(bits[:, None], values[None])
        counts = tf.cast(tf.raw_ops.PopulationCount(x=differ), tf.int32)
        distance = tf.cast(tf.reduce_sum(counts, axis=-1), tf.float32)
        return 1.0 - 2.0 * distance / float(self.width)

    def _best(self, queries: Any, top: int, compare: Any) -> tuple[Any, Any]:
        """Return rows and scores [B, top] of all documents, compared in parts."""
        batch = tf.shape(queries)[0]

        def part(start: Any, rows: Any, scores: Any) -> tuple[Any, Any, Any]:
            end = tf.minimum(start + _AT_ONCE, self.count)
            found = compare(queries, self.values[start:end])
            numbers = tf.broadcast_to(tf.range(start, end)[None], tf.shape(found))
            scores, places = tf.math.top_k(tf.concat([scores, found], 1), top)
            rows = tf.gather(tf.concat([rows, numbers], 1), places, batch_dims=1)
            return end, rows, scores

        none = tf.zeros([batch, top], tf.int32), tf.fill([batch, top], _LOWEST)
        _, rows, scores = tf.while_loop(
            lambda start, *_: start < self.count, part, (0, *none)
        )
        return tf.ensure_shape(rows, [None, top]), tf.ensure_shape(scores, [None, top])


def _bits(vectors: Any, width: int) -> Any:
    """Return which numbers are above 0, packed in `width` bytes, uint8 [B, width]."""
    above = tf.cast(vectors > 0, tf.int32)
    missing = 8 * width - tf.shape(above)[1]
    above = tf.reshape(tf.pad(above, [[0, 0], [0, missing]]), [-1, width, 8])
    return tf.cast(tf.reduce_sum(above * [128, 64, 32, 16, 8, 4, 2, 1], -1), tf.uint8)
