"""No command writes where it reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import files_of, refused

from bert_keras.cli.main import main
from bert_keras.files.places import check_output_place


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a folder with another one inside, a link to it, and a name beside."""
    (tmp_path / "house" / "model" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "house" / "model" / "1_Pooling" / "config.json").write_text("{}")
    (tmp_path / "house" / "model" / "config.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "house" / "model")
    (tmp_path / "up").symlink_to(tmp_path / "house")
    return tmp_path / "house" / "model"


@pytest.mark.parametrize(
    ("output", "relation"),
    [
        ("house/model", "is the same place"),
        ("house/model/", "is the same place"),
        ("house/../house/./model", "is the same place"),
        ("link", "is the same place"),
        ("up/model", "is the same place"),
        ("house", "holds it"),
        ("up", "holds it"),
        (".", "holds it"),
        ("house/model/1_Pooling", "is inside it"),
        ("link/config.json", "is inside it"),
    ],
)
def test_an_output_that_is_an_input(
    model: Path, monkeypatch: pytest.MonkeyPatch, output: str, relation: str
) -> None:
    monkeypatch.chdir(model.parents[1])
    for source in (model, "house/model", "link/", Path("up/model")):
        inputs = {"file": None, "encoder": source}
        told = (f"`output` must be another place than `encoder`, {source}; ", output)
        refused(lambda i=inputs: check_output_place("output", output, i), *told)
        refused(lambda i=inputs: check_output_place("output", output, i), relation)


def test_outputs_that_are_no_inputs(model: Path) -> None:
    for output in (model / "new", model.parent / "model2", model.parent / "mode"):
        check_output_place("output", output, {"encoder": model})
    check_output_place("output", model.parent, {"encoder": model}, around=True)
    check_output_place("output", model, {"encoder": "hf://house/model", "data": 3})
    inside = {"corpus": [str(model)]}
    told = "is inside it"
    refused(
        lambda: check_output_place("output", model / "new", inside, inside=True), told
    )
    refused(lambda: check_output_place("output", "", {}), "must be a path; received ''")


def commands(encoder: str, rows: str, output: str) -> dict[str, list[str]]:
    """Return the commands that write a place, each with the encoder as an input."""
    train = ["train", "classification", "--encoder", encoder, "--train", rows]
    return {
        "train": [*train, "--output", output],
        "seeds": [*train, "--output", output, "--seeds", "2"],
        "convert": ["convert", encoder, output],
        "google": ["convert", encoder, output, "--to", "google"],
        "export": ["export", encoder, output, "--task", "classification"],
        "features": ["features", encoder, rows, "--output", output],
        "search": ["search", encoder, rows, "q", "--index", output],
        "encoder": [
            *("pretrain", "--encoder", encoder, "--data", "d", "--output", output)
        ],
        "data": [
            *("pretrain", "--size", "tiny", "--vocab", encoder, "--data", encoder),
            *("--output", output),
        ],
        "held": [
            *("pretrain", "--size", "tiny", "--vocab", encoder, "--data", "d"),
            *("--held-out", encoder, "--output", output),
        ],
        "vocab": ["vocab", encoder, "--output", output],
        "vocabulary": [
            "pretraining-data",
            rows,
            "--vocab",
            encoder,
            "--output",
            output,
        ],
        "corpus": ["pretraining-data", encoder, "--vocab", encoder, "--output", output],
    }


@pytest.mark.parametrize("verb", commands("", "", ""))
def test_every_verb_refuses(
    verb: str,
    encoder_folder: Path,
    spam_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    link = tmp_path / "link"
    link.symlink_to(encoder_folder)
    before = files_of(encoder_folder)
    for output in (str(encoder_folder), f"{link}{os.sep}"):
        words = commands(str(encoder_folder), str(spam_file), output)[verb]
        capsys.readouterr()
        assert main(words) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert "must be another place than" in line and "is the same place" in line
    assert files_of(encoder_folder) == before


def test_features_onto_their_texts(
    encoder_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "rows.npz"
    path.write_text("text\nfree\n")
    words = ["features", str(encoder_folder), str(path), "--output", str(path)]
    assert main(words) == 2
    assert "another place than `file`" in capsys.readouterr().err
    assert path.read_text() == "text\nfree\n"


@pytest.mark.parametrize(
    "words",
    [
        ["train", "classification", "--encoder", "", "--train", "t", "--output", "o"],
        ["train", "classification", "--encoder", "e", "--train", "", "--output", "o"],
        ["train", "classification", "--encoder", "e", "--train", "t", "--output", ""],
        ["evaluate", "", "rows"],
        ["evaluate", "model", ""],
        ["predict", ""],
        ["predict", "model", "--input", ""],
        ["features", "m", "f", "--output", ""],
        ["search", "m", "f", "q", "--index", ""],
        ["export", "m", ""],
        ["convert", "", "o"],
        ["convert", "m", ""],
        ["info", ""],
        ["vocab", "", "--output", "o"],
        ["vocab", "c", "--output", ""],
        ["pretraining-data", "c", "--vocab", "", "--output", "o"],
        ["pretraining-data", "c", "--vocab", "v", "--output", ""],
        ["pretrain", "--data", "", "--output", "o", "--size", "tiny"],
        ["pretrain", "--data", "d", "--output", "", "--size", "tiny"],
        ["pretrain", "--data", "d", "--output", "o", "--encoder", ""],
        ["pretrain", "--data", "d", "--output", "o", "--size", "tiny", "--vocab", ""],
        ["pretrain", "--data", "d", "--output", "o", "--encoder", "e"]
        + ["--held-out", ""],
    ],
    ids=" ".join,
)
def test_an_empty_path_is_refused(
    words: list[str], capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert "must be a path; received ''" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_an_export_into_the_folder_of_a_model(model: Path) -> None:
    from bert_keras.inference.export import export_model

    told = "must be a folder of versions 1, 2 …; holds config.json"
    refused(lambda: export_model(None, model), told)  # type: ignore[arg-type]
