"""Wrong labels are found by confident learning, worked out by hand."""

import numpy as np
from conftest import refused

from bert_keras.scoring.doubtful_labels import (
    confident_classes,
    doubtful_labels,
    labels_to_check,
)


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


def test_labels_are_to_be_checked_only_where_the_model_is_reliable():
    """Two classes of a good model, two that it confuses; each has one wrong label."""
    certain = np.full((80, 4), 0.01)
    true = np.arange(80) // 20
    certain[np.arange(80), true] = 0.97
    # The last two classes are told apart by chance, with the same certainty.
    certain[40:60:2] = certain[60]
    certain[60:80:2] = certain[40]
    labels = true.copy()
    labels[0], labels[20] = 1, 0
    assert {*doubtful_labels(labels, certain).tolist()} > {0, 20}
    assert labels_to_check(labels, certain).tolist() == []  # 58 of 78 others are right
    certain[40:] = 0.6 * certain[40:] + 0.1
    assert sorted(labels_to_check(labels, certain).tolist()) == [0, 20]
    # One more wrong label is too much of a class as small as that.
    few = np.r_[0:4, 20:40]
    labels[1] = 1
    assert 20 not in labels_to_check(labels[few], certain[few])
