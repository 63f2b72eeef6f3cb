"""Reranking: how well a document answers a query, by a cross-encoder.

Sources: Nogueira and Cho 2019 (arXiv:1901.04085); Reimers and Gurevych 2019
(arXiv:1908.10084) for the format of `CrossEncoder`; Dai and Callan 2019
(arXiv:1905.09217) for the best window of a long document.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.config import WINDOW_STARTS
from bert_keras.data.columns import Columns
from bert_keras.data.items import is_blank
from bert_keras.data.json_rows import list_in
from bert_keras.data.row_source import RowSource
from bert_keras.data.rows import ColumnNames
from bert_keras.data.table import names_of
from bert_keras.errors import DataError, received
from bert_keras.lazy_names import deferred, serializable
from bert_keras.scoring.bm25 import BM25
from bert_keras.scoring.correlation import check_numbers, pearson, spearman
from bert_keras.scoring.ranking import (
    BY_WORDS,
    RERANKED,
    compared_rankings,
    grouped_rankings,
    ranking_scores,
    rows_by_query,
)
from bert_keras.settings import with_options_documented
from bert_keras.tasks.base import Answers, Batch, by_reader
from bert_keras.tasks.classifier import label_numbers
from bert_keras.tasks.given_labels import checked
from bert_keras.tasks.hugging_face import REGRESSION
from bert_keras.tasks.protocols import TextSpec, is_text_with_list, list_parts
from bert_keras.tasks.regression import NumberCodec, NumberTask, is_cross_encoder
from bert_keras.tasks.reranking_settings import (
    BEST,
    LAYOUTS,
    NEGATIVES,
    RerankingSettings,
)

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_keras.checkpoints import sentence_files
    from bert_keras.model import heads, ranking
    from bert_keras.model import windows as model_windows
    from bert_keras.text.preprocessor import Preprocessor
else:
    keras, tf = deferred("keras", "tensorflow")
    (sentence_files,) = deferred("bert_keras.checkpoints.sentence_files")
    heads, model_windows, ranking = deferred(
        "bert_keras.model.heads", "bert_keras.model.windows", "bert_keras.model.ranking"
    )

RANK = "rank"  # the signature of one query with several documents
_GIVEN, _OTHERS = "positive", "negatives"  # roles of documents with the label 1 and 0


def read_rankings(source: RowSource) -> Columns:
    """Return the rows of a file: `text` (the query), `text_pair` (a document), `label`.

    The columns of query and document are the first of `LAYOUTS` that the file has. A
    file with a column `positive`, and `negatives` or `negative`, is read as documents
    with the labels 1 and 0; so is what `mine` writes, pairs with a column `negative`.

    Raises:
        DataError: the file is broken or lacks a column; bad rows are named by line.
    """
    names = names_of(source.data)
    given = _columns_of_positives(names)
    if source.labelled and given and not {"text_pair", "label"} & set(source.columns):
        return _read_positives(source, {**given, **source.columns})
    wanted = _columns_of_pairs(names, source.columns)
    if source.labelled:
        wanted = {"label": "label", **wanted}
    return source.table(wanted)


def _columns_of_pairs(names: Sequence[str], columns: ColumnNames) -> dict[str, Any]:
    """Return the columns of query and document."""
    layout = next((each for each in LAYOUTS if set(each) <= set(names)), LAYOUTS[0])
    return {**dict(zip(("text", "text_pair"), layout, strict=True)), **columns}


def _columns_of_positives(names: Sequence[str]) -> dict[str, str]:
    """Return the columns of query, positives and negatives; none for other files."""
    negatives = next((n for n in NEGATIVES if n in names), "negatives")
    if _GIVEN in names:
        return {"text": "query", _GIVEN: _GIVEN, _OTHERS: negatives}
    if negatives not in names or "label" in names:
        return {}
    pairs = [each for each in LAYOUTS if set(each) <= set(names)]
    return (
        {"text": pairs[0][0], _GIVEN: pairs[0][1], _OTHERS: negatives} if pairs else {}
    )


def _read_positives(source: RowSource, columns: ColumnNames) -> Columns:
    """Return a row for each document of a query, its positives and its negatives."""
    found = source.table(columns, lists=[_GIVEN, _OTHERS])
    rows: list[tuple[str, str, str, int]] = []
    for row, query in enumerate(found["text"]):
        for role, label in ((_GIVEN, "1"), (_OTHERS, "0")):
            texts = _texts_of(found[role][row])
            rows += [(query, text, label, found.lines[row]) for text in texts]
    *cells, lines = (list(column) for column in zip(*rows, strict=True))
    roles = ("text", "text_pair", "label")
    return Columns(found.path, dict(zip(roles, cells, strict=True)), lines)


def _texts_of(cell: str) -> list[str]:
    """Return the texts of a cell, a text or a list of texts."""
    found = list_in(cell)
    if found is None or not all(isinstance(each, str) for each in found):
        return [cell]
    return found


class RerankingCodec(NumberCodec):
    """A cross-encoder with one output."""

    def reads(self, config: Mapping[str, Any]) -> bool:
        return is_cross_encoder(config) and super().reads(config)

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"activation": sentence_files.pair_scores(config) or "linear"}


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class Reranking(RerankingSettings, NumberTask):
    """A score for each pair of query and document, higher for a better answer.

    Files: see `read_rankings`. A row is a pair; rows with the same query belong
    together. `Predictor.rank` sorts the documents of a query.
    """

    name = "reranking"
    head_codec = RerankingCodec(problem_type=REGRESSION)
    columns = {"text": "query", "text_pair": "document", "label": "label"}
    pairs = True
    scores_groups = True

    @property
    def best_score(self) -> str:  # type: ignore[override]
        return "spearman" if self.objective == "margin-mse" else "ndcg_at_10"

    @property
    def compares(self) -> bool:  # type: ignore[override]
        """Whether the loss compares the documents of a query."""
        return self.objective != "pointwise"

    # Data.

    @classmethod
    def read_own(cls, source: RowSource) -> Columns:
        return read_rankings(source)

    @classmethod
    def stream_own(cls, source: RowSource, rows_at_once: int) -> Iterator[Columns]:
        wanted = _columns_of_pairs(names_of(source.data), source.columns)
        return source.stream(wanted, rows_at_once=rows_at_once)

    def texts(self, columns: Columns, *, use: str) -> tuple[list[Any], ...]:
        is_ranked = use == "score" and self.objective != "margin-mse"
        if is_ranked and not (self.grades(columns) > 0).any():
            raise DataError("has no row with a `label` above 0", path=columns.path)
        return super().texts(columns, use=use)

    @classmethod
    def groups(cls, columns: Columns) -> list[str] | None:
        return columns["text"]

    def gathered(self, columns: Columns) -> list[list[int]] | None:
        """Return the rows of each query, unless each document is learned alone."""
        return rows_by_query(columns["text"]) if self.compares else None

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Reranking:
        """Return the task with the largest grade of the training rows."""
        learns_margins = settings.get("objective") == "margin-mse"
        given = {"activation": "linear", **settings} if learns_margins else settings
        task = cls(**given)
        labels = task.grades(columns)
        if (labels == labels[0]).all():
            message = f"`label` must have two values or more; has {labels[0]:g} only"
            columns.refuse([(0, message)])
        if learns_margins:
            return task
        return dataclasses.replace(
            task, **{"largest_grade": float(labels.max()), **settings}
        )

    def notes(self, columns: Columns) -> list[str]:
        """Return a warning about queries that teach nothing."""
        if not self.compares:
            return []
        labels = self.grades(columns)
        groups = self.gathered(columns) or []
        alike = [rows for rows in groups if len(set(labels[rows].tolist())) == 1]
        if not alike:
            return []
        places = columns.places([rows[0] for rows in alike])
        return [
            f"{columns.path}: {len(alike):,} of {len(groups):,} queries have equal "
            f"labels only, which {self.objective} does not learn from ({places})"
        ]

    def grades(self, columns: Columns) -> np.ndarray:
        """Return the label of each row, float32 [N]; bad ones are named by line.

        They are at least 0, except a teacher's scores.
        """
        labels = label_numbers(columns)
        if self.objective != "margin-mse":
            columns.refuse(
                [
                    (row, f"`label` must be a grade of 0 or more; {received(each)}")
                    for row, each in enumerate(columns["label"])
                    if labels[row] < 0
                ]
            )
        return labels

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the targets of the loss, float32.

        [N] from 0 to `largest_grade` for `pointwise`; otherwise [N, 2], label and
        number of the query.
        """
        grades = self.grades(columns)
        if not self.compares:
            return np.minimum(grades, np.float32(self.largest_grade))
        numbers: dict[str, int] = {}
        queries = [numbers.setdefault(each, len(numbers)) for each in columns["text"]]
        return np.stack([grades, np.array(queries, "float32")], axis=1)

    def encode_targets(self, targets: Any) -> Any:
        """Return numbers for strings; for `pointwise` from 0 to 1, for grades."""
        found = super().encode_targets(targets)
        if self.objective != "pointwise":
            return found
        grades, largest = tf.cast(found, tf.float32), self.largest_grade
        rule = f"a grade from 0 to {largest:g}, `largest_grade`"
        known = (grades >= 0) & (grades <= largest)
        return checked(grades / largest, grades, known, rule)

    # Text to batch.

    def signatures(self) -> dict[str, tuple[TextSpec, ...]]:
        """Return the signature of pairs, and one of queries with their documents."""
        ranked = TextSpec("query"), TextSpec("documents", rank=2)
        return {**super().signatures(), RANK: ranked}

    @property
    def forms(self) -> list[tuple[str, ...]]:
        return [*LAYOUTS]

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        """Return queries and documents from `(query, document)` items.

        Or queries and lists of documents from `(query, [document, …])` items.
        """
        if not any(map(is_text_with_list, items)):
            return super().parts(items)
        form = "(query, [document, document …]), no document empty"
        queries, documents = list_parts(items, form)
        refuse_empty_queries(queries)
        return queries, documents

    @by_reader
    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        """Return the batch of pairs, or of queries with several documents each.

        The latter also has `documents`, tf.string [B, D]; an empty one is none.
        """
        if not _is_of_queries(texts):
            return super().features(preprocessor, texts)
        texts = (non_empty_queries(texts[0]), texts[1])
        pairs, _ = _pairs_of_queries(texts)
        return {**super().features(preprocessor, pairs), "documents": texts[1]}

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        """Return the number of tokens of each pair, or of each query's longest pair.

        Also the (largest) number of tokens truncated.
        """
        if not _is_of_queries(texts):
            return super().lengths(preprocessor, texts)
        pairs, query = _pairs_of_queries(texts)
        read, lost = (
            tf.math.unsorted_segment_max(each, query, tf.shape(texts[0])[0])
            for each in super().lengths(preprocessor, pairs)
        )
        return tf.maximum(read, 0), tf.maximum(lost, 0)

    def windows_of(self, preprocessor: Preprocessor, texts: Any) -> Any:
        """Return the windows of each pair, or of each query's documents, int32 [B, 2],
        see `LongTextTask`.
        """
        if not _is_of_queries(texts):
            return super().windows_of(preprocessor, texts)
        pairs, query = _pairs_of_queries(texts)
        counts = super().windows_of(preprocessor, pairs)
        return tf.math.unsorted_segment_sum(counts, query, tf.shape(texts[0])[0])

    # The model.

    def outputs(self, encoder: Any, inputs: Batch, seed: int | None) -> Any:
        if not self.reads_windows or self.combine != BEST:
            return super().outputs(encoder, inputs, seed)
        head = heads.PooledHead.on(encoder, 1, seed=seed, dtype="float32")
        scores = head(self.reader.row_vectors(encoder, inputs, seed))
        return model_windows.WindowCombination("max")(scores, inputs[WINDOW_STARTS])

    def loss(self) -> keras.losses.Loss:
        if self.objective == "listwise":
            return ranking.ListwiseLoss()
        if self.objective == "margin-mse":
            return ranking.MarginLoss()
        return keras.losses.BinaryCrossentropy(from_logits=True)

    # Answers and scores.

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `score` float32 [B] of pairs.

        For queries with D documents: `scores` float32 [B, D], the highest first, and
        `places` int32 [B, D], the place of each among the documents given. Empty
        documents come last, with the score 0 and the place -1.
        """
        return _ranked(super().answer(outputs, batch), batch)

    def answer_inferred(
        self, outputs: Any, batch: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Return the answers with `start` and `end` of the window that decided.

        For queries with documents, `starts` and `ends`, int32 [B, D].
        """
        if not self.reads_windows:
            return self.answer(outputs, batch)
        of_pairs = {key: value for key, value in batch.items() if key != "documents"}
        return _ranked(super().answer_inferred(outputs, of_pairs), batch)

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return the scores of the rankings, and correlations of graded labels.

        `rankings` also has the scores of BM25, which sorts the same documents
        by the words of the query. A teacher's scores below 0 are no grades, so that
        only correlations are left.
        """
        labels, found = check_numbers(self.grades(columns), answers["score"])
        scores: dict[str, Any] = {}
        if labels.min() >= 0 and labels.max() > 0:
            texts = tuple(columns["text"]), tuple(columns["text_pair"])
            orders = {RERANKED: found, BY_WORDS: _scores_by_words(*texts)}
            scores |= compared_rankings(
                {
                    name: ranking_scores(
                        grouped_rankings(columns["text"], labels, order)
                    )
                    for name, order in orders.items()
                }
            )
        if len(np.unique(labels)) > 2 or self.objective == "margin-mse":
            scores |= {
                "spearman": spearman(labels, found),
                "pearson": pearson(labels, found),
            }
        return {**scores, "num_examples": len(labels)}

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return documents that are ranked first though another has a higher grade."""
        labels, found = self.grades(columns), answers["score"]
        queries = rows_by_query(columns["text"])
        firsts = {max(each, key=lambda row: found[row]): each for each in queries}
        gaps = {
            first: max(float(found[first] - found[row]) for row in better)
            for first, each in firsts.items()
            if (better := [row for row in each if labels[row] > labels[first]])
        }
        return [
            self.mistake(
                columns,
                row,
                label=float(labels[row]),
                prediction=float(found[row]),
                ahead_by=gap,
            )
            for row, gap in sorted(gaps.items(), key=lambda pair: -pair[1])
        ]

    def describe(self, columns: Columns) -> dict[str, Any]:
        labels = self.grades(columns)
        return {
            "rows": len(columns),
            "queries": len(set(columns["text"])),
            "relevant": int((labels > 0).sum()),
        }


def refuse_empty_queries(queries: Sequence[str]) -> None:
    """Raise a DataError if a query contains no text."""
    for place, query in enumerate(queries):
        if is_blank(query):
            raise DataError(
                f"a query must not be empty; {received(query)} at index {place}"
            )


def non_empty_queries(queries: Any) -> Any:
    """Return queries, tf.string [B], which the graph refuses if one is empty."""
    line = "a query must not be empty; received one without text"
    some = tf.reduce_all(tf.strings.strip(queries) != "")
    with tf.control_dependencies([tf.debugging.Assert(some, [line])]):
        return tf.identity(queries)


def _is_of_queries(texts: Any) -> bool:
    """Return whether texts are queries, [B], with documents, [B, D]."""
    return isinstance(texts, tuple) and texts[1].shape.rank == 2


def _pairs_of_queries(texts: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
    """Return the pairs of queries and non-empty documents, and the query of each."""
    queries, documents = texts
    there = tf.where(documents != "")
    query = there[:, 0]
    return (tf.gather(queries, query), tf.gather_nd(documents, there)), query


def _ranked(
    of_pairs: dict[str, tf.Tensor], batch: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """Return answers to pairs by query, if the batch has `documents`, best first."""
    if "documents" not in batch:
        return of_pairs
    there = batch["documents"] != ""
    places, shape = tf.where(there), tf.shape(there)
    lowest = tf.fill(shape, tf.float32.min)
    scores = tf.tensor_scatter_nd_update(lowest, places, of_pairs["score"])
    order = tf.argsort(scores, direction="DESCENDING", stable=True)
    kept = tf.gather(there, order, batch_dims=1)

    def sorted_as_scores(values: Any) -> Any:
        laid = tf.scatter_nd(tf.cast(places, tf.int32), values, shape)
        return tf.gather(laid, order, batch_dims=1)

    windows = {
        f"{name}s": sorted_as_scores(of_pairs[name])
        for name in ("start", "end")
        if name in of_pairs
    }
    return {
        "scores": sorted_as_scores(of_pairs["score"]),
        "places": tf.where(kept, order, -1),
        **windows,
    }


@functools.lru_cache(maxsize=1)  # dev is scored after each epoch
def _scores_by_words(queries: tuple[str, ...], documents: tuple[str, ...]) -> Any:
    """Return the score of each document by BM25 among all of them, float32 [N]."""
    words, scores = BM25(documents), np.zeros(len(documents), np.float32)
    for rows in rows_by_query(queries):
        scores[rows] = words.scores(queries[rows[0]])[rows]
    return scores
