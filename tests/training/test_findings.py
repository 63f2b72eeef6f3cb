"""What a report shows of answers, from answers written by hand."""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import numpy as np
import pytest

from bert_keras.data.row_source import RowSource
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import Predictor
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.regression import Regression
from bert_keras.training.findings import (
    ALL,
    LENGTH,
    ExplanationCosts,
    _different,
    curves_of,
    explained_mistakes,
    findings_of,
    slices_of,
)
from bert_keras.training.lengths import TextLengths

TWO = Classification(("ham", "spam"))
P_SPAM = np.array([0.1, 0.2, 0.9, 0.8, 0.7, 0.1])
LABELS = ["ham", "ham", "ham", "spam", "spam", "spam"]
ROWS = as_columns(
    text=["a", "b", "win", "cash", "prize", "see you"],
    label=LABELS,
    channel=["web", "phone"] * 3,
)
ANSWERS = {"probabilities": np.stack([1 - P_SPAM, P_SPAM], axis=1)}


def test_decisions_of_the_positive_class() -> None:
    true, p = TWO.decisions(ROWS, ANSWERS)["spam"]
    assert true.tolist() == [False] * 3 + [True] * 3 and p.tolist() == P_SPAM.tolist()
    other = Classification(TWO.classes, positive_class="ham")
    assert list(other.decisions(ROWS, ANSWERS)) == ["ham"]
    three = Classification(("ham", "more", "spam"))
    assert three.decisions(ROWS, ANSWERS) == {}


def test_the_threshold_of_dev_is_applied_to_test() -> None:
    lengths = TextLengths(np.arange(6), np.zeros(6, int))
    reversed_answers = {"probabilities": ANSWERS["probabilities"][::-1]}
    scored = {
        "dev": (ROWS, ANSWERS, lengths),
        "test": (ROWS, reversed_answers, lengths),
    }
    values = findings_of(TWO, scored)
    dev, test = (values["curves"][split]["spam"]["at"][1] for split in ("dev", "test"))
    assert dev["threshold"] == test["threshold"] and dev["f1"] > test["f1"]
    assert set(values) == {"curves", "slices", "doubtful_labels"}
    json.dumps(values)


def test_only_frequent_labels_have_points() -> None:
    true = np.tril(np.ones((9, 9), bool))[:, :8]  # label i is in 9 - i rows
    found = {f"label {i}": (true[:, i], np.linspace(0, 1, 9)) for i in range(1, 8)}
    curves = curves_of(found)
    assert len(curves) == 7
    drawn = [name for name, curve in curves.items() if "roc" in curve]
    assert drawn == [f"label {i}" for i in range(1, 7)]


def test_scores_of_slices() -> None:
    lost = np.array([0, 0, 0, 0, 1, 1])
    lengths = TextLengths(np.array([3, 3, 3, 4, 4, 4]), lost, max_length=4)
    found = slices_of(TWO, ROWS, ANSWERS, lengths=lengths, names=["channel"])
    assert list(found) == [ALL, LENGTH, "channel"]
    assert found[ALL][0]["accuracy"] == pytest.approx(4 / 6)
    assert [row["slice"] for row in found[LENGTH]] == ["3", "4", "5"]
    assert [row["truncated"] for row in found[LENGTH]] == [0, 0, 1]
    assert [row["accuracy"] for row in found["channel"]] == pytest.approx([2 / 3] * 2)
    # Answers that are not one a row, such as the vectors of pairs.
    assert slices_of(TWO, ROWS, {"embedding": np.zeros((12, 2))}) == {}


def test_a_score_that_fails_for_a_slice_is_left_out() -> None:
    class Fragile(Classification):
        def score(self, columns: Any, answers: Any) -> dict[str, Any]:
            return {"accuracy": 1 / (len(columns) - 3)}

    found = slices_of(Fragile(TWO.classes), ROWS, ANSWERS, names=["channel"])
    assert found[ALL][0]["accuracy"] == pytest.approx(1 / 3)
    assert [row["accuracy"] for row in found["channel"]] == [None, None]


def doubted(task: Any, labels: list[str]) -> Any:
    """Return the doubtful rows of 20 of the first class, then 20 of the second."""
    p = np.repeat([0.1, 0.9], 20)
    p[2] = 0.05
    columns = as_columns(text=["a", "b", "win"] + ["c"] * 37, label=labels)
    answers = {"probabilities": np.stack([1 - p, p], axis=1)}
    return task.doubtful_labels(columns, answers)


def test_doubtful_rows_name_both_labels() -> None:
    labels = ["ham"] * 2 + ["spam"] + ["ham"] * 17 + ["spam"] * 20
    (found,) = doubted(TWO, labels)
    assert found == {
        "line": 3, "label": "spam", "probable_label": "ham", "text": "win",
        "probability_of_label": pytest.approx(0.05),
        "probability_of_other": pytest.approx(0.95),
    }  # fmt: skip
    assert TWO.doubtful_labels(ROWS, ANSWERS) == []  # a third of six rows is wrong
    lengths = TextLengths(np.arange(6), np.zeros(6, int))
    scored = {"dev": (ROWS, ANSWERS, lengths)}
    assert findings_of(TWO, scored)["doubtful_labels"] == {"dev": []}
    numbers = as_columns(text=["a", "b"], label=["1", "2"])
    scored = {"dev": (numbers, {"score": np.arange(2.0)}, lengths.take([0, 1]))}
    found = findings_of(Regression(), scored)
    assert found["curves"] == found["doubtful_labels"] == {}


def test_doubtful_labels_of_several() -> None:
    labels = ["x"] * 2 + ["y"] + ["x"] * 17 + ["y"] * 20
    rows = doubted(MultiLabel(("x", "y")), labels)
    assert {(row["line"], row["label"], row["probable_label"]) for row in rows} == {
        (3, "y", "not y"), (3, "not x", "x")
    }  # fmt: skip


def test_explained_mistakes_differ_in_their_classes() -> None:
    rows = [
        {"line": line, "label": label, "prediction": prediction}
        for line, label, prediction in (
            (1, "a", "b"), (2, "a", "b"), (3, "b", "a"), (4, "a", "b"), (5, "c", "a")
        )
    ]  # fmt: skip
    assert [row["line"] for row in _different(rows)] == [1, 3, 5, 2, 4]


@pytest.mark.parametrize("empty", ["", None, float("nan")])
def test_slices_come_from_a_column_of_the_source(empty: Any) -> None:
    table = {"text": ["a", "b"], "label": ["ham", "spam"], "channel": ["web", empty]}
    columns = TWO.read(table).take([1, 0])
    found = RowSource(table).with_slices(columns, ["channel"])
    assert found["slice channel"] == ["", "web"] and len(found) == 2


def test_confident_mistakes_are_explained(
    make_model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_model(TWO)
    columns = as_columns(text=["win cash now", "see you"], label=["ham", "spam"])
    mistakes = [
        {"line": 2, "label": "ham"}, {"line": 9, "label": "ham"}, {"line": 1}
    ]  # fmt: skip
    answers = Predictor(model).predict(["see you"])
    label = next(name for name in TWO.classes if name != answers[0]["label"])
    mistakes[0]["label"] = label
    explained = functools.partial(
        explained_mistakes, Predictor(model), columns, mistakes
    )
    (found,) = explained(most=1, seconds=60, costs=ExplanationCosts(3, 1e-3))
    json.dumps(found)
    assert found["line"] == 2 and found["label"] == label
    (target,) = found["targets"]
    assert (target["name"], target["against"]) == (answers[0]["label"], label)
    assert {bar["text"] for bar in target["bars"]} == {"see", "you"}
    assert explained(most=1, seconds=0, costs=ExplanationCosts(3, 1e-3)) == []
    # 0.4 of the first update, or 18 points of each of four tokens, take too long, or
    # without an update four answers.
    for costs, seconds in (((3.0, 1e-3), 1), ((0.1, 0.1), 1), ((math.nan, 0), 1e-3)):
        found = explained(most=1, seconds=seconds, costs=ExplanationCosts(*costs))
        assert found == []
        line = capsys.readouterr().err
        assert "does not explain mistakes" in line and "bert-keras explain" in line


def test_a_pair_that_is_a_mistake_is_explained(
    make_model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor = Predictor(make_model(Embedding()))
    columns = as_columns(text=["win cash", "hello"], text_pair=["a prize", "see you"])
    costs = ExplanationCosts(0.1, 1e-6)
    (found,) = explained_mistakes(
        predictor, columns, [{"line": 2}], most=1, seconds=60, costs=costs
    )
    (target,) = found["targets"]
    assert {bar["text"] for bar in target["bars"]} == {"hello", "see", "you"}
    assert not capsys.readouterr().err


def test_what_an_explanation_takes_is_learned() -> None:
    costs = ExplanationCosts(2.0, math.nan)
    assert costs.fits((), 0.81) and not costs.fits((), 0.79)
    costs.learn((), 0.2)
    assert costs.fits((), 0.21) and not costs.fits((), 0.19)
    unknown = ExplanationCosts(math.nan, math.nan)
    assert unknown.fits((), 0.0)
    unknown.answered(0.1)
    assert unknown.fits((), 0.41) and not unknown.fits((), 0.39)
