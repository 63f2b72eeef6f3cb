"""What Windows and macOS lack is neither needed nor used without a fallback."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from bert_keras.files.atomic import new_folder, replaced_file
from bert_keras.retrieval.features import _most_bytes

POSIX_ONLY = re.compile(
    r"os\.(EX_\w+|sysconf|fork|kill(pg)?|sched_\w+|get(e?[ug]id|pgid|loadavg)|chown|"
    r"mkfifo|setsid|statvfs|pread|register_at_fork|O_(DIRECTORY|NOFOLLOW|CLOEXEC|SYNC))"
    r"|signal\.SIG(KILL|HUP|USR1|USR2|PIPE|ALRM|QUIT|CHLD)|socket\.AF_UNIX|select\.poll"
)
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "readline"}
# With a fallback; `estimate` and `process_pool` are of training and of large corpora.
KNOWN = {
    ("cli/main.py", "select.poll"),
    ("files/atomic.py", "fcntl"),
    ("retrieval/features.py", "os.sysconf"),
    ("runs/process_pool.py", "os.kill"),
    ("training/estimate.py", "resource"),
}


def test_no_other_name_of_posix_is_used() -> None:
    package, found = ROOT / "bert_keras", set()
    for path in package.rglob("*.py"):
        place = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Attribute):
                names = [x for x in [ast.unparse(node)] if POSIX_ONLY.fullmatch(x)]
            elif isinstance(node, ast.Import):
                names = [x.name for x in node.names if x.name in MODULES]
            found |= {(place, name) for name in names}
    assert found == KNOWN


def test_the_memory_of_another_system_is_assumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert _most_bytes() == (8 << 30) // 3


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")
def test_windows_renames_and_removes_no_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with replaced_file(tmp_path / "file") as temporary:
        assert open_files(tmp_path) == set()
        temporary.write_text("new")
    with new_folder(tmp_path, "folder-") as folder:
        assert folder.is_dir() and open_files(tmp_path) == set()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def open_files(folder: Path) -> set[str]:
    """Return the open files of this process in a folder."""
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    found = {os.readlink(link) for link in links if link.is_symlink()}
    return {each for each in found if each.startswith(f"{folder}{os.sep}")}
