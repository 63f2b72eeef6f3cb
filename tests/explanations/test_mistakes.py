"""Explanations of the rows that a model answers wrongly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from conftest import ROWS, thorough
from task_cases import first_case

from bert_keras.data.table import as_columns
from bert_keras.errors import ConfigError, DataError
from bert_keras.explanations.explainer import explain
from bert_keras.inference.predictor import Predictor

TEXTS = [text for text, _ in ROWS]
FAST: dict[str, Any] = {"method": "gradient-input"}


@pytest.fixture(autouse=True, scope="module")
def eager(spam_model: Any) -> Iterator[None]:
    """Tracing takes longer than what is computed here; training is traced."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def mislabelled(model: Any, wrong: int) -> tuple[dict[str, Any], list[Any]]:
    """Return rows of which the first have a wrong label, and the model's answers."""
    answers = Predictor(model).predict(TEXTS)
    labels = [answer["label"] for answer in answers]
    for row in range(wrong):
        labels[row] = next(x for x in model.task.classes if x != labels[row])
    return {"text": TEXTS, "label": labels}, answers


def test_the_surest_wrong_answers_are_explained_against_the_label(
    spam_model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, answers = mislabelled(spam_model, 3)
    found = explain(spam_model, rows, mistakes=2, **FAST)
    assert "3 mistakes in 12 rows; explained: 2" in capsys.readouterr().err
    surest = sorted(range(3), key=lambda row: -answers[row]["score"])[:2]
    assert [each.texts["text"] for each in found] == [TEXTS[row] for row in surest]
    for each, row in zip(found, surest, strict=True):
        label = rows["label"][row]
        assert (each.line, each.label, each.against) == (row + 1, label, (label,))
        assert each.targets == (answers[row]["label"],)
        assert each.to_dict()["line"] == row + 1
    page = found.write(tmp_path / "page.html").read_text("utf-8")
    label = rows["label"][surest[0]]
    assert f"Line {surest[0] + 1}</span>" in page
    assert f"True label</span> {label} " in page
    assert f"rather than <b>{label}</b>" in page
    (other,) = explain(spam_model, rows, mistakes=1, target="ham", **FAST)
    assert (other.targets, other.against) == (("ham",), ("",))


def test_rows_of_a_file_have_their_lines(
    spam_model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, _ = mislabelled(spam_model, 1)
    columns = as_columns(**rows)
    again = dataclasses.replace(columns, lines=[5] * len(columns))  # all in one line
    (found,) = explain(spam_model, again, mistakes=9, **FAST)
    assert found.line == 5 and found.texts["text"] == TEXTS[0]
    assert "1 mistake in 12 rows; explained: 1" in capsys.readouterr().err


def test_without_a_mistake_nothing_is_explained(
    spam_model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, _ = mislabelled(spam_model, 0)
    assert explain(spam_model, rows, mistakes=3) == []
    assert "mistake" not in capsys.readouterr().err


WITH_MISTAKES = [
    "regression",
    "question-answering",
    "multi-label",
    *map(thorough, ("multiple-choice", "summarization", "token-classification")),
    *map(thorough, ("embedding", "reranking", "feature-tagging", "next-sentence")),
]


@pytest.mark.parametrize("name", WITH_MISTAKES)
@pytest.mark.slow
def test_mistakes_of_each_task_are_explained(
    name: str, make_model: Callable[..., Any]
) -> None:
    case = first_case(name)
    model = make_model(case.task)
    answers = Predictor(model).answers(case.columns)
    wanted = case.task.mistakes(case.columns, answers)
    assert wanted  # of a model that has learned nothing
    found = explain(model, case.columns, mistakes=2, **FAST)
    assert len(found) == min(2, len(wanted))
    for each, mistake in zip(found, wanted, strict=False):
        assert each.line == mistake.get("line") and each.label
        text = mistake["text"].split("  |  ")[0]
        assert text in " ".join(each.texts.values())


@pytest.mark.parametrize("name", ["translation", "masked-lm"])
def test_tasks_without_mistakes_are_refused(
    name: str, make_model: Callable[..., Any]
) -> None:
    case = first_case(name)
    model = make_model(case.task)
    rule = {
        "translation": "the task translation cannot be explained",
        "masked-lm": "`mistakes` must be left out for the task masked-lm, .*received 3",
    }
    with pytest.raises(ConfigError, match=rule[name]):
        explain(model, case.columns, mistakes=3)


def test_mistakes_of_ones_own_task_need_a_line(
    make_model: Callable[..., Any], spam_model: Any
) -> None:
    class Own(type(spam_model.task)):  # type: ignore[misc]
        def mistakes(self, columns: Any, answers: Any) -> list[dict[str, Any]]:
            return [{"text": columns["text"][0]}]

    model = make_model(Own(**spam_model.task.get_config()))
    rows = {"text": TEXTS[:1], "label": ["ham"]}
    with pytest.raises(ConfigError, match="must have the `line` of each row; .* text"):
        explain(model, rows, mistakes=1)


def test_what_is_wrong_is_named(spam_model: Any) -> None:
    def refused(error: type[Exception], match: str, rows: Any, **given: Any) -> None:
        with pytest.raises(error, match=match):
            explain(spam_model, rows, **{"mistakes": 1, **given})

    rows = {"text": TEXTS, "label": ["ham"] * len(TEXTS)}
    rule = "`mistakes` must be a whole number of at least 1; received 0"
    refused(ConfigError, rule, rows, mistakes=0)
    rule = "`labels` must be left out with `mistakes`.*received 1 label"
    refused(ConfigError, rule, rows, labels=["ham"])
    refused(DataError, "`label`", {"text": TEXTS})
    refused(DataError, "'eggs'", {"text": ["win"], "label": ["eggs"]})
