"""Text files of any size, compressed or not: bytes, lines, or the whole text.

The compression is recognized by the first bytes of a file, not by its name: gzip
(RFC 1952), bzip2, xz, zip with one file, Zstandard (RFC 8878) where Python 3.14 or
`backports.zstd` is installed, and LZ4 with `lz4`. Text is UTF-8, with or without a byte
order mark. `lines_of` needs the memory of one line, of at most `MOST_BYTES` bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from bert_keras.errors import DataError, reason_of
from bert_keras.files.filesystems import guarded, opened
from bert_keras.files.lfs import POINTER, REMEDY
from bert_keras.settings import check_choice

ERRORS = ("strict", "replace")
# Endings of compressed files, after the ending of the content.
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
HEAD_BYTES = 64 << 10  # read to recognize the content of a file
MOST_BYTES = 32 << 20  # of a line, and characters of a document
_PACKED_BYTES = 1 << 18  # read or decompressed at once
_MOST_STRANGE = 0.1  # maximum share of invalid characters at the start of a text
_TEXT_CONTROLS = "\t\n\v\f\r\x1b"
_PLACES_KEPT = 10


@dataclasses.dataclass
class Replaced:
    """Counts `lines` whose invalid bytes became U+FFFD; keeps the first `places`."""

    lines: int = 0
    places: list[str] = dataclasses.field(default_factory=list)

    def add(self, path: str, line: int) -> None:
        self.lines += 1
        if len(self.places) < _PLACES_KEPT:
            self.places.append(f"{path}:{line}")

    def extend(self, other: Replaced) -> None:
        """Add the lines of another count."""
        self.lines += other.lines
        self.places = [*self.places, *other.places][:_PLACES_KEPT]


def check_errors(errors: str) -> None:
    """Raise ConfigError unless `errors` is `strict` or `replace`."""
    check_choice("errors", errors, ERRORS)


@contextlib.contextmanager
def open_unpacked(path: str) -> Iterator[BinaryIO]:
    """Open a file for reading its decompressed bytes.

    `path` is local, or a name such as `gs://bucket/file`; see `filesystems`.

    Raises:
        DataError: the file does not exist, or is truncated or corrupt; also raised
            while the file is read.
    """
    try:
        with opened(path) as file, _unpacked(path, file) as stream:
            yield stream
    except FileNotFoundError:
        raise DataError("no such file", path=path) from None
    except IsADirectoryError:
        message = "is a folder, not a file"
        if (Path(path) / "dataset_dict.json").exists():
            message += ": of the data sets in it, name the folder of one"
        raise DataError(message, path=path) from None
    except EOFError:
        raise DataError("is truncated: its packed data has no end", path=path) from None
    except (OSError, zlib.error) as error:
        raise DataError(f"cannot be read: {reason_of(error)}", path=path) from None


# First bytes of a file: its format, the modules that may read it, of which the first
# that can be imported is used, the decompressor there, and what to install otherwise.
_CODECS = {
    b"BZh": ("bzip2", ("bz2",), "BZ2Decompressor", ""),
    b"\xfd7zXZ\0": ("xz", ("lzma",), "LZMADecompressor", ""),
    b"\x28\xb5\x2f\xfd": (
        "zstd",
        ("compression.zstd", "backports.zstd"),
        "ZstdDecompressor",
        "backports.zstd",
    ),
    b"\x04\x22\x4d\x18": ("lz4", ("lz4.frame",), "LZ4FrameDecompressor", "lz4"),
}
_AS_CSV = "save it as CSV, or pass the frame that pandas reads from it"
# First bytes of files that are not text, and what to do with them; then a member that
# tells the kind of an archive.
_NO_TEXT = {
    b"PAR1": "a Parquet file: its name must end in .parquet",
    b"ARROW1": "an Arrow file: its name must end in .arrow or .feather",
    b"\xff\xff\xff\xff": "an Arrow stream: its name must end in .arrow",
    b"\xd0\xcf\x11\xe0": f"an Excel workbook: {_AS_CSV}",
    b"SQLite": f"an SQLite database: {_AS_CSV}",
    b"%PDF-": "a PDF document: save its text",
    POINTER: REMEDY,
}
_ARCHIVES = {
    "xl/workbook.xml": f"an Excel workbook: {_AS_CSV}",
    "xl/workbook.bin": f"an Excel workbook: {_AS_CSV}",
    "word/document.xml": "a Word document: save it as plain text",
    "META-INF/manifest.xml": f"an OpenDocument file: {_AS_CSV}",
}


def _unpacked(path: str, file: io.BufferedReader) -> BinaryIO:
    start = file.peek(len(POINTER))
    if start.startswith(b"\x1f\x8b"):
        import gzip

        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if start.startswith(b"PK\x03\x04"):
        return _unzipped(path, file)
    for magic in _CODECS:
        if start.startswith(magic):
            streams = _Streams(file, _decompressor(path, magic))
            return io.BufferedReader(streams, _PACKED_BYTES)
    for magic, kind in _NO_TEXT.items():
        if start.startswith(magic):
            raise DataError(f"is {kind}", path=path)
    return file


def _unzipped(path: str, file: BinaryIO) -> BinaryIO:
    """Open the one file of a zip archive."""
    import zipfile

    try:
        archive = zipfile.ZipFile(file)
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) == 1:
            return guarded(archive.open(names[0]))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise OSError(f"broken zip archive: {error}") from None
    for member, kind in _ARCHIVES.items():
        if member in names:
            raise DataError(f"is {kind}", path=path)
    example = f"; name one of them, such as zip://{names[0]}::{path}" if names else ""
    raise DataError(
        f"must hold one file; this zip archive holds {len(names)}{example}", path=path
    )


def _decompressor(path: str, magic: bytes) -> Callable[[], Any]:
    """Return a factory of decompressors for the format of these first bytes."""
    kind, modules, name, package = _CODECS[magic]
    for module in modules:
        with contextlib.suppress(ImportError):
            make: Callable[[], Any] = getattr(importlib.import_module(module), name)
            return make
    raise DataError(
        f"is packed with {kind}, which needs a package: pip install {package}",
        path=path,
    )


class _Streams(io.RawIOBase):
    """Decompresses the streams of a file, one after the other, or raises an error.

    Not `bz2.open`, `lzma.open` or fsspec's compression, which returns the same readers:
    they mistake a stream with a broken start, or zeros between two streams, for the end
    of the file, and would lose the rest of a Wikipedia dump silently.
    """

    def __init__(self, file: BinaryIO, make: Callable[[], Any]) -> None:
        super().__init__()
        self._file, self._make = file, make
        self._decoder = make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill part of the buffer; returns 0 at the end of the last stream."""
        while True:
            data = b""
            if self._decoder.eof:
                data = (self._decoder.unused_data or b"").lstrip(b"\0")
                while not data:
                    more = self._file.read(_PACKED_BYTES)
                    if not more:
                        return 0
                    data = more.lstrip(b"\0")
                self._decoder = self._make()
            elif self._decoder.needs_input:
                data = self._file.read(_PACKED_BYTES)
                if not data:
                    raise EOFError
            try:
                unpacked = self._decoder.decompress(data, len(buffer))
            except Exception as error:
                raise OSError(f"broken packed data: {error}") from None
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)


def head_of(path: str) -> str:
    """Return the first characters of a text file, without a byte order mark.

    Raises:
        DataError: the file cannot be read, is binary, or is in another encoding: more
            than a tenth of its start cannot be UTF-8 text.
    """
    with open_unpacked(path) as stream:
        data = _without_mark(path, stream.read(HEAD_BYTES))
    text = data.decode("utf-8", "replace")
    controls = sum(text.count(chr(code)) for code in range(32))
    controls -= sum(map(text.count, _TEXT_CONTROLS))
    if "\0" in text or controls > _MOST_STRANGE * len(text):
        raise DataError("is a binary file, not text", path=path)
    # The last character may be incomplete.
    if text[:-1].count("\ufffd") > _MOST_STRANGE * len(text):
        raise DataError("must be UTF-8 text; it is binary or not UTF-8", path=path)
    return text


def _without_mark(path: str, data: bytes) -> bytes:
    """Return the start of a file without its byte order mark; a UTF-16 one raises."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("must be UTF-8; this is UTF-16", path=path, line=1)
    return data.removeprefix(b"\xef\xbb\xbf")


def text_of(path: str) -> str:
    """Return the whole text of a file, without a byte order mark.

    Raises:
        DataError: the file cannot be read, or a line is not UTF-8 or holds a NUL
            character; the line is named.
    """
    return decoded(path, 1, bytes_of(path))


def bytes_of(path: str) -> bytes:
    """Return the decompressed bytes of a file, without a byte order mark."""
    with open_unpacked(path) as stream:
        return _without_mark(path, stream.read())


def blocks_of(path: str, size: int) -> Iterator[bytes]:
    """Yield the bytes of `bytes_of` in blocks of a size; the last may be shorter."""
    with open_unpacked(path) as stream:
        block = _without_mark(path, stream.read(size))
        while block:
            yield block
            block = stream.read(size)


def lines_of(
    path: str, *, errors: str = "strict", replaced: Replaced | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each line, with its line break.

    A line of more than `MOST_BYTES` is yielded in parts of that size, all with the same
    number; all but the last have no line break.

    Args:
        path: the file, compressed or not.
        errors: `strict` raises at bytes that are not UTF-8 and at NUL characters;
            `replace` replaces them by U+FFFD, which the tokenizer drops.
        replaced: counts the lines with replacements.

    Raises:
        DataError: the file cannot be read, or a line is rejected; the line is named.
    """
    with open_unpacked(path) as stream:
        number, rest, begins = 0, b"", True
        while data := stream.readline(MOST_BYTES):
            if not number:
                data = _without_mark(path, data)
            number += begins
            begins = data.endswith(b"\n")
            data, rest = rest + data, b""
            if not begins:  # not in the middle of a character
                end = whole_characters(data)
                data, rest = data[:end], data[end:]
            yield number, decoded(path, number, data, errors, replaced)
        if rest:
            yield number, decoded(path, number, rest, errors, replaced)


def whole_characters(data: bytes) -> int:
    """Return the end of the last whole UTF-8 character."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead >= 0xC0:
            size = 2 + (lead >= 0xE0) + (lead >= 0xF0)
            return len(data) - back if size > back else len(data)
        if lead < 0x80:
            break
    return len(data)


def decoded(
    path: str,
    line: int,
    data: bytes,
    errors: str = "strict",
    replaced: Replaced | None = None,
) -> str:
    """Return the text of bytes from within a line; see `lines_of`."""
    try:
        text = data.decode("utf-8")
        place, strange = data.find(b"\0"), "holds a NUL character"
        if place < 0:
            return text
    except UnicodeDecodeError as error:
        text, place = data.decode("utf-8", "replace"), error.start
        strange = f"must be UTF-8; byte 0x{data[place]:02x} is not"
    if errors == "strict":
        # Only a caller that counts replaced lines offers the choice.
        hint = "" if replaced is None else " (`errors` replace would continue)"
        line += data.count(b"\n", 0, place)
        raise DataError(f"{strange}{hint}", path=path, line=line)
    if replaced is not None:
        replaced.add(path, line)
    return text.replace("\0", "\ufffd")
