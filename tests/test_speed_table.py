"""The table of `make bench`: parts are merged, kept and resumed."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

FACTS = {
    "processor": "Small, 2 cores",
    "features": {"avx2": True, "amx_bf16": False},
    "tensorflow": "2.21.0",
    "keras": "3.15.1",
    "peers": {"torch": "2.13.0"},
}
OTHER = {**FACTS, "features": {"avx2": True, "amx_bf16": True}}
LINE = {"texts": "Wikipedia, sentences", "batch": 1024, "ours": 20, "tokenizers": 2}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("speed_table", "alternating"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("speed_table")


def predicted(ratio: float, facts: Any = FACTS) -> dict[str, Any]:
    line = {"ours": "bert_keras float32", "peer": "torch", "ratio": ratio, "goal": 1.5}
    seconds = {"bert_keras float32": [2.0, 1.0, 3.0]}
    results = {"sms": {"texts": 384, "seconds": seconds, "ratios": [line]}}
    return {"command": "run it", "machine": facts, "results": results}


def test_a_part_replaces_its_older_result_only(table: Any) -> None:
    found = table.merged({"machines": {}}, "prediction", predicted(1.4))
    found = table.merged(found, "tokenizing", {**predicted(0), "results": [LINE]})
    found = table.merged(found, "prediction", predicted(1.6))
    ((name, held),) = found["machines"].items()
    assert name == "Small, 2 cores (avx2)"
    assert list(held["parts"]) == ["prediction", "tokenizing"]
    shown = table.page(found)
    assert "| torch | 1.60 | 1.5 | reached |" in shown
    assert "1.40" not in shown
    assert "192 texts/s" in shown  # the median of the rounds
    assert "| bert_keras | tokenizers | 10.00 | 9.6 | reached |" in shown


def test_another_processor_has_its_own_section(table: Any) -> None:
    found = table.merged({"machines": {}}, "prediction", predicted(1.4))
    found = table.merged(found, "prediction", predicted(1.6, OTHER))
    shown = table.page(found)
    first = shown.index("## Small, 2 cores (avx2)\n")
    second = shown.index("## Small, 2 cores (avx2, amx_bf16)\n")
    assert "1.40 | 1.5 | **missed**" in shown[first:second]
    assert "1.60 | 1.5 | reached" in shown[second:]


def test_the_same_command_is_not_run_again(
    table: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = []

    def run(command: list[str], check: bool) -> None:
        script = Path(command[1]).name
        if "interrupted" in runs:
            raise KeyboardInterrupt
        runs.append(script)
        place = Path(command[command.index("--json") + 1])
        results = predicted(1.6)["results"] if "inference" in script else [LINE]
        place.write_text(json.dumps({"results": results}), encoding="utf-8")

    monkeypatch.setattr(table.subprocess, "run", run)
    monkeypatch.setattr(table, "machine", lambda: dict(FACTS))
    monkeypatch.setattr(table.importlib.metadata, "version", lambda name: "1.0")
    folders = ["--results", str(tmp_path / "speed"), "--docs", str(tmp_path / "docs")]
    given = ["speed_table.py", *folders, "--parts", "tokenizing", "prediction"]
    monkeypatch.setattr(sys, "argv", given)
    table.main()
    assert runs == ["tokenizer_speed.py", "inference_speed.py"]
    table.main()
    assert len(runs) == 2
    assert "measured before" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*given, "--rounds", "2"])
    table.main()
    assert runs[2:] == ["inference_speed.py"]
    kept = (tmp_path / "docs" / "speed-table.md").read_text("utf-8")
    assert "--rounds 2 --work sms" in kept
    # An interrupted part leaves the older result, and the finished ones.
    runs.append("interrupted")
    monkeypatch.setattr(sys, "argv", [*given, "--rounds", "3"])
    with pytest.raises(KeyboardInterrupt):
        table.main()
    assert (tmp_path / "docs" / "speed-table.md").read_text("utf-8") == kept


def test_a_benchmark_without_data_is_left_out(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.subprocess, "run", lambda *_, **__: None)
    path = tmp_path / "tokenizing.json"
    table.measure(["tokenizer_speed.py"], path, FACTS)
    assert not path.exists()
    assert not table.is_measured(path, "tokenizer_speed.py")


def test_the_page_in_the_documents_is_that_of_its_json(table: Any) -> None:
    docs = ROOT / "docs"
    held = (docs / "speed-table.md").read_text(encoding="utf-8")
    assert table.page(table.read(docs)) == held
