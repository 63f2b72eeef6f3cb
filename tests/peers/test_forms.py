"""`bench` of a model folder and an export, each in processes of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, ROWS, write_tsv

from bert_keras.inference.engine_export import export_to_engine
from bert_keras.serving.forms import bench

pytest.importorskip("onnxruntime", reason="needs bert_keras[engines]")


@pytest.mark.slow
@pytest.mark.thorough
def test_forms_are_measured_served_and_scored(
    spam_folder: Path, spam_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_tsv(tmp_path / "rows.tsv", [("text", "label"), *ROWS])
    export = export_to_engine(spam_model, tmp_path / "onnx", format="onnx").folder
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    exports = [str(export), str(tmp_path)]  # the second one is none
    found = bench(str(spam_folder), exports, clients=2, data=str(rows), seconds=0.1)
    folder, onnx, wrong = found.rows
    assert folder["accuracy"] == onnx["accuracy"]
    for row in (folder, onnx):
        times = [row[name] for name in row if name.endswith(("seconds", "second"))]
        assert len(times) == 3 and min(times) > 0 and "reason" not in row
        assert row["memory_mb"] > 50 and row["disk_mb"] > 0
    assert onnx["memory_mb"] < folder["memory_mb"] / 2  # without TensorFlow
    assert "contains no checkpoint" in wrong["reason"]
    assert f", take onnx {export} (" in found.advice[0]
