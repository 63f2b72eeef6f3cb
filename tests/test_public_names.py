"""The public names: where they are, and that type checkers see them."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

import bert_keras

PACKAGES = (
    "bert_keras",
    *(
        f"bert_keras.{path.parent.name}"
        for path in sorted((ROOT / "bert_keras").glob("*/__init__.pyi"))
    ),
)
SCRIPT = """
import bert_keras
from bert_keras.model import WarmupLinearDecay

encoder = bert_keras.BertEncoder.from_pretrained("folder")
reveal_type(encoder)
reveal_type(bert_keras.load_predictor("folder"))
reveal_type(WarmupLinearDecay(2e-5, total_steps=10))
bert_keras.NoSuchName
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_the_names_of_a_stub_exist(package: str) -> None:
    module = importlib.import_module(package)
    stub = Path(module.__file__ or "").with_suffix(".pyi").read_text("utf-8")
    for line in ast.parse(stub).body:
        assert isinstance(line, ast.ImportFrom) and len(line.names) == 1
        name = line.names[0].name
        place = importlib.import_module(f"{package}.{line.module}")
        assert getattr(module, name) is getattr(place, name)
        assert name in module.__all__ and name in dir(module)


def test_there_are_few_names_at_the_top() -> None:
    assert len(bert_keras.__all__) <= 44


def test_an_unknown_name_is_rejected() -> None:
    with pytest.raises(
        AttributeError, match="bert_keras.training attribute NoSuchName"
    ):
        _ = importlib.import_module("bert_keras.training").NoSuchName


@pytest.mark.slow
def test_types_of_a_users_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports"]
    command += ["--follow-imports=silent", str(script)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert 'Revealed type is "bert_keras.model.encoder.BertEncoder"' in done.stdout
    assert 'Revealed type is "bert_keras.inference.predictor.Predictor"' in done.stdout
    assert "optimizers.WarmupLinearDecay" in done.stdout
    assert 'Module has no attribute "NoSuchName"' in done.stdout
