"""Ranking of texts by their words: `BM25`, and the fusion of several rankings.

Sources: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework", section
3.4, with the idf of Lucene, which is never negative; Cormack et al. 2009, "Reciprocal
Rank Fusion", section 2.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

_WORD = re.compile(r"\w+")
FUSION = 60  # added to ranks from 1, as in the paper
FUSED = 100  # texts of each ranking that a hybrid search fuses, at least


class BM25:
    """The words of N texts: runs of letters, digits and `_`, in lower case.

    Args:
        texts: N strings.
        k1: how soon more occurrences of a word count no more.
        b: how much long texts are discounted, from 0 to 1.

    Example:
        >>> BM25(["pay a bill", "reset a password"]).scores("password?").round(2)
        array([0.  , 0.28], dtype=float32)
    """

    def __init__(
        self, texts: Sequence[str], *, k1: float = 1.5, b: float = 0.75
    ) -> None:
        found: dict[str, tuple[list[int], list[int]]] = {}
        lengths = np.zeros(len(texts))
        for row, text in enumerate(texts):
            counts = Counter(_words(text))
            lengths[row] = counts.total()
            for word, count in counts.items():
                rows, times = found.setdefault(word, ([], []))
                rows.append(row)
                times.append(count)
        self._count = len(texts)
        norm = k1 * (1 - b + b * lengths / max(lengths.mean(), 1e-9))
        self._weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, (rows, times) in found.items():
            places, counted = np.array(rows, np.int32), np.array(times, np.float64)
            idf = np.log1p((self._count - len(rows) + 0.5) / (len(rows) + 0.5))
            weights = idf * counted / (counted + norm[places])
            self._weights[word] = (places, weights.astype(np.float32))

    def postings(self) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
        """Return all words, and the end of each one's postings: rows and weights.

        Ends are int64 [V], rows int32 [M], weights float32 [M].
        """
        rows = [np.zeros(0, np.int32), *(each for each, _ in self._weights.values())]
        weights = [np.zeros(0, np.float32), *(w for _, w in self._weights.values())]
        ends = np.cumsum([len(each) for each in rows[1:]], dtype=np.int64)
        return [*self._weights], ends, np.concatenate(rows), np.concatenate(weights)

    def scores(self, query: str) -> np.ndarray:
        """Return the score of each text, float32 [N]; 0 without a common word."""
        found = np.zeros(self._count, np.float32)
        for word in _words(query):
            if word in self._weights:
                rows, weights = self._weights[word]
                found[rows] += weights
        return found

    def ranked(self, query: str, top: int) -> list[int]:
        """Return the best rows, at most `top`, without those that score 0."""
        scores = self.scores(query)
        rows = np.argsort(-scores, kind="stable")[:top]
        return [int(row) for row in rows if scores[row] > 0]


def fused(
    rankings: Sequence[Sequence[int]],
    top: int,
    *,
    weights: Sequence[float] | None = None,
) -> list[tuple[int, float]]:
    """Return rows and scores of several rankings fused by reciprocal ranks, best first.

    Ties go to the earlier row.

    Args:
        rankings: rows, best first.
        top: maximum rows to return.
        weights: of the rankings; 1 each by default.

    Example:
        >>> [row for row, _ in fused([[7, 8], [8, 9]], 2)]
        [8, 7]
    """
    parts: dict[int, list[float]] = {}
    weights = [1.0] * len(rankings) if weights is None else weights
    for ranking, weight in zip(rankings, weights, strict=True):
        for rank, row in enumerate(ranking, 1):
            parts.setdefault(row, []).append(weight / (FUSION + rank))
    # Exact sums: ties do not depend on the order of the rankings.
    scores = {row: math.fsum(each) for row, each in parts.items()}
    order = sorted(scores, key=lambda row: (-scores[row], row))[:top]
    return [(row, scores[row]) for row in order]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
