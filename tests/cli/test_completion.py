"""Completion as the shells ask for it; bash is really run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import refused

from bert_keras.cli import completion
from bert_keras.cli.main import main

argcomplete = pytest.importorskip("argcomplete")


def completed(line: str, tmp_path: Path) -> list[str]:
    """Return what bash offers after a line, by the script that we print."""
    program = tmp_path / "bin" / "bert-keras"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m bert_keras "$@"\n')
    program.chmod(0o755)
    words = line.split(" ")
    script = f"""
        eval "$(bert-keras completion bash)"
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words) - 1} COMP_LINE='{line}' COMP_POINT={len(line)}
        COMP_TYPE=9
        _python_argcomplete bert-keras
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [word.strip() for word in done.stdout.splitlines() if word.strip()]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_offers_verbs_tasks_options_words_and_files(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").touch()
    assert completed("bert-keras tr", tmp_path) == ["train"]
    assert set(completed("bert-keras pretrain", tmp_path)) == {
        "pretrain",
        "pretraining-data",
    }
    found = completed("bert-keras train multi", tmp_path)
    assert set(found) == {"multi-label", "multiple-choice"}
    assert completed("bert-keras train x --learning-r", tmp_path) == ["--learning-rate"]
    found = completed("bert-keras train x --precision mixed", tmp_path)
    assert set(found) == {"mixed_bfloat16", "mixed_float16"}
    assert completed("bert-keras evaluate m ro", tmp_path) == ["rows.csv"]
    assert completed("bert-keras tasks reg", tmp_path) == ["regression"]


@pytest.mark.parametrize(
    ("shell", "part"),
    [
        ("bash", "complete -o nospace"),
        ("zsh", "compdef _python_argcomplete bert-keras"),
        ("fish", "complete --command bert-keras"),
    ],
)
def test_a_script_for_each_shell(
    shell: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert part in capsys.readouterr().out


def test_without_argcomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    refused(completion._argcomplete, "pip install 'bert_keras[completion]'")
