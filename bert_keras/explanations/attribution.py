"""Attribution methods: how much each word contributes to an output of a model.

All methods evaluate points between two ends: the word embeddings of a text, and those
of a baseline that has `[PAD]` or `[MASK]` in place of each word's pieces. Position and
segment embeddings, `[CLS]` and `[SEP]` are the same at both ends.

Sources: Sundararajan et al. 2017 (arXiv:1703.01365), integrated gradients; Shrikumar et
al. 2016 (arXiv:1605.01713), gradient × input; Zeiler and Fergus 2013 (arXiv:1311.2901),
occlusion; Castro et al. 2009 (doi:10.1016/j.cor.2008.04.004), Shapley sampling.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bert_keras.settings import ATTRIBUTIONS

FIRST_STEPS = 16
MOST_STEPS = 1024
LARGEST_GAP = 0.01  # as a share of the change; above it more steps are taken


class Path(NamedTuple):
    """The path from a baseline to a text, and the value that is explained.

    Attributes:
        text, baseline: float32 [R, T, H], word embeddings.
        words: int32 [R, T], the word of each token, -1 for none.
        num_words: W.
        value: maps points, float32 [k, R, T, H], to their values, float32 [k].
        gradient: maps them to the gradients of the values, float32 [k, R, T, H].
        at_once: maximum points computed at once.
    """

    text: np.ndarray
    baseline: np.ndarray
    words: np.ndarray
    num_words: int
    value: Callable[[np.ndarray], np.ndarray]
    gradient: Callable[[np.ndarray], np.ndarray]
    at_once: int

    def ends(self) -> tuple[float, float]:
        """Return the values of the baseline and of the text."""
        baseline, text = self.value_at(np.array([[False], [True]]))
        return float(baseline), float(text)

    def value_at(self, kept: np.ndarray) -> np.ndarray:
        """Return the values if only some words are kept, float64 [k].

        Args:
            kept: bool [k, W], or [k, 1] for all words together.
        """
        kept = np.broadcast_to(kept, (len(kept), max(self.num_words, 1)))
        found = []
        for chosen in _parts(kept, self.at_once):
            there = chosen[:, np.maximum(self.words, 0)] | (self.words < 0)
            points = np.where(there[..., None], self.text, self.baseline)
            found.append(self.value(points.astype("float32")))
        return np.concatenate(found).astype("float64")

    def by_word(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of values [R, T] over the tokens of each word, float64 [W]."""
        real = self.words >= 0
        numbers = values[real].astype("float64")
        return np.bincount(self.words[real], numbers, minlength=self.num_words)


class Result(NamedTuple):
    """The attributions of the words of a text.

    Attributes:
        attributions: float64 [W].
        value, baseline_value: the values of the text and of its baseline.
        gap: difference between the sum of the attributions and the change from the
            baseline, as a share of that change; `None` for methods whose sum has no
            meaning.
        steps: points on the path, or permutations; 0 for other methods.
    """

    attributions: np.ndarray
    value: float
    baseline_value: float
    gap: float | None = None
    steps: int = 0


def integrated_gradients(
    path: Path,
    *,
    steps: int | None = None,
    most: int = MOST_STEPS,
    seconds: float = math.inf,
) -> Result:
    """Return the gradients between the ends, integrated by Gauss-Legendre quadrature.

    Args:
        path: the text and its baseline.
        steps: points on the path. `None`: 16, doubled up to `most` while the gap is
            above 1%.
        most: maximum points if `steps` is `None`.
        seconds: the points are not doubled if this would take longer.
    """
    start = time.perf_counter()
    baseline, text = path.ends()
    count = steps or FIRST_STEPS
    while True:
        began = time.perf_counter()
        found = _integrated(path, count)
        gap = _gap(found.sum(), text - baseline)
        now = time.perf_counter()
        is_late = now - start + 2 * (now - began) > seconds
        if steps or gap <= LARGEST_GAP or 2 * count > most or is_late:
            return Result(found, text, baseline, gap, count)
        count *= 2


def _integrated(path: Path, steps: int) -> np.ndarray:
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    nodes, weights = (nodes + 1) / 2, weights / 2  # from [-1, 1] to [0, 1]
    change = path.text - path.baseline
    total = np.zeros(change.shape, "float64")
    for part in _parts(np.stack([nodes, weights], 1), path.at_once):
        points = path.baseline + part[:, :1, None, None] * change
        gradients = path.gradient(points.astype("float32"))
        total += np.einsum("k,k...->...", part[:, 1], gradients.astype("float64"))
    return path.by_word((total * change).sum(-1))


def gradient_times_input(path: Path) -> Result:
    """Return the gradient at the text, times the word embeddings."""
    baseline, text = path.ends()
    gradient = path.gradient(path.text[None])[0]
    return Result(path.by_word((gradient * path.text).sum(-1)), text, baseline)


def occlusion(path: Path) -> Result:
    """Return how much the value falls if the baseline replaces one word."""
    baseline, text = path.ends()
    if not path.num_words:
        return Result(np.zeros(0), text, baseline)
    without = path.value_at(~np.eye(path.num_words, dtype=bool))
    return Result(text - without, text, baseline)


def shapley_sampling(path: Path, *, steps: int = 24, seed: int = 0) -> Result:
    """Return the mean change when a word is added to others, in random order.

    Each order is followed by its reverse, which lowers the variance.

    Args:
        path: the text and its baseline.
        steps: number of orders.
        seed: seed of the orders.
    """
    baseline, text = path.ends()
    count, random = path.num_words, np.random.default_rng(seed)
    total, order = np.zeros(count), np.arange(count)
    for number in range(steps):
        order = order[::-1] if number % 2 else random.permutation(count)
        rank = np.argsort(order)
        # The first 1, 2 … words in this order are kept.
        kept = rank[None, :] < np.arange(1, count)[:, None]
        middle = path.value_at(kept) if count > 1 else np.zeros(0)
        if count:
            values = np.concatenate([[baseline], middle, [text]])
            total[order] += np.diff(values)
    found = total / steps
    return Result(found, text, baseline, _gap(found.sum(), text - baseline), steps)


_METHODS: tuple[Callable[..., Result], ...] = (
    integrated_gradients,
    gradient_times_input,
    occlusion,
    shapley_sampling,
)
GRADIENT_METHODS = (integrated_gradients, gradient_times_input)
METHODS = dict(zip(ATTRIBUTIONS, _METHODS, strict=True))


def _gap(total: float, change: float) -> float:
    """Return how far the sum of attributions is from the change, as a share of it.

    Changes below 0.01 count as 0.01; otherwise rounding errors would dominate.
    """
    return float(abs(total - change) / max(abs(change), 0.01))


def _parts(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
