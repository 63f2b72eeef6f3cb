"""The notebooks: short, on public names, and they run on a tiny encoder."""

from __future__ import annotations

import ast
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, write_encoder

import bert_keras
from bert_keras.training.config import TrainConfig

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
# Of the package, besides the names of `bert_keras`: a command in a notebook's process.
ALLOWED = {("bert_keras.cli.main", "main")}


def code_of(path: Path) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(each["source"]) for each in cells if each["cell_type"] == "code"]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_holds_no_outputs(path: Path) -> None:
    book = json.loads(path.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["cells"][0]["cell_type"]) == (4, "markdown")
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids) <= 12
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            assert len(cell["source"]) <= 20


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_uses_public_names(path: Path) -> None:
    for node in ast.walk(ast.parse("\n".join(code_of(path)))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("bert_k"):
            assert {(node.module, alias.name) for alias in node.names} <= ALLOWED
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "bert_keras":
                assert node.attr in bert_keras.__all__


@pytest.mark.thorough
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells run one after the other, in this process, for one epoch."""
    check = TrainConfig.__post_init__

    def shorten(config: TrainConfig) -> None:
        object.__setattr__(config, "epochs", 1)
        object.__setattr__(config, "batch_size", 64)
        check(config)

    monkeypatch.setattr(TrainConfig, "__post_init__", shorten)
    encoder = write_encoder(tmp_path / "encoder", max_position_embeddings=128)
    monkeypatch.setenv("ENCODER", os.fspath(encoder))
    place = tmp_path / "examples" / "notebooks"
    place.mkdir(parents=True)
    shutil.copytree(ROOT / "examples" / "data", tmp_path / "examples" / "data")
    monkeypatch.chdir(place)
    found: dict[str, Any] = {}
    for number, code in enumerate(code_of(path)):
        exec(compile(code, f"{path.name}, cell {number}", "exec"), found)
    assert list((tmp_path / "models").iterdir())
