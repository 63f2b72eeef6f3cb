"""Candidates for MaxSim, found by centroids of the tokens' vectors: `TokenCentroids`.

Sources: Santhanam et al. 2022 (arXiv:2205.09707) for candidates by centroids; Lee et
al. 2023 (arXiv:2304.01982), section 3, for the texts that a token does not find.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bert_keras.scoring.similarity import Floats

_SAMPLE, _ROUNDS = 32, 4  # vectors of a centroid that k-means learns from, and rounds
_AT_ONCE = 1 << 22  # products computed at once
_PROBED = 4  # centroids nearest to a token of a query, at most
_FOUND = 1e-4  # what a text has for being found, above one that is not


@dataclasses.dataclass(frozen=True, eq=False)
class TokenCentroids:
    """The texts near each of K centroids of the vectors of their tokens.

    Args:
        values: the centroids, float32 [K, D].
        texts: the texts with a token that is nearest to a centroid, those of one
            centroid after the other, each once, int32 [P].
        ends: the end of each centroid in `texts`, int64 [K].
        count: N, the number of all texts.
    """

    values: Floats
    texts: Any
    ends: Any
    count: int

    @classmethod
    def of(
        cls,
        floats: Callable[[Any], Floats],
        ends: Any,
        *,
        seen: Callable[[int], object] = lambda count: None,
    ) -> TokenCentroids:
        """Return centroids of the vectors of M tokens, about the square root of M.

        Args:
            floats: returns some of the vectors, float32 [..., D].
            ends: the end of each text in the vectors, int64 [N].
            seen: called with the number of further texts whose tokens are assigned.
        """
        tokens = int(ends[-1])
        count = min(1 << max(round(np.log2(tokens) / 2), 0), tokens)
        rng = np.random.default_rng(0)
        size = min(_SAMPLE * count, tokens)
        values = _k_means(floats(np.sort(rng.choice(tokens, size, False))), count, rng)
        found, parts = np.zeros(tokens, np.int64), max(_AT_ONCE // count, 1)
        for start in range(0, tokens, parts):
            part = slice(start, start + parts)
            found[part] = _nearest(floats(part), values)
            seen(int(((ends > start) & (ends <= start + parts)).sum()))
        texts = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        pairs = np.unique(found * len(ends) + texts)
        centroids, texts = np.divmod(pairs, len(ends))
        last = np.cumsum(np.bincount(centroids, minlength=count))
        return cls(values, texts.astype(np.int32), last, len(ends))

    def candidates(self, query: Floats, count: int) -> np.ndarray:
        """Return up to `count` texts that may have the best MaxSim, int64, in order.

        A token of the query finds the texts of the centroids nearest to it, whose
        product stands for the product with the text. For other texts the least of these
        products does.

        Args:
            query: the vectors of its tokens, float32 [T, D].
        """
        products = query @ self.values.T
        starts = np.append(0, self.ends)
        total, best = (np.zeros(self.count, np.float32) for _ in range(2))
        for row in products:
            near = np.argsort(row)[-_PROBED:]  # the nearest one last
            parts = [self.texts[starts[n] : starts[n + 1]] for n in near]
            best[:] = 0
            # Of equal places, the last one is kept.
            best[np.concatenate(parts)] = np.repeat(
                row[near] - row[near[0]] + _FOUND, [len(part) for part in parts]
            )
            total += best
        found = np.flatnonzero(total)
        if len(found) > count:
            found = found[np.argpartition(total[found], -count)[-count:]]
        return np.sort(found)

    def entries(self) -> dict[str, Any]:
        """Return the arrays of a file."""
        return {
            "centroids": self.values,
            "centroid_texts": self.texts,
            "centroid_ends": self.ends,
        }

    @classmethod
    def from_entries(
        cls, stored: Mapping[str, Any], count: int, width: int
    ) -> TokenCentroids | None:
        """Return the centroids of a file of N texts; `None` if it has none.

        Raises:
            ValueError: shapes or types do not match.
        """
        if "centroids" not in stored:
            return None
        names = ("centroids", "centroid_texts", "centroid_ends")
        values, texts, ends = (stored[name] for name in names)
        if (
            values.shape != (len(ends), width)
            or texts.ndim != 1
            or (np.diff(ends, prepend=0) < 0).any()
            or (ends[-1] if len(ends) else 0) != len(texts)
        ):
            raise ValueError
        return cls(np.asarray(values, np.float32), texts, ends, count)


def _k_means(vectors: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return centroids of vectors, float32 [K, D]; empty ones stay where they were."""
    found = vectors[rng.choice(len(vectors), count, False)]
    for _ in range(_ROUNDS):
        parts = max(_AT_ONCE // count, 1)
        places = np.concatenate(
            [
                _nearest(vectors[start : start + parts], found)
                for start in range(0, len(vectors), parts)
            ]
        )
        order = np.argsort(places, kind="stable")
        there, first = np.unique(places[order], return_index=True)
        sizes = np.diff(first, append=len(places))
        found[there] = np.add.reduceat(vectors[order], first) / sizes[:, None]
    return found


def _nearest(vectors: Floats, centroids: Floats) -> np.ndarray:
    """Return the place of the centroid nearest to each vector, int64 [N]."""
    halves = np.einsum("kd,kd->k", centroids, centroids) / 2
    found: np.ndarray = np.argmax(vectors @ centroids.T - halves, axis=1)
    return found
