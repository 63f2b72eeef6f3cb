"""The figures of the task by hand: `pytest` in this folder."""

import numpy as np
import pytest
from stars.ordinal import Stars

from bert_keras import BertKerasError, as_columns

COLUMNS = as_columns(text=["so so", "bad", "good"], label=["3", "1", "5"])


def test_targets_are_steps():
    steps = Stars().encode_targets(Stars().targets(COLUMNS)).numpy()
    assert steps.tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]


def test_answers_count_the_steps():
    logits = np.array([[9, 9, 0.1, -9], [-9, -9, -9, -9]], "float32")
    answers = Stars().answer(logits, {})
    assert answers["stars"].numpy().tolist() == [4, 1]
    assert answers["mean"].numpy().tolist() == pytest.approx([3.525, 1], abs=1e-3)


def test_scores():
    scores = Stars().score(COLUMNS, {"stars": np.array([3, 2, 2])})
    assert scores["accuracy"] == pytest.approx(1 / 3)
    assert scores["within_one"] == pytest.approx(2 / 3)
    assert scores["mean_absolute_error"] == pytest.approx(4 / 3)


def test_wrong_stars_are_named_by_line():
    with pytest.raises(BertKerasError, match=":2: .* one of 1, .*; received 'six'"):
        Stars().targets(as_columns(text=["a", "b"], label=["1", "six"]))
