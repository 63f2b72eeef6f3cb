"""Files wherever a file system of Apache Beam finds them, such as `gs://bucket/file`.

Local names work in the same way. What goes wrong is an `OSError` of one line, whatever
library a file system stands on. Beam (apache-beam, the extra `[beam]`) is imported when
it is first needed; reading a local file does not need it.
"""

from __future__ import annotations

import contextlib
import glob
import io
import posixpath
import re
import shutil
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

INSTALL = "pip install 'bert_keras[beam]'"
_REMOTE = re.compile(r"[A-Za-z][-A-Za-z0-9+.]*://")
_AT_ONCE = 1000  # files that are deleted together


def is_remote(path: str) -> bool:
    """Say whether a name has a scheme, such as `gs://`, `s3://` or `hdfs://`."""
    return _REMOTE.match(path) is not None


@contextlib.contextmanager
def opened(path: str) -> Iterator[io.BufferedReader]:
    """Open a file to read its bytes, as they are.

    Raises:
        OSError: it cannot be opened.
    """
    if not is_remote(path):
        with open(path, "rb") as local:
            yield local
        return
    with _one_line():
        file: Any = _systems().open(path, compression_type="uncompressed")
    # Some give readers without `peek`.
    with io.BufferedReader(file) as stream:
        yield stream


def matching(path: str) -> list[str]:
    """Return the files that a name, a folder or a glob stands for, sorted by name.

    Those right in a folder come before those of the folders in it. Files are left out
    whose name, or whose folder's, begins with a dot, and so are the empty ones that
    stand for folders in a bucket.

    Raises:
        OSError: they cannot be listed.
    """
    below = _sizes(f"{path.rstrip('/')}/**")
    found = {*below, *_sizes(path)} if not path.endswith("/") else {*below}
    given = re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0]
    folders = {posixpath.dirname(name) for name in found}
    files = [
        name
        for name in found - folders
        if "/." not in name[len(given) :] and not name.endswith("/")
    ]
    return sorted(files, key=lambda name: _order(*name.split("/")))


def _order(*parts: str) -> list[tuple[bool, str]]:
    """Return what sorts files before folders, as `os.walk` goes through them."""
    last = len(parts) - 1
    return [(place < last, part) for place, part in enumerate(parts)]


def sizes_in(folder: str) -> dict[str, int]:
    """Return the names of the files right in a folder, and their bytes.

    Raises:
        OSError: they cannot be listed.
    """
    found = _sizes(f"{glob.escape(folder)}/*")
    return {posixpath.basename(path): size for path, size in found.items()}


def size_of(path: str) -> int | None:
    """Return the bytes of a file; `None` if it is not there.

    Raises:
        OSError: it cannot be told.
    """
    with _one_line():
        return _systems().get_filesystem(path).size(path) if _exists(path) else None


def read(path: str) -> bytes | None:
    """Return what a file holds; `None` if it is not there.

    Raises:
        OSError: it cannot be read.
    """
    with _one_line():
        if not _exists(path):
            return None
        with _systems().open(path, compression_type="uncompressed") as file:
            return cast(bytes, file.read())


def write(path: str, data: bytes) -> None:
    """Write a file beside and rename it, in the place of an old one.

    Raises:
        OSError: it cannot be written.
    """
    put(io.BytesIO(data), path)


def put(source: BinaryIO, path: str) -> None:
    """Copy what is left of an open file to a new one, beside, and rename that.

    Two may do so at once if both have the same to write.

    Raises:
        OSError: it cannot be written.
    """
    folder, name = posixpath.split(path)
    beside = f"{folder}/.{name}.{uuid.uuid4().int}.partial"
    systems = _systems()
    with _one_line():
        try:
            with systems.create(beside, compression_type="uncompressed") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            try:
                systems.rename([beside], [path])
            except OSError:
                # HDFS does not rename over a file.
                if not (_exists(path) and _exists(beside)):
                    raise
                systems.delete([path])
                systems.rename([beside], [path])
        except BaseException:
            with contextlib.suppress(Exception):
                systems.delete([beside])
            raise


def remove(paths: list[str]) -> None:
    """Delete files.

    Raises:
        OSError: one is there and cannot be deleted.
    """
    with _one_line():
        there = [path for path in paths if _exists(path)]
        for start in range(0, len(there), _AT_ONCE):
            _systems().delete(there[start : start + _AT_ONCE])


def remove_folder(folder: str) -> None:
    """Delete a folder with all its files, if it is there.

    Raises:
        OSError: one cannot be deleted.
    """
    files = list(_sizes(f"{glob.escape(folder)}/**"))
    with _one_line():
        for start in range(0, len(files), _AT_ONCE):
            _systems().delete(files[start : start + _AT_ONCE])
        if _exists(folder):  # a bucket has no folders
            _systems().delete([folder])


def _sizes(pattern: str) -> dict[str, int]:
    with _one_line():
        (found,) = _systems().match([pattern])
        return {each.path: each.size_in_bytes for each in found.metadata_list}


def _exists(path: str) -> bool:
    return bool(_systems().exists(path))


def _systems() -> Any:
    """Return the file systems of Beam."""
    try:
        from apache_beam.io.filesystems import FileSystems
    except ImportError:
        raise OSError(f"needs a package: {INSTALL}") from None
    return FileSystems


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Make of whatever goes wrong an `OSError` of one line."""
    try:
        yield
    except Exception as error:
        # Beam's own error has that of each file.
        details = getattr(error, "exception_details", None) or {}
        inner = next(iter(details.values()), error)
        inner = inner if isinstance(inner, Exception) else error
        reason = getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
        raise OSError(str(reason).strip().splitlines()[0]) from None
