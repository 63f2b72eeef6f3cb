"""Rows whose label is probably wrong, by confident learning, in NumPy float64.

A class is confident for a row if its probability reaches the mean that it has among the
rows labelled so. A row is doubtful if its most probable confident class, and the most
probable class of all, is not its label: an entry off the diagonal of the confident
joint. The probabilities must be of a model that was not trained on the rows.

Source: Northcutt et al. 2021, "Confident Learning: Estimating Uncertainty in Dataset
Labels" (arXiv:1911.00068), section 3.1 and equation 2. Where several classes are
confident, cleanlab takes the most probable of all classes instead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bert_keras.scoring.calibration import check_probabilities

_NEVER = 2.0  # a threshold that no probability reaches
_ROUNDING = 1e-6  # equal probabilities, whose mean is rounded


def confident_classes(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Return the most probable confident class of each row, int64 [N]; -1 for none.

    Arguments and errors are those of `calibration.cross_entropy`.

    Example:
        >>> p = [[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.8, 0.2]]
        >>> confident_classes([0, 0, 1, 1], p).tolist()  # means: 0.8 and 0.5
        [0, -1, 1, 0]
    """
    true, p = check_probabilities(labels, probabilities)
    thresholds = np.full(p.shape[1], _NEVER)
    for number in np.unique(true):
        thresholds[number] = p[true == number, number].mean()
    confident = p >= thresholds - _ROUNDING
    best: npt.NDArray[np.int64] = np.where(confident, p, -1.0).argmax(axis=1)
    return np.where(confident.any(axis=1), best, -1)


def doubtful_labels(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Return the rows whose label is probably wrong, int64 [D].

    Those whose label is least probable come first. The probable label of a row is its
    most probable class.
    """
    true, p = check_probabilities(labels, probabilities)
    found = confident_classes(true, p)
    wrong = (found >= 0) & (found != true) & (p.argmax(axis=1) != true)
    rows = np.flatnonzero(wrong)
    own = p[rows, true[rows]]
    return rows[np.argsort(own, kind="stable")]
