"""`method` contrastive: pairs within and across classes, and then a linear head."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
from conftest import ROWS, assert_near, refused

from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.folder import Folder
from bert_keras.models.loading import new_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.stop_signal import RunStopped
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking
from bert_keras.training import head_fit
from bert_keras.training.choices import Facts
from bert_keras.training.config import TrainConfig
from bert_keras.training.contrastive_fit import (
    ContrastiveFit,
    PairTraining,
    balanced_batches,
    rows_of_trainings,
)
from bert_keras.training.finetune import train
from bert_keras.training.head_fit import HeadInputs
from bert_keras.training.methods import choose_method, choose_pooling, pooling_of
from bert_keras.training.progress import Forecast

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
CONFIG = TrainConfig(method="contrastive", max_length=24, learning_rate=1e-3)
DATA = {
    "classification": as_columns(text=TEXTS, label=LABELS),
    "multi-label": as_columns(text=TEXTS, label=[[], *([n] for n in LABELS[1:])]),
}


def test_batches_hold_each_class_equally_often_and_no_row_twice() -> None:
    sizes = [10] * 70 + [3, 1, 400]  # and three rows without a class
    classes = np.repeat(np.arange(len(sizes)), sizes)
    targets = np.vstack([np.eye(len(sizes))[classes], np.zeros((3, len(sizes)))])
    batches = balanced_batches(targets, 150, seed=1)
    assert all(len(set(batch)) == len(batch) == 32 for batch in batches)
    rows = np.concatenate(batches)
    counts = np.bincount(classes[rows[rows < len(classes)]], minlength=len(sizes))
    assert set(rows[classes.size <= rows]) == {classes.size + n for n in range(3)}
    assert np.ptp(np.delete(counts, 71)) < 6  # a row twice in a batch counts once
    assert set(range(700)) <= set(rows)
    assert balanced_batches(targets, 150, seed=1) == batches
    few = balanced_batches(np.eye(2)[[0, 0, 1]], 2, seed=1)
    assert [sorted(batch) for batch in few] == [[0, 1, 2]] * 2


@pytest.mark.parametrize(
    "long", ["truncate", pytest.param("windows", marks=pytest.mark.slow)]
)
def test_pairs_bring_vectors_of_a_class_together(
    long: str, encoder_folder: Path
) -> None:
    columns = as_columns(text=[4 * f"{text} " for text in TEXTS], label=LABELS)
    classes = tuple(sorted(set(LABELS)))
    task = Classification(classes=classes, pooling="mean", long=long)
    model = new_model(task, encoder_folder, CONFIG)
    _, targets = task.linear_targets(columns)
    head = model.get_layer("classifier").kernel.numpy()

    def gap() -> float:
        x = Predictor(HeadInputs(model), freeze=False).answers(columns)["vector"]
        cosines = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ x.T
        cosines /= np.linalg.norm(x, axis=1)
        same = targets @ targets.T > 0
        return float(cosines[same].mean() - cosines[~same].mean())

    before = gap()
    start = [weight.numpy() for weight in model.backbone.weights]
    train_on_pairs = PairTraining(model, CONFIG, Forecast())
    train_on_pairs(columns, targets)
    assert gap() > before + 0.05
    np.testing.assert_array_equal(model.get_layer("classifier").kernel.numpy(), head)

    if long == "truncate":
        once = gap()
        for rows in (range(5), range(12)):  # later calls begin as the first one did
            for weight, value in zip(model.backbone.weights, start, strict=True):
                weight.assign(value)
            train_on_pairs(columns.take(rows), targets[rows])
        assert gap() == pytest.approx(once, abs=1e-4)
        return
    wild = dataclasses.replace(CONFIG, learning_rate=1e30)
    refused(
        lambda: PairTraining(model, wild, Forecast())(columns, targets),
        "updates were not finite, and skipped",
    )


def test_few_folds_hold_enough_rows_out() -> None:
    assert rows_of_trainings(64, has_dev=True) == [64]
    assert rows_of_trainings(64, has_dev=False) == [43, 43, 43, 64]
    assert rows_of_trainings(256, has_dev=False) == [171, 171, 256]
    assert rows_of_trainings(1000, has_dev=False) == [667, 1000]


@pytest.mark.parametrize(
    ("name", "enough", "count"), [("classification", 128, 3), ("multi-label", 5, 2)]
)
@pytest.mark.slow
def test_a_contrastive_run_is_scored_by_whole_folds_and_resumes(
    *,
    name: str,
    enough: int,
    count: int,
    encoder_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted: list[str] = []
    plain = PairTraining.__call__

    def counted(*args: Any, **options: Any) -> None:
        fitted.append(options["name"])
        if len(fitted) == 2:
            raise RunStopped("stopped")
        plain(*args, **options)

    monkeypatch.setattr(PairTraining, "__call__", counted)
    monkeypatch.setattr(ContrastiveFit, "enough", enough)
    planned, plan = [], ContrastiveFit.planned

    def noted(*args: Any) -> Forecast:
        planned.append(plan(*args))
        return planned[-1]

    monkeypatch.setattr(ContrastiveFit, "planned", noted)
    given: dict[str, Any] = {"encoder": encoder_folder, "train": DATA[name]}
    given |= {"output": tmp_path / "m", "config": CONFIG}
    given["unlabeled"] = {"text": [f"{text} now" for text in TEXTS]}
    given["test"] = DATA[name]
    with pytest.raises(RunStopped):
        train(name, **given)
    found = train(name, **given)
    folds = [f"fold {n} of {count}" for n in range(2, count + 1)]
    assert fitted[1:] == [folds[0], *folds, "all rows"]
    assert planned[-1].left == {"updates": 0, "rows": 0}  # and no more was done
    of = "" if count == 3 else f"{count} of "
    scores = found.scores[f"cross-validation, {of}3 folds"]
    assert scores["num_examples"] == 4 * count
    assert scores["trained_on"] == f"67% of the rows in each of {count} folds"
    assert found.report["settings"]["unlabeled"].startswith("12 unlabeled rows are ")
    assert "pairs within and across classes" in found.report["settings"]["training"]
    answers = load_predictor(tmp_path / "m").predict(TEXTS)
    assert_near(answers, Predictor(found.model).predict(TEXTS))
    start = new_model(found.model.task, encoder_folder, CONFIG).backbone
    assert any(
        np.abs(a.numpy() - b.numpy()).max() > 1e-4
        for a, b in zip(start.weights, found.model.backbone.weights, strict=True)
    )


@pytest.fixture(scope="module")
def embedder(encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedder") / "model"
    save_model(TaskModel.from_pretrained(encoder_folder, "embedding"), folder)
    return folder


@pytest.mark.slow
def test_auto_trains_on_pairs_and_dev_rows_need_no_folds(
    embedder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = DATA["classification"]
    run = functools.partial(
        train,
        "classification",
        encoder=embedder,
        train=data,
        config=TrainConfig(method="auto", max_length=40),
    )
    computed: list[int] = []
    vectors_of = head_fit.HeadTrainer.vectors_of

    def counted(self: Any, rows: Any, *others: Any) -> Any:
        computed.append(len(rows))
        return vectors_of(self, rows, *others)

    with (
        mock.patch.multiple(head_fit, _MUCH_LESS=math.inf, _LEAST_TO_COMPARE=12),
        mock.patch.object(head_fit.HeadTrainer, "vectors_of", counted),
    ):
        run(output=tmp_path / "linear")
    assert computed == [len(data)]  # for the choice, and not again for the head
    told = capsys.readouterr().err
    assert re.search("method +linear .* a sentence encoder; the encoder.s lower", told)
    best = property(lambda self: (1.0, 0.0))
    with mock.patch.object(ContrastiveFit, "rank", best):
        found = run(dev=data, output=tmp_path / "m")
    assert list(found.scores) == ["dev"]
    told = capsys.readouterr().err
    assert re.search("method +contrastive .* 4 rows per class", told)
    assert "fold 1" not in told and "(dev) by a linear head" in told
    assert found.report["settings"]["method"] == "contrastive"
    # Where the head alone is better by the same folds, training ends with them.
    with mock.patch.object(ContrastiveFit, "rank_of", lambda *_: (0.0, 0.0)):
        found = run(output=tmp_path / "kept")
    assert found.report["settings"]["method"] == "linear"
    told = capsys.readouterr().err
    assert "trained on pairs within" not in told and "3 folds" in told
    pattern = "method +linear .* in cross-validation, it has accuracy .* first 0.0000"
    assert re.search(pattern, told)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "linear", "m"]


def chosen(task: Any, rows: Any, encoder: Path, known: Any = None, **set: Any) -> str:
    """Return the method that `auto` chooses, and why."""
    facts = facts_of(task, rows, encoder, **(known or {}), config=TrainConfig(**set))
    found = choose_method(facts, lower_layers_help=lambda task: False)
    return f"{found.value}: {found.reason}"


def facts_of(task: Any, rows: Any, encoder: Path, **known: Any) -> Facts:
    given: dict[str, Any] = {"settings": {}, "config": TrainConfig(), **known}
    folder = Folder.open(encoder)
    return Facts(task=task, rows=rows, encoder=encoder, folder=folder, **given)


@pytest.mark.parametrize(
    ("task", "times", "changes", "told"),
    [
        (Classification, 1, {}, "contrastive: 4 rows per class on average, and"),
        (Classification, 70, {}, "finetune: 280 rows per class, above 256"),
        (Classification, 0, {}, "finetune: one of the two classes has 3 rows"),
        (Classification, -300, {}, "finetune: the texts are long, and finetune reads"),
        (Classification, 1, {"epochs": 2}, "finetune: `epochs` is given"),
        (Regression, 1, {}, "finetune: the other methods are for classes of texts"),
        (Classification, 70, {"unlabeled": True}, "contrastive: 280 rows per class"),
        (
            *(Classification, 1, {"unlabeled": True, "freeze_layers": 1}),
            "contrastive: 4 rows per class on average, and a sentence encoder; not "
            "linear, as "
            "`freeze_layers` is given; finetune does",
        ),
        (
            *(Classification, 1, {"unlabeled": True, "batch_size": 4}),
            "linear: `batch_size` is given; finetune does not learn from rows without",
        ),
        (
            *(Classification, 1, {"unlabeled": True, "teacher": "folder"}),
            "finetune: `teacher` is given",
        ),
    ],
)
def test_auto_says_what_it_chooses_and_why(
    task: Any, times: int, changes: dict[str, Any], told: str, embedder: Path
) -> None:
    texts, labels = (TEXTS, LABELS) if times else (TEXTS[:4], [*"aaab"])
    if times < 0:
        texts, times = [-times * text for text in texts], 1
    rows = as_columns(text=texts * (times or 3), label=labels * (times or 3))
    known = {"has_unlabeled": changes.get("unlabeled", False)}
    changes = {k: v for k, v in changes.items() if k != "unlabeled"}
    assert chosen(task, rows, embedder, known, **changes).startswith(told)


@pytest.mark.parametrize(
    ("count", "changes", "told"),
    [
        (15, {}, "contrastive: 2 rows per class on average, and a sentence encoder"),
        (16, {}, "linear: 16 classes, 2 rows per class on average, and a"),
        (16, {"learning_rate": 1e-4}, "contrastive: 2 rows per class"),
    ],
)
def test_auto_fits_the_head_alone_of_many_classes(
    count: int, changes: dict[str, Any], told: str, embedder: Path
) -> None:
    names = [f"class {number}" for number in range(count)]
    rows = as_columns(text=[f"{n} text" for n in range(2 * count)], label=2 * names)
    assert chosen(Classification, rows, embedder, **changes).startswith(told)


@pytest.mark.parametrize(
    ("known", "changes", "told"),
    [
        ({}, {}, "contrastive: 4 rows per class"),
        ({"one_replica": False}, {}, "linear: 4 rows per class on average; contrast"),
        (
            *({"one_replica": False}, {"learning_rate": 1e-4}),
            "finetune: `learning_rate` is given, and contrastive needs a strategy of",
        ),
        ({"is_compared": True}, {}, "contrastive: 4 rows per class"),
        (
            *({"is_compared": True, "one_replica": False}, {}),
            "finetune: several runs are compared, and contrastive needs a strategy of",
        ),
    ],
)
def test_auto_chooses_for_any_encoder_and_says_what_it_could_not(
    known: Any, changes: Any, told: str, encoder_folder: Path
) -> None:
    rows = DATA["classification"]
    found = chosen(Classification, rows, encoder_folder, known, **changes)
    assert found.startswith(told)


@pytest.mark.slow
def test_auto_reads_other_encoders_by_the_mean(
    encoder_folder: Path, spam_folder: Path
) -> None:
    config = TrainConfig(epochs=1)
    for encoder, pooling in ((encoder_folder, "mean"), (spam_folder, "")):
        facts = facts_of(Classification, DATA["classification"], encoder, config=config)
        assert pooling_of(facts).get("pooling", "") == pooling


def test_auto_finetunes_pairs(embedder: Path) -> None:
    pairs = as_columns(text=TEXTS, text_pair=TEXTS, label=LABELS)
    assert chosen(Classification, pairs, embedder).startswith(
        "finetune: rows are pairs"
    )
    reason = "finetune: the other methods are for classes of texts"
    assert chosen(Embedding, pairs, embedder) == reason


@pytest.mark.parametrize(
    ("is_embedder", "pair", "settings", "pooling"),
    [
        (True, False, {}, "mean"),
        (True, True, {}, ""),
        (True, False, {"pooling": "pooler"}, ""),
        (False, False, {}, ""),
    ],
)
def test_the_folder_of_an_encoder_of_vectors_says_how_single_texts_are_pooled(
    is_embedder: bool,
    pair: bool,
    settings: dict[str, Any],
    pooling: str,
    embedder: Path,
    encoder_folder: Path,
) -> None:
    texts = {"text": TEXTS, "text_pair": TEXTS} if pair else {"text": TEXTS}
    rows = as_columns(**texts, label=LABELS)
    encoder = embedder if is_embedder else encoder_folder
    config = TrainConfig(method="finetune")
    facts = facts_of(Classification, rows, encoder, settings=settings, config=config)
    assert pooling_of(facts).get("pooling", "") == pooling
    method = choose_method(facts, lower_layers_help=bool)
    _, choice = choose_pooling(facts, method)
    assert choice is not None and choice.value == "pooler"
    assert ("trained with the mean of the tokens" in choice.reason) == bool(pooling)


@pytest.mark.slow
def test_a_reranker_reads_as_its_encoder_of_vectors_was_made(
    embedder: Path,
    encoder_folder: Path,
    tmp_path: Path,
    plan_for: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = list(zip(TEXTS, TEXTS[::-1], ["1", "0"] * len(TEXTS), strict=False))
    rows = [
        dict(zip(("query", "document", "label"), row, strict=True)) for row in texts
    ]
    small = TrainConfig(epochs=1, max_length=24, validation_split=0, explain_mistakes=0)
    given: dict[str, Any] = {"encoder": embedder, "train": rows, "config": small}
    found = train("reranking", output=tmp_path / "ranker", **given)
    assert cast(Reranking, found.model.task).pooling == "mean"
    assert re.search("pooling +mean .* as the encoder's", capsys.readouterr().err)
    loaded = load_predictor(found.folder)
    assert cast(Reranking, loaded.model.task).pooling == "mean"
    pairs = [(query, document) for query, document, _ in texts]
    assert loaded.predict(pairs) == Predictor(found.model).predict(pairs)
    columns = Reranking.read(rows)
    for encoder, settings, pooling in (
        (embedder, {"pooling": "pooler"}, {}),
        (encoder_folder, {}, {}),
    ):
        facts = facts_of(Reranking, columns, encoder, settings=settings)
        assert pooling_of(facts) == pooling
    further = plan_for(Reranking, train=rows, config=small, encoder=found.folder)
    assert further.task.pooling == "mean"


@pytest.mark.parametrize("method", ["auto", "finetune"])
def test_auto_reads_by_the_mean_and_finetune_names_it(
    method: str, embedder: Path, plan_for: Any
) -> None:
    found = plan_for(
        "classification",
        encoder=embedder,
        train=DATA["classification"],
        config=TrainConfig(method=method, epochs=1),
    )
    mean = method == "auto"
    assert found.task.pooling == ("mean" if mean else "pooler")
    reasons = " ".join(choice.reason for choice in found.choices)
    assert ("BERT's pooler, as in other tools; the encoder" in reasons) != mean


@pytest.mark.parametrize(
    ("task", "changes", "parts"),
    [
        (Classification, {"epochs": 3}, ("`epochs`", "contrastive", "received 3")),
        (Regression, {}, ("`method` must be finetune or linear for regression",)),
        ("masked-lm", {}, ("`method` must be finetune for masked-lm",)),
    ],
)
def test_what_does_not_go_with_pairs_is_refused(
    task: Any, changes: dict[str, Any], parts: tuple[str, ...], plan_for: Any
) -> None:
    def read() -> None:
        config = TrainConfig(**{"method": "contrastive", **changes})
        plan_for(task, train=DATA["classification"], config=config)

    refused(read, *parts)
