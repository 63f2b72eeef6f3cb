"""Options: the command line and the documentation say what is declared."""

from __future__ import annotations

import argparse
import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, refused

from bert_keras.cli import parser
from bert_keras.cli.arguments import with_settings
from bert_keras.cli.main import main
from bert_keras.cli.options import (
    add_options,
    config_of,
    flag_of,
    nearest,
)
from bert_keras.cli.options_page import options_page, options_table
from bert_keras.pretraining.config import PretrainConfig, PretrainingDataConfig
from bert_keras.serving.config import ServeConfig
from bert_keras.settings import option, options_of, with_options_documented
from bert_keras.tasks import find_task
from bert_keras.training.config import TrainConfig

VERBS = {
    "train": TrainConfig,
    "pretrain": PretrainConfig,
    "pretraining-data": PretrainingDataConfig,
    "serve": ServeConfig,
}


@with_options_documented
@dataclasses.dataclass(frozen=True)
class Example:
    """An example.

    Raises:
        ConfigError: a value is not allowed.
    """

    rate: float = option(0.5, "share of 100% | a half", above=0, below=1, unit="share")
    count: int | None = option(None, "some", least=2, most=9, unset="all of them")
    parts: tuple[float, ...] | None = option(None, "several", least=0, most=1)
    word: str = option("one", "a word", words=("one", "two"))
    switch: bool = option(False, "on or off")
    place: str | None = option(None, "a folder", unit="dir")
    names: tuple[str, ...] | None = option(None, "some", unit="file", unset="none")


def parsed(*words: str) -> Example:
    parser = argparse.ArgumentParser()
    add_options(parser, Example)
    parser.format_help()  # which fills in `%`
    return config_of(parser.parse_args(words), Example)


def test_an_option_has_the_name_and_the_type_of_its_field() -> None:
    found = options_of(Example)
    kinds = [(o.name, o.kind, o.is_list, o.may_be_none) for o in found.values()]
    assert kinds == [
        ("rate", float, False, False),
        ("count", int, False, True),
        ("parts", float, True, True),
        ("word", str, False, False),
        ("switch", bool, False, False),
        ("place", str, False, True),
        ("names", str, True, True),
    ]


def test_options_are_read_from_the_command_line(tmp_path: Path) -> None:
    assert parsed() == Example()
    lines = tmp_path / "names"
    lines.write_text("\ufeffone\r\n\n two three \n", encoding="utf-8")
    words = "--rate .25 --count 3 --parts 0.5 1 --word two --switch --place here"
    words += f" --names {lines}"
    wanted = Example(0.25, 3, (0.5, 1.0), "two", True, "here", ("one", "two three"))
    lines.with_name("empty").write_text(" \n")
    refused(lambda: parsed("--names", str(lines) + "x"), "namesx: no such file")
    refused(lambda: parsed("--names", str(lines.with_name("empty"))), "is empty")
    assert parsed(*words.split()) == wanted
    assert parsed("--count", "auto") == Example()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--word tow",
            "--word: must be one of one, two; received tow; did you mean tw",
        ),
        (
            "--count x",
            "--count: must be a whole number from 2 to 9 or auto; received x",
        ),
        ("--rate x", "--rate: must be a number above 0 and below 1; received x"),
        ("--place=", "--place: must be a path; received ''"),
    ],
)
def test_what_cannot_be_read(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(*words.split())
    assert message in capsys.readouterr().err


def test_help_of_a_config_lists_its_options() -> None:
    text = " ".join(str(Example.__doc__).split())
    assert "count: some; `None`: all of them. parts" in text
    assert "word: a word; one of one, two; default: one." in text
    assert text.index("Args:") < text.index("Raises:")
    for config in VERBS.values():
        for name in options_of(config):
            assert f"        {name}: " in str(config.__doc__)


@pytest.mark.parametrize("verb", VERBS)
def test_help_and_table_list_every_field(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = VERBS[verb]
    with pytest.raises(SystemExit):
        parser.parse([verb, "--help"])
    shown = " ".join(capsys.readouterr().out.split()).split("settings of the ")[1]
    rows = options_table(config).splitlines()[2:]
    assert len(rows) == len(dataclasses.fields(config))
    for field, row in zip(dataclasses.fields(config), rows, strict=True):
        flag = flag_of(options_of(config)[field.name])
        start = shown.index(f" {flag}")
        part = re.split(r" --[a-z]", shown[start + 3 :])[0]
        assert row.startswith(f"| `{flag}` |") and row.count("|") == 5
        declared = field.metadata["option"]
        assert declared.help
        if declared.default is None:
            assert declared.unset and declared.unset in row
        elif not isinstance(declared.default, bool):
            assert f"default: {declared.default}" in part
            assert f"| {declared.default} |" in row


def test_the_table_of_an_example() -> None:
    assert options_table(Example).splitlines()[2:] == [
        "| `--rate` | a number above 0 and below 1 (share) | 0.5 | share of 100% / a "
        "half |",
        "| `--count` | a whole number from 2 to 9 | all of them | some |",
        "| `--parts` | several, each a number from 0 to 1 |  | several |",
        "| `--word` | `one`, `two` | one | a word |",
        "| `--switch` | a switch | no | on or off |",
        "| `--place` | a path |  | a folder |",
        "| `--names` | a file with one per line | none | some |",
    ]


def test_the_page_of_the_documentation_is_as_it_is_written() -> None:
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == f"{options_page()}\n", (
        "python -m bert_keras.cli.options_page writes it"
    )


def test_the_nearest_word() -> None:
    assert nearest("--epoch", ["--epochs", "--seed"]) == "; did you mean --epochs?"
    assert nearest("zzz", ["train"]) == ""


def test_a_switch_that_is_on_by_default_is_turned_off() -> None:
    @dataclasses.dataclass(frozen=True)
    class Config:
        card: bool = option(True, "write a card")

    parser = argparse.ArgumentParser()
    add_options(parser, Config)
    assert config_of(parser.parse_args([]), Config).card is True
    assert config_of(parser.parse_args(["--no-card"]), Config).card is False
    assert "| `--no-card` | a switch | no | do not write a card |" in (
        options_table(Config)
    )


def test_a_share_for_dev_beside_dev_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--dev", "b.tsv", "--validation-split", "0.3"]
    argv = ["train", "classification", "--encoder", "x", "--train", "a.tsv", *options]
    assert main([*argv, "--output", str(tmp_path / "out")]) == 2
    assert "received 0.3 and b.tsv" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--source", "0"],
        ["--header", "no"],
        ["--column", "target=1"],
        ["--target", "b"],
    ],
)
def test_columns_of_files_of_lines_are_an_error(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "a.txt"
    lines.write_text("eins\n")
    files = ["--train", str(lines), "--target-file", str(lines)]
    argv = ["train", "translation", "--encoder", "x", *files, *options]
    assert main([*argv, "--output", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "with `--target-file` has one text per line and no columns" in line


@pytest.mark.parametrize(
    ("verb", "options", "told"),
    [
        (
            "pretrain",
            ["--evaluate-every", "5"],
            "`--evaluate-every` needs `--held-out`",
        ),
        ("vocab", ["--form", "text", "--text-field", "a"], "is for --form auto, jsonl"),
    ],
)
def test_an_option_of_pretraining_without_effect_is_an_error(
    verb: str, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"pretrain": ["--data", "d", "--size", "tiny"], "vocab": ["a.txt"]}
    assert main([verb, *given[verb], *options, "--output", "out"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize(
    ("name", "setting", "fits"),
    [
        ("translation", "label_smoothing=0.2", ""),
        ("translation", "beams=2", "answers scores"),
        ("masked-lm", "top_k=3", "answers"),
        ("masked-lm", "mask_rate=0.3", "scores"),
        ("abstractive-summarization", "stemmer=none", "scores"),
    ],
)
def test_a_setting_that_a_verb_does_not_read_is_an_error(
    name: str, setting: str, fits: str
) -> None:
    needed = {"sizes": {}} if name != "masked-lm" else {}
    task = find_task(name)(**needed)
    options = argparse.Namespace(settings=[setting])
    for use in ("answers", "scores"):
        model: Any = SimpleNamespace(task=task)
        if use in fits:
            assert with_settings(model, options, uses=[use]) != task
        else:
            refused(
                lambda m=model, u=use: with_settings(m, options, uses=[u]),
                f"`--set {setting.partition('=')[0]}` has no effect on {use}",
            )
