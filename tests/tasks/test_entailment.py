"""Classes without training rows; `tests/peers` compares them with transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.cli.info import describe
from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.explanations.explainer import explain
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.inference.zero_shot import save_classes
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.embedder import vectors_of
from bert_keras.scoring.similarity import unit_rows
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.signatures import signatures_of
from bert_keras.serving.version import Version
from bert_keras.tasks.base import changed
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.training.evaluation import evaluate

OUTPUTS = ("contradiction", "entailment", "neutral")
TEXTS = ["win a prize now", "see you at six", "see you see you now " * 9]
NAMES = ("prize", "see you", "six")
TEMPLATE = "this is {} now"


@pytest.fixture(scope="module")
def nli(make_model: Callable[..., Any], tmp_path_factory: Any) -> Path:
    """Return the folder of an untrained entailment model."""
    model = make_model(Classification(OUTPUTS, pairs=True, temperature=2.0))
    return save_model(model, tmp_path_factory.mktemp("nli") / "nli")


@pytest.fixture(scope="module")
def base(nli: Path) -> Predictor:
    return load_predictor(nli)


@pytest.fixture(scope="module")
def folder(nli: Path, tmp_path_factory: Any) -> Path:
    place = tmp_path_factory.mktemp("classes") / "helpdesk"
    return save_classes(nli, place, "prize, see you,six", template=TEMPLATE)


@pytest.fixture(scope="module")
def zero_shot(folder: Path) -> Predictor:
    return load_predictor(folder)


def numbers(rows: list[dict[str, Any]], names: Any = NAMES) -> np.ndarray:
    return np.array([[row["probabilities"][name] for name in names] for row in rows])


def logits(base: Predictor) -> np.ndarray:
    """Return the entailment model's log-probabilities of each pair, [N, C, 3]."""
    pairs = [(text, TEMPLATE.replace("{}", name)) for text in TEXTS for name in NAMES]
    p = numbers(base.predict(pairs), OUTPUTS)
    return np.log(p).reshape(len(TEXTS), len(NAMES), -1)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.slow
def test_several_labels_are_scored_against_contradiction(base: Predictor) -> None:
    made = base.with_classes(NAMES, template=TEMPLATE, multi_label=True)
    found = made.predict(TEXTS)
    wanted = softmax(logits(base)[:, :, :2])[:, :, 1]
    np.testing.assert_allclose(numbers(found), wanted, atol=1e-5)
    assert found[0]["labels"] == [NAMES[i] for i in range(3) if wanted[0, i] >= 0.5]


def test_one_label_is_scored_against_the_others(
    base: Predictor, zero_shot: Predictor
) -> None:
    found = zero_shot.predict(TEXTS)
    # A softmax over classes cancels what it adds to all outputs of a pair; two classes
    # are compared by the difference of their logits.
    made = base.with_classes(NAMES, template=TEMPLATE)
    np.testing.assert_array_equal(numbers(found), numbers(made.predict(TEXTS)))
    batch = made.model.task.features(made.model.preprocessor, np.array(TEXTS, object))
    outputs = np.asarray(made.model(batch))
    np.testing.assert_allclose(numbers(found), softmax(outputs / 2.0), atol=1e-5)
    again = base.with_classes(NAMES, template=TEMPLATE, multi_label=True)
    gaps = np.asarray(again.model(batch))
    wanted = logits(base)
    np.testing.assert_allclose(gaps / 2, wanted[:, :, 1] - wanted[:, :, 0], atol=1e-4)


def test_the_card_names_the_classes_and_the_outputs(folder: Path) -> None:
    card = (folder / "README.md").read_text("utf-8")
    assert "| classes | `prize`, `see you`, `six` |" in card
    assert "| outputs | `contradiction`, `entailment`, `neutral` |" in card
    assert "knows only" not in card and "`zero-shot-classification`" in card


def test_classes_of_a_request(zero_shot: Predictor, folder: Path) -> None:
    given = [(TEXTS[0], ["six", "prize"]), (TEXTS[1], NAMES[::-1]), (TEXTS[2], NAMES)]
    found = zero_shot.predict(given)
    assert list(found[0]["probabilities"]) == ["six", "prize"]
    wanted = numbers(zero_shot.predict(TEXTS))
    np.testing.assert_allclose(numbers(found[1:]), wanted[1:], atol=1e-5)
    two = wanted[0, [2, 0]] / wanted[0, [2, 0]].sum()
    np.testing.assert_allclose(numbers(found[:1], ("six", "prize"))[0], two, atol=1e-5)
    refused(
        lambda: zero_shot.predict([(TEXTS[0], ["a", "a"])]), "different", "at index 0"
    )
    refused(lambda: zero_shot.predict([(TEXTS[0], ["a"])]), "different", "at index 0")
    graph = zero_shot.model.task.features  # of a server, which sends tensors
    for names in (["a", "a"], ["a", ""]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="2 or more different"):
            graph(zero_shot.model.preprocessor, ([TEXTS[0]], [names]))
    other = load_predictor(folder)
    other.model.task = changed(other.model.task, classes=["prize", "six"])
    np.testing.assert_allclose(
        numbers(other.predict(TEXTS[:1]), ("six", "prize"))[0], two, atol=1e-5
    )


@pytest.mark.slow
def test_a_server_warms_up_each_signature(folder: Path) -> None:
    version = Version(str(folder), 1, config=ServeConfig(), seen=lambda *_: None)
    try:
        assert "classes" in version.signatures
        version.wait_for_warm_up()
    finally:
        version.drain()


@pytest.mark.slow
def test_it_is_served_with_classes_as_an_input(
    zero_shot: Predictor, tmp_path: Path
) -> None:
    export = load_predictor(export_model(zero_shot.model, tmp_path / "export"))
    given = [(text, NAMES) for text in TEXTS]
    wanted = numbers(zero_shot.predict(TEXTS))
    np.testing.assert_allclose(numbers(export.predict(TEXTS)), wanted, atol=1e-5)
    np.testing.assert_allclose(numbers(export.predict(given)), wanted, atol=1e-5)
    refused(lambda: export.with_classes(NAMES), "`model` must be a model folder")
    facts = describe(tmp_path / "export")
    assert facts["classes"] == ", ".join(NAMES)
    assert "classes string [?, ?], text string [?]" in facts["signature classes"]
    signatures = signatures_of(load_predictor(tmp_path / "export").model)
    texts = [text.encode() for text in TEXTS]
    classes = [[name.encode() for name in NAMES]] * 2 + [[b"six", b"prize"]]
    rows = signatures["classes"].rows_of([texts, classes])
    answers, _ = signatures["classes"].compute(rows)
    np.testing.assert_allclose(answers["probabilities"][:2], wanted[:2], atol=1e-5)
    assert answers["probabilities"][2, 2] == 0
    lengths = [row.length for row in rows]
    plain = [row.length for row in signatures["serving_default"].rows_of([texts])]
    assert plain[:2] == lengths[:2]  # a text costs as much as its classes


def test_it_is_scored_calibrated_and_explained(
    base: Predictor, zero_shot: Predictor
) -> None:
    rows = as_columns(text=TEXTS * 4, label=["prize", "six", "see you"] * 4)
    before = evaluate(zero_shot, rows)
    for multi_label in (False, True):
        made = base.with_classes(
            NAMES, template=TEMPLATE, multi_label=multi_label, dev=rows
        )
        assert made.model.task.temperature != 2.0
        assert len(getattr(made.model.task, "thresholds", NAMES)) == len(NAMES)
        if not multi_label:
            assert evaluate(made, rows)["loss"] < before["loss"]
    found = explain(zero_shot, [TEXTS[1]], target="six", method="occlusion")[0]
    assert [word.text for word in found.words] == TEXTS[1].split()
    assert abs(found.attributions).max() > 0


@pytest.mark.slow
def test_the_verbs_take_more_classes_than_the_head_is_wide(
    nli: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ",".join(f"see {number}" for number in range(40))
    output = str(tmp_path / "many")
    assert main(["classes", str(nli), output, "--classes", names, "--no-card"]) == 0
    assert main(["predict", output, TEXTS[0]]) == 0
    whole = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(whole["probabilities"]) == 40
    given = [str(nli), TEXTS[0], "--classes", names]
    assert main(["predict", *given, "--set", "abstain_below=0.9"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["probabilities"] == pytest.approx(whole["probabilities"], abs=1e-5)
    assert found["abstained"] and not found["label"]
    assert main(["predict", str(nli), TEXTS[0], "--multi-label"]) == 2
    assert "`--multi-label` needs `--classes`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given, parts",
    [
        ({"classes": "a,a"}, ["two or more different names", "'a,a'"]),
        ({"classes": ["a"]}, ["two or more different names"]),
        ({"classes": "a,b,A"}, ["more than their case", "a and A"]),
        ({"classes": "a,b", "template": "about"}, ["`template`", "one {}", "about"]),
    ],
)
def test_wrong_arguments(base: Predictor, given: Any, parts: list[str]) -> None:
    refused(lambda: base.with_classes(**given), *parts)


def test_other_models_are_refused(spam_model: Any) -> None:
    refused(
        lambda: Predictor(spam_model).with_classes(NAMES),
        "need an embedding model, or an entailment model",
        "the task classification with the classes",
    )
    refused(
        lambda: Classification(NAMES, entailment=("yes", "no")),
        "must be named entailment",
    )


@pytest.fixture(scope="module")
def embedder(make_model: Callable[..., Any]) -> Predictor:
    return Predictor(make_model(Embedding(scale=10.0)))


def test_an_embedding_model_answers_by_cosines(
    embedder: Predictor,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    templates = ["{}", TEMPLATE]
    made = embedder.with_classes(NAMES, template=templates)
    sentences = [each.replace("{}", name) for name in NAMES for each in templates]
    vectors = unit_rows(vectors_of(embedder, sentences, 32)).reshape(3, 2, -1)
    cosines = vectors_of(embedder, TEXTS, 32) @ unit_rows(vectors.mean(axis=1)).T
    found = numbers(made.predict(TEXTS))
    np.testing.assert_allclose(found, softmax(10 * cosines), atol=1e-5)
    folder = save_model(made.model, tmp_path / "classes")
    again = numbers(load_predictor(folder).predict(TEXTS))
    np.testing.assert_allclose(again, found, atol=1e-6)
    rows = as_columns(text=TEXTS * 4, label=["prize", "six", "see you"] * 4)
    answers, calls = Predictor.answers, []
    monkeypatch.setattr(
        Predictor, "answers", lambda *args: calls.append(args) or answers(*args)
    )
    several = embedder.with_classes(NAMES, multi_label=True, dev=rows)
    assert len(several.model.task.thresholds) == len(NAMES) and len(calls) == 1
    f1 = several.model.task.score(rows, several.answers(rows))["micro_f1"]
    told = capsys.readouterr().err
    assert "calibrated on 12 rows of dev: temperature" in told
    assert told.strip().endswith(
        f"micro_f1 of these rows {f1:.4f}; so few rows say little about other texts"
    )
    scores = made.model.task.score(rows, made.answers(rows))
    assert not any(name.startswith("uncalibrated") for name in scores)
    refused(
        lambda: embedder.with_classes(NAMES, multi_label=True, dev=rows.take([0, 1])),
        "must have a row of each class",
        "none of see you",
    )
    refused(
        lambda: embedder.with_classes(NAMES, multi_label=True),
        "`multi_label` needs `dev`",
    )


def test_vectors_that_no_head_reads_are_refused(
    make_model: Callable[..., Any], base: Predictor
) -> None:
    task = Embedding(prompts={"query": "see "}, default_prompt="query")
    made = Predictor(make_model(task))
    refused(lambda: made.with_classes(NAMES), "without a prompt", "query")
    refused(lambda: base.with_classes(NAMES, template=["{}", TEMPLATE]), "must be one")
