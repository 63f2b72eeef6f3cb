"""A user's own task goes through every verb, with nothing of the package edited."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from conftest import ROOT, write_encoder

from bert_keras import load_model
from bert_keras.cli.main import main

EXAMPLE = ROOT / "examples" / "own_task"
TASK = "stars.ordinal:Stars"


def enter(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make the user's folder the current one, as for the installed command.

    The current folder is not on the path by itself.
    """
    patch.chdir(folder)
    patch.setattr(sys, "path", [place for place in sys.path if place])
    for name in [name for name in sys.modules if name.partition(".")[0] == "stars"]:
        patch.delitem(sys.modules, name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the example in its own folder, with the task trained."""
    folder = tmp_path_factory.mktemp("user") / "own_task"
    shutil.copytree(EXAMPLE, folder)
    encoder = write_encoder(folder / "encoder", max_position_embeddings=128)
    train = f"train {TASK} --encoder {encoder} --train data/train.csv --epochs 2"
    options = "--dev data/test.csv --output models/stars --learning-rate 1e-3"
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        assert main([*train.split(), *options.split()]) == 0
    return folder


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the user's folder, where the task is found, current during a test."""
    enter(folder, monkeypatch)
    return folder


def test_the_help_names_its_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enter(EXAMPLE, monkeypatch)
    assert main(["tasks", TASK]) == 0
    assert "  most: int; default: 5\n" in capsys.readouterr().out


@pytest.mark.slow
def test_training_writes_model_and_report(folder: Path) -> None:
    config = json.loads((folder / "models/stars/config.json").read_text())
    assert config["bert_keras"]["task"] == TASK
    report = (folder / "models/stars/report.html").read_text(encoding="utf-8")
    assert "Within one" in report and "Mean absolute error" in report


@pytest.mark.slow
def test_evaluate_predict_and_export(
    inside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def verb(*arguments: str) -> str:
        assert main([*arguments, "--task", TASK]) == 0
        return capsys.readouterr().out

    scores = verb("evaluate", "models/stars", "data/test.csv")
    for name in ("Number of examples", "Accuracy", "Within one"):
        assert name in scores
    answer = json.loads(verb("predict", "models/stars", "Not bad."))
    assert set(answer) == {"text", "stars", "mean"}
    assert 1 <= answer["stars"] <= 5
    version = verb("export", "models/stars", "served").strip()
    serve = tf.saved_model.load(version).signatures["serving_default"]
    served = serve(text=tf.constant(["Not bad."]))
    assert served["stars"].numpy().tolist() == [answer["stars"]]
    assert served["mean"].numpy().tolist() == pytest.approx([answer["mean"]], abs=1e-5)


@pytest.mark.slow
def test_a_keras_file_opens_again(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(inside)  # a library call looks nowhere else
    model = load_model("models/stars", task=TASK)
    model.save("stars.keras")
    again = keras.saving.load_model("stars.keras")
    assert again.task == model.task
    first, second = (each.answer(["Not bad."])["mean"] for each in (model, again))
    assert first.numpy().tolist() == second.numpy().tolist()


@pytest.mark.thorough
def test_its_own_tests_pass(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stderr


def test_the_task_is_short() -> None:
    source = (EXAMPLE / "stars/ordinal.py").read_text(encoding="utf-8")
    assert source.count("\n") < 65
