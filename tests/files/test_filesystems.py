"""Files of every file system: one in memory takes the place of a bucket."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from conftest import refused
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from bert_keras.files import filesystems
from bert_keras.files.streams import text_of

PLACE = "memory://bucket"


@pytest.fixture(autouse=True)
def bucket() -> Iterator[MemoryFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("remote", [False, True])
def test_files_are_written_whole_and_deleted(tmp_path: Path, remote: bool) -> None:
    folder = f"{PLACE}/new/folder" if remote else str(tmp_path / "new" / "folder")
    path = f"{folder}/a"
    assert filesystems.sizes_in(folder) == {}
    assert filesystems.size_of(path) is filesystems.read(path) is None
    filesystems.write(path, b"old")
    filesystems.put(io.BytesIO(b"new text"), path)
    filesystems.write(f"{folder}/inner/b", b"")
    assert filesystems.sizes_in(folder) == {"a": 8}
    assert filesystems.size_of(path) == 8
    assert filesystems.read(path) == b"new text"
    filesystems.remove([path, f"{folder}/no"])
    assert filesystems.sizes_in(folder) == {}
    filesystems.remove_folder(folder)
    filesystems.remove_folder(folder)
    assert filesystems.sizes_in(f"{folder}/inner") == {}


def test_a_write_that_fails_leaves_the_old_file(bucket: MemoryFileSystem) -> None:
    class Full(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(28, "No space left on device")

    filesystems.write(f"{PLACE}/a", b"old")
    with pytest.raises(OSError, match="No space left"):
        filesystems.put(Full(), f"{PLACE}/a")  # type: ignore[arg-type]
    assert filesystems.sizes_in(PLACE) == {"a": 3}


def test_renaming_without_overwriting(monkeypatch: Any) -> None:
    move = MemoryFileSystem.mv

    def strict(self: Any, old: str, new: str) -> None:
        if self.exists(new):
            raise OSError(f"{new} exists")
        move(self, old, new)

    monkeypatch.setattr(MemoryFileSystem, "mv", strict)
    filesystems.write(f"{PLACE}/a", b"old")
    filesystems.write(f"{PLACE}/a", b"new")
    assert filesystems.read(f"{PLACE}/a") == b"new"
    assert filesystems.sizes_in(PLACE) == {"a": 3}


def test_matching_files_in_the_order_of_a_local_walk(bucket: MemoryFileSystem) -> None:
    names = ["a.txt", "b.txt", "b/1.txt", "b/c/2.md", "d/3.txt"]
    for name in [*reversed(names), ".hidden", ".git/x.txt", "b/.x/y"]:
        bucket.pipe_file(f"/bucket/{name}", b"text")
    for place in (PLACE, f"{PLACE}/", "memory://b*"):
        found = [name.partition("bucket/")[2] for name in filesystems.matching(place)]
        assert found == names
    (single,) = filesystems.matching(f"{PLACE}/b/c/2.md")
    assert text_of(single) == "text"
    assert filesystems.matching("zip://a::memory://a.zip") == [
        "zip://a::memory://a.zip"
    ]
    some = filesystems.matching(f"{PLACE}/**/*.txt")
    assert [name.partition("bucket/")[2] for name in some] == [
        name for name in names if name.endswith(".txt")
    ]
    assert filesystems.matching(f"{PLACE}/no") == []
    assert filesystems.matching(f"{PLACE}/no*") == []


@pytest.mark.parametrize(
    ("module", "path", "install"),
    [
        ("s3fs", "s3://a/b", "s3:// needs a package: pip install s3fs"),
        ("gcsfs", "gs://a/b", "pip install gcsfs"),
        ("aiohttp", "https://a/b", "pip install 'fsspec[http]'"),
        ("gcsfs", "zip://a::gs://a/b", "pip install gcsfs"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: Any, module: str, path: str, install: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    # In an environment that has the package, fsspec may have loaded it already.
    for scheme in ("s3", "gs", "https"):
        monkeypatch.delitem(_registry, scheme, raising=False)
    refused(lambda: text_of(path), f"{path}: ", install)


def test_an_unknown_scheme_is_named() -> None:
    refused(lambda: text_of("nowhere://a"), "nowhere://a: ", "Protocol not known")
