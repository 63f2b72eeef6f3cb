"""`RunFolder`: whole checkpoints whatever happens, and no run is mixed with another."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from conftest import files_of, refused

from bert_keras.run_folder import RunFolder


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(b"12345")


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run", {"rate": 0.1})
    for step in (10, 20, 30):
        run.save(step, fill, keep=2)
    run.wait()
    assert run.steps == [20, 30]
    assert (run.checkpoint(30) / "weights").read_bytes() == b"12345"
    assert RunFolder(tmp_path / "run", {"rate": 0.1}).steps == [20, 30]


def test_a_full_disk_leaves_what_was_finished(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run", {})
    run.save(1, fill, keep=2)
    run.wait()
    before = files_of(tmp_path / "run")

    def no_room(folder: Path) -> None:
        fill(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    run.save(2, no_room, keep=2)  # in the background: told at the next call
    refused(run.wait, "cannot be written: No space left on device", "stay")
    assert files_of(tmp_path / "run") == before


def test_what_a_kill_left_is_taken_away(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run", {})
    run.save(1, fill, keep=2)
    run.wait()
    half = tmp_path / "run" / "checkpoints" / ".new-abc"
    half.mkdir()
    fill(half)
    run.add_row({"step": 1, "loss": 2.0})
    run.add_row({"step": 2, "loss": 1.5})
    with open(tmp_path / "run" / "curves.jsonl", "a") as file:
        file.write('{"step": 3, "lo')
    again = RunFolder(tmp_path / "run", {})
    assert again.steps == [1]
    assert not half.exists()
    assert again.rows(last_step=1) == [{"step": 1, "loss": 2.0}]
    text = (tmp_path / "run" / "curves.jsonl").read_text()
    assert [json.loads(line)["step"] for line in text.splitlines()] == [1]


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1, "rate": 0.2}'])
def test_another_run_is_refused_untouched(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    before = files_of(tmp_path)
    refused(lambda: RunFolder(tmp_path, {"rate": 0.1}), str(tmp_path))
    assert files_of(tmp_path) == before


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    refused(lambda: RunFolder(tmp_path, {}), "must be a new folder or that of a run")
    refused(lambda: RunFolder(tmp_path / "thesis.tex", {}), "must be a new folder")
