"""The examples run unchanged on a tiny encoder."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from conftest import ROOT, write_encoder

import bert_keras
from bert_keras.model.recurrent_head import FEATURES
from bert_keras.training.config import TrainConfig


@pytest.fixture(scope="module")
def long_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny encoder for texts as long as those of the examples."""
    folder = tmp_path_factory.mktemp("long") / "encoder"
    return write_encoder(folder, max_position_embeddings=128)


@pytest.fixture
def run_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, Path], str]:
    """Return a function that runs an example for few steps and gives what it prints."""
    check = TrainConfig.__post_init__

    def shorten(config: TrainConfig) -> None:
        object.__setattr__(config, "epochs", 1)  # enough to see that it runs
        object.__setattr__(config, "batch_size", 64)
        check(config)

    def run_example(name: str, encoder: Path) -> str:
        path = str(ROOT / f"examples/{name}.py")
        monkeypatch.setattr(TrainConfig, "__post_init__", shorten)
        monkeypatch.setattr(sys, "argv", [path, str(encoder)])
        monkeypatch.chdir(tmp_path)
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    return run_example


@pytest.mark.slow
def test_fit_example_runs(
    long_encoder: Path, run_example: Callable[[str, Path], str]
) -> None:
    assert "('bad', 'good')" in run_example("keras_fit", long_encoder)


@pytest.mark.thorough
def test_own_model_example_runs(
    long_encoder: Path, run_example: Callable[[str, Path], str], tmp_path: Path
) -> None:
    assert "accuracy 0." in run_example("own_model", long_encoder)
    served = tf.saved_model.load(tmp_path / "own_model")
    assert served.serve(tf.constant(["a text"])).shape == (1, 4)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fill_mask", "after: accuracy"),
        ("multiple_choice", "accuracy after"),
        ("question_answering", "characters:"),
        ("semantic_search", "\nboth "),
        ("token_classification", "Anna/"),
    ],
)
def test_task_example_runs(
    long_encoder: Path, run_example: Callable[[str, Path], str], name: str, said: str
) -> None:
    assert said in run_example(name, long_encoder)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:Even though the .*run_functions_eagerly")
@pytest.mark.parametrize(
    ("name", "score"), [("headlines", "rouge1 "), ("translation", "bleu ")]
)
def test_writing_example_runs(
    long_encoder: Path,
    run_example: Callable[[str, Path], str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    score: str,
) -> None:
    """One update of two rows; tracing would take most of a minute."""
    train = bert_keras.train

    def train_briefly(*args: Any, **given: Any) -> Any:
        few = {part: given[part][:2] for part in ("train", "dev", "test")}
        return train(*args, **{**given, **few})

    monkeypatch.setattr(bert_keras, "train", train_briefly)
    tf.config.run_functions_eagerly(True)
    try:
        lines = run_example(name, long_encoder).splitlines()
    finally:
        tf.config.run_functions_eagerly(False)
    assert lines[0].startswith(score) and len(lines) >= 3  # scores and texts


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("paraphrase", "clinic expected_calibration_error"),
        ("multi_label", "service  is predicted from"),
        ("next_sentence", "expected_calibration_error"),
        ("regression", "stars  Never again"),
    ],
)
def test_examples_of_training_run(
    long_encoder: Path,
    run_example: Callable[[str, Path], str],
    tmp_path: Path,
    name: str,
    part: str,
) -> None:
    assert part in run_example(name, long_encoder)
    assert len(list(tmp_path.glob("models/*/report.html"))) == 1


@pytest.mark.thorough
def test_feature_tagging_example_runs(
    run_example: Callable[[str, Path], str], tmp_path: Path
) -> None:
    settings = {"max_position_embeddings": 128, "num_hidden_layers": 4}
    encoder = write_encoder(tmp_path / "encoder", **settings)
    lines = run_example("feature_tagging", encoder).splitlines()
    assert [line.split()[0] for line in lines[:6]] == list(FEATURES)
    assert lines[6].startswith("Elena Weber")


@pytest.mark.thorough
def test_summarization_example_runs(
    run_example: Callable[[str, Path], str], tmp_path: Path
) -> None:
    encoder = write_encoder(tmp_path / "encoder", max_position_embeddings=256)
    lines = run_example("summarization", encoder).splitlines()
    names = ["before", "after", "lead_2", "oracle"]
    assert [line.split()[0] for line in lines[:4]] == names
    assert len(lines) in (5, 6)  # one sentence or two


def test_examples_use_names_that_exist() -> None:
    for path in (ROOT / "examples").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"\b(?:bk|bert_keras)\.([A-Za-z]\w*)\b(?!\.)", text):
            assert hasattr(bert_keras, name), f"{path.name}: {name}"


def test_examples_are_short() -> None:
    sizes = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "examples").glob("*.py")
    }
    assert sizes
    assert max(sizes.values()) < 80
    assert sizes["keras_fit.py"] < 40
