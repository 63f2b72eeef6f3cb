"""Self-training: a head learns its own confident answers to rows without labels, too.

Sources: Yarowsky 1995 (ACL, P95-1026); Zou et al. 2018 (arXiv:1810.07911), for a number
of answers that grows and is balanced by class, here as among the labelled rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_keras.training.linear_head import (
    Head,
    Validation,
    fit_head,
    probabilities,
    row_weights,
    validation_of,
)

SHARES = (0.1, 0.2, 0.3, 0.4)  # of the unlabeled rows, round by round


def self_trained_head(
    x: np.ndarray,
    targets: np.ndarray,
    unlabeled: np.ndarray,
    *,
    loss: str,
    l2: float,
    weights: np.ndarray | None = None,
) -> Head:
    """Return a head of labelled vectors and, in rounds, of the most confident others.

    In each round, the unlabeled rows weigh together as much as the labelled ones.

    Args:
        x, targets, loss, l2, weights: as in `fit_head`, of the labelled rows.
        unlabeled: vectors, float [M, D].
    """
    weights = row_weights(weights, len(x))
    (head,) = fit_head(x, targets, loss=loss, l2=l2, weights=weights)
    frequency = np.average(targets, axis=0, weights=weights)
    for share in SHARES:
        rows, answers = confident_rows(head(unlabeled), loss, share, frequency)
        (head,) = fit_head(
            np.concatenate([x, unlabeled[rows]]),
            np.concatenate([targets, answers]),
            loss=loss,
            l2=l2,
            weights=np.append(weights, np.full(len(rows), weights.sum() / len(rows))),
        )
    return head


def validate_self_training(
    x: np.ndarray,
    targets: np.ndarray,
    unlabeled: np.ndarray,
    folds: Sequence[Sequence[int]],
    *,
    loss: str,
    l2: float,
    weights: np.ndarray | None = None,
) -> Validation:
    """Return what cross-validation on the labelled rows finds of self-training.

    The arguments are as in `self_trained_head` and `cross_validate`.
    """
    weights = row_weights(weights, len(x))
    given: dict[str, Any] = {"loss": loss, "l2": l2}
    logits = np.zeros(targets.shape)
    for fold in folds:
        kept = np.delete(np.arange(len(x)), fold)
        head = self_trained_head(
            x[kept], targets[kept], unlabeled, weights=weights[kept], **given
        )
        logits[fold] = head(x[fold])
    return validation_of(logits, targets, folds, weights=weights, **given)


def confident_rows(
    logits: np.ndarray, loss: str, share: float, frequency: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the most confident rows of each class, and their answers as targets.

    The classes are as frequent among them as among the labelled rows, unless there are
    too few answers of one: otherwise the classes that a head of few rows prefers would
    grow from round to round. Of several labels, each applies to as large a share of the
    rows as among the labelled ones; a row is as confident as its least certain label,
    and rows without any are one more class.

    Args:
        logits: float [M, C].
        loss: `softmax` or `sigmoid`.
        share: of all rows that are returned.
        frequency: of each class among the labelled rows, float [C].

    Returns:
        The K rows, in order, and their targets, 0 or 1, float [K, C].

    Example:
        >>> logits = np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
        >>> rows, _ = confident_rows(logits, "softmax", 0.5, np.ones(2) / 2)
        >>> rows.tolist()
        [0, 3]
    """
    if loss == "softmax":
        found = probabilities(logits, loss)
        answers = np.eye(logits.shape[1])[found.argmax(axis=1)]
        confidence = found.max(axis=1)
    else:
        limits = [
            np.quantile(column, 1 - part)
            for column, part in zip(logits.T, frequency, strict=True)
        ]
        answers = (logits >= limits).astype(np.float64)
        confidence = np.abs(logits - limits).min(axis=1)
    groups = np.column_stack([answers > 0, ~answers.any(axis=1)]).T
    chosen: set[int] = set()
    counts = np.append(frequency * len(logits), groups[-1].sum())
    for group, count in zip(groups, counts.tolist(), strict=True):
        rows = np.flatnonzero(group)
        order = np.argsort(-confidence[rows], kind="stable")
        chosen.update(rows[order[: math.ceil(share * count)]].tolist())
    kept = sorted(chosen)
    return np.array(kept), answers[kept]
