"""Rows whose label is worth a look, by confident learning, in NumPy float64.

A class is confident for a row if its probability reaches the mean that it has among the
rows labelled so. A row is doubtful if its most probable confident class, and the most
probable class of all, is not its label: an entry off the diagonal of the confident
joint. The probabilities must be of a model that was not trained on the rows.

A weak model doubts many labels that are right, so `labels_to_check` keeps only the rows
about which the model is reliable.

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
_LEAST_ROWS = 20  # that a share of right answers is measured on, if there are so many
# Of the other rows that are as certain, and of those with the same predicted class.
# Chosen on BANKING77; `benchmarks/label_check.py` measures precision and recall there
# and on other data.
LEAST_RIGHT = 0.9
LEAST_RIGHT_OF_CLASS = 0.8


def confident_classes(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Return the most probable confident class of each row, int64 [N]; -1 for none.

    For arguments and errors see `calibration.cross_entropy`.

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
    """Return the rows off the diagonal of the confident joint, int64 [D].

    Rows whose label is least probable come first. The probable label of a row is its
    most probable class.
    """
    true, p = check_probabilities(labels, probabilities)
    found = confident_classes(true, p)
    wrong = (found >= 0) & (found != true) & (p.argmax(axis=1) != true)
    rows = np.flatnonzero(wrong)
    own = p[rows, true[rows]]
    return rows[np.argsort(own, kind="stable")]


def labels_to_check(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Return the doubtful rows that the model can judge, int64 [D], in their order.

    The model must be right on 90% of the other rows whose most probable class is as
    probable (at least the 20 most certain), and on 80% of the other rows with this most
    probable class. Both shares are of the given labels, so a data set with many wrong
    labels names fewer rows.
    """
    true, p = check_probabilities(labels, probabilities)
    rows = doubtful_labels(true, p)
    best, right = p.argmax(axis=1), p.argmax(axis=1) == true
    order = np.argsort(-p.max(axis=1), kind="stable")
    certainty = -p.max(axis=1)[order]
    as_certain = np.searchsorted(certainty, -p.max(axis=1)[rows], side="right")
    as_certain = np.maximum(as_certain, min(_LEAST_ROWS, len(true)))
    # The rows themselves are not right, so only the number of others is one less.
    hits = np.cumsum(right[order])[as_certain - 1]
    of_class = np.bincount(best, minlength=p.shape[1])[best[rows]]
    hits_of_class = np.bincount(best, right, minlength=p.shape[1])[best[rows]]
    is_reliable = (
        (hits > 0)
        & (hits >= LEAST_RIGHT * (as_certain - 1))
        & (hits_of_class > 0)
        & (hits_of_class >= LEAST_RIGHT_OF_CLASS * (of_class - 1))
    )
    return rows[is_reliable]
