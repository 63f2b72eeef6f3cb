"""What killed writers left is removed by the next one, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from bert_keras.files.atomic import replaced_folder
from bert_keras.files.unfinished import new_folder

WRITER = """
import sys
from pathlib import Path
from bert_keras.files.unfinished import new_folder

with new_folder(Path(sys.argv[1]), ".out-") as folder:
    (folder / "half").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


def writer(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """Return a process that is writing a folder, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(place)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_killed_writer_is_cleared_and_a_living_one_is_not(tmp_path: Path) -> None:
    killed, dead = writer(tmp_path)
    living, alive = writer(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    mine = tmp_path / ".out-mine"  # of somebody else, without a lock
    mine.mkdir()
    assert (dead / "half").exists() and (alive / "half").exists()
    with replaced_folder(tmp_path / "out") as folder:
        (folder / "config.json").write_text("{}")
        assert not dead.exists()
        assert (alive / "half").exists()
    living.communicate("")
    assert living.returncode == 0
    assert sorted(os.listdir(tmp_path)) == [".out-mine", "out"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), new_folder(tmp_path, ".out-") as folder:
        (folder / "half").write_text("x")
        raise KeyError
    assert os.listdir(tmp_path) == []
