"""The bytes and lines of a large text file, packed or not: `open_unpacked`, `lines_of`.

What a file is packed with is told by its first bytes, not by its name: gzip (RFC 1952),
bzip2, xz, and Zstandard (RFC 8878) where Python 3.14 or `backports.zstd` reads it. A
file of any size takes the memory of one line, and a line has `MOST_BYTES` at most.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from bert_keras.errors import ConfigError, DataError
from bert_keras.files.beam_files import is_remote, opened

ERRORS = ("strict", "replace")
HEAD_BYTES = 64 << 10  # what is looked at before a file is read
MOST_BYTES = 32 << 20  # of a line, and characters of a document
_PACKED_BYTES = 1 << 18  # that are read or unpacked together
_MOST_STRANGE = 0.1  # share of the first characters that text may have broken
_TEXT_CONTROLS = "\t\n\v\f\r\x1b"
_PLACES_KEPT = 10


class Replaced:
    """Counts the lines whose broken bytes became U+FFFD, and keeps the first places.

    Attributes:
        lines: how many.
        places: the first ten, as `file:line`.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.places: list[str] = []

    def add(self, path: str, line: int) -> None:
        """Count one line."""
        self.lines += 1
        if len(self.places) < _PLACES_KEPT:
            self.places.append(f"{path}:{line}")

    def extend(self, other: Replaced) -> None:
        """Count the lines of another count, too."""
        self.lines += other.lines
        self.places = [*self.places, *other.places][:_PLACES_KEPT]


def check_errors(errors: str) -> None:
    """Raise ConfigError unless `errors` is `strict` or `replace`."""
    if errors not in ERRORS:
        raise ConfigError(f"`errors` must be strict or replace; received {errors!r}")


@contextlib.contextmanager
def open_unpacked(path: str) -> Iterator[BinaryIO]:
    """Open a file for reading its bytes as they were before it was packed.

    A name such as `gs://bucket/file` is of a file system of Apache Beam.

    Raises:
        DataError: no such file, or, also while it is read, it is cut short or broken.
    """
    try:
        if not is_remote(path) and not os.path.isfile(path):
            kind = "must be a file" if os.path.exists(path) else "no such file"
            raise DataError(kind, path=path)
        with opened(path) as file, _unpacked(path, file) as stream:
            yield stream
    except EOFError:
        raise DataError("is cut short: its packed data has no end", path=path) from None
    except (OSError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read: {reason}", path=path) from None


def _unpacked(path: str, file: io.BufferedReader) -> BinaryIO:
    start = file.peek(6)
    if start.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if start.startswith(b"BZh"):
        return _Streams.buffered(file, bz2.BZ2Decompressor, OSError)
    if start.startswith(b"\xfd7zXZ\0"):
        return _Streams.buffered(file, lzma.LZMADecompressor, lzma.LZMAError)
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        for module in ("compression.zstd", "backports.zstd"):
            with contextlib.suppress(ImportError):
                zstd = importlib.import_module(module)
                return _Streams.buffered(file, zstd.ZstdDecompressor, zstd.ZstdError)
        raise DataError(
            "is packed with zstd, which needs Python 3.14 or a package: "
            "pip install backports.zstd",
            path=path,
        )
    return file


class _Streams(io.RawIOBase):
    """Unpacks streams that follow each other in a file; zeros may lie between them.

    Not `bz2.open` and `lzma.open`: they take a stream that is broken at its start for
    the end of the file, and a dump of Wikipedia is thousands of streams.
    """

    def __init__(
        self, file: BinaryIO, make: Callable[[], Any], error: type[Exception]
    ) -> None:
        super().__init__()
        self._file, self._make, self._error = file, make, error
        self._decoder = make()

    @classmethod
    def buffered(cls, *arguments: Any) -> BinaryIO:
        """Return the reader with a buffer."""
        return io.BufferedReader(cls(*arguments), _PACKED_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer; 0 at the end of the last stream."""
        while True:
            data = b""
            if self._decoder.eof:
                data = self._decoder.unused_data.lstrip(b"\0")
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
            except self._error as error:
                raise OSError(f"broken packed data: {error}") from None
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)


def head_of(path: str) -> str:
    """Return the first characters of a text file, without a byte order mark.

    Raises:
        DataError: it cannot be read, or is no text but a binary file, UTF-16 or another
            encoding: more than a tenth of what it begins with cannot be UTF-8 text.
    """
    with open_unpacked(path) as stream:
        data = stream.read(HEAD_BYTES)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("must be UTF-8; this is UTF-16", path=path)
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    controls = sum(text.count(chr(code)) for code in range(32))
    controls -= sum(map(text.count, _TEXT_CONTROLS))
    if "\0" in text or controls > _MOST_STRANGE * len(text):
        raise DataError("is a binary file, not text", path=path)
    # At the cut a character may be in two.
    if text[:-1].count("\ufffd") > _MOST_STRANGE * len(text):
        raise DataError("must be UTF-8 text; it is binary or not UTF-8", path=path)
    return text


def lines_of(
    path: str, *, errors: str = "strict", replaced: Replaced | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each line, with its line break.

    A line of more than `MOST_BYTES` comes in parts of that size, all of one number;
    all but the last have no line break.

    Args:
        path: the file, packed or not.
        errors: `strict` refuses bytes that are not UTF-8 and the character NUL;
            `replace` puts U+FFFD, which the tokenizer drops, in their place.
        replaced: counts the lines in which something was replaced.

    Raises:
        DataError: the file cannot be read, or a line is refused, which is named.
    """
    with open_unpacked(path) as stream:
        number, rest, begins = 0, b"", True
        while data := stream.readline(MOST_BYTES):
            number += begins
            begins = data.endswith(b"\n")
            if number == 1 and not rest:
                data = data.removeprefix(b"\xef\xbb\xbf")
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
    path: str, line: int, data: bytes, errors: str, replaced: Replaced | None
) -> str:
    """Return the text of some bytes that begin in a line; see `lines_of`."""
    try:
        text = data.decode("utf-8")
        place, strange = text.find("\0"), "holds a NUL character"
        if place < 0:
            return text
    except UnicodeDecodeError as error:
        text, place = data.decode("utf-8", "replace"), error.start
        strange = f"must be UTF-8; byte 0x{data[place]:02x} is not"
    if errors == "strict":
        # Bytes and characters before the place have the same line breaks.
        raise DataError(
            f"{strange} (`errors` replace would read on)", path=path, line=line
        )
    if replaced is not None:
        replaced.add(path, line)
    return text.replace("\0", "\ufffd")
