"""Scores of embeddings on a data set, in NumPy float64; no TensorFlow.

`similarity_scores` compares cosines with gold similarities; `pair_places` ranks
each text's pair among all of them, and `retrieval_scores` scores these ranks.

Sources: Cer et al. 2017 (arXiv:1708.00055) for the STS benchmark's correlations;
Manning et al. 2008, "Introduction to Information Retrieval", section 8.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_keras.scoring.correlation import pearson, spearman
from bert_keras.scoring.similarity import COSINE, Similarity, unit_rows

RECALL_AT = (5, 10)
_ROWS = 1024  # texts compared with all candidates at once

Floats = npt.NDArray[np.float64]


def cosines(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """Return the cosine of each pair of rows, float64 [N]."""
    return COSINE.of_pairs(unit_rows(first), unit_rows(second))


def similarity_scores(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    gold: npt.ArrayLike,
    similarity: Similarity = COSINE,
) -> dict[str, Any]:
    """Return `num_examples`, `spearman` and `pearson` of similarities against gold.

    Args:
        first, second: embeddings of the two texts of each pair, float [N, D].
        gold: similarity of each pair, float [N], higher is more similar.
        similarity: how embeddings are compared.
    """
    found = similarity.of_pairs(*map(similarity.prepared, (first, second)))
    return {
        "num_examples": len(found),
        "spearman": spearman(found, gold),
        "pearson": pearson(found, gold),
    }


def retrieval_scores(places: npt.ArrayLike) -> dict[str, Any]:
    """Return `num_examples`, `accuracy_at_1`, `mrr` and `recall_at_k` of places.

    These are the ranks of each text's pair, int [N] from 1, see `pair_places`.
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
    similarity: Similarity = COSINE,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rank of each text's pair among all candidates, by similarity.

    Candidates are the distinct second texts, and negatives that may follow them. Other
    pairs of the same text, and the text itself, are not wrong answers. Among equal
    scores the right one comes last, so that a model that embeds all texts alike
    scores 0.

    Args:
        first, second: embeddings of the two texts of each row, float [N, D]; `second`
            may have the vectors of negatives after them.
        texts, pairs: those texts.
        similarity: how embeddings are compared.

    Returns:
        int64 [N], the places from 1, and int64 [N], the row whose pair is nearest
        among the wrong ones, or the row itself if there is none.
    """
    a, b = map(similarity.prepared, (first, second))
    candidate = {text: row for row, text in reversed(list(enumerate(pairs)))}
    rows = np.array(list(candidate.values()))
    column = {text: index for index, text in enumerate(candidate)}
    right: dict[str, set[int]] = {}
    for text, pair in zip(texts, pairs, strict=False):
        known = {column[text]} if text in column else set()
        right.setdefault(text, known).add(column[pair])
    places = np.empty(len(texts), np.int64)
    nearest = np.empty(len(texts), np.int64)
    for start in range(0, len(texts), _ROWS):
        scores = similarity.matrix(a[start : start + _ROWS], b[rows])
        for row, found in enumerate(scores, start):
            own = found[column[pairs[row]]]
            found[list(right[texts[row]])] = -np.inf
            places[row] = 1 + np.count_nonzero(found >= own)
            best = int(found.argmax())
            nearest[row] = rows[best] if np.isfinite(found[best]) else row
    return places, nearest
