"""Bytes, lines and texts of files: compression, encodings, and what is rejected."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.files import streams
from bert_keras.files.streams import Replaced, head_of, lines_of, open_unpacked, text_of

LINES = "".join(random.Random(1).choices("abcdé \n", k=40_000)).encode() + b"\n"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def packer_of(kind: str) -> Callable[[bytes], bytes]:
    if kind == "zst":
        return pytest.importorskip("backports.zstd").compress  # type: ignore[no-any-return]
    if kind == "lz4":
        return pytest.importorskip("lz4.frame").compress  # type: ignore[no-any-return]
    return PACKERS[kind]


def bytes_of(path: Path) -> bytes:
    with open_unpacked(str(path)) as stream:
        return stream.read()


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst", "lz4"])
def test_every_stream_of_a_file_is_read_or_an_error(tmp_path: Path, kind: str) -> None:
    pack = packer_of(kind)
    first, second = pack(LINES[:20_000]), pack(LINES[20_000:])
    path = tmp_path / "a.txt"  # the name has no extension
    for padding in (b"", bytes(8)):
        path.write_bytes(first + padding + second)
        assert bytes_of(path) == LINES
    path.write_bytes(first + second[:-20])
    refused(lambda: bytes_of(path), str(path), "is truncated")
    # The readers of the standard library, and those of fsspec, end here in silence.
    path.write_bytes(first + b"no" + second[2:])
    refused(lambda: bytes_of(path), str(path), "cannot be read")
    broken = bytearray(first + second)
    broken[-3000:-2000] = bytes(1000)
    path.write_bytes(bytes(broken))
    refused(lambda: bytes_of(path), str(path), "cannot be read")


@pytest.mark.parametrize(
    ("start", "package"),
    [(b"\x28\xb5\x2f\xfd", "backports.zstd"), (b"\x04\x22\x4d\x18", "lz4")],
)
def test_a_missing_decompressor_is_named(
    tmp_path: Path, monkeypatch: Any, start: bytes, package: str
) -> None:
    for module in ("compression.zstd", "backports.zstd", "lz4.frame"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "a").write_bytes(start + b" rest")
    refused(lambda: bytes_of(tmp_path / "a"), f"pip install {package}")


def test_a_zip_archive_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", "")
        archive.writestr("folder/a.txt", LINES)
    assert bytes_of(path) == LINES
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    refused(lambda: bytes_of(path), str(path), "broken zip archive")
    path.write_bytes(data[:500] + bytes(200) + data[700:])
    refused(lambda: bytes_of(path), str(path), "cannot be read")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "one")
        archive.writestr("b.txt", "two")
    example = f"zip://a.txt::{path}"
    refused(lambda: bytes_of(path), "holds 2", example)
    assert text_of(example) == "one"


def test_a_text_is_its_lines(tmp_path: Path) -> None:
    path = str(tmp_path / "a.txt")
    Path(path).write_bytes(b"\xef\xbb\xbf" + LINES + b"no end")
    lines = list(lines_of(path))
    assert [number for number, _ in lines] == list(range(1, len(lines) + 1))
    assert "".join(line for _, line in lines) == text_of(path)
    assert text_of(path).encode() == LINES + b"no end"
    assert text_of(path).startswith(head_of(path)[:1000])


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"one\ntwo\n\xe9t\xe9\n", 3, "must be UTF-8; byte 0xe9 is not"),
        (b"one\n\xc3\xa9\0\n", 2, "holds a NUL character"),
        ("one\n".encode("utf-16"), 1, "must be UTF-8; this is UTF-16"),
    ],
)
def test_invalid_text_is_named_by_line(
    tmp_path: Path, data: bytes, line: int, reason: str
) -> None:
    path = str(tmp_path / "a.txt")
    Path(path).write_bytes(data)
    said = [
        refused(lambda: text_of(path), f"{path}:{line}: {reason}"),
        refused(lambda: list(lines_of(path)), f"{path}:{line}: {reason}"),
    ]
    assert "`errors`" not in "".join(said)
    if line > 1:
        replaced = Replaced()
        refused(lambda: list(lines_of(path, replaced=replaced)), "`errors` replace")
        text = "".join(t for _, t in lines_of(path, errors="replace"))
        assert text.count("\ufffd") == (2 if line == 3 else 1)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    refused(lambda: text_of(str(tmp_path)), "is a folder, not a file")
    refused(lambda: text_of(str(tmp_path / "no")), "no such file")
    (tmp_path / "dataset_dict.json").write_text("{}")
    refused(lambda: text_of(str(tmp_path)), "name the folder of one")
    part = tmp_path / "data-00000-of-00001"
    part.write_bytes(b"\xff\xff\xff\xff\x08\x02\0\0")
    refused(lambda: text_of(str(part)), "an Arrow stream: its name must end in .arrow")


def test_a_reader_of_other_code_raises_one_kind_of_error() -> None:
    class Strange(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise LookupError("first line\nand more")

    with pytest.raises(OSError, match=r"^first line$"):
        streams.guarded(Strange()).read()
