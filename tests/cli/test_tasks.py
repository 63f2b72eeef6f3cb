"""What is told of each task is true of its class, and its rows can be read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.cli.main import main
from bert_keras.cli.tasks import task_help
from bert_keras.tasks import TASKS, find_task, parse_settings
from bert_keras.tasks.catalog import Setting


def fields_of(name: str) -> dict[str, Any]:
    task: Any = find_task(name)
    return {field.name: field for field in dataclasses.fields(task)}


@pytest.mark.parametrize("name", TASKS)
def test_settings_are_the_fields_of_the_class(name: str) -> None:
    task, told = find_task(name), {each.name: each for each in TASKS[name].settings}
    fields = fields_of(name)
    assert set(told) == set(fields)
    assert {n for n, each in told.items() if each.free} == set(task.free_settings)
    for setting, each in told.items():
        default = fields[setting].default
        kind = str(fields[setting].type)
        if kind == "bool":
            assert each.values == "true or false"
            assert each.default in (str(default).lower(), "from the data")
        elif kind in ("int", "float"):
            numbers = ("a whole number", "a number")
            assert each.values == numbers[kind == "float"]
            derived = ("from the data", "tuned on dev")
            assert each.default in (str(default), *derived)
        elif kind == "str" and default:
            if "," in each.values:
                assert default in each.values.split(", ")
            assert each.default.split(", ")[0] == default


@pytest.mark.parametrize("name", TASKS)
def test_words_that_are_told_are_allowed(name: str) -> None:
    task = find_task(name)
    given: dict[str, Any] = {}
    if "classes" in fields_of(name):
        given["classes"] = ("O", "B-x", "I-x") if "tagging" in task.__module__ else "ab"
        given["classes"] = tuple(given["classes"])
    for each in TASKS[name].settings:
        if "," in each.values:
            for word in each.values.split(", "):
                assert getattr(task(**{**given, each.name: word}), each.name) == word


@pytest.mark.parametrize("name", TASKS)
def test_the_rows_that_are_shown_can_be_read(name: str, tmp_path: Path) -> None:
    told = TASKS[name]
    path = tmp_path / told.file
    path.write_text(told.rows + "\n", encoding="utf-8")
    task = find_task(name)
    assert len(task.read(str(path))) >= 1


def test_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == list(TASKS)
    assert main(["tasks", "masked-lm"]) == 0
    told = capsys.readouterr().out
    assert told == task_help("masked-lm") + "\n"
    for part in ("train.txt", "top_k*: a whole number; default: 5", "pseudo-perplex"):
        assert part in told
    assert main(["tasks", "maskedlm"]) == 2
    assert "did you mean masked-lm?" in capsys.readouterr().err


def test_verbose_tells_where_an_error_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")  # restored after the test
    assert main(["tasks", "nothing", "--verbose"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("Traceback") and "check_task_name" in "".join(told)
    assert told[-1].startswith("bert-keras: `task` must be")


def test_a_setting_with_a_typing_error() -> None:
    task = find_task("classification")
    message = "received 'class_weight=balanced'; did you mean class_weights?"
    refused(lambda: parse_settings(task, ["class_weight=balanced"]), message)


def test_a_setting_is_told_on_two_lines() -> None:
    setting = Setting("a", "b, c", "b", "what it does", free=True)
    from bert_keras.cli.tasks import _settings

    assert _settings("t", [setting]).splitlines()[1:] == [
        "  a*: b, c; default: b",
        "      what it does",
    ]
