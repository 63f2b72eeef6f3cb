"""Wrong labels are found by confident learning, worked out by hand."""

import numpy as np
from conftest import refused

from bert_keras.scoring.doubtful_labels import confident_classes, doubtful_labels


def test_the_confident_joint_by_hand():
    labels = [0, 0, 0, 1, 1, 1]
    p = np.array([0.9, 0.8, 0.1, 0.2, 0.3, 0.75])[:, None] * [1, -1] + [0, 1]
    # Thresholds: class 0 the mean of 0.9, 0.8, 0.1 = 0.6; class 1 of 0.8, 0.7, 0.25.
    assert confident_classes(labels, p).tolist() == [0, 0, 1, 1, 1, 0]
    assert doubtful_labels(labels, p).tolist() == [2, 5]  # the least probable first


def test_a_class_that_is_seldom_sure_has_a_lower_threshold():
    labels = [0] * 4 + [1] * 4
    p0 = np.array([0.99, 0.98, 0.97, 0.60, 0.45, 0.42, 0.40, 0.55])
    p = np.stack([p0, 1 - p0], axis=1)
    # 0.55 is more than half, but class 0 is confident from 0.885 only.
    assert p.argmax(axis=1)[7] == 0 and labels[7] == 1
    assert doubtful_labels(labels, p).tolist() == []


def test_planted_errors_are_found():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 600)
    p = rng.dirichlet(np.ones(3), 600) * 0.4 + 0.6 * np.eye(3)[true]
    given = true.copy()
    wrong = rng.choice(600, 30, replace=False)
    given[wrong] = (given[wrong] + 1) % 3
    found = doubtful_labels(given, p)
    # About half of the probabilities are above their mean.
    assert len(found) >= 14 and {*found.tolist()} <= {*wrong.tolist()}
    own = p[found, given[found]]
    assert (np.diff(own) >= 0).all()


def test_a_class_without_rows_is_never_suggested():
    p = [[0.1, 0.1, 0.8], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]
    assert confident_classes([0, 0, 1], p).tolist() == [-1, 0, 1]
    assert doubtful_labels([0, 0, 1], p).tolist() == []
    refused(lambda: doubtful_labels([0], [[0.5, 0.2]]), "sum to 1")
