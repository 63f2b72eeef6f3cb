"""How vectors of texts are compared: `COSINE` and `DOT`.

Source: Manning et al. 2008, "Introduction to Information Retrieval", section 6.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats, Doubles = npt.NDArray[np.float32], npt.NDArray[np.float64]


def unit_rows(vectors: npt.ArrayLike) -> Floats:
    """Return float32 [..., D] with rows of length 1; a row of zeros is unchanged."""
    rows = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.maximum(norms, 1e-12)


def _products(first: Floats, second: Floats) -> Floats:
    return first @ second.T


def _products_of_pairs(first: Floats, second: Floats) -> Doubles:
    return np.sum(first * second, axis=1, dtype=np.float64)


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
