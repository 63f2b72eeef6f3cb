"""What is told of each task is true of its class, and its rows can be read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.cli.main import main
from bert_keras.cli.tasks import task_help
from bert_keras.settings import Option, options_of
from bert_keras.tasks import TASKS, find_task, parse_settings
from bert_keras.tasks.base import may_change


@pytest.mark.parametrize("name", TASKS)
def test_settings_are_declared_once(name: str) -> None:
    """What is told, checked and documented of a setting is its declaration."""
    task: Any = find_task(name)
    declared = options_of(task)
    assert declared == options_of(TASKS[name].settings)
    assert set(declared) == {field.name for field in dataclasses.fields(task)}
    given: dict[str, Any] = {}
    if "classes" in declared:
        given["classes"] = ("O", "B-x", "I-x") if "tagging" in task.__module__ else "ab"
        given["classes"] = tuple(given["classes"])
    made = task(**given)
    for setting, option in declared.items():
        assert option.help and f"        {setting}: " in task.__doc__
        assert may_change(made, setting) == option.free
        reads_tokens = getattr(option.needs, "setting", "") == "pooling"
        compares = setting == "pair_encoder"
        needed: dict[str, Any] = {"pooling": "mean"} if reads_tokens else {}
        needed |= {"pairs": True, "pooling": "mean"} if compares else {}
        for word in option.words:
            chosen = task(**{**given, **needed, setting: word})
            assert getattr(chosen, setting) == word
        if option.words or option.kind in (int, float) and not option.form:
            refused(lambda s=setting: task(**{**given, s: "no"}), f"`{setting}` must")


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
    for part in (
        "train.txt",
        "top_k*: a whole number from 1 to 1000; default: 5",
        "pseudo-perplex",
    ):
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
    setting = Option("b", "what it does", name="a", words=("b", "c"), free=True)
    from bert_keras.cli.tasks import _settings

    assert _settings("t", [setting]).splitlines()[1:] == [
        "  a*: b, c; default: b",
        "      what it does",
    ]
