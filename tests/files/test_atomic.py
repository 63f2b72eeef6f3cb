"""Replaced folders: whatever goes wrong, the old folder or the new one stands."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, files_of, refused

from bert_keras.errors import CheckpointError
from bert_keras.files import atomic as module
from bert_keras.files.atomic import check_replaceable, replaced_folder


def write(folder: Path, text: str) -> None:
    """Write a folder that passes for a model."""
    (folder / "config.json").write_text(text)
    (folder / "vocab.txt").write_text(text)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a model folder that stands."""
    folder = tmp_path / "models" / "spam"
    folder.mkdir(parents=True)
    write(folder, "old")
    return folder


@pytest.fixture(params=["exchange", "two renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with folders exchanged in one step, and where that is impossible."""
    if request.param == "two renames":
        monkeypatch.setattr(module, "_exchange", lambda first, second: False)
    return request.param


def assert_stands(folder: Path, text: str) -> None:
    """Check that a folder is whole, and that nothing lies beside it."""
    assert files_of(folder) == dict.fromkeys(
        ("config.json", "vocab.txt"), text.encode()
    )
    assert os.listdir(folder.parent) == [folder.name]


def test_a_new_folder_appears_with_its_parents(tmp_path: Path) -> None:
    with replaced_folder(tmp_path / "a" / "b") as new:
        write(new, "new")
        assert not (tmp_path / "a" / "b").exists()
    assert_stands(tmp_path / "a" / "b", "new")


def test_an_old_folder_is_replaced(old: Path, way: str) -> None:
    with replaced_folder(old) as new:
        write(new, "new")
        assert (old / "vocab.txt").read_text() == "old"
    assert_stands(old, "new")
    assert old.stat().st_mode & 0o777 == 0o755


def test_an_empty_folder_is_filled(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "only" / "empty"
    folder.mkdir(parents=True)
    with replaced_folder(folder) as new:
        write(new, "new")
    assert_stands(folder, "new")


def test_a_link_stays_a_link(old: Path, way: str) -> None:
    link = old.parent.parent / "link"
    link.symlink_to(old)
    with replaced_folder(link) as new:
        write(new, "new")
    assert link.is_symlink()
    assert_stands(old, "new")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_while_writing_leaves_the_old_one(
    old: Path, error: type[BaseException]
) -> None:
    with pytest.raises(error), replaced_folder(old) as new:
        write(new, "new")
        raise error
    assert_stands(old, "old")


def test_a_full_disk_is_told_in_one_line(old: Path) -> None:
    def action() -> None:
        with replaced_folder(old) as new:
            write(new, "new")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    refused(action, f"{old}: cannot be written: No space left on device")
    assert_stands(old, "old")


def test_an_error_names_the_folder_of_the_user(old: Path) -> None:
    def action() -> None:
        with replaced_folder(old) as new:
            raise CheckpointError(f"{new}: cannot write: Input/output error")

    refused(action, f"{old}: cannot write")


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_rename_leaves_the_old_one(
    old: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_exchange", lambda first, second: False)
    rename, calls = Path.rename, []

    def fails_once(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == failing + 1:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_once)

    def action() -> None:
        with replaced_folder(old) as new:
            write(new, "new")

    refused(action, f"{old}: cannot be written", "busy")
    assert_stands(old, "old")


def test_a_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    refused(lambda: check_replaceable(path), "must be a folder; is a file")


@pytest.mark.parametrize("name", ["thesis.tex", ".git", "model.safetensors"])
def test_a_folder_of_other_files_is_never_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    refused(lambda: check_replaceable(tmp_path), "holds other files", name)


def test_a_model_folder_with_other_files_is_never_replaced(old: Path) -> None:
    (old / "train.tsv").write_text("mine")
    refused(lambda: check_replaceable(old), "holds other files (train.tsv)")


def test_what_came_while_writing_is_not_lost(old: Path) -> None:
    def action() -> None:
        with replaced_folder(old) as new:
            write(new, "new")
            (old / "notes.txt").write_text("mine")

    refused(action, "holds other files (notes.txt)")
    assert (old / "notes.txt").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(old: Path) -> None:
    old.parent.chmod(0o500)
    try:
        refused(lambda: replaced_folder(old).__enter__(), "Permission denied")
    finally:
        old.parent.chmod(0o700)


SAVES = """
import itertools, sys
from pathlib import Path
from bert_keras.files.atomic import replaced_folder
for number in itertools.count():
    with replaced_folder(sys.argv[1]) as new:
        for name in ("config.json", "vocab.txt"):
            (new / name).write_text(f"{number}" * 50_000)
    if number == 0:
        print("saved once", flush=True)
"""


def test_a_killed_run_leaves_one_whole_folder(old: Path) -> None:
    command = [sys.executable, "-c", SAVES, str(old)]
    draw = random.Random(0)
    for _ in range(12):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as run:
            assert run.stdout is not None
            run.stdout.readline()
            time.sleep(draw.uniform(0, 0.03))
            run.send_signal(signal.SIGKILL)
        files = files_of(old)
        assert set(files) == {"config.json", "vocab.txt"}
        assert files["config.json"] == files["vocab.txt"]
        assert len(files["vocab.txt"]) >= 50_000
    with replaced_folder(old) as new:
        (new / "config.json").write_text("{}")
    assert list(old.parent.iterdir()) == [old]  # what they left is cleared
