"""Multiple choice: answers of rows of different lengths, scores, and misuse."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor
from bert_keras.models.model_folder import save_model
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.multiple_choice import MultipleChoice

ITEMS = [
    ("see you", ["at six", "win cash", "now"]),
    ("lunch", ["at home", "half off"]),
    ("a sale", ["a", "b", "c", "d", "e"]),
]


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    return make_model(MultipleChoice())


@pytest.fixture(scope="module")
def predictor(model: Any) -> Predictor:
    return Predictor(model)


@pytest.fixture(scope="module")
def unsure(make_model: Callable[..., Any]) -> Any:
    """Return a model that leaves rows unanswered."""
    return make_model(MultipleChoice(temperature=2.0, abstain_below=0.45))


@pytest.fixture(scope="module")
def served(unsure: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the signatures of the export of `unsure`."""
    folder = export_model(unsure, tmp_path_factory.mktemp("served"))
    return tf.saved_model.load(folder).signatures


def as_served(items: Any) -> tuple[tf.Tensor, tf.Tensor]:
    choices = tf.ragged.constant([choices for _, choices in items]).to_tensor("")
    return tf.constant([context for context, _ in items]), choices


@pytest.mark.slow
@pytest.mark.parametrize("labels", [[0, 2, 4], [0, -1, 4], [0.0, 0.5, 4.0], "021"])
def test_fit_checks_the_number_of_each_choice(model: Any, labels: Any) -> None:
    x = tuple(part.numpy() for part in as_served(ITEMS))
    model.compile(loss="sparse_categorical_crossentropy", run_eagerly=True)
    if labels == "021":  # one a row, each there
        model.fit(x, np.array([[0], [1], [4]]), verbose=0)
        labels = list(labels)
        labels[1] = "2"
    refused(
        lambda: model.fit(x, np.array(labels), verbose=0),
        "`label` must be the number, from 0, of a choice of its row",
        f"received '{labels[1]}'",
    )


def test_a_row_has_as_many_probabilities_as_choices(predictor: Predictor) -> None:
    rows = predictor.predict(ITEMS)
    for (_, choices), row in zip(ITEMS, rows, strict=True):
        assert len(row["probabilities"]) == len(choices)
        assert sum(row["probabilities"]) == pytest.approx(1, abs=1e-5)
        assert row["choice"] == choices[row["index"]]
        assert row["score"] == max(row["probabilities"])


def test_rows_do_not_depend_on_the_others(predictor: Predictor) -> None:
    together = predictor.predict(ITEMS, batch_size=2)
    for item, row in zip(ITEMS, together, strict=True):
        (alone,) = predictor.predict([item])
        assert alone["choice"] == row["choice"]
        np.testing.assert_allclose(
            alone["probabilities"], row["probabilities"], atol=1e-5
        )


def test_each_choice_is_a_pair_with_the_context(model: Any) -> None:
    texts = (tf.constant(["see you"]), tf.constant([["at six", "now", ""]]))
    batch = model.task.features(model.preprocessor.replace(layout="padded"), texts)
    pairs = model.preprocessor.replace(layout="padded")(
        (tf.constant(["see you"] * 2), tf.constant(["at six", "now"]))
    )
    for name, expected in pairs.items():
        assert batch[name].shape[:2] == (1, 3)
        np.testing.assert_array_equal(batch[name][0, :2], expected)
        assert not np.any(batch["padding_mask"][0, 2])
    scores = model(batch)
    assert scores.shape == (1, 3)
    assert scores[0, 2] == -1e9
    assert np.all(np.abs(scores[0, :2]) < 100)


def test_lengths_are_those_of_the_longest_choice(model: Any) -> None:
    texts = (
        tf.constant(["see", "you"]),
        tf.constant([["now", "a a a"], ["a " * 40, ""]]),
    )
    sizes, cut = model.task.lengths(model.preprocessor, texts)
    assert sizes.numpy().tolist() == [7, 24]
    assert cut.numpy().tolist() == [0, 20]


def test_scores_by_hand() -> None:
    columns = as_columns(
        context=["x"] * 3,
        choices=[["a", "b"], ["a", "b"], ["a", "b", "c"]],
        label=["0", "1", "2"],
    )
    answers = {
        "probabilities": np.array([[0.5, 0.5, 0], [0.75, 0.25, 0], [0, 0, 1.0]]),
        "index": np.array([0, 0, 2]),
        "score": np.array([0.5, 0.75, 1.0]),
    }
    task = MultipleChoice()
    scores = task.score(columns, answers)
    assert scores["accuracy"] == pytest.approx(2 / 3)
    assert scores["loss"] == pytest.approx((np.log(2) + np.log(4)) / 3)
    (mistake,) = task.mistakes(columns, answers)
    assert (mistake["line"], mistake["label"], mistake["prediction"]) == (2, "b", "a")


ROWS = as_columns(
    context=["x"] * 4,
    choices=[["a", "b"], ["a", "b"], ["a", "b"], ["a", "b", "c"]],
    label=["0", "1", "0", "0"],
)
LOGITS = tf.constant([[2.2, 0, -1e9], [2.2, 0, -1e9], [2.2, 0, -1e9], [9, 0, 0.0]])
TEXTS = {"choices": tf.constant([["a", "b", ""]] * 3 + [["a", "b", "c"]])}


def answered(task: MultipleChoice) -> dict[str, Any]:
    return {key: value.numpy() for key, value in task.answer(LOGITS, TEXTS).items()}


def test_confidence_of_rows_with_fewer_choices() -> None:
    task = MultipleChoice(calibration="temperature", temperature=0.5)
    found = answered(task)
    tuned = task.tune(ROWS, found)

    def loss(temperature: float) -> float:
        return task.score(ROWS, answered(MultipleChoice(temperature=temperature)))[
            "loss"
        ]

    assert tuned.temperature > 1
    best = tuned.temperature
    assert loss(best) < min(loss(0.97 * best), loss(1.03 * best))
    scores = tuned.score(ROWS, answered(tuned))
    before = task.score(ROWS, answered(MultipleChoice()))
    error = before["expected_calibration_error"]
    assert scores["uncalibrated_calibration_error"] == pytest.approx(error, abs=1e-5)
    assert scores["uncalibrated_loss"] == pytest.approx(before["loss"], abs=1e-5)
    assert scores["expected_calibration_error"] < error


@pytest.mark.slow
def test_a_row_that_is_not_sure_is_not_answered(unsure: Any, served: Any) -> None:
    task = MultipleChoice(answered_accuracy=0.9)
    tuned = task.tune(ROWS, answered(task))  # the surest is right, of the others 2 of 3
    found = answered(tuned)
    assert found["abstained"].tolist() == [True, True, True, False]
    assert found["choice"].tolist() == [b"", b"", b"", b"a"]
    assert found["index"].tolist() == [-1, -1, -1, 0]
    scores = tuned.score(ROWS, found)
    assert (scores["coverage"], scores["answered_accuracy"]) == (0.25, 1.0)
    assert scores["accuracy"] == 0.75  # of all rows, answered or not
    assert len(tuned.mistakes(ROWS, found)) == 1
    contexts, choices = as_served(ITEMS)
    answers = unsure.answer((contexts, choices))
    rows = rows_of({key: value.numpy() for key, value in answers.items()})
    assert {row["abstained"] for row in rows} == {True, False}
    given = served["serving_default"](context=contexts, choices=choices)
    assert given["choice"].numpy().tolist() == [row["choice"].encode() for row in rows]
    assert given["abstained"].numpy().tolist() == [row["abstained"] for row in rows]


@pytest.mark.parametrize(
    "item", ["text", ("a", "b"), ("a", []), ("a", ["b", ""]), ("a", ["b", 1]), ("a",)]
)
def test_wrong_items(predictor: Predictor, item: Any) -> None:
    refused(lambda: predictor.predict([ITEMS[0], item]), "(context,", "at index 1")


def test_wrong_labels_and_counts() -> None:
    columns = as_columns(
        context=["x"] * 3,
        choices=[["a", "b"], ["a"], ["a", "b"]],
        label=["2", "0", "b"],
    )
    refused(
        lambda: MultipleChoice().targets(columns), "3 bad lines", "'2'", "two or more"
    )


@pytest.mark.slow
def test_the_ids_signature_accepts_rows_of_choices(unsure: Any, served: Any) -> None:
    texts = as_served(ITEMS)
    batch = unsure.task.features(unsure.preprocessor.replace(layout="padded"), texts)
    ids = {name: batch[name] for name in ("token_ids", "segment_ids", "padding_mask")}
    logits = served["ids"](**ids)["logits"]
    answers = served["serving_default"](context=texts[0], choices=texts[1])
    found = tf.nn.softmax(logits / unsure.task.temperature)
    np.testing.assert_allclose(found, answers["probabilities"], atol=1e-5)


@pytest.mark.slow
def test_the_command_line(
    model: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    load_once: None,
) -> None:
    folder = str(save_model(model, tmp_path / "model"))
    file = tmp_path / "rows.jsonl"
    rows = [{"context": c, "choices": choices} for c, choices in ITEMS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["predict", folder, "--input", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, (context, choices) in zip(lines, ITEMS, strict=True):
        answer = json.loads(line)
        assert (answer["context"], answer["choices"]) == (context, choices)
        assert answer["choice"] in choices
    (context, choices), piped = ITEMS[0], ["\t".join([c, *some]) for c, some in ITEMS]
    wanted = [json.loads(line) for line in lines]
    for row in wanted:
        for key in ("score", "probabilities"):  # another batch rounds in another way
            row[key] = pytest.approx(row[key], abs=1e-6)
    assert main(["predict", folder, context, *choices]) == 0
    assert json.loads(capsys.readouterr().out) == wanted[0]

    def give(text: str) -> None:
        data = io.BytesIO(text.encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))

    give("\n".join(piped))
    assert main(["predict", folder]) == 0
    piped_lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in piped_lines] == wanted
    assert main(["predict", folder, context]) == 2
    assert "context and choices: give at least 2 texts" in capsys.readouterr().err
    give(f"{context}\n")
    assert main(["predict", folder]) == 2
    assert "stdin:1: " in capsys.readouterr().err
