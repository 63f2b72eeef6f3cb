"""Next sentence: pairs of documents, the pretrained head, answers by hand."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.checkpoints import write_huggingface
from bert_keras.data.table import as_columns
from bert_keras.models.loading import load_model, new_model
from bert_keras.models.model_folder import save_model
from bert_keras.tasks import parse_settings
from bert_keras.tasks.next_sentence import NextSentence, pairs_of_documents
from bert_keras.training.config import TrainConfig

DOCUMENTS = [[(i, f"{name}{i}") for i in range(9)] for name in "abcd"]


def test_half_of_the_pairs_are_neighbours() -> None:
    made = pairs_of_documents(DOCUMENTS, path="a.txt")
    assert Counter(made["label"]) == {"next": 16, "not_next": 16}
    for first, second, label in zip(*made.cells.values(), strict=True):
        follows = second == f"{first[0]}{int(first[1]) + 1}"
        assert follows == (label == "next")
        assert follows or first[0] != second[0]  # of another document


def test_a_file_of_documents(tmp_path: Path) -> None:
    path = tmp_path / "stories.txt"
    path.write_text("\nIt rains.\n I stay in. \r\nSo what?\n\n\nTwo eggs.\nMilk.\n")
    made = NextSentence.read(path)
    assert made["text"] == ["It rains.", "I stay in.", "Two eggs."]
    assert made.lines == [2, 3, 7]
    assert sorted(made["label"]) == ["next", "next", "not_next"]
    assert NextSentence.read(path) == made


def test_a_file_of_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text("text\ttext_pair\tlabel\na\tb\tnext\nb\tc\tnot_next\n")
    made = NextSentence.read(path)
    assert NextSentence().targets(made).tolist() == [0, 1]
    line = refused(lambda: NextSentence(labels=("1", "0")).targets(made))
    assert "one of 1, 0" in line and "line 2" in line


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a\nb\n", "two documents or more"),
        ("a\nb\n\n \n", "two documents or more"),
        ("a\n\nb\n", "of two sentences"),
    ],
)
def test_too_little_to_make_pairs_of(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "stories.txt"
    path.write_text(text)
    refused(lambda: NextSentence.read(path), part)


def test_answers_by_hand() -> None:
    task = NextSentence(temperature=2.0)
    answers = task.answer(tf.constant([[2.0, 0.0], [0.0, 4.0]]), {})
    wanted = [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(2))]
    np.testing.assert_allclose(answers["probability"], wanted, rtol=1e-6)
    assert answers["is_next"].numpy().tolist() == [True, False]
    rows = as_columns(text=["a", "b"], text_pair=["c", "d"], label=["next", "next"])
    found = {key: value.numpy() for key, value in answers.items()}
    scores = task.score(rows, found)
    assert scores["accuracy"] == 0.5 and scores["f1"] == pytest.approx(2 / 3)
    (mistake,) = task.mistakes(rows, found)
    assert mistake["line"] == 2 and mistake["prediction"] == "not_next"


def test_settings_of_the_command_line() -> None:
    settings = parse_settings(NextSentence, ["labels=[1, 0]"])
    assert NextSentence(**settings).labels == ("1", "0")


def test_the_temperature_is_learned_from_dev_rows() -> None:
    task = NextSentence(calibration="temperature")
    logits = tf.constant([[2.2, 0.0], [0.0, 2.2], [2.2, 0.0], [2.2, 0.0]])
    labels = ["next", "not_next", "not_next", "next"]
    rows = as_columns(text=["a"] * 4, text_pair=["b"] * 4, label=labels)
    answers = {key: value.numpy() for key, value in task.answer(logits, {}).items()}
    assert task.tune(rows, answers).temperature == pytest.approx(2.2 / np.log(3), 1e-5)


def test_a_pair_that_is_not_sure_is_abstained() -> None:
    task = NextSentence(answered_accuracy=1.0)
    logits = tf.constant([[3.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 0.5]])
    labels = ["next", "not_next", "not_next", "next"]
    rows = as_columns(text=["a"] * 4, text_pair=["b"] * 4, label=labels)
    tuned = task.tune(
        rows, {key: value.numpy() for key, value in task.answer(logits, {}).items()}
    )
    answers = {key: value.numpy() for key, value in tuned.answer(logits, {}).items()}
    assert answers["abstained"].tolist() == [False, False, True, True]
    assert answers["is_next"].tolist() == [True, False, True, False]
    scores = tuned.score(rows, answers)
    assert (scores["coverage"], scores["answered_accuracy"]) == (0.5, 1.0)
    assert "abstained" not in NextSentence().answer(logits, {})


def pretrained(model: Any, folder: Path) -> Path:
    """Write a folder as pretraining does, with both heads."""
    save_model(model, folder)
    config = model.backbone.config
    hidden, rows = config.hidden_size, config.vocab_size
    arrays = {weight.path: weight.numpy() for weight in model.weights}
    scope = "cls/predictions"
    arrays |= {
        f"{scope}/transform/dense/kernel": np.zeros((hidden, hidden), "float32"),
        f"{scope}/transform/dense/bias": np.zeros(hidden, "float32"),
        f"{scope}/transform/LayerNorm/gamma": np.ones(hidden, "float32"),
        f"{scope}/transform/LayerNorm/beta": np.zeros(hidden, "float32"),
        f"{scope}/output_bias": np.zeros(rows, "float32"),
    }
    settings = {**config.to_dict(), "architectures": ["BertForPreTraining"]}
    write_huggingface(folder, arrays, settings)
    return folder


@pytest.mark.slow
def test_a_pretrained_head_answers_and_is_trained_further(
    make_model: Callable[..., Any], tmp_path: Path, encoder_folder: Path, capsys: Any
) -> None:
    model = make_model(NextSentence())
    assert "cls/seq_relationship is initialized randomly" in capsys.readouterr().err
    folder = pretrained(model, tmp_path / "pretrained")
    pairs = (tf.constant(["see you", "free cash"]), tf.constant(["at six", "lunch"]))
    wanted = model.answer(pairs)["probability"]
    loaded = load_model(folder, task="next-sentence")
    np.testing.assert_allclose(loaded.answer(pairs)["probability"], wanted, atol=1e-6)
    config = TrainConfig(max_length=24)
    begun = new_model(NextSentence(), folder, config)
    np.testing.assert_allclose(begun.answer(pairs)["probability"], wanted, atol=1e-6)
    assert "is initialized randomly" not in capsys.readouterr().err
    new_model(NextSentence(), encoder_folder, config)
    line = "no next-sentence head (cls/seq_relationship): it is initialized randomly"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", ("a",)),
        ("labels", ("a", "a")),
        ("labels", (1, 0, 2)),
        ("labels", 5),
        ("labels", "ab"),
        ("temperature", -1),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: Any) -> None:
    refused(lambda: dataclasses.replace(NextSentence(), **{name: value}), f"`{name}`")
