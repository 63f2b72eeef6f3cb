"""What is decided before training: the table of choices, and about what a run takes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import ROWS, refused, write_encoder, write_tsv

import bert_keras
from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.models.folder import Folder
from bert_keras.models.model_folder import save_model
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.regression import Regression
from bert_keras.training.choices import GIVEN, Facts
from bert_keras.training.config import TrainConfig
from bert_keras.training.methods import choose_pair_encoder

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
COLUMNS = as_columns(text=TEXTS, label=LABELS)


def choices(plan: Any) -> dict[str, tuple[Any, str, str]]:
    return {each.name: (each.value, each.reason, each.option) for each in plan.choices}


def test_a_plan_names_each_choice_its_reason_and_its_option(
    plan_for: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TrainConfig(epochs=3, patience=1)
    plan = plan_for("classification", train=COLUMNS, config=config)
    assert capsys.readouterr() == ("", "")
    found = choices(plan)
    assert found["method"] == ("finetune", "`epochs` is given", "--method")
    assert found["epochs"] == (3, GIVEN, "--epochs")
    for given in ({"dev": COLUMNS}, {"config": TrainConfig(validation_split=0)}):
        other = choices(plan_for("classification", train=COLUMNS, **given))
        assert other["validation split"][0] == "none"
    assert found["patience"] == (1, GIVEN, "--patience")
    assert found["batch size"] == (16, "for 11 training rows", "--batch-size")
    assert found["learning rate"][0] == "0.0003"
    assert found["max length"] == (40, "holds 100% of 12 texts", "--max-length")
    assert found["validation split"][2] == "--validation-split"
    assert (plan.config.method, plan.config.batch_size) == ("finetune", 16)
    assert plan.config.max_length == 40 and len(plan.rows["dev"]) == 1
    plain = {name: str(value[0]) for name, value in found.items()}
    assert {row["name"]: row["value"] for row in plan.table()} == plain


@pytest.mark.slow
def test_a_run_has_the_dropout_that_is_given(train_spam: Any, tmp_path: Path) -> None:
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1)
    encoder = write_encoder(tmp_path / "encoder", **rates)
    given = {"train": COLUMNS, "epochs": 1}
    found = train_spam(tmp_path / "model", encoder=encoder, dropout=0.25, **given)
    layers = found.model.backbone._flatten_layers()
    assert {x.rate for x in layers if hasattr(x, "rate")} == {0.25}
    kept = Folder.open(found.folder).checkpoint.config
    assert kept.hidden_dropout_prob == kept.attention_probs_dropout_prob == 0.1
    refused(lambda: train_spam(tmp_path / "other", dropout=0.25, **given), "`dropout`")


def test_several_runs_are_compared_on_dev_rows(plan_for: Any) -> None:
    plan = plan_for(
        "classification", train=COLUMNS, config=TrainConfig(), is_compared=True
    )
    reason = "4 rows per class on average; not linear, as several runs are compared"
    assert choices(plan)["method"][:2] == ("contrastive", reason)
    assert len(plan.rows["dev"]) == 1


PAIRS = as_columns(text=TEXTS, text_pair=TEXTS[::-1], label=list(range(len(TEXTS))))


def test_a_sentence_encoder_reads_each_text_of_a_pair_by_itself(
    plan_for: Any, make_model: Any, tmp_path: Path
) -> None:
    vectors = save_model(make_model(Embedding("mean")), tmp_path / "vectors")

    def chosen(encoder: Path | None = vectors, **given: Any) -> tuple[str, str]:
        """Return the method, how pairs are read, and the reason if in one row."""
        settings = {name: given.pop(name) for name in ("pooling",) if name in given}
        more = {} if encoder is None else {"encoder": encoder}
        config = TrainConfig(**given)
        plan = plan_for(
            "regression", train=PAIRS, config=config, task_settings=settings, **more
        )
        read, reason, _ = choices(plan)["pair encoder"]
        assert plan.task.pair_encoder == read
        assert plan.task.pooling == ("mean" if read == "bi" else "pooler")
        return choices(plan)["method"][0], reason if read == "cross" else read

    assert chosen() == ("linear", "bi")
    assert chosen(method="linear") == ("linear", "bi")
    assert chosen(epochs=2) == ("finetune", "`epochs` is given")
    assert chosen(pooling="pooler") == ("finetune", "`pooling` is given")
    reason = "finetune trains the encoder to compare texts in one row"
    assert chosen(method="finetune") == ("finetune", reason)
    reason = "the encoder's folder names no vectors of texts"
    assert chosen(None) == ("finetune", reason)


@pytest.mark.parametrize(("score", "read"), [(0.9, "bi"), (0.5, "cross")])
def test_vectors_that_compare_well_are_compared(
    score: float, read: str, encoder_folder: Path
) -> None:
    facts = Facts(
        task=Regression,
        settings={},
        rows=PAIRS.take(list(range(12)) * 3),
        config=TrainConfig(),
        encoder=encoder_folder,
        folder=Folder.open(encoder_folder),
    )
    tried: list[Any] = []
    facts, choice = choose_pair_encoder(
        facts, score_vectors=lambda task, _: tried.append(task) or score
    )
    (task,) = tried
    assert (task.pair_encoder, task.pooling, task.pairs) == ("bi", "mean", True)
    assert choice is not None and choice.value == read
    assert f"Spearman {score:.2f} by cross-validation" in choice.reason
    assert facts.given == ({"pair_encoder": "bi"} if read == "bi" else {})


@pytest.mark.parametrize(
    "method",
    [
        "linear",
        pytest.param("contrastive", marks=pytest.mark.slow),
        pytest.param("finetune", marks=pytest.mark.slow),  # below, by the command
    ],
)
def test_a_planned_run_writes_nothing(
    method: str, encoder_folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "model" / "notes.txt"  # which `train` would not replace
    other.parent.mkdir()
    other.touch()
    plan = bert_keras.plan(
        "classification",
        encoder=encoder_folder,
        train=COLUMNS,
        output=tmp_path / "model",
        config=TrainConfig(method=method, max_length=24),
    )
    assert plan.estimate is not None
    assert [*tmp_path.rglob("*")] == [other.parent, other]
    assert 0 < plan.estimate.seconds < 1000
    weights = sum(
        file.stat().st_size for file in encoder_folder.glob("model.safetensors")
    )
    # Best epoch and three checkpoints, two of them with the optimizer's moments twice.
    least = {"finetune": 9, "linear": 0.8, "contrastive": 0.8}[method]
    assert plan.estimate.written_bytes > least * weights
    assert plan.estimate.line().startswith("about ")


def test_the_command_shows_the_plan_that_train_follows(
    encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_tsv(tmp_path / "spam.tsv", [("text", "label"), *ROWS])
    classes = sorted(set(LABELS))
    numbered = [f"{text};{classes.index(label)}" for text, label in ROWS]
    file.write_text("\n".join(["text;label", *numbered]) + "\n")
    words = ["train", "classification", "--encoder", str(encoder_folder)]
    words += ["--set", f"classes={json.dumps(classes)}"]
    words += ["--train", str(file), "--epochs", "1", "--max-length", "24"]
    words += ["--explain-mistakes", "0"]
    assert main(words) == 2
    assert "`--output` must be given unless `--plan` is" in capsys.readouterr().err
    assert main([*words, "--plan"]) == 0
    out, err = capsys.readouterr()
    note = "cells are separated by semicolons"
    for each in (note, "holds the numbers of classes"):
        assert (out.count(each), err.count(each)) == (1, 0)
    *table, estimate = out.splitlines()
    assert estimate.startswith("about ") and os.listdir(tmp_path) == ["spam.tsv"]
    assert table[0].split() == "method finetune --method `epochs` is given".split()
    words += ["--output", str(tmp_path / "model")]
    assert main(words) == 0
    err = capsys.readouterr().err
    assert set(table) <= set(err.splitlines()) and err.count(note) == 1
    page, card = (
        (tmp_path / "model" / name).read_text("utf-8")
        for name in ("report.html", "README.md")
    )
    for text in (page, card):
        assert "`epochs` is given" in text.replace("\\", "")
    assert main([*words, "--plan", "--seeds", "2"]) == 2
    assert "`--plan` shows one run: leave out `--seeds`" in capsys.readouterr().err


def test_a_task_with_settings_of_its_own_takes_no_others(plan_for: Any) -> None:
    task = bert_keras.Classification(("ham", "promo", "spam"), pooling="mean")
    config = TrainConfig(epochs=1)
    assert plan_for(task, train=COLUMNS, config=config).task == task
    refused(
        lambda: plan_for(task, train=COLUMNS, task_settings={"pooling": "cls"}),
        "`task_settings` must be empty",
        "received pooling",
    )
