"""Curves and doubtful labels equal those of scikit-learn and cleanlab."""

import numpy as np
import pytest

from bert_keras.scoring.curves import (
    average_precision,
    precision_recall_curve,
    roc_auc,
    roc_curve,
)
from bert_keras.scoring.doubtful_labels import doubtful_labels

sklearn = pytest.importorskip("sklearn.metrics")


@pytest.mark.parametrize("digits", [1, 9])  # 1: many equal scores
@pytest.mark.parametrize("size", [5, 300])
def test_curves_equal_those_of_scikit_learn(size, digits):
    rng = np.random.default_rng(size)
    labels = np.append(rng.integers(0, 2, size), [0, 1])
    scores = (0.4 * labels + 0.6 * rng.random(size + 2)).round(digits)
    assert roc_auc(labels, scores) == pytest.approx(
        sklearn.roc_auc_score(labels, scores)
    )
    assert average_precision(labels, scores) == pytest.approx(
        sklearn.average_precision_score(labels, scores)
    )
    x, y, _ = sklearn.roc_curve(labels, scores, drop_intermediate=False)
    ours = roc_curve(labels, scores)
    assert ours[0] == pytest.approx(x) and ours[1] == pytest.approx(y)
    precision, recall, levels = sklearn.precision_recall_curve(labels, scores)
    found = precision_recall_curve(labels, scores)
    # There the thresholds ascend, and a last point has recall 0.
    for our, their in zip(found, (precision, recall, levels), strict=True):
        their = their if their is levels else their[:-1]
        assert our[::-1] == pytest.approx(their)


@pytest.mark.parametrize("num_classes", [2, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_doubtful_labels_equal_those_of_cleanlab(seed, num_classes):
    cleanlab = pytest.importorskip("cleanlab.filter")
    rng = np.random.default_rng(seed)
    true = rng.integers(0, num_classes, 400)
    p = 0.4 * rng.dirichlet(np.ones(num_classes), 400) + 0.6 * np.eye(num_classes)[true]
    labels = true.copy()
    wrong = rng.choice(400, 40, replace=False)
    labels[wrong] = rng.integers(0, num_classes, 40)
    theirs = cleanlab.find_label_issues(
        labels,
        p,
        filter_by="confident_learning",
        return_indices_ranked_by="self_confidence",
        n_jobs=1,
    )
    assert len(theirs) > 5
    assert doubtful_labels(labels, p).tolist() == theirs.tolist()
