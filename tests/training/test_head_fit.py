"""`method` linear: a head on vectors of the frozen encoder, and `pooling`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from conftest import LETTERS, ROWS, assert_near, refused, thorough

from bert_keras.data import table
from bert_keras.data.duplicates import repeated_texts
from bert_keras.data.table import as_columns
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.report.terminal import interval_line
from bert_keras.runs.stop_signal import RunStopped
from bert_keras.tasks import classifier
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.multiple_choice import MultipleChoice
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking
from bert_keras.training import head_fit
from bert_keras.training.choices import TrainRequest
from bert_keras.training.config import TrainConfig
from bert_keras.training.data import unlabeled_rows
from bert_keras.training.finetune import train
from bert_keras.training.head_fit import HeadFit
from bert_keras.training.linear_head import (
    DECAYS,
    Validation,
    balanced,
    chosen_decay,
    cross_validate,
    fit_head,
    powers_of,
    probabilities,
    stratified_folds,
)

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
LINEAR = TrainConfig(method="linear", max_length=24)
DATA = {
    "classification": as_columns(text=TEXTS, label=LABELS),
    "multi-label": as_columns(text=TEXTS, label=[[name] for name in LABELS]),
    "regression": as_columns(text=TEXTS, label=[str(len(text)) for text in TEXTS]),
}
FORMS = ["classification", thorough("multi-label"), thorough("regression")]


@pytest.mark.parametrize("loss", ["softmax", "sigmoid", "squared"])
@pytest.mark.parametrize("rows", [9, 60])
def test_the_gradient_of_a_fitted_head_is_zero(loss: str, rows: int) -> None:
    random = np.random.default_rng(1)
    x = 3 + random.normal(size=(rows, 12)) * random.uniform(0.1, 2, 12)
    targets = np.eye(3)[random.integers(3, size=rows)]
    weights = random.uniform(0.5, 2, rows)
    (head,) = fit_head(x, targets, loss=loss, l2=0.03, weights=weights)
    mean = np.average(x, axis=0, weights=weights)
    scale = np.sqrt(((x - mean) ** 2).sum(axis=1).mean())
    errors = (probabilities(head(x), loss) - targets) * (weights / weights.sum())[
        :, None
    ]
    of_kernel = (x - mean).T @ errors / scale + 0.03 * head.kernel * scale
    assert np.abs(of_kernel).max() < 3e-4
    assert np.abs(errors.sum(axis=0)).max() < 3e-4


@pytest.mark.slow
def test_a_probed_run_starts_from_the_fitted_head(
    train_spam: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"train": DATA["classification"], "max_length": 24, "epochs": None}
    fitted = train_spam(
        tmp_path / "fitted",
        method="linear",
        batch_size=None,
        learning_rate=None,
        **rows,
        task_settings={"pooling": "mean", "layers": "last"},
    )
    line = capsys.readouterr().err.splitlines()
    probed = train_spam(
        tmp_path / "probed",
        linear_probe=True,
        learning_rate=1e-12,
        **{**rows, "epochs": 1},
        task_settings={"pooling": "mean", "layers": "last"},
    )
    line = [
        each
        for each in line
        if each.startswith("a linear head on the encoder's vectors")
    ]
    assert line and line[0] in capsys.readouterr().err
    ends = [
        [w.numpy() for w in run.model.get_layer(head_fit.HEAD).weights]
        for run in (fitted, probed)
    ]
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    given = {"output": tmp_path / "no", "linear_probe": True, **rows}
    for changes, wanted in (
        ({"method": "linear", "batch_size": None}, "no effect with `method` linear"),
        ({"task": "masked-lm"}, "needs a task with a linear head on one vector"),
    ):
        run = functools.partial(train_spam, **given, **changes)
        refused(run, "`linear_probe`", wanted)


def test_cross_validation_prefers_strong_l2_for_noise_and_weak_for_a_rule() -> None:
    random = np.random.default_rng(0)
    x, classes = random.normal(size=(120, 30)), np.arange(120) % 3
    targets = np.eye(3)[classes]
    folds = stratified_folds([[str(name)] for name in classes], seed=0)
    noise = cross_validate(x, targets, folds, loss="softmax")
    rule = cross_validate(x + 4 * targets @ x[:3], targets, folds, loss="softmax")
    assert len(noise.folds) == len(rule.folds) == 5 and rule.rows == list(range(120))
    assert noise.factor < 0.3 < 1 < rule.factor
    assert (rule.logits.argmax(axis=1) == classes).mean() > 0.9


def test_rarer_classes_count_more_while_a_head_of_few_rows_is_fitted() -> None:
    random = np.random.default_rng(0)
    classes = np.repeat([0, 1], [28, 4])
    targets = np.eye(2)[classes]
    x = random.normal(size=(32, 16)) + classes[:, None]
    weights = balanced(targets, None, 1.0)
    np.testing.assert_allclose(weights @ targets, 16)
    half = balanced(targets, None, 0.5) @ targets
    np.testing.assert_allclose(half / half[1], [7**0.5, 1])
    assert powers_of(targets, "softmax") == (0.0, 0.5, 1.0)
    for equal in (targets[-8:], np.eye(2)[np.arange(2000) % 3 // 2]):
        assert powers_of(equal, "softmax") == (0.0,)  # equal classes, or many rows
    folds = stratified_folds([(str(each),) for each in classes], seed=0)
    plain, even = (
        cross_validate(x, targets, folds, loss="softmax", power=power)
        for power in (0.0, 1.0)
    )
    found = [(each.logits.argmax(axis=1) == classes).mean() for each in (plain, even)]
    assert found[0] < found[1]


def test_each_fold_has_each_class_and_a_row_alone_is_in_none() -> None:
    strata = [[name] for name in ["a"] * 7 + ["b"] * 4 + ["c"]]
    folds = stratified_folds(strata, seed=0)
    assert len(folds) == 4 and sorted(sum(folds, [])) == list(range(11))
    assert all({strata[row][0] for row in fold} == {"a", "b"} for fold in folds)


def test_the_terminal_shows_the_interval_of_all_rows() -> None:
    whole = {"slice": "all rows", "rows": 32, "accuracy": 0.875}
    slices = {"all rows": [{**whole, "low": 0.72, "high": 0.95}]}
    assert interval_line(slices).split(maxsplit=4)[3:] == [
        "Accuracy",
        "0.7200 to 0.9500",
    ]
    few = {"all rows": [{**whole, "low": None, "high": None}]}
    for unknown in (few, {}):
        assert interval_line(unknown).endswith("not known: too few rows")


@pytest.mark.parametrize("name", FORMS)
def test_a_linear_run_writes_an_ordinary_folder(
    name: str, encoder_folder: Path, tmp_path: Path
) -> None:
    columns = DATA[name]
    found = train(
        name,
        encoder=encoder_folder,
        train=columns,
        test=columns,
        output=tmp_path / "model",
        config=LINEAR,
    )
    (validation,) = set(found.scores) - {"test"}
    assert validation.startswith("cross-validation, ")
    assert found.scores[validation]["num_examples"] == 12
    predictor = load_predictor(tmp_path / "model")
    assert predictor.model.task.pooling == "mean"
    answers = predictor.predict(TEXTS)
    assert_near(answers, predictor.predict(TEXTS, batch_size=3))
    exported = export_model(predictor.model, tmp_path / "export")
    assert_near(load_predictor(exported).predict(TEXTS), answers)
    packed = predictor.model.answer(
        columns["text"], preprocessor=predictor.model.preprocessor
    )
    shown = rows_of({k: v.numpy() for k, v in packed.items()})
    assert_near(shown, answers)
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    told = found.scores[validation]["trained_on"]
    share = r"(67|75|80)% of the rows in each of [3-5] folds"
    assert (
        re.fullmatch(share, told)
        and f"has not seen it (trained on {told}); the model" in card
    )
    assert told in (tmp_path / "model" / "report.html").read_text("utf-8")
    assert "mean of the tokens' vectors" in card and "chose the epoch" not in card
    is_calibrated = name in ("classification", "multi-label")
    said = "Its probabilities are calibrated by cross-validation"
    assert (said in card) == is_calibrated and "not calibrated" not in card
    assert validation in (tmp_path / "model" / "report.html").read_text("utf-8")
    assert not list(tmp_path.glob(".*run*"))


def test_a_linear_head_answers_in_the_units_of_the_rows(
    encoder_folder: Path, tmp_path: Path
) -> None:
    labels = 1000.0 + np.arange(len(TEXTS))
    rows = as_columns(text=TEXTS, label=labels.tolist())
    given = {"encoder": encoder_folder, "train": rows, "config": LINEAR}
    found = train("regression", output=tmp_path / "model", **given).model
    answers = found.answer(tf.constant(TEXTS))["score"].numpy()
    assert (found.task.mean, found.task.std) == (0, 1)
    assert answers.mean() == pytest.approx(labels.mean(), abs=1)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_head_on_all_layers_reads_the_mean_of_each(
    layout: str, make_model: Any
) -> None:
    task = Classification(("a", "b"), pooling="mean", normalize=True, layers="all")
    model = make_model(task, layout=layout)
    kernel, bias = (w.numpy() for w in model.get_layer(head_fit.HEAD).weights)
    found = model.infer(task.features(model.preprocessor, tf.constant(TEXTS[:3])))
    for text, logits in zip(TEXTS[:3], found, strict=True):
        batch = model.preprocessor.replace(layout="padded")(tf.constant([text]))
        states = model.backbone({k: batch[k] for k in model.backbone.input})
        count = int(batch["padding_mask"].numpy().sum())
        means = [x.numpy()[0, :count].mean(axis=0) for x in states["hidden_states"]]
        vector = np.concatenate([each / np.linalg.norm(each) for each in means])
        np.testing.assert_allclose(logits, vector @ kernel + bias, atol=1e-5)
    refused(lambda: Classification(("a", "b"), layers="all"), "`layers`", "pooler")


def test_a_decay_is_chosen_only_if_it_is_clearly_better() -> None:
    usual, last, equal = DECAYS
    alike = np.array([1.0, 2.0, 3.0, 4.0])
    worse, unsure = alike + 1, alike - [2, 0, 1, 0]
    better = alike - np.tile([0.4, 0.5], 2)
    assert chosen_decay({usual: alike, last: unsure, equal: worse}) == usual
    assert chosen_decay({usual: alike, last: worse, equal: better}) == equal
    assert chosen_decay({usual: alike, last: better, equal: unsure}) == last
    assert chosen_decay(dict.fromkeys(DECAYS, alike)) == usual
    many = {usual: alike, last: unsure, equal: worse}
    assert chosen_decay({k: np.tile(v, 32) for k, v in many.items()}) == last


@pytest.mark.parametrize(
    "decay",
    [*(pytest.param(each, marks=pytest.mark.slow) for each in DECAYS[:2]), DECAYS[2]],
)
def test_a_head_reads_the_layers_that_cross_validation_chooses(
    decay: float, encoder_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    given = {"train": DATA["classification"], "config": LINEAR}
    given |= {"encoder": encoder_folder}
    with mock.patch.object(head_fit, "chosen_decay", lambda losses: decay):
        found = train("classification", output=tmp_path / "m", **given)
    assert (
        head_fit._LAYERS[decay] + " (cross-validated accuracy"
        in capsys.readouterr().err
    )
    layers = "all" if decay else "last"
    task = {"layers": layers}
    fixed = train("classification", output=tmp_path / "f", task_settings=task, **given)
    assert found.model.task.layers == fixed.model.task.layers == layers
    (name,) = found.scores
    own = [run.scores[name]["loss"] for run in (found, fixed)]
    assert (own[0] == pytest.approx(own[1])) == (decay != DECAYS[0])
    loaded = load_predictor(tmp_path / "m")
    assert loaded.model.task == found.model.task
    assert_near(loaded.predict(TEXTS), Predictor(found.model).predict(TEXTS))
    if decay != DECAYS[0]:
        other = load_predictor(tmp_path / "f").predict(TEXTS)
        assert_near(loaded.predict(TEXTS), other)


def test_held_out_answers_use_what_other_folds_tell(make_model: Any) -> None:
    """Thresholds are of other folds, and numbers are as the targets are."""
    labels = [["a"], ["b"], ["a", "b"]] * 4
    model, context = make_model(MultiLabel(("a", "b"))), mock.MagicMock()
    fit = HeadFit(model, {"train": as_columns(text=TEXTS, label=labels)}, context)
    logits = np.random.default_rng(0).normal(size=(12, 2))
    folds = [[0, 4, 8], [1, 5, 9], [2, 6, 10]]
    rows = sorted(row for fold in folds for row in fold)
    fit.folds = folds
    fit.validation = Validation(1.0, 1.0, folds, rows, logits[rows], 0.0, logits[rows])
    found = fit.cross_validated()
    task = model.task
    for fold in folds:
        others = [row for row in rows if row not in fold]
        answers = task.answer(tf.constant(logits[others], tf.float32), {})
        tuned = task.tune(
            fit.train_rows.take(others), {k: v.numpy() for k, v in answers.items()}
        )
        wanted = tuned.answer(tf.constant(logits[fold], tf.float32), {})
        own = found.answers["labels"][[rows.index(row) for row in fold]]
        np.testing.assert_array_equal(own, wanted["labels"])
    assert found.task.thresholds != task.thresholds

    columns = as_columns(text=TEXTS, label=[str(1000 + n) for n in range(12)])
    model.task = Regression.from_columns(columns)
    fit = HeadFit(model, {"train": columns}, context)
    model.task, fit.folds = Regression(), folds  # finalized
    fit.validation = Validation(
        1.0, 1.0, folds, rows, np.zeros((9, 1)), 0.0, np.zeros(9)
    )
    assert fit.cross_validated().answers["score"] == pytest.approx(1005.5)


def test_equal_texts_are_in_one_fold() -> None:
    equal = repeated_texts([[*TEXTS, *TEXTS]])
    folds = stratified_folds([(each,) for each in LABELS * 2], seed=0, equal=equal)
    assert sorted(row for fold in folds for row in fold) == list(range(24))
    for fold in folds:
        assert {row % 12 for row in fold} == {row - 12 for row in fold if row >= 12}


def test_a_run_weighs_classes_as_cross_validation_chooses(
    encoder_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(classifier, "abstention_threshold", lambda *_, **__: 1.0)
    texts = [f"{TEXTS[0]} {letter}" for letter in LETTERS[:18]]
    texts += ["half half", "off off", "half off half", "off half off"]
    rows = as_columns(text=texts, label=[*"a" * 18, *"bbbb"])
    found = train(
        "classification",
        encoder=encoder_folder,
        train=rows,
        output=tmp_path / "m",
        config=LINEAR,
        task_settings={"answered_accuracy": 0.9},
    )
    (name,) = found.scores
    assert found.scores[name]["accuracy"] == 1
    told = capsys.readouterr().err
    assert "every class has the same total weight" in told
    assert "no threshold gives `answered_accuracy` 0.9 on cross-validation, " in told


@pytest.mark.slow
def test_self_training_is_reported_and_kept_only_if_it_gains(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{text} {n}" for n in range(4) for text in TEXTS]
    given = {"encoder": encoder_folder, "train": DATA["classification"]}
    given |= {"unlabeled": as_columns(text=[*TEXTS, *texts, *texts]), "config": LINEAR}
    heads = []
    for kept in (False, True):
        ranks = itertools.count(0, 1 if kept else -1)  # self-training's is the last
        monkeypatch.setattr(
            head_fit.HeadFit, "rank_of", lambda *_, ranks=ranks: (next(ranks), 0.0)
        )
        found = train("classification", output=tmp_path / "m", **given)
        heads.append(found.model.get_layer("classifier").kernel.numpy())
        told = f"48 unlabeled rows {'are used' if kept else 'are not used'}: by cross"
        assert found.report["settings"]["unlabeled"].startswith(told)
        card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
        assert told in card and "| unlabeled | 48 |" in card
    assert not np.allclose(*heads)


@pytest.mark.slow
def test_auto_learns_from_unlabeled_pairs(
    encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = {"text": TEXTS, "text_pair": TEXTS[::-1]}
    given: dict[str, Any] = {"encoder": encoder_folder, "output": tmp_path / "m"}
    given["train"] = as_columns(**pairs, label=["yes", "no"] * (len(TEXTS) // 2))
    given["unlabeled"] = {"text": TEXTS, "text_pair": [f"{text} x" for text in TEXTS]}
    found = train("classification", config=TrainConfig(method="auto"), **given)
    assert found.report["settings"]["unlabeled"].startswith("12 unlabeled rows are ")
    assert found.model.task.pairs
    assert re.search("method +linear .* rows are pairs", capsys.readouterr().err)
    given["unlabeled"] = {"text": TEXTS}
    refused(lambda: train("classification", config=LINEAR, **given), "`text_pair`")


@pytest.mark.parametrize(
    ("rows", "task", "method", "parts"),
    [
        ({"text": ["a", "b"], "label": ["", "x"]}, "classification", "linear", "2"),
        ({"text": TEXTS}, "multi-label", "contrastive", "all of which equal one"),
        ({"text": ["a"]}, "regression", "linear", "a task with classes"),
        ({"text": ["a"]}, "classification", "finetune", "only with `method` linear"),
    ],
)
def test_unlabeled_rows_that_teach_nothing_are_refused(
    rows: dict[str, list[str]], task: str, method: str, parts: str, plan_for: Any
) -> None:
    given: dict[str, Any] = {"train": DATA[task], "unlabeled": rows}
    config = TrainConfig(method=method)
    refused(lambda: plan_for(task, config=config, **given), "unlabeled", parts)


def texts_of_file(task: Any, path: Path, columns: Any = None) -> Any:
    request = TrainRequest(
        task=task, train=None, output="", unlabeled=path, columns=columns
    )
    return unlabeled_rows(request, task)


@pytest.mark.parametrize("label", ["", "ham"])
def test_unlabeled_rows_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    path, texts = tmp_path / "a.csv", []
    path.write_text(f"text,label\na,\nb,{label}\n")
    read = table.read_text
    monkeypatch.setattr(table, "read_text", lambda p: texts.append(p) or read(p))
    task = Classification(("ham", "spam"))
    if label:
        refused(lambda: texts_of_file(task, path), "a.csv:3:", "must be empty")
    else:
        assert texts_of_file(task, path).cells == {"text": ["a", "b"]}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("task", "header", "columns"),
    [
        (Reranking(), "query,document", {}),
        (Reranking(), "text,text_pair", {}),
        (Reranking(), "a,b", {"query": "a", "document": "b", "label": "label"}),
        (MultipleChoice(), "premise,choice1,choice2", {}),
        (MultipleChoice(), "c,d,e", {"context": "c", "choices": "d,e"}),
    ],
)
def test_unlabeled_rows_are_read_in_each_layout_of_a_task(
    tmp_path: Path, task: Any, header: str, columns: dict[str, str]
) -> None:
    path, row = tmp_path / "a.csv", ",".join("xyz"[: header.count(",") + 1])
    for names, cells in ((header, row), (f"{header},label", f"{row},")):
        path.write_text(f"{names}\n{cells}\n")
        found = texts_of_file(task, path, columns)
        assert [*found.cells.values()][0] == ["x"] and "label" not in found
    path.write_text(f"{header},label\n{row},1\n")
    refused(
        lambda: texts_of_file(task, path, columns),
        "a.csv:2: `label` must be empty in unlabeled rows; received '1'",
    )


def test_other_tools_find_no_head_that_reads_cls(
    make_model: Any, tmp_path: Path
) -> None:
    model = make_model(Classification(("a", "b"), pooling="max", normalize=True))
    save_model(model, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["BertModel"]
    assert config["bert_keras"]["settings"]["pooling"] == "max"
    message = "the head reads the tokens' vectors (pooling max)"
    for to in ("google", "keras-hub", "model-garden"):
        refused(lambda to=to: convert(tmp_path / "m", tmp_path / "c", to=to), message)
    convert(tmp_path / "m", tmp_path / "c")
    found, wanted = (
        {key: value.numpy() for key, value in each.answer(TEXTS).items()}
        for each in (load_model(tmp_path / "c"), model)
    )
    assert_near(rows_of(found), rows_of(wanted))
    save_model(make_model(Classification(("a", "b"))), tmp_path / "p")
    config = json.loads((tmp_path / "p" / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert "pooling" not in config["bert_keras"]["settings"]


@pytest.mark.slow
def test_an_interrupted_run_computes_no_vector_twice(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_fit, "_AT_ONCE", 5)
    counts: list[int] = []
    answers = head_fit.Predictor.answers

    def counted(self: Any, rows: Any, **options: Any) -> Any:
        if len(counts) == 2:
            counts.append(0)
            raise RunStopped("stopped")
        counts.append(len(rows))
        return answers(self, rows, **options)

    monkeypatch.setattr(head_fit.Predictor, "answers", counted)
    given = {"encoder": encoder_folder, "train": DATA["classification"]}
    given |= {"config": LINEAR}
    with pytest.raises(RunStopped):
        train("classification", output=tmp_path / "m", **given)
    resumed = train("classification", output=tmp_path / "m", **given)
    assert counts == [5, 5, 0, 2]
    at_once = train("classification", output=tmp_path / "other", **given)
    for one, other in zip(resumed.model.weights, at_once.model.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_class_with_one_row_is_trained_but_not_validated(
    encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = as_columns(text=[*TEXTS, "win a dog"], label=[*LABELS, "rare"])
    found = train(
        "classification",
        encoder=encoder_folder,
        train=columns,
        output=tmp_path / "m",
        config=LINEAR,
    )
    (scores,) = found.scores.values()
    assert scores["num_examples"] == 12 and "rare" in found.model.task.classes
    assert "rare" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["linear", "contrastive"])
def test_rows_of_different_classes_are_refused(
    method: str, encoder_folder: Path, tmp_path: Path
) -> None:
    rows = as_columns(text=[*TEXTS[:3], TEXTS[0]], label=["a", "b", "c", "a"])
    given = {"encoder": encoder_folder, "train": rows, "output": tmp_path / "m"}
    config = dataclasses.replace(LINEAR, method=method)
    refused(
        lambda: train("classification", config=config, **given),
        "must have a class with two different texts or more",
    )


@pytest.mark.parametrize(
    ("task", "changes", "parts"),
    [
        (Classification, {"learning_rate": 1e-3}, ("`learning_rate`", "linear")),
        (MultiLabel, {"lora_rank": 4}, ("`lora_rank`", "received 4")),
        ("masked-lm", {}, ("`method` must be finetune for masked-lm",)),
        (Regression, {"method": "magic"}, ("`method` must be one of",)),
    ],
)
def test_options_without_an_effect_are_refused(
    task: Any, changes: dict[str, Any], parts: tuple[str, ...], plan_for: Any
) -> None:
    def read() -> None:
        config = TrainConfig(**{"method": "linear", **changes})
        plan_for(task, train=DATA["classification"], config=config)

    refused(read, *parts)
