"""Metrics equal scikit-learn's on random and on degenerate data."""

import re
import warnings

import numpy as np
import pytest

from bert_keras.scoring.bm25 import BM25
from bert_keras.scoring.classification import (
    classification_scores,
    confusion_matrix,
    matthews_correlation,
)

peer = pytest.importorskip("sklearn.metrics")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_classes", [2, 3, 12])
@pytest.mark.parametrize("size", [1, 5, 300])
def test_equal_to_scikit_learn(seed, num_classes, size):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_classes, size)
    p = rng.dirichlet(np.ones(num_classes), size)
    predictions = p.argmax(axis=1)
    classes = list(range(num_classes))
    names = [f"class {number}" for number in classes]
    ours = classification_scores(labels, p, class_names=names)

    matrix = peer.confusion_matrix(labels, predictions, labels=classes)
    assert ours["confusion_matrix"] == matrix.tolist()
    assert ours["accuracy"] == pytest.approx(peer.accuracy_score(labels, predictions))
    macro = peer.f1_score(labels, predictions, average="macro", zero_division=0)
    assert ours["macro_f1"] == pytest.approx(macro)
    with warnings.catch_warnings():
        # It warns of a single label that labels and predictions share.
        warnings.simplefilter("ignore", UserWarning)
        matthews = peer.matthews_corrcoef(labels, predictions)
    assert ours["matthews_correlation"] == pytest.approx(matthews)
    loss = peer.log_loss(labels, p, labels=classes)
    assert ours["loss"] == pytest.approx(loss)
    columns = peer.precision_recall_fscore_support(
        labels, predictions, labels=classes, zero_division=0
    )
    for key, column in zip(
        ("precision", "recall", "f1", "support"), columns, strict=True
    ):
        values = [ours["per_class"][name][key] for name in names]
        assert values == pytest.approx(column.tolist())


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [([0, 0, 0], [0, 0, 0]), ([0, 1, 2], [1, 1, 1]), ([2, 2], [0, 1]), ([1], [0])],
)
def test_degenerate_data(labels, predictions):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = peer.matthews_corrcoef(labels, predictions)
    assert matthews_correlation(labels, predictions) == pytest.approx(expected)
    macro = peer.f1_score(labels, predictions, average="macro", zero_division=0)
    p = np.eye(3)[predictions]
    scores = classification_scores(labels, p, class_names=["a", "b", "c"])
    assert scores["macro_f1"] == pytest.approx(macro)
    columns = peer.precision_recall_fscore_support(
        labels, predictions, labels=[0, 1, 2], zero_division=0
    )
    keys = ("precision", "recall", "f1", "support")
    for key, theirs in zip(keys, columns, strict=True):
        mine = [row[key] for row in scores["per_class"].values()]
        np.testing.assert_allclose(mine, theirs)
    matrix = peer.confusion_matrix(labels, predictions, labels=[0, 1, 2])
    assert (confusion_matrix(labels, predictions, num_classes=3) == matrix).all()


def test_many_rows_do_not_overflow():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 2_000_000)
    predictions = np.where(rng.random(len(labels)) < 0.7, labels, 1 - labels)
    expected = peer.matthews_corrcoef(labels, predictions)
    assert matthews_correlation(labels, predictions) == pytest.approx(expected)


def test_bm25_scores() -> None:
    peer = pytest.importorskip("bm25s")
    texts = ["pay a bill, pay soon", "reset a password", "the bill of a password"]
    words = [re.findall(r"\w+", text) for text in texts]
    made = peer.BM25(method="lucene", k1=1.5, b=0.75)
    made.index(words, show_progress=False)
    for query in ("pay the bill", "password bill bill"):
        wanted = made.get_scores(query.split())
        np.testing.assert_allclose(BM25(texts).scores(query), wanted, atol=1e-6)
