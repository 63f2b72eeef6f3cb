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
        for path in sorted((ROOT / "bert_keras").glob("*/__init__.py"))
        if "lazy_names" in path.read_text(encoding="utf-8")
    ),
)
SCRIPT = """
import bert_keras
from bert_keras.model import WarmupLinearDecay

encoder = bert_keras.BertEncoder.from_pretrained("folder")
reveal_type(encoder)
reveal_type(bert_keras.load("folder"))
reveal_type(WarmupLinearDecay(2e-5, total_steps=10))
bert_keras.NoSuchName
"""


def typed_names(package: str) -> dict[str, str]:
    """Return the names that type checkers see, each with its module."""
    source = Path(importlib.import_module(package).__file__ or "").read_text("utf-8")
    return {
        alias.asname or alias.name: (node.module or "").removeprefix(f"{package}.")
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_public_names(package: str) -> None:
    module = importlib.import_module(package)
    assert typed_names(package) == module._PLACES
    for name in module._PLACES:
        assert getattr(module, name) is not None
    assert set(module.__all__) >= set(module._PLACES)
    assert set(module._PLACES) <= set(dir(module))


def test_there_are_few_names_at_the_top() -> None:
    assert len(bert_keras.__all__) <= 40


def test_an_unknown_name_is_rejected() -> None:
    with pytest.raises(AttributeError, match="bert_keras.training.*no attribute"):
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
