"""The words of a command line: help, versions, typing errors."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import lazy_loader
import pytest
from conftest import ROOT, refused

import bert_keras
from bert_keras.cli.parser import VERBS, function_of, parse, parser


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as caught:
        parse([*words])
    assert caught.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_tells_its_version_and_how_loud_it_is(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(function_of(verb))
    assert shown(capsys, verb, "--version") == f"bert-keras {bert_keras.__version__}\n"
    told = shown(capsys, verb, "--help")
    for option in ("--quiet", "--verbose", "--version"):
        assert option in told


def test_the_main_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys)
    assert told == shown(capsys, "--help")
    assert [verb for verb in VERBS if f"\n    {verb}" not in told] == []
    assert shown(capsys, "--version") == f"bert-keras {bert_keras.__version__}\n"


def test_the_help_of_a_task_lists_its_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = shown(capsys, "train", "--help")
    assert "class_weights: none, balanced" not in plain
    told = shown(capsys, "train", "classification", "--help")
    assert told.startswith("usage: bert-keras train")
    assert "class_weights: none, balanced; default: none" in told
    assert "temperature*: a number from 0.001 to 1000; default: 1.0" in told
    assert "--train train.csv --output models/mine" in told
    own = shown(capsys, "train", "bert_keras.tasks.regression:Regression", "-h")
    assert "scaling: standard, none; default: standard" in own


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["trian"], ["received trian; did you mean train?"]),
        (["train", "clasification", "-h"], ["did you mean classification?"]),
        (["tasks", "--quite"], ["unknown option --quite; did you mean --quiet?"]),
        (["predict", "m", "--outptu", "x"], ["did you mean --output?"]),
        (["tasks", "--quiet", "--verbose"], ["not allowed with argument"]),
        (
            ["evaluate", "m", "d", "--column", "query=a", "document=b"],
            ["repeat the option: --column document=b"],
        ),
        (["completion", "csh"], ["invalid choice", "bash"]),
    ],
)
def test_what_is_meant_by_a_typing_error(words: list[str], parts: list[str]) -> None:
    refused(lambda: parse(words), *parts)


def test_a_single_flag_of_another_tool() -> None:
    words = ["predict", "m", "--input", "a.csv"]
    flag = "--runner=FlinkRunner"
    options = parse([*words, "--beam", flag, "--output", "b.csv"])
    assert (options.beam, options.output) == (flag, "b.csv")
    assert parse(["predict", "m", "--", "--beam", flag]).texts == ["--beam", flag]
    refused(lambda: parse([*words, "--beam", "--output", "b.csv"]), "--beam: expected")


def test_the_whole_parser_has_the_arguments_of_all_verbs() -> None:
    options = parser().parse_args(["tasks", "classification"])
    assert (options.verb, options.task) == ("tasks", "classification")


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["tasks"]])
def test_help_imports_little(words: list[str]) -> None:
    # `-S` leaves out what the environment itself imports, and its packages' path.
    packages = os.path.dirname(os.path.dirname(lazy_loader.__file__))
    script = (
        f"import sys\nsys.path.append({packages!r})\n"
        "from bert_keras.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "found = sorted(name for name in sys.modules if 'bert_keras' in name)\n"
        "heavy = ('tensorflow', 'keras', 'numpy', 'json')\n"
        "heavy = [name for name in heavy if name in sys.modules]\n"
        "print(heavy, *found, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    heavy, _, found = done.stderr.strip().rpartition("]")
    assert heavy == "["
    assert "corpus.documents" not in found and "tokenizer_files" not in found
    declared = [name for name in found.split() if name.endswith("settings")]
    assert len(found.split()) - len(declared) <= 20 and len(declared) <= 16


def test_help_takes_little_more_than_python() -> None:
    """0.05 s where Python alone takes 0.02; here with room for a busy machine."""

    def seconds(*words: str) -> float:
        found = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found.append(used)
        return min(found)

    assert seconds("-m", "bert_keras", "train", "--help") < 6 * seconds("-c", "pass")
