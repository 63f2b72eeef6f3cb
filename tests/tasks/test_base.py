"""Which task a Hugging Face `config.json` means, and the names of its classes."""

from __future__ import annotations

import importlib
import itertools
import re
from typing import Any

import keras
import pytest
from conftest import refused
from task_cases import first_case

from bert_keras.data.class_names import class_names, sorted_names
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.pooling import TextPooling
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks import TASKS, check_settings, find_task, parse_settings
from bert_keras.tasks.base import Task, changed
from bert_keras.tasks.hugging_face import from_model_config
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.plain_settings import check_effects
from bert_keras.tasks.regression import Regression
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
    assert [name for name in TASKS if find_task(name).head_codec.reads(given)] == [task]


def test_several_outputs_are_not_a_regression() -> None:
    config = {**CLASSIFIER, "problem_type": "regression", "id2label": THREE}
    task = find_task("regression")
    refused(
        lambda: from_model_config(task, config), "one output (`id2label`); received 3"
    )


class Mean(Regression):
    """A custom task that omits the starts of texts."""

    name = "mean"
    needs = Needs(pooler=False)  # type: ignore[assignment]

    def outputs(self, encoder: BertEncoder, inputs: dict[str, Any], seed: Any) -> Any:
        sequence = encoder(inputs)["sequence_output"]
        pooled = TextPooling("mean")(sequence, inputs["padding_mask"])
        return keras.layers.Dense(1, name="classifier")(pooled)


@pytest.mark.thorough
def test_one_output_for_several_texts_of_a_row_is_rejected(
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
def test_invalid_class_names(config: dict[str, Any]) -> None:
    refused(lambda: class_names(config), "`id2label`")


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["1", "01", "001", "2"], ["001", "01", "1", "2"]),
        (["１", "1", "10", "9"], ["1", "１", "9", "10"]),
        (["0", "00", "-1"], ["-1", "0", "00"]),
        (["9" * 5000, "10", "1" * 5000], ["10", "1" * 5000, "9" * 5000]),
    ],
)
def test_equal_numbers_have_one_order(names: list[str], order: list[str]) -> None:
    for each in itertools.permutations(names):
        # Sets of few strings are walked in orders that differ by the hash seed.
        assert sorted_names(dict.fromkeys(each)) == tuple(order)


def test_the_error_for_a_class_that_is_not_a_task_names_the_base_class() -> None:
    message = refused(lambda: find_task("pathlib:Path"), "'pathlib:Path'")
    module, name = re.search(r"subclass of ([\w.]+)\.(\w+)", message).groups()
    assert getattr(importlib.import_module(module), name).__name__ == "Task"


CLASSES = {"classes": ("a", "b")}
TAGS = {"classes": ("O", "B-a")}


@pytest.mark.parametrize(
    ("name", "settings", "changes"),
    [
        ("classification", CLASSES, {"temperature": 1e-300}),
        ("classification", CLASSES, {"temperature": 1e300}),
        ("classification", CLASSES, {"temperature": 10**400}),
        ("classification", CLASSES, {"abstain_below": 1.5}),
        ("classification", CLASSES, {"pairs": "no"}),
        ("multi-label", CLASSES, {"pairs": "no"}),
        ("regression", {}, {"pairs": "no"}),
        ("multi-label", CLASSES, {"temperature": 1e-300}),
        ("multi-label", CLASSES, {"thresholds": [0.5, float("nan")]}),
        ("token-classification", TAGS, {"temperature": 1e-300}),
        ("feature-tagging", TAGS, {"units": 10**9}),
        ("feature-tagging", TAGS, {"units": True}),
        ("question-answering", {}, {"temperature": 1e300}),
        ("question-answering", {}, {"threshold": float("inf")}),
        ("question-answering", {}, {"threshold": 1e300}),
        ("question-answering", {}, {"stride": 10**10}),
        ("question-answering", {}, {"n_best": 10**9}),
        ("question-answering", {}, {"max_answer_tokens": 10**9}),
        ("question-answering", {}, {"max_question_tokens": 10**10}),
        ("question-answering", {}, {"n_best": 10**5000}),
        ("multiple-choice", {}, {"temperature": float("nan")}),
        ("next-sentence", {}, {"temperature": 0}),
        ("masked-lm", {}, {"top_k": 10**9}),
        ("masked-lm", {}, {"max_predictions": 10**10}),
        ("masked-lm", {}, {"pseudo_perplexity_texts": 10**30}),
        ("summarization", {}, {"max_sentences": 10**9}),
        ("regression", {}, {"mean": 1e39}),
        ("regression", {}, {"std": 1e-300}),
        ("embedding", {}, {"scale": 1e300}),
    ],
)
def test_a_setting_out_of_its_range_is_rejected(
    name: str, settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    task = find_task(name)
    task(**settings)
    line = refused(lambda: task(**settings, **changes), f"`{next(iter(changes))}`")
    assert len(line) < 200


def test_a_setting_that_another_one_fits_is_rejected() -> None:
    given = ["abstain_below=0.5", "answered_accuracy=0.9"]
    task = find_task("classification")
    refused(lambda: parse_settings(task, given), "fits `abstain_below`", "0.9 and 0.5")
    values = {"abstain_below": 0.5, "answered_accuracy": 0.9}
    refused(lambda: check_settings(task, values), "`answered_accuracy` fits")
    check_settings(task, {"abstain_below": 0.5, "answered_accuracy": 0.0})
    for given in (
        ["temperature=2", "calibration=temperature"],
        ["top_k=1", "top_k=2"],
    ):
        name = "masked-lm" if "top_k" in given[0] else "classification"
        refused(lambda g=given, n=name: parse_settings(find_task(n), g), given[0][:5])


def test_a_setting_without_an_effect_is_rejected() -> None:
    task = find_task("translation")(sizes={})
    needs = "`temperature` has an effect only with `sample` True"
    refused(lambda: changed(task, temperature=0.5), needs, "0.5 and False")
    assert changed(task, temperature=0.5, sample=True).temperature == 0.5
    task = find_task("regression")(activation="sigmoid")
    for scaling in ("standard", "none"):
        given = {"scaling": scaling}
        refused(
            lambda g=given: check_effects(task, g), "only with `activation` 'linear'"
        )
    task = find_task("embedding")(combine_layers="concat")
    refused(
        lambda: check_effects(task, {"combine_layers": "concat"}), "several `layers`"
    )


def test_a_simple_task_defines_five_methods() -> None:
    of_data, of_model = {"targets", "score"}, {"outputs", "loss", "answer"}
    assert Task.__abstractmethods__ == of_data | of_model


def test_tasks_that_need_more_than_ids_to_answer() -> None:
    found = {n for n in TASKS if not first_case(n).task.answers_ids}
    tags = {"feature-tagging", "token-classification"}
    others = {"masked-lm", "multiple-choice", "question-answering", "summarization"}
    written = {"abstractive-summarization", "translation"}
    assert found == tags | others | written


@pytest.mark.parametrize(
    "name", ["classification", "token-classification", "multiple-choice", "reranking"]
)
def test_a_task_with_features_of_its_own_is_not_read_by_its_reader(name: str) -> None:
    task = first_case(name).task
    own = type("Own", (type(task),), {"features": lambda *_: {}})
    assert task.reads_by_reader
    assert not own(**task.get_config()).reads_by_reader
