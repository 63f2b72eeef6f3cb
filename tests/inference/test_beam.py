"""Answers on Apache Beam, with its local runner: the bytes of `predict --input`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.cli.main import main
from bert_keras.errors import DataError
from bert_keras.inference.beam import run_beam_predictions
from bert_keras.inference.predictor import Predictor, load_predictor

pytest.importorskip("apache_beam", reason="needs pip install 'bert_keras[beam]'")

TEXTS = ["free cash prize", "lunch at six", "", "sale now", "é 日本 lunch"]
FLAGS = ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of three parts for batches of two texts."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = [{"id": f"r{i}", "text": f"{TEXTS[i % 5]} {i % 5 * 9}"} for i in range(150)]
    lines[100]["text"] = ""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


@pytest.mark.parametrize(
    ("model", "ending"),
    [("spam_folder", "jsonl"), ("spam_folder", "csv"), ("spam_export", "parquet")],
)
def test_the_answers_are_those_of_predict(
    model: str,
    ending: str,
    rows: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = request.getfixturevalue(model)
    one, other = tmp_path / f"one.{ending}", tmp_path / f"other.{ending}"
    words = ["predict", str(folder), "--input", str(rows), "--batch-size", "2"]
    assert main([*words, "--output", str(one)]) == 0
    told = capsys.readouterr().err.replace("one.", "other.").splitlines()
    assert main([*words, "--output", str(other), "--beam", " ".join(FLAGS)]) == 0
    assert one.read_bytes() == other.read_bytes()
    again = capsys.readouterr().err.splitlines()
    assert again[-2:] == [line for line in told if "bfloat16" not in line][-2:]
    assert "empty text" in again[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [one.name, other.name]


class Failing(Predictor):
    def predict(self, *args: Any, **options: Any) -> Any:
        raise DataError("a text is wrong")


def failing(folder: Path) -> Predictor:
    return Failing(load_predictor(folder).model)


def test_the_mistake_of_a_worker(spam_folder: Path, rows: Path, tmp_path: Path) -> None:
    load = functools.partial(failing, spam_folder)
    output = str(tmp_path / "a.jsonl")
    message = refused(lambda: run_beam_predictions(load, str(rows), output))
    assert message == "a text is wrong"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--output", "a.jsonl"], "`--beam` needs `--input`"),
        (["--input", "ROWS"], "`--beam` needs `--output`"),
        (["--input", "ROWS", "--output", "a.jsonl", "text"], "cannot both be given"),
        (["--input", "ROWS", "--output", "a.txt"], "must end in"),
        (["--input", "ROWS", "--output", "a.jsonl", "--beam=--flink=1"], "--flink"),
    ],
)
def test_wrong_arguments(
    words: list[str],
    part: str,
    rows: Path,
    spam_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [str(rows) if word == "ROWS" else word for word in words]
    assert main(["predict", str(spam_folder), "--beam", "", *given]) == 2
    assert part in capsys.readouterr().err
