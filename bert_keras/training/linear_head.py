"""A linear head on fixed vectors: `fit_head`, and its L2 by `cross_validate`.

Vectors of all layers are scaled by `layer_scales`, which `chosen_decay` chooses.

Softmax and sigmoid losses are minimized by steps with a fixed bound of the Hessian,
accelerated and restarted; a squared loss in closed form. All computations use the
principal axes of the vectors, in which the bound is diagonal for every strength of L2.

Sources: Böhning 1992, "Multinomial logistic regression algorithm", Annals of the
Institute of Statistical Mathematics 44 (the bound); O'Donoghue and Candès 2015
(arXiv:1204.3982, restarts); Hoerl and Kennard 1970 (ridge regression).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_keras.data.holdout import Strata, class_sizes, stratified_holdout

# Strengths of L2, for vectors whose mean squared length is 1 and the mean loss.
L2 = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
# With fewer rows the loss of held-out rows is too noisy to choose by: L2 is then this
# number divided by rows and classes, see `benchmarks/few_labels.py`.
FEW, _OF_FEW = 1000, 3.0
POWERS = (0.0, 0.5, 1.0)  # of how much a rarer class counts, for fewer rows than `FEW`
_FACTORS = tuple(np.exp(np.linspace(-2, 5, 36)).tolist())
_BOUNDS = {"softmax": 0.5, "sigmoid": 0.25, "squared": 1.0}  # of the second derivative
_MOST_STEPS, _TOLERANCE = 100, 1e-4
_SMALLEST = 1e-10  # squares of axes, relative to the largest; others are rounding
FOLDS = 5
# How much a layer counts beside the one above it; 0: the last layer alone. The first is
# taken unless another one is better, see `chosen_decay`.
DECAYS = (0.8, 0.0, 1.0)
ROWS_FOR_DECAY = 128
MOST_FOR_LAYERS = 2048  # rows; with more, fitting heads on all layers takes too long


class Head(NamedTuple):
    """Kernel, float64 [D, C], and bias, [C]: logits are `x @ kernel + bias`."""

    kernel: np.ndarray
    bias: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the logits of vectors, float [N, D], as float64 [N, C]."""
        return x @ self.kernel + self.bias


class _Axes:
    """The principal axes of N vectors, in which fitting takes place.

    Attributes:
        z: float64 [N, R + 1]: the centred and scaled vectors along the axes, and 1.
        squares: [R + 1], the mean weighted square of each column of `z`.
    """

    def __init__(self, x: np.ndarray, weights: np.ndarray) -> None:
        x = np.asarray(x, np.float64)
        self._mean = weights @ x / weights.sum()
        centred = x - self._mean
        self._scale = np.sqrt((centred**2).sum(axis=1).mean()) or 1.0
        centred /= self._scale
        share = np.sqrt(weights / weights.sum())[:, None]
        spread = centred * share
        if len(x) < x.shape[1]:  # the smaller of the two matrices of products
            squares, rows = np.linalg.eigh(spread @ spread.T)
            kept = squares > squares.max(initial=0.0) * _SMALLEST
            squares, rows = squares[kept], rows[:, kept]
            self._axes = spread.T @ (rows / np.sqrt(squares))
        else:
            squares, self._axes = np.linalg.eigh(spread.T @ spread)
        self.z = np.hstack([centred @ self._axes, np.ones((len(x), 1))])
        self.squares = np.append(np.maximum(squares, 0.0), 1.0)

    def head(self, inner: np.ndarray) -> Head:
        """Return the head of vectors from weights along the axes, [R + 1, C]."""
        kernel = self._axes @ inner[:-1] / self._scale
        return Head(kernel, inner[-1] - self._mean @ kernel)


def row_weights(weights: np.ndarray | None, rows: int) -> np.ndarray:
    """Return weights of rows, float64 [N]; 1 where none are given."""
    return np.ones(rows) if weights is None else np.asarray(weights, np.float64)


def fit_head(
    x: np.ndarray,
    targets: np.ndarray,
    *,
    loss: str,
    l2: float | Sequence[float],
    weights: np.ndarray | None = None,
) -> list[Head]:
    """Return the heads with the least mean loss plus `l2 / 2` times the squared kernel.

    Args:
        x: vectors, float [N, D]. They are scaled to a mean squared length of 1 around
            their mean while fitting, which the head undoes.
        targets: float [N, C]: 0 or 1 for `softmax` and `sigmoid`, numbers for
            `squared`.
        loss: `softmax`, `sigmoid` or `squared`; of several outputs the sum.
        l2: one or several strengths, falling; a head is returned for each.
        weights: of each row, float [N].
    """
    weights = row_weights(weights, len(x))
    axes = _Axes(x, weights)
    inner = np.zeros((axes.z.shape[1], targets.shape[1]))
    found = []
    for strength in [l2] if isinstance(l2, float) else l2:
        inner = _minimized(
            axes, targets, weights / weights.sum(), loss, strength, inner
        )
        found.append(axes.head(inner))
    return found


def _minimized(
    axes: _Axes,
    targets: np.ndarray,
    shares: np.ndarray,
    loss: str,
    l2: float,
    start: np.ndarray,
) -> np.ndarray:
    """Return the weights along the axes that minimize the loss, [R + 1, C]."""
    penalty = np.append(np.full(len(start) - 1, l2), 0.0)[:, None]
    steps = 1 / (_BOUNDS[loss] * axes.squares[:, None] + penalty + 1e-12)
    weighted = axes.z * shares[:, None]

    def gradient(at: np.ndarray) -> np.ndarray:
        errors = probabilities(axes.z @ at, loss) - targets
        return weighted.T @ errors + penalty * at

    if loss == "squared":  # the bound is the Hessian: one step reaches the minimum
        return start - steps * gradient(start)
    old = at = start
    momentum = 1.0
    for _ in range(_MOST_STEPS):
        slope = gradient(at)
        new = at - steps * slope
        if np.abs(slope).max() < _TOLERANCE:
            return new
        if (slope * (new - old)).sum() > 0:
            momentum = 1.0
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        at = new + (momentum - 1) / faster * (new - old)
        old, momentum = new, faster
    return old


def probabilities(logits: np.ndarray, loss: str) -> np.ndarray:
    """Return what the targets of a loss are compared with, float64 [N, C]."""
    if loss == "softmax":
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
    return 1 / (1 + np.exp(-logits)) if loss == "sigmoid" else logits


def row_losses(logits: np.ndarray, targets: np.ndarray, loss: str) -> np.ndarray:
    """Return the loss of each row, summed over the outputs, float64 [N]."""
    if loss == "squared":
        return np.asarray(((logits - targets) ** 2).sum(axis=1) / 2)
    if loss == "softmax":
        top = logits.max(axis=1)
        total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        return np.asarray(total - (logits * targets).sum(axis=1))
    return np.asarray((np.logaddexp(0, logits) - logits * targets).sum(axis=1))


class Validation(NamedTuple):
    """What cross-validation found.

    Attributes:
        l2: the chosen strength.
        factor: what the logits are multiplied by; the loss of the held-out rows is
            lowest then, so that their probabilities are calibrated.
        folds: the rows of each fold.
        rows: the rows that were held out once, in order: all but those that are the
            only one of their class.
        logits: float64 [len(rows), C], of the head that has not seen the row.
        loss: the mean loss of these rows.
        losses: float64 [len(rows)], the loss of each.
    """

    l2: float
    factor: float
    folds: Sequence[Sequence[int]]
    rows: list[int]
    logits: np.ndarray
    loss: float
    losses: np.ndarray


def cross_validate(
    x: np.ndarray,
    targets: np.ndarray,
    folds: Sequence[Sequence[int]],
    *,
    loss: str,
    weights: np.ndarray | None = None,
    power: float = 0.0,
) -> Validation:
    """Return the strength of L2 with the lowest loss of the held-out rows.

    Of each strength, the loss with the best factor counts: a weak one must not win only
    because its logits are larger.

    Args:
        x, targets, loss, weights: as in `fit_head`.
        folds: the rows of each fold, see `stratified_folds`.
        power: as in `balanced`, while fitting.
    """
    weights = row_weights(weights, len(x))
    strengths = strengths_of(targets, loss)
    logits = np.zeros((len(strengths), *targets.shape))
    for fold in folds:
        kept = np.delete(np.arange(len(x)), fold)
        rows = balanced(targets[kept], weights[kept], power)
        heads = fit_head(x[kept], targets[kept], loss=loss, l2=strengths, weights=rows)
        for place, head in enumerate(heads):
            logits[place, fold] = head(x[fold])
    found = [
        validation_of(each, targets, folds, loss=loss, l2=strength, weights=weights)
        for strength, each in zip(strengths, logits, strict=True)
    ]
    return min(found, key=lambda each: each.loss)


def validation_of(
    logits: np.ndarray,
    targets: np.ndarray,
    folds: Sequence[Sequence[int]],
    *,
    loss: str,
    l2: float,
    weights: np.ndarray,
) -> Validation:
    """Return what cross-validation found from the logits of all rows, float [N, C].

    The other arguments are as in `cross_validate`; rows in no fold may have any logits.
    """
    rows = sorted(row for fold in folds for row in fold)
    lowest, factor = best_factor(logits[rows], targets[rows], loss, weights[rows])
    scaled = factor * logits[rows]
    losses = row_losses(scaled, targets[rows], loss)
    return Validation(l2, factor, folds, rows, scaled, lowest, losses)


def strengths_of(targets: np.ndarray, loss: str) -> tuple[float, ...]:
    """Return the strengths of L2 to try, weaker ones for many classes.

    There is one for `softmax` and fewer than `FEW` rows.
    """
    if loss == "softmax" and len(targets) < FEW:
        return (_OF_FEW / targets.size,)
    classes = targets.shape[1] if loss == "softmax" else 1
    return tuple(strength / classes for strength in L2)


def powers_of(targets: np.ndarray, loss: str) -> tuple[float, ...]:
    """Return the powers of `balanced` to try: several for few rows of unequal classes.

    With few rows L2 is strong, and the bias alone would answer the largest class.
    """
    is_few = loss == "softmax" and len(targets) < FEW
    return POWERS if is_few and np.ptp(targets.sum(axis=0)) else POWERS[:1]


def balanced(
    targets: np.ndarray, weights: np.ndarray | None, power: float
) -> np.ndarray:
    """Return weights of rows by which rarer classes count more, float64 [N].

    They are divided by the weight of the row's class to a power: 0 leaves them as they
    are, and with 1 all classes weigh the same. Their sum does not change.

    Args:
        targets: 0 or 1, one class a row, float [N, C].
        weights: of each row, float [N].
        power: from 0 to 1.
    """
    weights = row_weights(weights, len(targets))
    if not power:
        return weights
    of_class = np.maximum(weights @ targets, np.finfo(np.float64).tiny)
    found = weights * (targets @ of_class**-power)
    return np.asarray(found * (weights.sum() / found.sum()))


def best_factor(
    logits: np.ndarray, targets: np.ndarray, loss: str, weights: np.ndarray
) -> tuple[float, float]:
    """Return the lowest mean loss of logits times a factor, and the factor."""
    factors = _FACTORS if loss != "squared" else (1.0,)
    return min(
        (float(np.average(row_losses(f * logits, targets, loss), weights=weights)), f)
        for f in factors
    )


def layer_scales(decay: float, count: int, width: int) -> np.ndarray:
    """Return what vectors of `count` layers of a width are multiplied by, float32 [D].

    Each layer counts `decay` times as much as the one above it.

    Example:
        >>> layer_scales(0.5, 3, 2).tolist()
        [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]
    """
    return np.repeat(decay ** np.arange(count - 1.0, -1, -1), width).astype("float32")


def of_layers(x: np.ndarray, decay: float, width: int) -> np.ndarray:
    """Return what a head reads of vectors of all layers, [N, L * width], by a decay.

    It is float [N, L * width], scaled by `layer_scales`, or the last layer alone,
    [N, width], for a decay of 0.
    """
    if not decay:
        return x[:, -width:]
    return np.asarray(x * layer_scales(decay, x.shape[1] // width, width))


def chosen_decay(losses: Mapping[float, np.ndarray]) -> float:
    """Return one of `DECAYS` by the losses of held-out rows, float [N] for each.

    It is the first, unless the losses of another one are lower by more than two
    standard errors of the difference, or with `ROWS_FOR_DECAY` rows or more by half of
    one: with few rows the lowest loss is by chance.
    """
    chosen = DECAYS[0]
    most = 2.0 if len(losses[chosen]) < ROWS_FOR_DECAY else 0.5
    for decay in DECAYS[1:]:
        gains = losses[DECAYS[0]] - losses[decay]
        error = gains.std() / math.sqrt(len(gains))
        if gains.mean() > most * error:
            chosen, most = decay, gains.mean() / max(error, 1e-12)
    return chosen


def stratified_folds(
    strata: Strata,
    *,
    seed: int,
    groups: Sequence[Hashable] | None = None,
    equal: Sequence[Hashable] | None = None,
    most: int = FOLDS,
) -> list[list[int]]:
    """Return the rows of at most `most` folds, each with the shares of the classes.

    There are as many folds as the smallest class with several rows has rows, at least
    two. Rows that are the only one of a class are in no fold: a head that has not seen
    the class could not answer it. `groups` stay together, see `stratified_holdout`, and
    rows that are the same in `equal` always.
    """
    if equal is not None:
        rows_of: dict[Hashable, list[int]] = {}
        for row, each in enumerate(equal):
            rows_of.setdefault(each, []).append(row)
        alike = list(rows_of.values())
        found = stratified_folds(
            [strata[rows[0]] for rows in alike],
            seed=seed,
            groups=groups and [groups[rows[0]] for rows in alike],
            most=most,
        )
        return [sorted(row for n in fold for row in alike[n]) for fold in found]
    sizes = class_sizes(strata)
    alone = {name for name, size in sizes.items() if size == 1}
    left = [row for row, names in enumerate(strata) if alone.isdisjoint(names)]
    least = min((size for size in sizes.values() if size > 1), default=len(left))
    count = max(2, min(most, least, len(left)))
    folds = []
    for number in range(count, 1, -1):
        chosen = stratified_holdout(
            [strata[row] for row in left],
            round(len(left) / number),
            seed=seed,
            groups=None if groups is None else [groups[row] for row in left],
        )
        folds.append([left[place] for place in chosen])
        left = sorted(set(left) - set(folds[-1]))
    return [fold for fold in [*folds, left] if fold]
