"""Self-training of a head, without models."""

from __future__ import annotations

import numpy as np
import pytest

from bert_keras.training.linear_head import (
    cross_validate,
    fit_head,
    probabilities,
    stratified_folds,
)
from bert_keras.training.self_training import (
    confident_rows,
    self_trained_head,
    validate_self_training,
)


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_self_training_finds_the_clusters_of_unlabeled_rows(loss: str) -> None:
    random = np.random.default_rng(0)
    centers = random.normal(size=(4, 50)) / 2

    def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
        classes = np.arange(count) % 4
        return centers[classes] + random.normal(size=(count, 50)), np.eye(4)[classes]

    (x, targets), (others, _), (test, wanted) = rows(24), rows(400), rows(400)

    def accuracy(logits: np.ndarray, targets: np.ndarray) -> float:
        return float((logits.argmax(axis=1) == targets.argmax(axis=1)).mean())

    (plain,) = fit_head(x, targets, loss=loss, l2=0.03)
    head = self_trained_head(x, targets, others, loss=loss, l2=0.03)
    gain = accuracy(head(test), wanted) - accuracy(plain(test), wanted)
    assert gain > 0.03
    folds = stratified_folds([(str(n % 4),) for n in range(24)], seed=0)
    before = cross_validate(x, targets, folds, loss=loss)
    after = validate_self_training(x, targets, others, folds, loss=loss, l2=0.03)
    assert accuracy(after.logits, targets) > accuracy(before.logits, targets)


def test_classes_are_as_frequent_as_among_labelled_rows() -> None:
    random = np.random.default_rng(1)
    logits = random.normal(size=(100, 3)) + [2, 1, 0]
    rows, answers = confident_rows(logits, "softmax", 0.1, np.array([0.3, 0.5, 0.2]))
    assert answers.sum(axis=0).tolist() == [3, 5, 2]
    sure = probabilities(logits, "softmax").max(axis=1)
    best = sure[logits.argmax(axis=1) == 2].max()
    assert best in sure[rows[answers[:, 2] > 0]]
    rows, answers = confident_rows(logits, "sigmoid", 0.1, np.array([0.5, 0.3, 0.0]))
    assert 10 <= len(rows) < 20 and (answers.sum(axis=1) == 0).any()
