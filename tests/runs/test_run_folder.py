"""`RunFolder`: whole checkpoints whatever happens, and no run is mixed with another."""

from __future__ import annotations

import errno
import functools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import files_of, refused

from bert_keras.runs.run_folder import RunFolder, open_run


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(b"12345")


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", {"rate": 0.1}) as run:
        for step in (10, 20, 30):
            run.save(step, fill, keep=2)
        run.wait()
        assert run.steps == [20, 30]
        assert (run.checkpoint(30) / "weights").read_bytes() == b"12345"
        refused(lambda: RunFolder(tmp_path / "run", {"rate": 0.1}), "another process")
    with RunFolder(tmp_path / "run", {"rate": 0.1}) as again:
        assert again.steps == [20, 30]


def test_a_full_disk_leaves_the_finished_checkpoints(tmp_path: Path) -> None:
    def no_room(folder: Path) -> None:
        fill(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunFolder(tmp_path / "run", {}) as run:
        run.save(1, fill, keep=2)
        run.wait()
        before = files_of(tmp_path / "run")
        run.save(2, no_room, keep=2)  # in the background: reported at the next call
        refused(run.wait, "cannot be written: No space left on device", "are kept")
        assert files_of(tmp_path / "run") == before


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", {}) as run:
        run.save(1, fill, keep=2)
        run.add_row({"step": 1, "loss": 2.0})
        run.add_row({"step": 2, "loss": 1.5})
    left = [".curves.jsonl.7.partial/", ".model-x/", "checkpoints/.new-a/"]
    for name in left:
        (tmp_path / "run" / name).mkdir()
        fill(tmp_path / "run" / name)
    with open(tmp_path / "run" / "curves.jsonl", "a") as file:
        file.write('{"step": 3, "lo')
    with RunFolder(tmp_path / "run", {}) as again:
        assert again.steps == [1]
        assert not any((tmp_path / "run" / name).exists() for name in left)
        assert again.rows(last_step=1) == [{"step": 1, "loss": 2.0}]
    text = (tmp_path / "run" / "curves.jsonl").read_text()
    assert [json.loads(line)["step"] for line in text.splitlines()] == [1]


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1, "rate": 0.2}'])
def test_another_run_is_rejected_and_unchanged(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    before = files_of(tmp_path)
    refused(lambda: RunFolder(tmp_path, {"rate": 0.1}), str(tmp_path))
    assert files_of(tmp_path) == before


def test_a_run_gets_settings_that_it_lacks(tmp_path: Path) -> None:
    def opened(**settings: Any) -> RunFolder:
        return RunFolder(tmp_path / "run", settings, may_lack=["masking", "dev"])

    for settings in ({"rate": 1}, {"rate": 1, "masking": 3}, {"rate": 1, "dev": 4}):
        with opened(**settings):
            pass
    refused(lambda: opened(rate=1, masking=5), "another `masking`: 3; received 5")
    refused(lambda: opened(rate=1, dev=5), "another `dev`: 4; received 5")
    refused(lambda: opened(masking=3), "another `rate`: 1; received None")


def test_an_error_waits_for_pending_writes(tmp_path: Path) -> None:
    def slow(folder: Path) -> None:
        time.sleep(0.2)
        fill(folder)

    with pytest.raises(KeyError), RunFolder(tmp_path / "run", {}) as run:
        run.save(1, slow, keep=2)
        raise KeyError
    with RunFolder(tmp_path / "run", {}) as again:
        assert again.steps == [1]


@pytest.mark.parametrize("line", [b"5", b"{}", b"\xff", b'{"step": "1"}'], ids=str)
def test_broken_curves_end_there(tmp_path: Path, line: bytes) -> None:
    with RunFolder(tmp_path / "run", {}) as run:
        (tmp_path / "run" / "curves.jsonl").write_bytes(b'{"step": 1}\n' + line + b"\n")
        assert run.rows(last_step=5) == [{"step": 1}]


def test_a_folder_of_other_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    refused(lambda: RunFolder(tmp_path, {}), "must be a new folder or a run")
    refused(lambda: RunFolder(tmp_path / "thesis.tex", {}), "must be a new folder")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({"rate": 1}, {"rate": 2}, "`rate`: 1; received 2"),
        ({"rate": 1}, {}, "`rate`: 1; received None"),
        (
            {"task settings": {"classes": list("abcdefghijklmnopqrst"), "top": 3}},
            {"task settings": {"classes": list("abcdefghijklmnopqrst"), "top": 5}},
            "`task settings.top`: 3; received 5",
        ),
        (
            {"t": {"classes": [*"abcdefghijklmnopqrst", "new"]}},
            {"t": {"classes": [*"abcdefghijklmnopqrst", "old", "x"]}},
            "`t.classes[20]`: 'new'; received 'old' (and `t.classes[21]`)",
        ),
        (
            {"a": "path/" * 30 + "one", "b": 1, "c": 1, "d": 1, "e": 1},
            {"a": "path/" * 30 + "two", "b": 2, "c": 2, "d": 2, "e": 2},
            "`a`: …'path/path/one'; received …'path/path/two' (and `b`, `c`, `d` …)",
        ),
    ],
)
def test_differences_are_shown(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], told: str
) -> None:
    with RunFolder(tmp_path / "run", old) as run:
        run.save(1, fill, keep=1)
    refused(lambda: RunFolder(tmp_path / "run", new), f"with another {told}: choose")
    action = functools.partial(open_run, tmp_path / "run", new, resume="auto")
    refused(action, f"with another {told}: use the same")
