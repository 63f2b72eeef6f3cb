"""The README's tour runs unchanged on a tiny encoder, and names every verb."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, write_encoder

from bert_keras.cli.main import main
from bert_keras.cli.parser import VERBS

README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = re.findall(r"<!-- tour -->\n```bash\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def long_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny encoder for texts as long as those of the tour."""
    folder = tmp_path_factory.mktemp("long") / "encoder"
    return write_encoder(folder, max_position_embeddings=128)


def run(line: str) -> None:
    """Run a line of the tour; ours in this process, which has imported TensorFlow."""
    program, *words = shlex.split(os.path.expandvars(line))
    if program == "bert-keras":
        assert main(words) == 0
    else:
        assert program == "python"
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        print(done.stdout)


@pytest.mark.slow
def test_tour_runs(
    long_encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    load_once: None,
) -> None:
    assert len(TOUR) == 2
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENCODER", str(long_encoder))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    output = ""
    for line in "".join(TOUR).splitlines():
        run(line)
        output = capsys.readouterr().out
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 84
    # `start` and `end` beside these: the texts are long for this encoder.
    assert {"text", "label", "score", "probabilities"} <= set(json.loads(lines[0]))
    assert (tmp_path / "models/emails/report.html").is_file()
    answer = json.loads(output.strip().splitlines()[-1])
    assert {"label", "score", "probabilities"} <= set(answer)


@pytest.mark.thorough
def test_the_tour_begins_in_a_shell(long_encoder: Path) -> None:
    """The program has its name, bash reads the line as `run` does, and TensorFlow
    prints nothing.
    """
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        ["bash", "-c", TOUR[0].splitlines()[0]],
        env={**given, "PATH": programs, "ENCODER": str(long_encoder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kind ")


def test_readme_names_every_verb() -> None:
    for verb in VERBS:
        assert f"`bert-keras {verb}" in README
