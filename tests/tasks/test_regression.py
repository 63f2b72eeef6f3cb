"""A regression: scaling, the head of a finished model, scores, cells."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, SHARED, refused

from bert_keras.data.table import as_columns
from bert_keras.explanations.explainer import explain
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.hugging_face import unread_elsewhere
from bert_keras.tasks.regression import Regression
from bert_keras.training.config import TrainConfig
from bert_keras.training.finetune import TrainResult, train

TEXTS = [text for text, _ in ROWS]
PRICES = {"ham": "1010", "promo": "1250.5", "spam": "1.4e3"}
ROOM = as_columns(text=TEXTS, label=[PRICES[label] for _, label in ROWS])


def test_mean_and_deviation_are_learned() -> None:
    columns = as_columns(text=["a", "b", "c"], label=["1", "3", "8"])
    task = Regression.from_columns(columns)
    assert (task.mean, task.std) == (4.0, pytest.approx(math.sqrt(26 / 3)))
    assert Regression.from_columns(columns, scaling="none") == Regression("none")
    assert Regression.from_columns(columns, mean=1.0).mean == 1.0


def test_loss_and_answer_by_hand() -> None:
    task = Regression(mean=10.0, std=2.0)
    outputs = tf.constant([[0.5], [-1.0]])
    # Targets are 1 and -1 in units of the deviation: (0.5^2 + 0^2) / 2.
    assert float(task.loss()(np.float32([12, 8]), outputs)) == pytest.approx(0.125)
    np.testing.assert_allclose(task.answer(outputs, {})["score"], [11, 8])


def test_scores_by_hand() -> None:
    rows = as_columns(text=["a", "b", "c"], label=["1", "2", "3"])
    answers = {"score": np.float32([1, 4, 3])}
    scores = Regression().score(rows, answers)
    assert scores["spearman"] == pytest.approx(0.5)
    assert scores["pearson"] == pytest.approx(2 / math.sqrt(2 * 14 / 3))
    assert scores["root_mean_squared_error"] == pytest.approx(math.sqrt(4 / 3))
    assert scores["mean_absolute_error"] == pytest.approx(2 / 3)
    (mistake,) = Regression().mistakes(rows, answers)
    assert (mistake["line"], mistake["prediction"], mistake["error"]) == (2, 4.0, 2.0)
    huge = as_columns(text=["a", "b", "c"], label=["1e30", "2e30", "3e30"])
    answers = {"score": np.float32([1e30, 4e30, 3e30])}
    assert [each["line"] for each in Regression().mistakes(huge, answers)] == [2]


def test_the_head_takes_over_the_units(make_model: Callable[..., Any]) -> None:
    model = make_model(Regression(mean=1200.0, std=160.0))
    texts = tf.constant(TEXTS)
    before = model.answer(texts)["score"]
    model.task = model.task.finalize(model)
    assert model.task == Regression()
    np.testing.assert_allclose(model.answer(texts)["score"], before, rtol=1e-5)
    batch = model.preprocessor(texts)
    np.testing.assert_allclose(model(batch)[:, 0], before, rtol=1e-5)


BI: dict[str, Any] = {"pairs": True, "pooling": "mean", "pair_encoder": "bi"}


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_bi_encoder_compares_the_vectors_of_both_texts(
    layout: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(Regression(**BI, normalize=True), layout=layout)
    first, second = TEXTS, TEXTS[::-1]
    vectors = Embedding("mean", normalize=True)
    pooled = TaskModel(model.backbone, vectors, model.preprocessor)
    u, v = (
        np.asarray(pooled.answer(tf.constant(x))["embedding"]) for x in (first, second)
    )
    features = [abs(u - v), u * v, (u * v).sum(axis=1, keepdims=True)]
    head = model.get_layer("classifier")
    wanted = np.hstack(features) @ head.kernel.numpy() + head.bias.numpy()
    predictor = Predictor(model)
    rows = list(zip(first, second, strict=True))
    found = [each["score"] for each in predictor.predict(rows)]
    np.testing.assert_allclose(found, wanted[:, 0], atol=1e-5)
    again = load_predictor(save_model(model, tmp_path / "folder"))
    assert again.model.task == model.task
    assert [each["score"] for each in again.predict(rows)] == found
    note = "no other tool opens the model folder: the head reads the pooled tokens of"
    assert unread_elsewhere(model.task).startswith(f"{note} both texts of a pair")
    told = model.task.needs.meanings["token_type_ids"]  # of `answers.json`
    assert "two rows" in told and Regression(pairs=True).needs.meanings == {}


@pytest.mark.slow
def test_the_words_of_both_texts_explain_a_comparison(make_model: Any) -> None:
    model = make_model(Regression(**BI))
    for method in ("shapley", "integrated-gradients"):
        found = explain(model, [("free cash", "see you")], method=method)[0]
        roles = [word.role for word in found.words]
        assert roles == ["text"] * 2 + ["text_pair"] * 2
        changes = found.values - found.baseline_values
        np.testing.assert_allclose(found.attributions.sum(1), changes, atol=1e-2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("pairs", False), ("pooling", "pooler"), ("layers", "all"), ("long", "windows")],
)
def test_what_does_not_go_with_a_bi_encoder(name: str, value: Any) -> None:
    refused(lambda: Regression(**{**BI, name: value}), f"`{name}`", "bi")


@pytest.fixture(scope="module")
def trained(encoder_folder: Path, tmp_path_factory: Any) -> TrainResult:
    """Return a model of prices, trained on the same few rows many times."""
    many = ROOM.take(list(range(len(ROOM))) * 10)
    config = TrainConfig(epochs=4, batch_size=8, learning_rate=1e-2, max_length=24)
    return train(
        Regression,
        encoder=encoder_folder,
        train=many,
        dev=ROOM,
        test={"same": ROOM, "few": ROOM.take(range(6))},
        output=tmp_path_factory.mktemp("trained") / "prices",
        config=config,
    )


@pytest.mark.thorough
def test_prices_are_learned_as_quickly_as_grades(trained: TrainResult) -> None:
    # The numbers are far from 0; the standard deviation is about 160.
    assert trained.scores["dev"]["root_mean_squared_error"] < 80
    assert trained.scores["dev"]["pearson"] > 0.9


@pytest.mark.thorough
def test_a_finished_folder_has_the_units_in_its_head(trained: TrainResult) -> None:
    predictor = load_predictor(trained.folder)
    assert (predictor.model.task.mean, predictor.model.task.std) == (0, 1)
    found = [answer["score"] for answer in predictor.predict(TEXTS)]
    wanted = Predictor(trained.model).answers(ROOM)["score"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    logits = predictor.model.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(logits[:, 0], wanted, rtol=1e-5)


@pytest.mark.slow
def test_several_test_sets_are_scored_by_name(trained: TrainResult) -> None:
    assert list(trained.scores) == ["dev", "same", "few"]
    assert trained.scores["same"] == pytest.approx(trained.scores["dev"], rel=1e-4)
    assert trained.scores["few"]["num_examples"] == 6
    page = (trained.folder / "report.html").read_text()
    assert "<h2>same" in page and "<h2>few" in page


@pytest.mark.parametrize("cell", ["high", "nan", "inf", "1e39", "1_000", "1,5"])
def test_a_cell_that_is_not_a_number(cell: str) -> None:
    rows = as_columns(text=["a", "b"], label=["1", cell])
    refused(lambda: Regression().targets(rows), ":2: `label`", cell)


def test_a_single_value_is_not_a_regression() -> None:
    rows = as_columns(text=["a", "b"], label=["2", "2.0"])
    refused(lambda: Regression.from_columns(rows), "two values or more")


@pytest.mark.parametrize(
    ("name", "value"),
    [("scaling", "log"), ("std", 0), ("std", math.inf), ("mean", "x"), ("std", True)],
)
def test_a_wrong_setting_is_named(name: str, value: Any) -> None:
    refused(lambda: dataclasses.replace(Regression(), **{name: value}), f"`{name}`")


def test_the_similarity_benchmark_is_read_without_conversion() -> None:
    folder = SHARED / "data/glue_stsb"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    columns = {"text": "sentence1", "text_pair": "sentence2", "label": "score"}
    rows = Regression.read(folder / "train.tsv", columns=columns)
    targets = Regression(pairs=True).targets(rows)
    assert len(rows) == 5749 and targets.min() == 0 and targets.max() == 5
    assert rows["text"][0] == "A plane is taking off."
