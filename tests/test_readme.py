"""The README's tour runs as it stands, on a tiny encoder, and names all there is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, write_encoder

README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = re.findall(r"<!-- tour -->\n```bash\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def long_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny encoder that takes texts as long as the tour's."""
    folder = tmp_path_factory.mktemp("long") / "encoder"
    return write_encoder(folder, max_position_embeddings=128)


def run(command: list[str], *, encoder: Path, folder: Path) -> str:
    """Run a command and return what it answers."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": programs, "ENCODER": str(encoder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_tour_runs(long_encoder: Path, tmp_path: Path) -> None:
    assert len(TOUR) == 2
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script = "set -euo pipefail\n" + "\n".join(TOUR)
    output = run(["bash", "-c", script], encoder=long_encoder, folder=tmp_path)
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 84
    assert set(json.loads(lines[0])) == {"text", "label", "score", "probabilities"}
    assert (tmp_path / "models/tour/report.html").is_file()
    answer = json.loads(output.splitlines()[-1])
    assert {"label", "score", "probabilities"} <= set(answer)


def test_readme_names_every_verb() -> None:
    from bert_keras.cli.main import _VERBS

    for verb in _VERBS:
        assert f"`bert-keras {verb}" in README
