"""Which form of a model to serve: the choice among what was measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.cli.main import main
from bert_keras.exports.engine_files import FILES
from bert_keras.runs.notes import say
from bert_keras.serving import forms as module
from bert_keras.serving.forms import FOLDER, MADE, Form
from bert_keras.tasks.classification import Classification

FORMS = [Form(FOLDER, path="emails"), *MADE]
SPEEDS = (40.0, 44.0, 78.0, 80.0, 30.0, 120.0)  # of the folder, and as in MADE
TIMES = (9.0, 8.0, 4.0, 3.0, 8.0, 2.0)
SCORES = (0.9, 0.9, 0.9, 0.9, 0.895, 0.8)


def advice(score: str = "", allowed: float = 0.01, without: str = "") -> list[str]:
    rows: list[dict[str, Any]] = []
    for form, speed, time, value in zip(FORMS, SPEEDS, TIMES, SCORES, strict=True):
        row = {"form": form.name, "milliseconds": time}
        row |= {"reason": "no"} if form.name == without else {module._SPEED: speed}
        rows.append({**row, **({score: value} if score else {})})
    return module._advice("my emails", FORMS, rows, 32, score, allowed)


def test_texts_that_do_not_exist_are_refused_before_forms_are_made(
    encoder_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(encoder_folder), "--data", "no.csv"]) == 2
    assert capsys.readouterr().err == "bert-keras: no.csv: no such file\n"


@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_an_export_of_another_task_is_refused(engine: str, tmp_path: Path) -> None:
    model, other = tmp_path / "model", tmp_path / "other"
    model.mkdir()
    entry = {"bert_keras": {"task": "classification"}}
    (model / "config.json").write_text(json.dumps(entry))
    file = other / FILES[engine]
    file.parent.mkdir(parents=True)
    file.touch()
    (other / "answers.json").write_text('{"task": "regression"}')
    message = refused(lambda: module.bench(str(model), [str(other)]))
    assert message == (
        f"`exports` must be of the task classification, as {model}; received {other}, "
        "which is of regression"
    )


def test_truncated_texts_are_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def rate(*given: Any) -> float:
        say("texts truncated by http://127.0.0.1: 1 of 1, 3 tokens in all")
        return 2.0

    class Process:
        pid = 0

        def __init__(self, *words: Any, **given: Any) -> None: ...
        def terminate(self) -> None: ...
        def wait(self) -> None: ...

    monkeypatch.setattr(module, "_rate", rate)
    monkeypatch.setattr(module, "_is_ready", lambda *given: True)
    monkeypatch.setattr(module.subprocess, "Popen", Process)
    for path in ("a", "b"):
        found = module._served(path, {"items": ["a"], "roles": 1}, 1, 0.0)
        assert found["served_texts_per_second"] == 2
    assert capsys.readouterr().err == (
        "some texts are truncated: the model does not read all of them\n"
    )


@pytest.fixture
def without_vnni(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "processor_features", lambda: {"avx2": True, "avx512_vnni": False}
    )


@pytest.mark.usefixtures("without_vnni")
def test_of_forms_that_are_about_as_fast_the_first_is_taken() -> None:
    take, quick, left_out, slower = advice()
    assert take == (
        "for the most texts/s, under 32 clients, take onnx (78 texts/s, 4.0 ms for one "
        "text): bert-keras export 'my emails' EXPORT --format onnx; bert-keras serve "
        "EXPORT"
    )
    assert quick == (
        "for the least time for one text, in a process, take openvino (80 texts/s, 3.0 "
        "ms for one text): bert-keras export 'my emails' EXPORT --format openvino; "
        "bert-keras serve EXPORT"
    )
    assert "int8" in left_out and "--data" in left_out
    assert slower == (
        "onnx int8 serves fewer texts/s than float32 on this machine, whose processor "
        "has no VNNI instructions"
    )


def test_int8_is_taken_if_its_score_is_near() -> None:
    take, *others = advice("accuracy", 0.2)
    assert take.startswith("for the most texts/s, under 32 clients, and the least time")
    assert "take openvino int8 (120 texts/s, 2.0 ms for one text, accuracy 0.8" in take
    assert take.endswith("--calibrate FILE; bert-keras serve EXPORT")
    assert not any(" take " in line for line in others)
    assert "take onnx (78 texts/s" in advice("accuracy", 0.01)[0]


def test_why_rows_are_not_scored_is_told(tmp_path: Path) -> None:
    (data := tmp_path / "rows.csv").write_text("text,label\nx,a\nx,\n")
    rows, reason = module._rows(Classification(classes=("a", "b")), str(data), {})
    assert len(rows) == 2 and reason.startswith(f"{data}:3: ")
    speeds = [{module._SPEED: 2.0, "milliseconds": 1.0}] * len(FORMS)
    given = ("emails", FORMS, speeds, 32, "", 0.0, None)
    *_, last = module._advice(*given, reason)
    assert last.startswith("int8 is not chosen") and last.endswith(f"; {reason}")
    (data := tmp_path / "labelled.csv").write_text("text,label\nx,a\n")
    assert module._rows(Classification(classes=("a", "b")), str(data), {})[1] == ""


def test_a_form_that_failed_is_not_taken() -> None:
    assert "take openvino (80 texts/s" in advice(without="onnx")[0]


@pytest.mark.parametrize("calibrate", [None, "train.csv"])
def test_int8_that_has_read_the_scored_rows_is_told(
    calibrate: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    measured = {"row": {"accuracy": 0.9, "milliseconds": 2.0}, "score": "accuracy"}
    measured["unscored"] = ""
    monkeypatch.setattr(module, "_made", lambda *words: given.append(words[2]) or "no")
    monkeypatch.setattr(module, "_size", lambda _: 1)
    monkeypatch.setattr(module, "_measured", lambda *_: {**measured, "most_score": 1})
    monkeypatch.setattr(module, "_served", lambda *_: {module._SPEED: 9.0})
    *_, last = bench_advice = module.bench(
        "emails", data="test.csv", calibrate=calibrate
    ).advice
    told = "openvino int8 was calibrated with the scored rows of test.csv"
    assert last.startswith(told) == (calibrate is None)
    assert set(given) == {calibrate or "test.csv"} and len(bench_advice) <= 2
    refused(
        lambda: module.bench("emails", ["other"], calibrate="train.csv"),
        "`calibrate`", "folder emails, folder other",
    )  # fmt: skip


def test_rows_that_cannot_be_read_are_told_once_before_forms_are_made(
    encoder_folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    commands, message = [], "rows.csv:3: `label` must be one of a, b; received 'c'"

    def run(command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 65, "", f"{message}\n")

    monkeypatch.setattr(module.subprocess, "run", run)
    (data := tmp_path / "rows.csv").write_text("text,label\nx,a\nx,c\n")
    assert main(["bench", str(encoder_folder), "--data", str(data)]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [f"bert-keras: {message}"]
    assert len(commands) == 1


def test_forms_that_fail_are_rows_with_the_reason(
    tmp_path: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def fails(*_: Any) -> None:
        raise module.BertKerasError("the engine is not installed")

    monkeypatch.setattr(module, "_measured", fails)
    monkeypatch.setattr(module, "_made", fails)
    rows = tmp_path / "rows.jsonl"
    assert main(["bench", str(encoder_folder), "--output", str(rows), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    assert found["rows"] == written and found["advice"] == []
    assert [row["form"] for row in written[1:]] == [form.name for form in MADE]
    assert {row["reason"] for row in written} == {"the engine is not installed"}
    assert main(["bench", str(encoder_folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 * len(FORMS) and lines[2].startswith("saved_model")
    reasons = lines[1 + len(FORMS) :]
    assert reasons[1] == "saved_model: the engine is not installed"
