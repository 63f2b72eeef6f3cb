"""Pearson's and Spearman's correlation, in NumPy float64; no TensorFlow.

The values equal SciPy's, except for undefined correlations (one side is
constant): they are 0 here and NaN in SciPy. Numbers that are empty, not finite or of
different lengths raise a BertKerasError.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError


def pearson(targets: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the linear correlation of numbers [N], from -1 to 1.

    Example:
        >>> pearson([1, 2, 3], [2, 4, 6])
        1.0
    """
    x, y = check_numbers(targets, predictions)
    return _linear(x, y)


def spearman(targets: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the correlation of ranks, from -1 to 1; ties share their mean rank.

    Example:
        >>> spearman([1, 2, 3], [1, 10, 100])
        1.0
    """
    x, y = check_numbers(targets, predictions)
    return _linear(ranks(x), ranks(y))


def ranks(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the rank of each value [N], from 1; equal values get their mean rank.

    Example:
        >>> ranks([10, 20, 10]).tolist()
        [1.5, 3.0, 1.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    return mean_ranks[place]


def check_numbers(
    targets: npt.ArrayLike, predictions: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return both as float64 [N], checked."""
    x, y = np.asarray(targets), np.asarray(predictions)
    for name, values in (("targets", x), ("predictions", y)):
        if values.ndim != 1 or not values.size:
            raise BertKerasError(
                f"`{name}` must be of shape [N], N at least 1; "
                f"received shape {list(values.shape)}"
            )
        if values.dtype.kind not in "iuf":
            raise BertKerasError(f"`{name}` must be numbers; received {values.dtype}")
        if (wrong := values[~np.isfinite(values)]).size:
            raise BertKerasError(f"`{name}` must be finite; received {wrong[0]}")
    if len(x) != len(y):
        raise BertKerasError(
            "`targets` and `predictions` must have the same length; "
            f"received {len(x)} and {len(y)}"
        )
    return x.astype(np.float64), y.astype(np.float64)


def _linear(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> float:
    if (x == x[0]).all() or (y == y[0]).all():
        return 0.0
    x, y = _unit(x), _unit(y)
    return float(np.clip(x @ y, -1.0, 1.0))  # rounding may slightly exceed 1


def _unit(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the distances from the mean, of length 1; large values do not overflow."""
    values = values / np.abs(values).max()
    values = values - values.mean()
    values = values / np.abs(values).max()
    return values / np.linalg.norm(values)
