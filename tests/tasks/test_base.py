"""Which task a Hugging Face `config.json` means, and the names of its classes."""

from __future__ import annotations

from typing import Any

import keras
import pytest
from conftest import refused

from bert_keras.data.class_names import class_names
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.pooling import TextPooling
from bert_keras.tasks import TASKS, find_task
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.task_model import TaskModel
from bert_keras.text.preprocessor import Preprocessor

THREE = {"0": "a", "1": "b", "2": "c"}
CLASSIFIER = {"architectures": ["BertForSequenceClassification"]}


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({}, "classification"),
        ({"id2label": THREE}, "classification"),
        ({"id2label": {"0": "LABEL_0"}}, "regression"),
        ({"problem_type": None, "id2label": {"0": "x"}}, "regression"),
        ({"problem_type": "regression", "id2label": THREE}, "regression"),
        ({"problem_type": "multi_label_classification"}, "multi-label"),
        (
            {"problem_type": "multi_label_classification", "id2label": {"0": "x"}},
            "multi-label",
        ),
        ({"problem_type": "single_label_classification"}, "classification"),
        ({"architectures": ["BertForNextSentencePrediction"]}, "next-sentence"),
    ],
)
def test_one_task_reads_a_config(config: dict[str, Any], task: str) -> None:
    given = {**CLASSIFIER, **config}
    assert [name for name in TASKS if find_task(name).reads(given)] == [task]


def test_several_numbers_are_no_regression_of_ours() -> None:
    config = {**CLASSIFIER, "problem_type": "regression", "id2label": THREE}
    read = find_task("regression").from_model_config
    refused(lambda: read(config), "one output (`id2label`); received 3")


class Mean(Regression):
    """A task of a user's own that forgets where texts start."""

    name = "mean"
    pooler = False

    def outputs(self, encoder: BertEncoder, inputs: dict[str, Any], seed: Any) -> Any:
        sequence = encoder(inputs)["sequence_output"]
        pooled = TextPooling("mean")(sequence, inputs["padding_mask"])
        return keras.layers.Dense(1, name="classifier")(pooled)


def test_one_output_for_several_texts_of_a_row_is_refused(
    spam_model: TaskModel,
) -> None:
    encoder, preprocessor = spam_model.backbone, spam_model.preprocessor
    assert preprocessor.layout == "packed"
    refused(lambda: TaskModel(encoder, Mean(), preprocessor), "`cls_positions`")
    settings = {**preprocessor.settings(), "layout": "padded"}
    TaskModel(encoder, Mean(), Preprocessor(preprocessor.tokenizer, **settings))


def test_names_of_classes() -> None:
    assert class_names({"id2label": {"1": "b", "0": "a"}}) == ("a", "b")
    assert class_names({}) == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize(
    "config",
    [
        {"id2label": ["a", "b"]},
        {"id2label": {"0": "a", "2": "b"}},
        {"id2label": {"0": "a", "1": "a"}},
        {"id2label": {"x": "a"}},
        {"id2label": {}},
        {"id2label": {"0": None}},
        {"id2label": {"0": ["a"]}},
        {"id2label": {"0": True}},
    ],
)
def test_names_that_are_none(config: dict[str, Any]) -> None:
    refused(lambda: class_names(config), "`id2label`")
