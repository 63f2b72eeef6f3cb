"""Scores of ranked documents: nDCG@10, MRR@10, MAP, recall@k and precision@1.

A ranking is given by its grades: the grade of each document in ranked order, 0 where it
is not known to be relevant. Scores are means over queries; a query without a relevant
document has none and is left out. They equal trec_eval's, whose nDCG has the gain
`grade`, but for equal scores: those of a table are ordered to the model's
disadvantage, those of a run as they stand in it (trec_eval: by id).

Sources: Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR
techniques"; Manning et al. 2008, "Introduction to Information Retrieval", section 8.4.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError

DEPTH = 10  # documents that count for nDCG and MRR
RECALL_AT = (10, 100)
RERANKED, BY_WORDS = "reranked", "BM25"  # names of rankings that are compared
Floats = npt.NDArray[np.float64]


def ranking_scores(
    rankings: Sequence[npt.ArrayLike], relevant: Sequence[npt.ArrayLike] | None = None
) -> dict[str, Any]:
    """Return the mean scores of Q rankings, with 95% intervals over the queries.

    Args:
        rankings: the grades of each query's documents, best-ranked first.
        relevant: the grades of all documents of each query, also of those that were
            not found; `None`: the rankings have them all.

    Returns:
        `num_queries`, `without_relevant` (queries left out, if there are some),
        `ndcg_at_10`, `mrr_at_10`, `map`, `recall_at_k`, `precision_at_1`, and
        `intervals`: `low` and `high` of each score, if there are several queries.

    Raises:
        BertKerasError: no query has a relevant document, or a grade is not finite.

    Example:
        >>> scores = ranking_scores([[0, 1], [1, 0, 1]])
        >>> round(scores["map"], 4), scores["precision_at_1"]
        (0.6667, 0.5)
    """
    known = rankings if relevant is None else relevant
    pairs = [
        (np.asarray(each, np.float64), np.asarray(every, np.float64))
        for each, every in zip(rankings, known, strict=True)
    ]
    if not all(np.isfinite(part).all() for pair in pairs for part in pair):
        raise BertKerasError("a grade must be a finite number; received NaN or inf")
    rows = [_scores_of(*pair) for pair in pairs if (pair[1] > 0).any()]
    if not rows:
        raise BertKerasError(
            f"a document with a grade above 0 is needed; none of {len(pairs):,} "
            "queries has one"
        )
    scores: dict[str, Any] = {"num_queries": len(rows)}
    if len(rows) < len(pairs):
        scores["without_relevant"] = len(pairs) - len(rows)
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    scores |= {name: float(values.mean()) for name, values in columns.items()}
    if len(rows) > 1:
        scores["intervals"] = {name: _interval(v) for name, v in columns.items()}
    return scores


def compared_rankings(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the scores of the first ranking, and of all by name in `rankings`.

    Args:
        found: from `ranking_scores`, by the name of the ranking.
    """
    rows = {name: _row(scores) for name, scores in found.items()}
    return {**next(iter(found.values())), "rankings": rows}


def _row(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores of a ranking, with the interval of nDCG@10 after it."""
    row = {key: each for key, each in scores.items() if isinstance(each, float)}
    interval = scores.get("intervals", {}).get("ndcg_at_10", {})
    return {"ndcg_at_10": row["ndcg_at_10"], **interval, **row}


def _scores_of(ranking: Floats, relevant: Floats) -> dict[str, float]:
    """Return the scores of one query."""
    grades = np.maximum(ranking, 0.0)
    hits = grades > 0
    total = int((relevant > 0).sum())
    first = int(hits.argmax()) + 1 if hits.any() else math.inf
    precisions = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    ideal = -np.sort(-np.maximum(relevant, 0.0))
    return {
        "ndcg_at_10": _gain(grades) / _gain(ideal),
        "mrr_at_10": 1 / first if first <= DEPTH else 0.0,
        "map": float((precisions * hits).sum()) / total,
        **{f"recall_at_{k}": float(hits[:k].sum()) / total for k in RECALL_AT},
        "precision_at_1": float(hits[:1].sum()),
    }


def _gain(grades: Floats) -> float:
    best = grades[:DEPTH]
    return float((best / np.log2(np.arange(2, len(best) + 2))).sum())


def _interval(values: Floats) -> dict[str, float]:
    """Return the normal 95% interval of a mean, within 0 and 1."""
    z = statistics.NormalDist().inv_cdf(0.975)
    half = z * float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = float(values.mean())
    return {"low": max(0.0, mean - half), "high": min(1.0, mean + half)}


def grouped_rankings(
    queries: Sequence[Hashable], grades: npt.ArrayLike, scores: npt.ArrayLike
) -> list[Floats]:
    """Return the grades of each query's documents in the order of their scores.

    Among equal scores the lowest grade comes first, so that a model that scores all
    alike gains nothing.

    Args:
        queries: the query of each of N pairs; pairs of a query need not be adjacent.
        grades, scores: of each pair, float [N].
    """
    grade, score = np.asarray(grades, np.float64), np.asarray(scores, np.float64)
    return [
        grade[each][np.lexsort((grade[each], -score[each]))]
        for each in map(np.array, rows_by_query(queries))
    ]


def rows_by_query(queries: Sequence[Hashable]) -> list[list[int]]:
    """Return the rows of each query, in the order of the first ones."""
    rows: dict[Hashable, list[int]] = {}
    for row, query in enumerate(queries):
        rows.setdefault(query, []).append(row)
    return list(rows.values())


def run_rankings(
    qrels: Mapping[str, Mapping[str, float]], run: Mapping[str, Mapping[str, float]]
) -> tuple[list[Floats], list[Floats]]:
    """Return rankings and known grades of the queries of qrels, for `ranking_scores`.

    A query of the qrels that the run lacks has found nothing; queries without qrels
    are not scored. Among equal scores the first document of the run comes first.

    Args:
        qrels: query id to document id to grade.
        run: query id to document id to score.
    """
    rankings, relevant = [], []
    for query, grades in qrels.items():
        found = run.get(query, {})
        order = sorted(found, key=lambda name: -found[name])
        ranked = [grades.get(name, 0.0) for name in order]
        rankings.append(np.array(ranked, np.float64))
        relevant.append(np.array([*grades.values()], np.float64))
    return rankings, relevant
