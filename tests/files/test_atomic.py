"""Replaced folders: whatever fails, either the old or the new folder is complete.

What killed writers left is removed by the next one, and no command writes where it
reads.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, files_of, refused

from bert_keras.cli.main import main
from bert_keras.errors import CheckpointError
from bert_keras.files import atomic as module
from bert_keras.files.atomic import (
    check_output_place,
    check_replaceable,
    new_folder,
    replaced_file,
    replaced_folder,
)


def write(folder: Path, text: str) -> None:
    """Write a folder that passes for a model."""
    (folder / "config.json").write_text(text)
    (folder / "vocab.txt").write_text(text)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return an existing model folder."""
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
    """Check that a folder is complete and that nothing is left next to it."""
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


def test_a_full_disk_is_reported_in_one_line(old: Path) -> None:
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


def test_files_that_appear_while_writing_are_not_lost(old: Path) -> None:
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


def test_a_killed_run_leaves_one_complete_folder(old: Path) -> None:
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


WRITER = """
import sys
from pathlib import Path
from bert_keras.files.atomic import new_folder

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


def test_leftovers_of_a_killed_writer_are_removed_and_of_a_running_one_are_not(
    tmp_path: Path,
) -> None:
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


FILE_WRITER = """
import sys
from pathlib import Path
from bert_keras.files.atomic import replaced_file

with replaced_file(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print(temporary, flush=True)
    sys.stdin.readline()
"""


def test_a_killed_writer_of_a_file_is_cleared_and_a_running_one_is_not(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", FILE_WRITER, str(tmp_path / "vocab.txt")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    killed, living = (subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(2))
    dead, alive = (Path(each.stdout.readline().strip()) for each in (killed, living))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert dead.exists() and alive.exists()
    with replaced_file(tmp_path / "vocab.txt") as temporary:
        temporary.write_text("whole")
        assert not dead.exists() and alive.exists()
    living.communicate("\n")
    assert living.returncode == 0
    assert files_of(tmp_path) == {"vocab.txt": b"half"}


def test_a_file_system_without_locks(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with replaced_folder(old) as new:
        write(new, "new")
    assert_stands(old, "new")
    with replaced_file(old / "config.json") as temporary:
        temporary.write_text("newer")
    assert (old / "config.json").read_text() == "newer"


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), new_folder(tmp_path, ".out-") as folder:
        (folder / "half").write_text("x")
        raise KeyError
    assert os.listdir(tmp_path) == []


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a folder with another one inside, a link to it, and a sibling's path."""
    (tmp_path / "house" / "model" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "house" / "model" / "1_Pooling" / "config.json").write_text("{}")
    (tmp_path / "house" / "model" / "config.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "house" / "model")
    (tmp_path / "up").symlink_to(tmp_path / "house")
    return tmp_path / "house" / "model"


@pytest.mark.parametrize(
    ("output", "relation"),
    [
        ("house/model", "is the same place"),
        ("house/model/", "is the same place"),
        ("house/../house/./model", "is the same place"),
        ("link", "is the same place"),
        ("up/model", "is the same place"),
        ("house", "holds it"),
        ("up", "holds it"),
        (".", "holds it"),
        ("house/model/1_Pooling", "is inside it"),
        ("link/config.json", "is inside it"),
    ],
)
def test_an_output_that_is_an_input(
    model: Path, monkeypatch: pytest.MonkeyPatch, output: str, relation: str
) -> None:
    monkeypatch.chdir(model.parents[1])
    for source in (model, "house/model", "link/", Path("up/model")):
        inputs = {"file": None, "encoder": source}
        told = (
            f"`output` must be a different place from `encoder`, {source}; ",
            output,
        )
        refused(lambda i=inputs: check_output_place("output", output, i), *told)
        refused(lambda i=inputs: check_output_place("output", output, i), relation)


def test_outputs_that_are_not_inputs(model: Path) -> None:
    for output in (model / "new", model.parent / "model2", model.parent / "mode"):
        check_output_place("output", output, {"encoder": model})
    check_output_place("output", model.parent, {"encoder": model}, around=True)
    check_output_place("output", model, {"encoder": "hf://house/model", "data": 3})
    inside = {"corpus": [str(model)]}
    told = "is inside it"
    refused(
        lambda: check_output_place("output", model / "new", inside, inside=True), told
    )
    refused(lambda: check_output_place("output", "", {}), "must be a path; received ''")


def commands(encoder: str, rows: str, output: str) -> dict[str, list[str]]:
    """Return the commands that write a place, each with the encoder as an input."""
    train = ["train", "classification", "--encoder", encoder, "--train", rows]
    return {
        "train": [*train, "--output", output],
        "seeds": [*train, "--output", output, "--seeds", "2"],
        "convert": ["convert", encoder, output],
        "google": ["convert", encoder, output, "--to", "google"],
        "export": ["export", encoder, output, "--task", "classification"],
        "features": ["features", encoder, rows, "--output", output],
        "search": ["search", encoder, rows, "q", "--index", output],
        "encoder": [
            *("pretrain", "--encoder", encoder, "--data", "d", "--output", output)
        ],
        "data": [
            *("pretrain", "--size", "tiny", "--vocab", encoder, "--data", encoder),
            *("--output", output),
        ],
        "held": [
            *("pretrain", "--size", "tiny", "--vocab", encoder, "--data", "d"),
            *("--held-out", encoder, "--output", output),
        ],
        "vocab": ["vocab", encoder, "--output", output],
        "vocabulary": [
            "pretraining-data",
            rows,
            "--vocab",
            encoder,
            "--output",
            output,
        ],
        "corpus": ["pretraining-data", encoder, "--vocab", encoder, "--output", output],
    }


@pytest.mark.parametrize("verb", commands("", "", ""))
def test_every_verb_rejects_an_output_that_is_an_input(
    verb: str,
    encoder_folder: Path,
    spam_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    link = tmp_path / "link"
    link.symlink_to(encoder_folder)
    before = files_of(encoder_folder)
    for output in (str(encoder_folder), f"{link}{os.sep}"):
        words = commands(str(encoder_folder), str(spam_file), output)[verb]
        capsys.readouterr()
        assert main(words) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert "must be a different place from" in line and "is the same place" in line
    assert files_of(encoder_folder) == before


def test_links_in_a_circle(
    spam_file: Path,
    spam_folder: Path,
    encoder_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    link = tmp_path / "a.jsonl"
    link.symlink_to(link)
    model, rows = str(spam_folder), str(spam_file)
    train = ["train", "classification", "--encoder", str(encoder_folder)]
    for words in (
        [*train, "--train", rows, "--output", str(link)],
        ["compare", str(link), model, "--output", str(tmp_path / "a.html")],
    ):
        capsys.readouterr()
        assert main(words) == 2
        assert f"{link}: " in capsys.readouterr().err.splitlines()[-1]
    assert main(["predict", model, "win", "--output", str(link)]) == 0
    assert link.is_file() and not link.is_symlink()


def test_features_onto_their_texts(
    encoder_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "rows.npz"
    path.write_text("text\nfree\n")
    words = ["features", str(encoder_folder), str(path), "--output", str(path)]
    assert main(words) == 2
    assert "a different place from `file`" in capsys.readouterr().err
    assert path.read_text() == "text\nfree\n"


@pytest.mark.parametrize(
    "words",
    [
        ["train", "classification", "--encoder", "", "--train", "t", "--output", "o"],
        ["train", "classification", "--encoder", "e", "--train", "", "--output", "o"],
        ["train", "classification", "--encoder", "e", "--train", "t", "--output", ""],
        ["evaluate", "", "rows"],
        ["evaluate", "model", ""],
        ["predict", ""],
        ["predict", "model", "--input", ""],
        ["features", "m", "f", "--output", ""],
        ["search", "m", "f", "q", "--index", ""],
        ["export", "m", ""],
        ["convert", "", "o"],
        ["convert", "m", ""],
        ["info", ""],
        ["vocab", "", "--output", "o"],
        ["vocab", "c", "--output", ""],
        ["pretraining-data", "c", "--vocab", "", "--output", "o"],
        ["pretraining-data", "c", "--vocab", "v", "--output", ""],
        ["pretrain", "--data", "", "--output", "o", "--size", "tiny"],
        ["pretrain", "--data", "d", "--output", "", "--size", "tiny"],
        ["pretrain", "--data", "d", "--output", "o", "--encoder", ""],
        ["pretrain", "--data", "d", "--output", "o", "--size", "tiny", "--vocab", ""],
        ["pretrain", "--data", "d", "--output", "o", "--encoder", "e"]
        + ["--held-out", ""],
    ],
    ids=" ".join,
)
def test_an_empty_path_is_rejected(
    words: list[str], capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert "must be a path; received ''" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_an_export_into_the_folder_of_a_model(model: Path) -> None:
    from bert_keras.exports.saved_model import export_model

    told = "must be a folder of versions 1, 2 …; holds config.json"
    refused(lambda: export_model(None, model), told)  # type: ignore[arg-type]
