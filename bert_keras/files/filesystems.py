"""Files on this machine and on every file system that `fsspec` knows.

A name with a scheme, such as `s3://bucket/file`, `gs://bucket/file` or
`hf://datasets/owner/name/file`, belongs to the file system of that scheme. Any other
name is a local path. Every error is an `OSError` of one line; a missing library is
named with the command that installs it.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import posixpath
import re
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO

_REMOTE = re.compile(r"[A-Za-z][-A-Za-z0-9+.]*://")
_BUFFER_BYTES = 1 << 18
_AT_ONCE = 1000  # files deleted in one call


def is_remote(path: str) -> bool:
    """Return whether a name has a scheme, such as `gs://`, `s3://` or `hdfs://`."""
    return _REMOTE.match(path) is not None


@contextlib.contextmanager
def opened(path: str) -> Iterator[io.BufferedReader]:
    """Open a file for reading its stored bytes."""
    if not is_remote(path):
        with open(path, "rb") as local:
            yield local
        return
    with one_line():
        system, name = _system_of(path)
        file = system.open(name, "rb")
    with guarded(file) as stream:
        yield stream


def guarded(file: Any) -> io.BufferedReader:
    """Return a buffered reader of a library's file, with errors as in `one_line`."""
    return io.BufferedReader(_Guarded(file), _BUFFER_BYTES)


class _Guarded(io.RawIOBase):
    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with one_line():
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        with one_line():
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def matching(path: str) -> list[str]:
    """Return the files that a remote name, folder or glob selects, sorted by name.

    A folder's own files come before its subfolders. Hidden files and files in hidden
    folders are left out (names that begin with a dot), and so are the empty objects
    that represent folders in a bucket.
    """
    if "::" in path:  # a file inside another one, whose own name does not lead back
        return [path]
    with _located(path) as (system, name):
        if system.isfile(name):
            return [system.unstrip_protocol(name)]
        pattern = glob.has_magic(name) and not system.exists(name)
        places = system.glob(name) if pattern else [name]
        found = {file for place in places for file in system.find(place)}
    given = re.split(r"[*?[]", name, maxsplit=1)[0] if pattern else f"{name}/"
    given = given.rpartition("/")[0]
    folders = {posixpath.dirname(file) for file in found}
    files = [
        file
        for file in found - folders
        if "/." not in file[len(given) :] and not file.endswith("/")
    ]
    files.sort(key=lambda file: _order(*file.split("/")))
    return [system.unstrip_protocol(file) for file in files]


def _order(*parts: str) -> list[tuple[bool, str]]:
    """Return a sort key that puts files before folders, as `os.walk` visits them."""
    last = len(parts) - 1
    return [(place < last, part) for place, part in enumerate(parts)]


def sizes_in(folder: str) -> dict[str, int]:
    """Return the size in bytes of each file directly in a folder; empty if absent."""
    found: list[dict[str, Any]] = []
    with _located(folder) as (system, name), contextlib.suppress(FileNotFoundError):
        found = system.ls(name, detail=True)
    return {
        posixpath.basename(entry["name"]): entry["size"]
        for entry in found
        if entry["type"] == "file"
    }


def size_of(path: str) -> int | None:
    """Return the size of a file in bytes; `None` if there is no such file."""
    with _located(path) as (system, name), contextlib.suppress(FileNotFoundError):
        return int(system.info(name)["size"])
    return None


def read(path: str) -> bytes | None:
    """Return the content of a file; `None` if there is no such file."""
    with _located(path) as (system, name), contextlib.suppress(FileNotFoundError):
        return bytes(system.cat_file(name))
    return None


def write(path: str, data: bytes) -> None:
    """Write a file under a temporary name and rename it; replaces an old file."""
    put(io.BytesIO(data), path)


def put(source: BinaryIO, path: str) -> None:
    """Copy the rest of an open file to a temporary name and rename that to `path`.

    Two processes may do so at once if both write the same bytes.
    """
    import uuid

    with _located(path) as (system, name):
        folder, last = posixpath.split(name)
        temporary = f"{folder}/.{last}.{uuid.uuid4().int}.partial"
        try:
            with _created(system, temporary) as file:
                shutil.copyfileobj(source, file, 1 << 20)
            _rename(system, temporary, name)
        except BaseException:
            with contextlib.suppress(Exception):
                system.rm_file(temporary)
            raise


def _created(system: Any, name: str) -> Any:
    """Open a new file; its folder is created if the file system has folders."""
    try:
        return system.open(name, "wb")
    except FileNotFoundError:
        system.makedirs(posixpath.dirname(name), exist_ok=True)
        return system.open(name, "wb")


def _rename(system: Any, old: str, new: str) -> None:
    try:
        system.mv(old, new)
    except OSError:
        # HDFS does not rename over an existing file.
        if not (system.exists(new) and system.exists(old)):
            raise
        system.rm_file(new)
        system.mv(old, new)


def remove(paths: list[str]) -> None:
    """Delete files of one file system; missing ones are ignored."""
    with one_line():
        located = [_system_of(path) for path in paths]
        names = [name for system, name in located if system.exists(name)]
        for start in range(0, len(names), _AT_ONCE):
            located[0][0].rm(names[start : start + _AT_ONCE])


def remove_folder(folder: str) -> None:
    """Delete a folder with all its files, if it exists."""
    with _located(folder) as (system, name):
        if system.exists(name):
            system.rm(name, recursive=True)


@contextlib.contextmanager
def _located(path: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of a name, without its cache, and the name within it."""
    with one_line():
        system, name = _system_of(path)
        system.invalidate_cache()
        yield system, name


def _system_of(path: str) -> tuple[Any, str]:
    """Return the file system of a name, and the name within it."""
    from fsspec.core import url_to_fs

    try:
        return url_to_fs(path)
    except ImportError as error:
        raise OSError(_install(path, error)) from None


def _install(path: str, error: ImportError) -> str:
    """Return how to install the package that a scheme needs."""
    from fsspec.registry import known_implementations

    scheme = path.rpartition("::")[2].partition("://")[0].lower()
    module = known_implementations.get(scheme, {"class": ""})["class"].split(".")[0]
    if not module:
        return str(error)
    extra = {"https": "http", "ssh": "sftp", "webhdfs": "hdfs"}.get(scheme, scheme)
    package = f"'fsspec[{extra}]'" if module == "fsspec" else module
    return f"{scheme}:// needs a package: pip install {package}"


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Turn any error into an `OSError` of one line; an `EOFError` passes unchanged."""
    try:
        yield
    except EOFError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such file") from None
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise OSError(str(reason).strip().splitlines()[0]) from None
