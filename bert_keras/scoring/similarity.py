"""How vectors of texts are compared: `COSINE`, `DOT` and `MAXSIM`.

Sources: Manning et al. 2008, "Introduction to Information Retrieval", section 6.3;
Khattab and Zaharia 2020 (arXiv:2004.12832), equation 3, for MaxSim.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


def unit_rows(vectors: npt.ArrayLike) -> Floats:
    """Return float32 [..., D] with rows of length 1; a row of zeros is unchanged."""
    rows = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.maximum(norms, 1e-12)


def _products(first: Floats, second: Floats) -> Floats:
    return first @ second.T


def _products_of_pairs(first: Floats, second: Floats) -> Doubles:
    return np.sum(first * second, axis=1, dtype=np.float64)


def kept_vectors(tokens: npt.ArrayLike) -> Floats:
    """Return the vectors of a text's tokens, [T, D], without those that are 0."""
    tokens = np.asarray(tokens, np.float32)
    kept: Floats = tokens[tokens.any(axis=-1)]
    return kept


def ragged_maxsim(query: Floats, values: Floats, starts: Any) -> Floats:
    """Return the MaxSim of a query and each of N texts, float32 [N].

    Args:
        query: the vectors of its tokens, [T, D].
        values: the vectors of the texts' tokens, one text after the other, [M, D].
        starts: the first token of each text, int [N]; each has one at least.
    """
    products = values @ query.T
    found: Floats = np.maximum.reduceat(products, starts, axis=0).sum(axis=1)
    return found


def _maxsims(first: Floats, second: Floats) -> Floats:
    texts = [kept_vectors(each) for each in second]
    ends = np.cumsum([len(each) for each in texts])
    values, starts = np.concatenate(texts), ends - [len(each) for each in texts]
    queries = map(kept_vectors, first)
    return np.stack([ragged_maxsim(query, values, starts) for query in queries])


def _maxsims_of_pairs(first: Floats, second: Floats) -> Doubles:
    pairs = zip(first, second, strict=True)
    return np.array([_maxsims(a[None], b[None])[0, 0] for a, b in pairs], np.float64)


@dataclasses.dataclass(frozen=True)
class Similarity:
    """How the vectors of two texts are compared; higher is more similar.

    Args:
        name: for messages.
        prepared: returns vectors of N texts, float [N, …], as the functions take them.
        matrix: returns the similarity of each of Q texts with each of N, [Q, N].
        of_pairs: returns the similarity of the texts of N pairs, float64 [N].
    """

    name: str
    prepared: Callable[[Any], Floats]
    matrix: Callable[[Floats, Floats], Floats] = _products
    of_pairs: Callable[[Floats, Floats], Doubles] = _products_of_pairs


COSINE = Similarity("cosine", unit_rows)
DOT = Similarity("dot product", np.asarray)
# Of [N, T, D]: the sum over a query's tokens of the largest product with a token of the
# text. Vectors that are 0 do not count.
MAXSIM = Similarity("MaxSim", np.asarray, _maxsims, _maxsims_of_pairs)
