"""Training: seeds, the best epoch, class weights, reports, and errors."""

from __future__ import annotations

import errno
import functools
import importlib.util
import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, files_of, refused, thorough

from bert_keras.data.columns import Columns
from bert_keras.data.table import as_columns
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.loading import new_model
from bert_keras.models.model_folder import save_model
from bert_keras.report.terminal import plan_lines
from bert_keras.runs import progress
from bert_keras.runs.notes import collected
from bert_keras.tasks import find_task
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.generation import Translation
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking
from bert_keras.tasks.tagging.task import FeatureTagging, TokenClassification
from bert_keras.text import word_pieces
from bert_keras.training import finetune as training
from bert_keras.training import loop, results
from bert_keras.training.config import TrainConfig
from bert_keras.training.evaluation import evaluate
from bert_keras.training.finetune import TrainResult, train
from bert_keras.training.updates import dev_losses

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
TARGETS = np.array([("ham", "promo", "spam").index(label) for label in LABELS])
FEW = as_columns(text=TEXTS, label=LABELS)
NO_LEARNING = {"learning_rate": 1e-12, "epochs": 1}


@pytest.fixture
def run(train_spam: Callable[..., Any], tmp_path: Path) -> Callable[..., TrainResult]:
    """Return a function that trains, with some changes, into `tmp_path / "model"`."""
    return functools.partial(train_spam, tmp_path / "model")


def crafted_dev(
    monkeypatch: pytest.MonkeyPatch, accuracies: list[float], dev_losses: list[float]
) -> None:
    """Let dev score what is given, one after the other; then break the run.

    Before training, all answers are wrong.
    """
    score = Classification.score
    found = iter([(0.0, 9.0), *zip(accuracies, dev_losses, strict=True)])

    def crafted(self: Classification, *args: Any) -> dict[str, Any]:
        if (values := next(found, None)) is None:
            raise KeyError("the machine is gone")
        accuracy, loss = values
        return {**score(self, *args), "accuracy": accuracy, "loss": loss}

    monkeypatch.setattr(Classification, "score", crafted)


def losses(result: TrainResult) -> list[float]:
    return [row["loss"] for row in result.history if "loss" in row]


def test_the_same_seed_gives_the_same_weights(run: Any, spam_run: TrainResult) -> None:
    again = run().model.get_weights()
    for one, other in zip(spam_run.model.get_weights(), again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_result_holds_the_notes_that_the_run_printed(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(progress, "_is_quiet", True)
    file = tmp_path / "spam.csv"
    lines = ["text,label", *(f'"{text} €",{label}' for text, label in ROWS)]
    file.write_text("\n".join(lines), encoding="cp1252")
    result = run(train=str(file), add_tokens=("covid",), **NO_LEARNING)
    table = plan_lines(result.report["choices"])
    printed = capsys.readouterr().err.splitlines()
    others = [line for line in printed if line not in table]
    states = [line for line in others if line not in result.notes]
    assert [line.split()[0] for line in states] == ["strategy", "training"]
    assert [line for line in others if line not in states] == [*result.notes]
    for part in ("read as Windows-1252", "added tokens, 1 of 1: covid"):
        assert sum(part in note for note in result.notes) == 1
    page = (result.folder / "report.html").read_text("utf-8")
    assert "<li>added tokens, 1 of 1: covid</li>" in page


@pytest.mark.slow
def test_a_run_traces_the_tokenizer_once(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced, tokenize = [], word_pieces.WordPieces._tokenize
    word_pieces.known_pieces.cache_clear()  # other tests have the vocabulary, too

    def counted(self: word_pieces.WordPieces, *given: Any) -> Any:
        if not tf.executing_eagerly():
            traced.append(self)
        return tokenize(self, *given)

    monkeypatch.setattr(word_pieces.WordPieces, "_tokenize", counted)
    model = run(test={"test": FEW}, **NO_LEARNING).model
    answers = Predictor(model).predict(TEXTS * 3)
    exported = export_model(model, tmp_path / "exported")
    assert len(traced) == 1
    served = load_predictor(exported).predict(TEXTS * 3)
    assert [row["label"] for row in served] == [row["label"] for row in answers]


def test_another_seed_gives_another_head(encoder_folder: Path) -> None:
    task = Classification(("ham", "promo", "spam"))
    first, second = (
        new_model(task, encoder_folder, TrainConfig(seed=seed, max_length=24))
        for seed in (1, 2)
    )
    heads = [
        model.get_layer("classifier").get_weights()[0] for model in (first, second)
    ]
    assert np.abs(heads[0] - heads[1]).max() > 0.01


def test_a_head_is_kept_where_it_fits(make_model: Any, tmp_path: Path) -> None:
    classes = ("ham", "promo", "spam")
    given = make_model(Classification(classes))
    folder = save_model(given, tmp_path / "model")

    def made(task: Classification, **options: Any) -> tuple[Any, str]:
        config = TrainConfig(seed=2, max_length=24, **options)
        with collected() as told:
            model = new_model(task, folder, config)
        return model, "\n".join(told)

    model, told = made(Classification(classes[::-1]))
    assert "a head for classification, which is trained further" in told
    found, wanted = (each.answer(TEXTS)["probabilities"] for each in (model, given))
    np.testing.assert_allclose(found[:, ::-1], wanted, atol=1e-6)
    for task, reason in (
        (Classification(("a", "b")), "has the classes ham, promo, spam"),
        (Classification(classes, pooling="mean"), "pooling pooler (--set pooling=pool"),
    ):
        model, told = made(task)
        assert "which is not used: it" in told and reason in told
        assert not model.has_pretrained_head
    assert "a head" not in made(Classification(classes), method="linear")[1]


def test_a_head_is_read_as_in_its_folder(
    make_model: Any, tmp_path: Path, plan_for: Any
) -> None:
    windows = {"long": "windows", "stride": 9, "combine": "attention"}
    read = {"pooling": "mean", "normalize": True}
    given = make_model(Classification(("ham", "promo", "spam"), **read, **windows))
    folder = save_model(given, tmp_path / "model")
    rows = as_columns(text=TEXTS, label=LABELS)

    def task_of(**settings: Any) -> Any:
        return plan_for(
            "classification",
            train=rows,
            config=TrainConfig(epochs=1),
            task_settings=settings,
            encoder=folder,
        ).task

    found = task_of()
    assert all(getattr(found, k) == v for k, v in {**windows, **read}.items())
    config = TrainConfig(seed=2, max_length=24)
    with collected() as told:
        model = new_model(found, folder, config)
    assert told[-1].endswith("which is trained further")
    wanted = given.answer(TEXTS)["probabilities"]
    np.testing.assert_allclose(model.answer(TEXTS)["probabilities"], wanted, atol=1e-6)
    other = task_of(pooling="cls", long="truncate")
    assert (other.pooling, other.normalize, other.long) == ("cls", False, "truncate")
    with collected() as told:
        new_model(task_of(normalize=False), folder, config)
    assert told[-1].endswith("with normalize true (--set normalize=true)")


@pytest.mark.parametrize(
    ("task", "label"),
    [
        (Regression(activation="sigmoid"), "0.5"),
        (Reranking(pooling="mean", activation="linear"), "1"),
        (FeatureTagging(classes=("O", "B-x"), layers="last", units=4), ["O"]),
    ],
)
def test_a_folder_gives_its_settings_to_a_task_by_name(
    make_model: Any, tmp_path: Path, task: Any, label: Any, plan_for: Any
) -> None:
    folder = save_model(make_model(task), tmp_path / "model")
    kind = type(task)
    given = {name: ["win", "cash"] for name in ("text", "text_pair")}
    rows = as_columns(**given, label=[label, "0"])
    if kind is FeatureTagging:
        rows = as_columns(text=[["win"], ["cash"]], label=[["O"], ["B-x"]])
    elif kind is Regression:
        rows = as_columns(text=given["text"], label=[label, "0"])
    found = plan_for(
        task.name,
        train=rows,
        config=TrainConfig(epochs=1, validation_split=0),
        encoder=folder,
    ).task
    for name in ("activation", "pooling", "layers", "units"):
        assert getattr(found, name, None) == getattr(task, name, None)


def test_what_a_folder_does_not_give_is_told(make_model: Any, tmp_path: Path) -> None:
    classes = ("contradiction", "entailment", "neutral")
    given = {"abstain_below": 0.3, "class_weights": "balanced"}
    config = TrainConfig(seed=2, max_length=24)
    folder = save_model(make_model(Classification(classes, **given)), tmp_path / "a")
    with collected() as told:
        new_model(Classification(classes), folder, config)
    assert told[-1].startswith("settings of that folder that are not kept: ")
    assert "abstain_below=0.3" in told[-1] and "class_weights=balanced" in told[-1]
    names = ("a", "b", "c")
    task = Classification(names, entailment=classes, pairs=False)
    folder = save_model(make_model(task), tmp_path / "b")
    with collected() as told:
        new_model(Classification(names), folder, config)
    assert told[-1].endswith("not used: it is the head of an entailment model")


@pytest.mark.thorough
def test_layouts_learn_alike(run: Any, spam_run: TrainResult) -> None:
    padded = run(layout="padded")
    assert spam_run.model.preprocessor.layout == "packed"
    assert len(losses(padded)) == 2 * 15
    np.testing.assert_allclose(losses(padded), losses(spam_run), atol=1e-3)


@pytest.mark.thorough
def test_rematerialization_learns_alike(run: Any, spam_run: TrainResult) -> None:
    again = run(rematerialize=True)
    np.testing.assert_allclose(losses(again), losses(spam_run), atol=1e-3)


@pytest.mark.parametrize("precision", [thorough("mixed_float16"), "mixed_bfloat16"])
@pytest.mark.slow
def test_mixed_precision_learns_nearly_alike(
    run: Any, spam_run: TrainResult, precision: str
) -> None:
    result = run(precision=precision)
    assert {weight.dtype for weight in result.model.weights} == {"float32"}
    np.testing.assert_allclose(losses(result), losses(spam_run), atol=0.1)


@pytest.mark.thorough
def test_the_curve_holds_the_loss_of_each_step(run: Any) -> None:
    # Nothing is learned: the mean over the steps is the loss of all rows.
    rows = as_columns(text=TEXTS, label=LABELS)
    result = run(train=rows, batch_size=4, **NO_LEARNING)
    probabilities = result.model.answer(TEXTS)["probabilities"].numpy()
    wanted = -np.log(probabilities[range(len(TARGETS)), TARGETS])
    assert len(losses(result)) == 3
    assert np.mean(losses(result)) == pytest.approx(wanted.mean(), abs=1e-4)


@pytest.mark.parametrize(("losses", "best"), [((0.4, 0.5), 0), thorough((0.5, 0.4), 1)])
@pytest.mark.slow
def test_among_tied_epochs_the_one_with_the_lowest_loss_is_kept(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    losses: tuple[float, ...],
    best: int,
) -> None:
    # Both epochs have the same score, whatever the model answers.
    seen: list[list[np.ndarray]] = []
    score, answers = Classification.score, Predictor.answers

    def crafted(self: Classification, *args: Any) -> dict[str, Any]:
        loss = (9.0, *losses)[len(seen) - 1]  # 9 before training
        return {**score(self, *args), "accuracy": 0.9, "loss": loss}

    def watched(self: Predictor, *args: Any, **kwargs: Any) -> Any:
        seen.append(self.model.get_weights())
        return answers(self, *args, **kwargs)

    monkeypatch.setattr(Classification, "score", crafted)
    monkeypatch.setattr(Predictor, "answers", watched)
    result = run(train=as_columns(text=TEXTS, label=LABELS))
    first, second = (model[0] for model in seen[1:])
    assert np.abs(first - second).max() > 0
    settings = result.report["settings"]
    assert settings["best_epoch"] == best + 1
    assert settings["best_epoch_dev_loss"] == losses[best]
    # Given epochs are made to the end, and more of them are advised where dev improves.
    said = capsys.readouterr().err
    assert max(row["epoch"] for row in result.history) == 2
    assert "epochs:" not in said and "ended" not in said
    line = "dev was still improving in the last epoch, 2: more --epochs may"
    assert (line in said) == (line in settings.get("training", "")) == bool(best)
    for model in (result.model, load_predictor(result.folder).model):
        for kept, wanted in zip(model.get_weights(), seen[1 + best], strict=True):
            np.testing.assert_array_equal(kept, wanted)


@pytest.mark.parametrize(
    ("task", "best"), [(Embedding, 0), thorough(Classification, 1)]
)
@pytest.mark.slow
def test_dev_is_scored_before_training(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    task: Any,
    best: int,
) -> None:
    """An embedding's MRR fell from 0.858 to 0.850, and nobody saw it.

    A head that was initialized randomly is not kept, whatever it scored.
    """
    score, key = task.score, "mrr" if task is Embedding else "accuracy"
    values = iter([0.9, 0.8, 0.7])

    def crafted(self: Any, *args: Any) -> dict[str, Any]:
        return {**score(self, *args), key: next(values)}

    monkeypatch.setattr(task, "score", crafted)
    pairs = as_columns(text=TEXTS, text_pair=[f"{text} now" for text in TEXTS])
    given = {"train": pairs, "dev": pairs} if task is Embedding else {"train": FEW}
    result = run(task=task, **given)
    err = capsys.readouterr().err
    start = result.history[0]
    assert (start["epoch"], start["step"], start[f"dev_{key}"]) == (0, 0, 0.9)
    name = "MRR" if task is Embedding else key
    assert re.search(rf"before training: dev .*{name} 0\.9000", err)
    assert result.report["settings"]["best_epoch"] == best
    told = (
        "training did not help: the dev score (MRR) was 0.9000 before the first "
        "update, and at most 0.8000 after an epoch; the model before training is kept"
    )
    assert (told in err) == (best == 0)


@pytest.mark.thorough
def test_a_large_dev_set_is_not_scored_before_training(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # 12 rows need a third of an epoch.
    monkeypatch.setattr(loop, "_SMALL_DEV", 11)
    result = run(train=FEW, epochs=1)
    assert "not scored before training: it has too many" in capsys.readouterr().err
    assert [row["epoch"] for row in result.history if "dev_loss" in row] == [1]


@pytest.mark.parametrize(
    ("task", "hidden_size", "rate"),
    [
        (Classification(("a", "b")), 768, 5e-5),
        (Classification(("a", "b")), 384, 1e-4),
        (Classification(("a", "b")), 1024, 3.75e-5),
        (Classification(("a", "b")), 128, 3e-4),
        (FeatureTagging(("O", "B-x", "I-x")), 768, 1e-3),
        (Embedding(objective="vectors"), 384, 1e-3),
    ],
)
def test_narrow_encoders_learn_at_a_higher_rate(
    task: Any, hidden_size: int, rate: float
) -> None:
    assert TrainConfig().finalized(task, 100).learning_rate is None
    found = TrainConfig().finalized(task, 100, hidden_size).learning_rate
    assert found == pytest.approx(rate)
    given = TrainConfig(learning_rate=2e-5).finalized(task, 100, hidden_size)
    assert given.learning_rate == 2e-5


@pytest.mark.parametrize(
    ("rows", "hidden_size", "changes", "rate"),
    [
        (100, 384, {}, 3e-4),
        (100, 384, {"epochs": 80}, 1e-4),
        (10_000, 384, {}, 1e-4),
        (100, 768, {}, 5e-5),
        (100, 128, {}, 3e-4),
        (100, 384, {"lora_rank": 8}, 2e-3),
    ],
)
def test_few_updates_of_tags_have_a_higher_rate(
    rows: int, hidden_size: int, changes: dict[str, Any], rate: float
) -> None:
    task = TokenClassification(("O", "B-x", "I-x"))
    found = TrainConfig(**changes).finalized(task, rows, hidden_size).learning_rate
    assert found == pytest.approx(rate)


def test_lora_learns_at_a_higher_rate_than_new_weights() -> None:
    def rates(task: Any, **given: Any) -> Any:
        config = TrainConfig(lora_rank=8, **given).finalized(task, 100, 384)
        return pytest.approx((config.learning_rate, config.new_learning_rate))

    task = Classification(("a", "b"))
    assert rates(task) == (2e-3, 1e-4)
    assert rates(task, new_learning_rate=3e-4) == (2e-3, 3e-4)
    assert rates(task, learning_rate=5e-4) == (5e-4, None)
    assert rates(Translation()) == (1e-4, None)
    assert rates(Embedding(objective="vectors")) == (2e-3, 1e-4)


@pytest.mark.parametrize(
    ("rows", "batch_size", "epochs", "patience"),
    [
        (12, 16, 20, 10),
        (392, 16, 20, 10),
        (1000, 32, 16, 8),
        (3668, 32, 5, 3),
        (10**6, 32, 4, 3),
    ],
)
def test_small_data_gets_more_updates(
    rows: int, batch_size: int, epochs: int, patience: int
) -> None:
    task = Classification(("a", "b"))
    config = TrainConfig().finalized(task, rows)
    assert config.batch_size == batch_size
    assert (config.epochs, config.patience) == (epochs, patience)
    config = TrainConfig(batch_size=batch_size).finalized(task, rows)
    assert config.patience == patience
    assert TrainConfig(batch_size=8).finalized(task, 392).epochs == 11
    # The negatives of a pair are the other rows of its batch.
    assert TrainConfig().finalized(Embedding(), 12).batch_size == 32
    student = TrainConfig().finalized(Embedding(objective="vectors"), rows)
    assert student.epochs == max(epochs, 6)
    given = TrainConfig(epochs=7).finalized(task, rows)
    assert (given.epochs, given.patience) == (7, 0)


@pytest.mark.slow
def test_training_ends_when_dev_no_longer_improves(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    crafted_dev(monkeypatch, [0.5, *[0.7] * 11, 0.9], [0.9] * 13)
    result = run(train=FEW, epochs=None)
    said = capsys.readouterr().err
    assert re.search("epochs +20 .* 2 updates an epoch", said)
    assert re.search("patience +10 .* without a better dev score", said)
    # Not in the first half of the epochs.
    ending = "ended after epoch 12 of 20: dev has not improved for 10 epochs"
    assert ending in said
    assert max(row["epoch"] for row in result.history) == 12
    settings = result.report["settings"]
    assert settings["training"] == ending and settings["best_epoch"] == 12
    assert (settings["epochs"], settings["patience"]) == (20, 10)


@pytest.mark.slow
def test_the_last_epoch_is_no_early_end(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crafted_dev(monkeypatch, [0.7, 0.6, 0.6, 0.7], [0.9] * 4)
    run(train=FEW, epochs=3, patience=2)
    assert "ended after" not in capsys.readouterr().err


@pytest.mark.thorough
def test_a_run_that_was_stopped_ends_as_early(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the end follows from is in the curves."""

    def broken(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    go = functools.partial(
        run, train=FEW, epochs=8, patience=3, checkpoint_every="epoch"
    )
    with monkeypatch.context() as patch:  # while the fourth epoch is scored
        crafted_dev(patch, [0.5, 0.7, 0.7], [0.9, 0.8, 0.7])
        with pytest.raises(KeyError):
            go()
    with monkeypatch.context() as patch:  # when training is over
        crafted_dev(patch, [0.6, 0.6, 0.6, 0.7], [0.9, 0.9, 0.9, 0.7])
        patch.setattr(results, "write_report", broken)
        refused(go, "No space left on device")
    # The last epoch is scored again, and so is the best one.
    crafted_dev(monkeypatch, [0.6, 0.7], [0.9, 0.7])
    result = go()
    assert max(row["epoch"] for row in result.history) == 6
    settings = result.report["settings"]
    assert (settings["best_epoch"], settings["best_epoch_dev_loss"]) == (3, 0.7)


@pytest.mark.slow
def test_a_loss_that_is_not_a_score_is_computed(make_model: Any) -> None:
    model = make_model(Regression(scaling="none"))
    rows = as_columns(text=TEXTS, label=[str(n % 5) for n in range(12)])
    found, _ = dev_losses(model, rows, batch_size=5)()["loss"]
    scores = evaluate(Predictor(model), rows)
    assert found == pytest.approx(scores["root_mean_squared_error"] ** 2, rel=1e-5)
    many = rows.take([0, 1] * 1500)
    some, two = (dev_losses(model, each)() for each in (many, rows.take([0, 1])))
    assert some["loss"] == pytest.approx(two["loss"], rel=0.02)


def test_without_dev_rows_some_are_held_out(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Seen(Exception):
        """What training was given."""

    def loop(model: Any, data: Any, context: Any) -> None:
        raise Seen(data["train"])

    monkeypatch.setitem(training.TRAINERS, "finetune", loop)
    rows = as_columns(text=[f"text {i}" for i in range(12)], label=LABELS)
    with pytest.raises(Seen) as seen:
        run(train=rows, dev=None, validation_split=0.25)
    assert "3 of 12 training rows are held out" in capsys.readouterr().err
    (kept,) = seen.value.args
    assert len(set(kept["text"])) == len(kept) == 9


def reason_of(plan: Any, name: str) -> str:
    (found,) = (each for each in plan.choices if each.name == name)
    return str(found.reason)


@pytest.mark.parametrize("seed", range(8))
def test_each_class_is_kept_in_training(seed: int, plan_for: Any) -> None:
    # Each class but one has one row: whatever is drawn, only that one's can go.
    rows = as_columns(text=list("abcdef"), label=["x", "ham", "y", "ham", "z", "w"])
    config = TrainConfig(seed=seed, validation_split=0.5)
    found = plan_for(Classification, train=rows, config=config)
    assert set(found.rows["train"]["label"]) == {"x", "y", "z", "w", "ham"}
    assert found.rows["dev"]["label"] == ["ham"]
    assert reason_of(found, "validation split") == (
        f"1 of 6 training rows are held out for dev (seed {seed}), not 3: each class "
        "is in training; dev has no row for 4 of 5 classes (w, x, y, z), which have "
        "one row each"
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("multi-label", ["x,y", "y,x", "z", ""]),
        ("next-sentence", ["next", "next", "next", "not_next"]),
        ("token-classification", ["B-x", "B-x", "B-y", "O"]),
    ],
)
def test_classes_of_other_tasks_are_kept_in_training(
    task: str, labels: list[str], seed: int, plan_for: Any
) -> None:
    rows = as_columns(text=list("abcd"), text_pair=list("abcd"), label=labels)
    config = TrainConfig(seed=seed, validation_split=0.5)
    plan = plan_for(task, train=rows, config=config)
    found = plan.task
    settings = found.get_config() if task == "multi-label" else {}
    kinds = [set(kind) for kind in found.strata(rows, **settings)]
    trained = [set(kind) for kind in found.strata(plan.rows["train"], **settings)]
    assert set.union(*trained) == set.union(*kinds)


@pytest.mark.slow
def test_without_dev_rows_the_last_epoch_is_kept(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(train=FEW, dev=None, test=FEW, patience=0)
    err = capsys.readouterr().err
    assert "  a tenth of the 12 training rows has no row of a" in err
    assert "dev accuracy" not in err and "held out" not in err
    assert list(result.scores) == ["test"]
    assert result.report["settings"]["best_epoch"] == 2
    assert not [row for row in result.history if "dev_loss" in row]
    page, card = ((result.folder / n).read_text() for n in ("report.html", "README.md"))
    assert result.report["settings"]["validation_split"] == 0
    assert all("a tenth of the 12 training rows" in each for each in (page, card))
    assert "on dev chose" not in card
    for given in ({"patience": 2}, {"task_settings": {"calibration": "temperature"}}):
        name = next(iter(given.get("task_settings", given)))
        action = functools.partial(
            run, train=FEW, dev=None, validation_split=0.0, **given
        )
        refused(action, f"`{name}` needs dev rows")


def test_held_out_rows_are_mentioned_if_relevant(plan_for: Any) -> None:
    config = TrainConfig(validation_split=0.1)
    action = functools.partial(plan_for, config=config)
    two = as_columns(text=["a", "b"], label=["neg", "pos"])
    refused(lambda: action(Classification, train=two), "too few rows", "each class")
    two = as_columns(text=["a", "b"], label=["1", "2"])
    line = refused(lambda: action("regression", train=two), "two values or more")
    assert line.endswith("; held out for dev: 1 of 2 rows")
    same = as_columns(text=["a", "b"], label=["1", "1"])
    line = refused(lambda: action("regression", train=same, dev=same), "two values")
    assert "held out" not in line


@pytest.mark.parametrize(
    ("times", "changes", "line"),
    [
        (1, {}, "a tenth of the 12 training rows has no row of a"),
        (11, {}, "a tenth of the 132 training rows has 4 rows of a"),
        (12, {}, "14 of 144 training rows are held out for dev (seed 42)"),
        (1, {"validation_split": 0.3}, "4 of 12 training rows are held out"),
        (1, {"patience": 2}, "1 of 12 training rows are held out"),
    ],
)
def test_a_dev_split_of_few_rows_of_a_class_is_not_made(
    times: int, changes: dict[str, Any], line: str, plan_for: Any
) -> None:
    rows = as_columns(text=TEXTS * times, label=LABELS * times)
    config = TrainConfig(method="finetune", **changes)
    found = plan_for("classification", train=rows, config=config)
    assert reason_of(found, "validation split").startswith(line)
    assert ("dev" in found.rows) == ("held out" in line)
    if "dev" not in found.rows:  # nothing is scored
        sliced = {"train": {"text": TEXTS, "label": LABELS, "src": LABELS}}
        action = functools.partial(plan_for, "classification", slices=["src"])
        refused(
            lambda: action(**sliced, config=config),
            "`slices` has no effect",
            "received src",
        )
        refused(
            lambda: plan_for("classification", slices="src", **sliced),
            "`slices` must be a list of columns; received 'src'",
        )
    calibrated = {"task_settings": {"calibration": "temperature"}}
    found = plan_for(Classification, train=rows, config=config, **calibrated)
    assert "dev" in found.rows


@pytest.mark.parametrize(
    ("entities", "line"),
    [
        (44, "a tenth of the 64 training rows has 4 rows with an entity, too few"),
        (46, "6 of 64 training rows are held out for dev"),
    ],
)
def test_tags_need_dev_rows_with_entities(
    entities: int, line: str, plan_for: Any
) -> None:
    rows = as_columns(
        text=[f"see number {n}" for n in range(64)],
        label=["O O B-x"] * entities + ["O O O"] * (64 - entities),
    )
    found = plan_for("token-classification", train=rows, config=TrainConfig())
    assert reason_of(found, "validation split").startswith(line)
    assert ("dev" in found.rows) == ("held out" in line)


def test_pairs_of_sentences_have_no_entities_to_hold_out(plan_for: Any) -> None:
    sentences = [f"sentence {n}" for n in range(40)]
    names = find_task("next-sentence")().labels
    rows = as_columns(text=sentences, text_pair=sentences[::-1], label=[*names] * 20)
    found = plan_for("next-sentence", train=rows, config=TrainConfig())
    reason = reason_of(found, "validation split")
    assert reason.startswith("4 of 40 training rows are held out for dev")


def test_the_documents_of_a_query_are_held_out_together(plan_for: Any) -> None:
    """A ranking of some of them would be easier, and often without the relevant one."""
    rows = as_columns(
        text=[f"query {row // 4}" for row in range(64)],
        text_pair=[f"document {row}" for row in range(64)],
        label=["1", "0", "0", "0"] * 16,
    )
    found = plan_for("reranking", train=rows, config=TrainConfig())
    assert sorted(found.rows["dev"]["label"]) == ["0", "0", "0", "1"]
    assert len(set(found.rows["dev"]["text"])) == 1
    assert reason_of(found, "validation split") == (
        "4 of 64 training rows are held out for dev (seed 42), not 6: queries stay "
        "whole"
    )


@pytest.mark.thorough
def test_data_is_accepted_in_common_forms(encoder_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    rows = [f'"{text}",{n}\n' for text, n in zip(TEXTS, TARGETS, strict=True)]
    path.write_text("sentence,kind\n" + "".join(rows))
    table = {"sentence": TEXTS, "kind": TARGETS}
    columns = {"text": "sentence", "label": "kind"}
    result = train(
        "classification",
        encoder=encoder_folder,
        train=path,
        dev=table,
        test={"table": table, "file": str(path)},
        columns=columns,
        output=tmp_path / "model",
        config=TrainConfig(epochs=1, max_length=24),
    )
    assert result.model.task.classes == ("0", "1", "2")
    accuracy = result.scores["dev"]["accuracy"]
    assert accuracy == result.scores["file"]["accuracy"]
    assert accuracy == result.scores["table"]["accuracy"]
    for data in (table, path):
        scores = evaluate(Predictor(result.model), data, columns=columns)
        assert scores["accuracy"] == accuracy


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_invalid_data_is_named(run: Any, name: str) -> None:
    refused(lambda: run(**{name: 5}), f"`{name}` must be a path", "received int")
    refused(lambda: run(task="spam"), "`task` must be one of", "'spam'")


@pytest.mark.parametrize("task", ["classification", "multi-label"])
def test_a_label_of_many_digits_is_one_line(task: str, plan_for: Any) -> None:
    labels = ["9" * 5000, "1"] * 5
    rows = Columns("a.tsv", {"text": list("abcdefghij"), "label": labels}, [*range(10)])
    config = TrainConfig(validation_split=0.4)
    action = functools.partial(plan_for, task, config=config)
    line = refused(lambda: action(train=rows), "a.tsv:", "1,000 characters", "5,000")
    assert len(line) < 1500 and "999…" in line
    known = Classification(("1", "2"))
    assert len(refused(lambda: known.targets(rows.take([0])), "a.tsv:0", "…")) < 300
    number = find_task("regression")
    assert len(refused(lambda: number().targets(rows.take([0])), "a.tsv:0")) < 300


def test_too_few_rows_to_hold_some_out(encoder_folder: Path, tmp_path: Path) -> None:
    one = as_columns(text=["a"], label=["ham"])
    action = lambda: train(  # noqa: E731
        Classification,
        encoder=encoder_folder,
        train=one,
        output=tmp_path / "model",
        config=TrainConfig(method="finetune", validation_split=0.1),
    )
    refused(action, "too few rows", "give dev rows")
    assert not (tmp_path / "model").exists()


def test_balanced_weights_are_those_by_hand() -> None:
    task = Classification(("a", "b", "c"), class_weights="balanced")
    rows = as_columns(text=list("wxyz"), label=["a", "b", "a", "a"])
    # N / (C * N of its class): 4 / (3 * 3) for `a`, 4 / (3 * 1) for `b`.
    wanted = [4 / 9, 4 / 3, 4 / 9, 4 / 9]
    np.testing.assert_allclose(task.example_weights(rows), wanted, rtol=1e-6)
    assert Classification(("a", "b")).example_weights(rows) is None


def test_unknown_settings_of_the_task_are_rejected(tmp_path: Path) -> None:
    rows = {"text": TEXTS, "label": LABELS}
    for task, name, words in (
        ("classification", "pair", ("setting of classification", "mean pairs?")),
        (Classification(("ham", "spam")), "pairs", ("`task_settings`", "instance")),
    ):
        refused(
            lambda task=task, name=name: train(
                task,
                encoder="no such folder",
                train=rows,
                output=tmp_path / "model",
                task_settings={name: True},
            ),
            *words,
        )


def test_a_model_in_place_of_the_encoder_s_path(tmp_path: Path) -> None:
    given: Any = BertEncoder
    rows = {"text": TEXTS, "label": LABELS}
    action = lambda: train(  # noqa: E731
        "classification", encoder=given, train=rows, output=tmp_path / "model"
    )
    refused(action, "`encoder` must be a path", "BertEncoder")


@pytest.mark.thorough
def test_class_weights_weigh_in_the_loss(run: Any) -> None:
    rows = as_columns(text=TEXTS[:6], label=LABELS[:6])  # 4 ham, 2 spam
    result = run(
        train=rows, dev=rows, task_settings={"class_weights": "balanced"}, **NO_LEARNING
    )
    probabilities = result.model.answer(TEXTS[:6])["probabilities"].numpy()
    each = -np.log(np.r_[probabilities[:4, 0], probabilities[4:, 1]])
    weights = np.array([6 / (2 * 4)] * 4 + [6 / (2 * 2)] * 2)
    assert losses(result) == pytest.approx([(weights * each).mean()], abs=1e-4)


def test_a_folder_holds_the_report_and_the_scores(spam_run: TrainResult) -> None:
    scores = json.loads((spam_run.folder / "scores.json").read_text())
    assert scores["dev"]["accuracy"] == spam_run.scores["dev"]["accuracy"] == 1.0
    page = (spam_run.folder / "report.html").read_text(encoding="utf-8")
    for part in ("classification: spam", "bert-keras train …", "learning_rate", "svg"):
        assert part in page
    assert set(files_of(spam_run.folder)) == {
        *("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"),
        *("report.html", "scores.json", "comparison.json", "README.md"),
    }
    assert "Learning rate by step" in page and "bert-keras serve" in page


def test_evaluation_scores_the_answers_of_predict(
    spam_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1)
    predictor = load_predictor(spam_folder)
    rows = as_columns(text=TEXTS, label=["ham"] * len(TEXTS))
    said = [row["label"] for row in predictor.predict(TEXTS)]
    scores = evaluate(predictor, rows, batch_size=5)
    assert scores["accuracy"] == pytest.approx(said.count("ham") / len(said))
    total = len(TEXTS)
    assert f"scoring: {total} of {total} rows" in capsys.readouterr().err


def test_an_unknown_label_at_evaluation_is_named_by_line(spam_folder: Path) -> None:
    rows = Columns(
        "dev.tsv", {"text": ["a", "b"], "label": ["ham", "Spam"]}, lines=[2, 7]
    )
    refused(lambda: evaluate(load_predictor(spam_folder), rows), "dev.tsv:7:", "'Spam'")


@pytest.mark.parametrize("name", ["train", "dev"])
def test_a_test_set_has_its_own_name(run: Any, name: str, tmp_path: Path) -> None:
    rows = as_columns(text=TEXTS, label=LABELS)
    refused(lambda: run(test={name: rows}), "`test`", f"received {name}")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("role", ["dev", "test"])
def test_an_unknown_label_is_found_before_training(
    run: Any, role: str, tmp_path: Path
) -> None:
    rows = Columns("other.tsv", {"text": ["a"], "label": ["eggs"]}, lines=[3])
    refused(lambda: run(**{role: rows}), "other.tsv:3:", "'eggs'")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("role", ["dev", "test"])
def test_a_missing_second_text_is_found_before_training(
    run: Any, role: str, tmp_path: Path
) -> None:
    pairs = as_columns(text=TEXTS, text_pair=TEXTS, label=LABELS)
    refused(lambda: run(**{"train": pairs, "dev": pairs, role: FEW}), "`text_pair`")
    assert os.listdir(tmp_path) == []


def test_a_single_class_is_rejected(run: Any) -> None:
    rows = as_columns(text=["a", "b"], label=["ham", "ham"])
    refused(lambda: run(train=rows), "two classes or more", "'ham'")


def test_a_length_above_the_encoder_s(run: Any, tmp_path: Path) -> None:
    refused(lambda: run(max_length=41), "`max_length`", "40", "41")
    assert not (tmp_path / "model").exists()


def test_a_missing_encoder(run: Any, tmp_path: Path) -> None:
    refused(lambda: run(encoder=tmp_path / "nowhere"), "nowhere: no such folder")
    assert not (tmp_path / "model").exists()


def test_another_backend_is_reported_before_training(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keras.config.backend", lambda: "jax")
    refused(run, "`train` needs KERAS_BACKEND=tensorflow; received jax")
    assert os.listdir(tmp_path) == []


def test_an_occupied_output_is_rejected_before_training(
    run: Any, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.tex").write_text("mine")
    refused(run, "holds other files")
    assert files_of(tmp_path / "model") == {"thesis.tex": b"mine"}


def test_a_failed_run_leaves_the_old_model(
    run: Any,
    spam_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(spam_folder, tmp_path / "model")

    def broken(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(results, "write_report", broken)
    refused(lambda: run(train=FEW, epochs=1), "No space left on device")
    assert f"{tmp_path / 'model'} exists, and is replaced" in capsys.readouterr().err
    assert files_of(tmp_path / "model") == files_of(spam_folder)
    assert sorted(os.listdir(tmp_path)) == [".model.run", "model"]


def test_tensorboard_that_is_not_installed(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *args: None if name == "tensorboard" else find(name, *args),
    )
    action = lambda: run(tensorboard=str(tmp_path / "curves"))  # noqa: E731
    refused(action, "pip install 'bert_keras[tensorboard]'")
    assert not (tmp_path / "model").exists()


def test_curves_inside_the_model_folder_would_be_replaced_with_it(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *args: name)
    action = lambda: run(tensorboard=str(tmp_path / "model" / "curves"))  # noqa: E731
    refused(action, "`tensorboard`", "outside")


def test_more_parts_than_rows_of_a_batch() -> None:
    for rows in (12, 2000):
        settle = lambda rows=rows: TrainConfig(accumulation=3).finalized(  # noqa: E731
            Classification(("a", "b")), rows
        )
        refused(settle, "`accumulation` must divide `batch_size`", "received 3 and")
    refused(lambda: TrainConfig(accumulation=3, batch_size=8), "`accumulation`", "3")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("patience", -1),
        ("patience", 0.5),
        ("epochs", 1.5),
        ("epochs", True),
        ("batch_size", 0),
        ("batch_size", "32"),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("global_clipnorm", -1.0),
        ("warmup_ratio", 1.0),
        ("validation_split", -0.1),
        ("weight_decay", math.nan),
        ("seed", -1),
        ("seed", 2**31),
        ("truncation", "middle"),
        ("layout", "square"),
        ("precision", "float8"),
        ("strategy", "all"),
        ("rematerialize", 1),
        ("tensorboard", 3),
        ("optimizer", "sgd"),
        ("freeze_layers", -1),
        ("lora_rank", 1.5),
        ("checkpoint_every", 0),
        ("checkpoint_every", "5 minutes"),
        ("keep", 0),
        ("on_nonfinite", "ignore"),
        ("restarts", -1),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: Any) -> None:
    refused(lambda: TrainConfig(**{name: value}), f"`{name}`", str(value))
