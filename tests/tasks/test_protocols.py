"""A task of one's own is tuned, reported, explained and served by its methods alone."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, refused

from bert_keras.explanations.explainer import explain
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor
from bert_keras.settings import option
from bert_keras.tasks import TASKS, find_task, protocols
from bert_keras.tasks.base import Column, Task, changed
from bert_keras.tasks.classifier import PooledTask
from bert_keras.training import config

PACKAGE = ROOT / "bert_keras"
NAMES = [
    name
    for name, each in vars(protocols).items()
    if getattr(each, "_is_protocol", False) and each.__module__ == protocols.__name__
]


@keras.saving.register_keras_serializable(package="tests")
@dataclasses.dataclass(frozen=True)
class Unwanted(PooledTask):
    """Whether a mail is spam, from the probability `limit` on."""

    name = "unwanted"
    columns = {"text": "text", "label": Column("label", optional=True)}
    best_score = "accuracy"
    units = 1

    limit: float = option(0.5, "probability of spam", least=0, most=1, free=True)

    def targets(self, columns: Any) -> np.ndarray:
        return np.array([name == "spam" for name in columns["label"]], "float32")

    def loss(self) -> keras.losses.Loss:
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def answer(self, outputs: Any, batch: Any) -> dict[str, tf.Tensor]:
        p = tf.sigmoid(tf.cast(outputs, tf.float32)[:, 0])
        return {"unwanted": p >= self.limit, "p": p}

    def score(self, columns: Any, answers: Any) -> dict[str, Any]:
        return {"accuracy": np.mean(answers["unwanted"] == self.targets(columns))}

    def tune(self, columns: Any, answers: Any) -> Unwanted:
        return dataclasses.replace(self, limit=0.25)

    def mistakes(self, columns: Any, answers: Any) -> list[dict[str, Any]]:
        return [{"line": columns.lines[0], "label": "spam", "prediction": "ham"}]

    def rival(self, mistake: Any) -> None:
        return None

    def decisions(self, columns: Any, answers: Any) -> protocols.Decisions:
        return {"spam": (self.targets(columns) > 0, answers["p"])}

    def doubtful_labels(self, columns: Any, answers: Any) -> list[dict[str, Any]]:
        return []

    def explained(self, item: Any) -> list[Any]:
        return [item.weighted_sum("unwanted", item.joined(), [1.0])]


@pytest.fixture(scope="module")
def trained(train_spam: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "EXPLAIN_SECONDS", 60.0)
        patch.setattr(config, "EXPLAIN_SHARE", 60.0)
        output = tmp_path_factory.mktemp("own") / "model"
        return train_spam(output, task=Unwanted, explain_mistakes=1)


@pytest.fixture(scope="module")
def model(trained: Any) -> Any:
    return trained.model


def test_its_settings_are_tuned_and_checked(model: Any) -> None:
    assert model.task.limit == 0.25
    assert changed(model.task, limit=0.75).limit == 0.75
    refused(lambda: Unwanted(limit=2), "`limit` must be a number from 0 to 1")


def test_its_report_has_curves_labels_and_explanations(trained: Any) -> None:
    report = trained.report
    assert "roc" in report["curves"]["dev"]["spam"]
    assert report["doubtful_labels"] == {"dev": []}
    (explained,) = report["explanations"]
    assert [each["name"] for each in explained["targets"]] == ["unwanted"]
    page = (trained.folder / "report.html").read_text("utf-8")
    assert "unwanted" in page and "ROC" in page


def test_its_answers_are_explained(model: Any) -> None:
    (found,) = explain(model, ["win cash"], method="occlusion")
    p = found.answer["p"]
    assert found.targets == ("unwanted",) and found.unit == "log-odds"
    assert found.values[0] == pytest.approx(np.log(p / (1 - p)), abs=1e-4)
    assert [word.text for word in found.words] == ["win", "cash"]


def test_its_answers_are_served(model: Any, tmp_path: Path) -> None:
    texts = ["win cash", "see you"]
    served = tf.saved_model.load(str(export_model(model, tmp_path)))
    found = served.signatures["serving_default"](text=tf.constant(texts))
    wanted = Predictor(model).predict(texts)
    assert found["unwanted"].numpy().tolist() == [row["unwanted"] for row in wanted]
    np.testing.assert_allclose(found["p"], [row["p"] for row in wanted], atol=1e-5)


def test_explanations_and_findings_know_no_task_by_its_class() -> None:
    places = [*PACKAGE.glob("explanations/*.py"), PACKAGE / "training/findings.py"]
    text = "".join(path.read_text("utf-8") for path in places)
    named = set(re.findall(r"bert_keras\.tasks\.(\w+)", text))
    assert named == {"answer_rows", "base", "protocols"}


def test_the_contract_has_the_documented_members() -> None:
    """CONTRIBUTING lists them."""
    public = members(Task)
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (listed,) = re.findall(r"(?s)The (\d+ are .*?)by which Keras", text)
    assert {*re.findall(r"`(\w+)`", listed)} == public
    assert listed.startswith(f"{len(public)} are ")


def members(kind: type) -> set[str]:
    """Return the public members that a class and its bases in the package define."""
    found: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.startswith("bert_keras."):
            found |= {*vars(base), *base.__dict__.get("__annotations__", {})}
    return {name for name in found if not name.startswith("_")}


def test_each_protocol_has_a_task_of_the_package() -> None:
    tasks = [find_task(name) for name in TASKS]
    for name in NAMES:
        protocol = getattr(protocols, name)
        having = [task for task in tasks if isinstance(task, protocol)]
        assert 0 < len(having) < len(tasks) and not isinstance(Task, protocol), name
