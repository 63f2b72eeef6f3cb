"""Exports for engines, answered where TensorFlow and Keras cannot be imported.

`make test-runtime` runs the same check in an environment without them, with all tasks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, thorough

pytest.importorskip("openvino", reason="needs bert_keras[engines]")

FOLDER = ROOT / "tests" / "runtime"
FEW = (
    *("classification", "embedding", "tokens", "windows", "two-rows"),
    "question-answering",
    "each-class",  # one of its inputs is an array that cannot be written
)


@pytest.mark.parametrize("engine", ["onnx", thorough("openvino")])
def test_exports_are_answered_without_tensorflow(engine: str, tmp_path: Path) -> None:
    sys.path.insert(0, str(FOLDER))
    try:
        from write_exports import write_exports
    finally:
        sys.path.remove(str(FOLDER))
    write_exports(tmp_path, engine, FEW)
    command = [sys.executable, str(FOLDER / "check_exports.py"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("passed") == 7
