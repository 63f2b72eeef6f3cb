"""An embedding whose graph holds an index: a query in, the nearest documents out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from bert_keras.data.table import Columns
from bert_keras.errors import ConfigError
from bert_keras.model.pooling import unit_vectors
from bert_keras.scoring.bm25 import BM25, FUSED, FUSION
from bert_keras.settings import HYBRID, HYBRID_WEIGHT
from bert_keras.tasks.base import Batch, Task
from bert_keras.tasks.catalog import SEARCH
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.plain_settings import of_graph
from bert_keras.tasks.protocols import pair_answers, string_parts
from bert_keras.tasks.reranking import non_empty_queries, refuse_empty_queries
from bert_keras.text.preprocessor import Preprocessor

# Documents compared at once, in addition to the best ones, or their tokens.
_AT_ONCE = 8192
_LOWEST = -2.0  # below any cosine
_OTHERS = r"[^\pL\pN_]+"  # than the letters and digits of words, in RE2
_RESCORED = 4  # times as many candidates as answers are compared again


@dataclasses.dataclass(frozen=True)
class SearchingEmbedding(Embedding):
    """Answers a query with the documents of an index nearest to it.

    It has the settings of `Embedding`, and how documents are ranked. The index,
    `documents`, is in the graph of an export alone.
    """

    hybrid: bool = HYBRID.field(later=True)
    hybrid_weight: float = HYBRID_WEIGHT.field(later=True)
    documents: Documents | None = of_graph()

    name = SEARCH
    reranks: ClassVar[bool] = False

    def signatures(self) -> Any:
        return Task.signatures(self)

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        (queries,) = string_parts(items, 1)
        refuse_empty_queries(queries)
        return (queries,)

    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        queries = non_empty_queries(texts)
        return {**super().features(preprocessor, queries), "queries": queries}

    @property
    def answers_ids(self) -> bool:
        return not (self.hybrid or self.reads_windows or self.kind == "tokens")

    @property
    def holds(self) -> tuple[Any, ...]:
        """Other parts of the graph, whose tables it needs."""
        return (self.documents,)

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `ids` and `texts`, string [B, K], and their `scores`, best first.

        The scores are cosines, or MaxSim of vectors of tokens, or of a hybrid search
        sums of reciprocal ranks, float32 [B, K].
        """
        documents: Any = self.documents
        vectors = super().answer(outputs, batch)[self.vector_output]
        if self.is_dense:
            vectors = unit_vectors(vectors)
        if self.hybrid:
            return documents.fused(vectors, batch["queries"], self.hybrid_weight)
        return documents.answers(*documents.nearest(vectors, documents.top))

    def texts(self, columns: Columns, *, use: str) -> tuple[list[Any], ...]:
        if use != "answer":
            raise ConfigError(
                "an export with an index returns documents, not vectors to score: "
                "evaluate the model folder"
            )
        return super().texts(columns, use=use)


@dataclasses.dataclass(frozen=True)
class RerankedSearch(SearchingEmbedding):
    """Answers a query with the nearest documents in the order of a reranking model.

    The model, a `TaskModel` that scores pairs, is in the graph of an export alone, as
    is the number of documents of an answer, `top`: it sorts all that the index returns.
    """

    ranker: Any = of_graph()
    top: int = of_graph()

    reranks = True

    @property
    def holds(self) -> tuple[Any, ...]:
        return (*super().holds, self.ranker)

    @property
    def answers_ids(self) -> bool:
        return False

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `ids`, `texts`, `scores`, and the search's `search_scores`, [B, K]."""
        near = super().answer(outputs, batch)
        ranker = self.ranker
        count = near["texts"].shape[1]
        queries = tf.repeat(batch["queries"], count)
        texts = tf.reshape(near["texts"], [-1])
        # Equal texts are scored once: in different rows they differ by rounding.
        rows = tf.range(tf.size(texts))
        keys = tf.strings.join([tf.as_string(rows // count), texts], " ")
        different, places = tf.unique(keys)
        first = tf.math.unsorted_segment_min(rows, places, tf.size(different))
        pairs = (tf.gather(queries, first), tf.gather(texts, first))
        answers = pair_answers(ranker.task, ranker.answer(pairs))
        scores = tf.reshape(tf.gather(answers["score"], places), [-1, count])
        best, places = tf.math.top_k(scores, min(self.top, count))
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
        words: the words of the texts, for `fused`.
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
        words: BM25 | None = None,
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
        number: dict[str, int] = {}
        equal = [number.setdefault(text, len(number)) for text in texts]
        # Products with the same vector differ by its place, so that texts that are
        # equal in a part have the score of the first one.
        first: dict[tuple[int, int], int] = {}
        same = [
            first.setdefault((row // _AT_ONCE, each), row) % _AT_ONCE
            for row, each in enumerate(equal)
        ]
        self.same = None
        with tf.device("CPU"):
            if len(first) < self.count:
                self.same = tf.Variable(same, trainable=False)
            self.equal = tf.Variable(equal, trainable=False)
        self.words: Any = None if words is None else _Words(words, self.count)

    def answers(self, rows: Any, scores: Any) -> dict[str, tf.Tensor]:
        """Return `ids`, `texts` and `scores` of rows, int32 [B, K]."""
        return {
            "ids": tf.gather(self.ids, rows),
            "texts": tf.gather(self.texts, rows),
            "scores": scores,
        }

    def fused(self, vectors: Any, queries: Any, weight: float) -> dict[str, tf.Tensor]:
        """Return the answers of the rankings by vectors and by words, see `bm25.fused`.

        Equal texts count as one in each ranking, so that all have the same score.

        Args:
            vectors: of the queries, as for `nearest`.
            queries: string [B].
            weight: of the ranking by words.
        """
        count = min(max(FUSED, self.top), self.count)
        near, _ = self.nearest(vectors, count)
        found, named = tf.math.top_k(self.words.scores(queries), count)
        texts = [tf.gather(self.equal, rows) for rows in (near, named)]
        added = [_reciprocal_ranks(texts[0], 1.0), _reciprocal_ranks(texts[1], weight)]
        added[1] = tf.where(found > 0, added[1], 0)
        sums = _sums(tf.concat(texts, 1), tf.concat(added, 1), self.count)
        scores, rows = tf.math.top_k(tf.gather(sums, self.equal, axis=1), self.top)
        return self.answers(rows, tf.cast(scores, tf.float32))

    def nearest(self, queries: Any, top: int) -> tuple[Any, Any]:
        """Return rows, int32 [B, top], and cosines; ties go to the earlier row.

        Args:
            queries: their vectors, of length 1, float32 [B, D].
            top: at most N.
        """
        if self.values.dtype != tf.uint8:
            return self._best(queries, top, self._cosines)
        bits = _bits(queries, int(self.values.shape[1]))
        if self.rescoring is None:
            return self._best(bits, top, self._agreement)
        count = min(_RESCORED * top, self.count)
        rows = tf.sort(self._best(bits, count, self._agreement)[0], axis=1)
        found = unit_vectors(self._numbers(tf.gather(self.rescoring, rows)))
        cosines = tf.einsum("bd,bkd->bk", queries, found)
        # As in `_best`, equal texts have the score of the first one.
        texts = tf.gather(self.equal, rows)
        is_equal = tf.cast(texts[:, :, None] == texts[:, None], tf.int32)
        cosines = tf.gather(cosines, tf.argmax(is_equal, axis=-1), batch_dims=1)
        scores, places = tf.math.top_k(cosines, top)
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
            if self.same is not None:
                found = tf.gather(found, self.same[start:end], axis=1)
            numbers = tf.broadcast_to(tf.range(start, end)[None], tf.shape(found))
            scores, places = tf.math.top_k(tf.concat([scores, found], 1), top)
            rows = tf.gather(tf.concat([rows, numbers], 1), places, batch_dims=1)
            return end, rows, scores

        none = tf.zeros([batch, top], tf.int32), tf.fill([batch, top], _LOWEST)
        _, rows, scores = tf.while_loop(
            lambda start, *_: start < self.count, part, (0, *none)
        )
        return tf.ensure_shape(rows, [None, top]), tf.ensure_shape(scores, [None, top])


class TokenDocuments(Documents):
    """N documents with the vectors of their M tokens, see `TokenVectors`.

    Args:
        texts, ids: as in `Documents`.
        values: float32 [M, D]; or int8, of which `step` is worth 1.
        ends: the end of each document in `values`, int64 [N]; each has a vector.
        step: `None` for float32.
        top, words: as in `Documents`.
    """

    def __init__(
        self,
        texts: Sequence[str],
        ids: Sequence[str],
        values: np.ndarray,
        ends: np.ndarray,
        *,
        step: float | None,
        top: int,
        words: BM25 | None = None,
    ) -> None:
        settings: dict[str, Any] = {"width": values.shape[1], "top": top}
        settings |= {"offset": None, "step": step, "rescoring": None, "words": words}
        super().__init__(texts, ids, values, **settings)
        first: dict[str, int] = {}
        self.same = np.array([first.setdefault(x, row) for row, x in enumerate(texts)])
        bounds, start = [0], 0  # of the documents that are compared at once
        while bounds[-1] < len(ends):
            last = int(np.searchsorted(ends, start + _AT_ONCE, side="right"))
            bounds.append(max(last, bounds[-1] + 1))
            start = int(ends[bounds[-1] - 1])
        self.bounds = np.array(bounds, np.int32)
        with tf.device("CPU"):
            self.ends = tf.Variable(np.append(0, ends), trainable=False)

    def nearest(self, queries: Any, top: int) -> tuple[Any, Any]:
        """Return rows, int32 [B, top], and MaxSim; ties go to the earlier row.

        Args:
            queries: the vectors of their tokens, float32 [B, T, D], 0 for tokens that
                do not count.
            top: at most N.
        """
        count = len(self.bounds) - 1
        parts = tf.TensorArray(tf.float32, count, infer_shape=False)

        def compare(number: Any, parts: Any) -> tuple[Any, Any]:
            start, end = (tf.gather(self.bounds, number + n) for n in (0, 1))
            found = self._maxsims(queries, start, end)
            return number + 1, parts.write(number, tf.transpose(found))

        _, parts = tf.while_loop(lambda n, _: n < count, compare, (0, parts))
        found = tf.gather(tf.transpose(parts.concat()), self.same, axis=1)
        scores, rows = tf.math.top_k(found, top)
        return tf.ensure_shape(rows, [None, top]), tf.ensure_shape(scores, [None, top])

    def _maxsims(self, queries: Any, start: Any, end: Any) -> Any:
        """Return the scores of some documents, float32 [B, N]."""
        ends = self.ends[start : end + 1]
        values = self.values[ends[0] : ends[-1]]
        if self.step is not None:
            values = tf.cast(values, tf.float32) * self.step
        texts = tf.repeat(tf.range(end - start), ends[1:] - ends[:-1])

        def of_query(query: Any) -> Any:
            products = tf.matmul(values, query, transpose_b=True)
            return tf.reduce_sum(tf.math.segment_max(products, texts), axis=1)

        return tf.map_fn(of_query, queries)


class _Words(tf.Module):
    """The words of N texts in a graph, see `BM25`.

    The graph's letters and digits are Unicode's, as in Python; a letter that only the
    newer of the two knows is none in the other.
    """

    def __init__(self, words: BM25, count: int) -> None:
        super().__init__()
        self.count = count
        vocabulary, ends, rows, weights = words.postings()
        with tf.device("CPU"):
            known = tf.constant(vocabulary, tf.string, [len(vocabulary)])
            numbers = tf.range(len(vocabulary), dtype=tf.int64)
            pairs = tf.lookup.KeyValueTensorInitializer(known, numbers)
            self.numbers = tf.lookup.StaticHashTable(pairs, -1)
            self.starts = tf.Variable(np.append(0, ends), trainable=False)
            self.rows = tf.Variable(rows, trainable=False)
            self.weights = tf.Variable(weights, trainable=False)

    def scores(self, queries: Any) -> Any:
        """Return the score of each text for queries, string [B]: float32 [B, N]."""
        # In `lower` it would end a text.
        plain = tf.strings.regex_replace(queries, r"\x00", " ")
        lower = tf.strings.lower(plain, encoding="utf-8")
        words = tf.strings.split(tf.strings.regex_replace(lower, _OTHERS, " "))
        numbers = self.numbers.lookup(words.values)
        places = tf.boolean_mask(words.value_rowids(), numbers >= 0)
        numbers = tf.boolean_mask(numbers, numbers >= 0)
        starts = tf.gather(self.starts, numbers)
        counts = tf.gather(self.starts, numbers + 1) - starts
        postings = tf.ragged.range(starts, starts + counts).values
        rows = tf.cast(tf.gather(self.rows, postings), tf.int64)
        rows += tf.repeat(places, counts) * self.count
        shape = [tf.shape(queries, tf.int64)[0], self.count]
        weights = tf.gather(self.weights, postings)
        found = tf.math.unsorted_segment_sum(weights, rows, tf.reduce_prod(shape))
        return tf.reshape(found, shape)


def _reciprocal_ranks(texts: Any, weight: float) -> Any:
    """Return what a ranking, int32 [B, K], adds to its texts, 0 where one recurs.

    It is float64 as in Python, so that the same scores are equal.
    """
    places = tf.range(texts.shape[1])
    recurs = tf.equal(texts[:, :, None], texts[:, None]) & (places[:, None] > places)
    is_first = ~tf.reduce_any(recurs, axis=2)
    ranks = tf.cumsum(tf.cast(is_first, tf.float64), axis=1)
    return tf.where(is_first, weight / (FUSION + ranks), 0)


def _sums(texts: Any, values: Any, count: int) -> Any:
    """Return the sum of the values of each text from 0 to `count`, [B, count]."""
    starts = tf.range(tf.shape(texts, tf.int64)[0])[:, None] * count
    places = tf.cast(texts, tf.int64) + starts
    size = tf.shape(texts, tf.int64)[0] * count
    sums = tf.math.unsorted_segment_sum(values, places, size)
    return tf.reshape(sums, [-1, count])


def _bits(vectors: Any, width: int) -> Any:
    """Return which numbers are above 0, packed in `width` bytes, uint8 [B, width]."""
    above = tf.cast(vectors > 0, tf.int32)
    missing = 8 * width - tf.shape(above)[1]
    above = tf.reshape(tf.pad(above, [[0, 0], [0, missing]]), [-1, width, 8])
    return tf.cast(tf.reduce_sum(above * [128, 64, 32, 16, 8, 4, 2, 1], -1), tf.uint8)
