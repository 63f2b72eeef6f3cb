"""Scores of embeddings on a data set, in NumPy float64; no TensorFlow.

`similarity_scores` compares cosines with gold similarities; `pair_places` looks for
each text's pair among all of them, and `retrieval_scores` counts how often it is found.

Sources: Cer et al. 2017 (arXiv:1708.00055) for the STS benchmark's correlations;
Manning et al. 2008, "Introduction to Information Retrieval", section 8.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError

RECALL_AT = (5, 10)
_ROWS = 1024  # texts compared with all candidates at once

Floats = npt.NDArray[np.float64]


def unit_rows(vectors: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return float32 [N, D] with rows of length 1; a row of zeros stays."""
    rows = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.maximum(norms, 1e-12)


def cosines(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """Return the cosine of each pair of rows, float64 [N]."""
    return np.sum(unit_rows(first) * unit_rows(second), axis=1, dtype=np.float64)


def pearson(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return Pearson's correlation; 0 where it is undefined: one side is constant."""
    x, y = _both(first, second)
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / spread if spread else 0.0


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return Spearman's correlation: Pearson's of the ranks; equal values share one."""
    x, y = _both(first, second)
    return pearson(ranks(x), ranks(y))


def ranks(values: npt.ArrayLike) -> Floats:
    """Return the rank of each value from 1; equal values get the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def similarity_scores(
    first: npt.ArrayLike, second: npt.ArrayLike, gold: npt.ArrayLike
) -> dict[str, Any]:
    """Return `num_examples`, `spearman` and `pearson` of cosines against gold.

    Args:
        first, second: embeddings of the two texts of each pair, float [N, D].
        gold: similarity of each pair, float [N], higher is nearer.
    """
    found = cosines(first, second)
    return {
        "num_examples": len(found),
        "spearman": spearman(found, gold),
        "pearson": pearson(found, gold),
    }


def retrieval_scores(places: npt.ArrayLike) -> dict[str, Any]:
    """Return `num_examples`, `accuracy_at_1`, `mrr` and `recall_at_k` of places.

    Args:
        places: place of each text's pair among the candidates, int [N] from 1, as
            `pair_places` tells.
    """
    place = np.asarray(places)
    return {
        "num_examples": len(place),
        "accuracy_at_1": float(np.mean(place == 1)),
        "mrr": float(np.mean(1 / place)),
        **{f"recall_at_{k}": float(np.mean(place <= k)) for k in RECALL_AT},
    }


def pair_places(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    texts: Sequence[str],
    pairs: Sequence[str],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the place of each text's pair among all pairs, by cosine.

    Candidates are the different second texts. Another pair of the very text is no
    wrong answer, nor is the text itself where it is a candidate. Of equal cosines the
    right one comes last, so that a model which embeds all texts alike scores nothing.

    Args:
        first, second: embeddings of the two texts of each row, float [N, D].
        texts, pairs: those texts, N each.

    Returns:
        int64 [N], the places from 1, and int64 [N], the row whose pair is nearest
        among the wrong ones, or the row itself where there is none.
    """
    a, b = unit_rows(first), unit_rows(second)
    candidate = {text: row for row, text in reversed(list(enumerate(pairs)))}
    rows = np.array(list(candidate.values()))
    column = {text: index for index, text in enumerate(candidate)}
    right: dict[str, set[int]] = {}
    for text, pair in zip(texts, pairs, strict=True):
        known = {column[text]} if text in column else set()
        right.setdefault(text, known).add(column[pair])
    places = np.empty(len(texts), np.int64)
    nearest = np.empty(len(texts), np.int64)
    for start in range(0, len(texts), _ROWS):
        scores = a[start : start + _ROWS] @ b[rows].T
        for row, cosine in enumerate(scores, start):
            own = cosine[column[pairs[row]]]
            cosine[list(right[texts[row]])] = -np.inf
            places[row] = 1 + np.count_nonzero(cosine >= own)
            best = int(cosine.argmax())
            nearest[row] = rows[best] if np.isfinite(cosine[best]) else row
    return places, nearest


def _both(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if x.ndim != 1 or x.shape != y.shape or not x.size:
        raise BertKerasError(
            "both sides must be numbers of one length, at least 1; received shapes "
            f"{list(x.shape)} and {list(y.shape)}"
        )
    return x, y
