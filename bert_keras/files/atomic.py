"""Atomic outputs, which must not overwrite an input.

A new folder is created next to the old one and takes its place in one step, so that a
reader finds, and a killed run leaves, either the old folder or the new one at any
moment.

A folder that is being written holds a locked file. The kernel releases the lock of a
process that ends, for whatever reason, so a folder with a free lock belongs to no
process and the next writer removes it. Folders without a lock file are left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_keras.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    reason_of,
    received,
)


def check_path(name: str, path: str | os.PathLike[str]) -> None:
    """Raise ConfigError unless a value is a non-empty path."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigError(f"`{name}` must be a path; {received(path)}")


def check_output_place(
    name: str,
    output: str | os.PathLike[str],
    inputs: Mapping[str, Any],
    *,
    around: bool = False,
    inside: bool = False,
) -> None:
    """Raise if an output would overwrite an input or mix with it.

    The output must not be an input (even through links), contain an input, or
    already exist inside an input's folder.

    Args:
        name: the output's argument, for errors.
        output: the file or folder to write; need not exist.
        inputs: argument to its value or values. Values that are not local paths, such
            as a hub name or a model in memory, are ignored.
        around: whether the output may be a folder that contains an input, since other
            files in it stay.
        inside: whether all of an input's folder is read, so that even a new output in
            it would be an input of the next run.

    Raises:
        ConfigError: the output is in such a place, or empty.
    """
    check_path(name, output)
    if "://" in os.fspath(output):
        return
    target = Path(os.path.realpath(output))
    for argument, value in inputs.items():
        for path in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(path, str | os.PathLike) or "://" in os.fspath(path):
                continue
            source = Path(os.path.realpath(path))
            relation = ""
            if _is_same(target, source):
                relation = "is the same place"
            elif not around and any(_is_same(target, up) for up in source.parents):
                relation = "holds it"
            elif inside or target.exists():
                if any(_is_same(source, up) for up in target.parents):
                    relation = "is inside it"
            if relation and os.fspath(path):
                raise ConfigError(
                    f"`{name}` must be a different place from `{argument}`, "
                    f"{os.fspath(path)}; received {os.fspath(output)}, which {relation}"
                )


def _is_same(first: Path, second: Path) -> bool:
    """Return whether two paths are the same place, even if nothing exists there."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return first == second


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], *others: type[Exception]) -> Iterator[None]:
    """Raise a DataError if the block cannot write a file: an OSError, or `others`."""
    errors: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except errors as error:
        raise DataError(f"cannot be written: {reason_of(error)}", path=path) from None


LOCK = ".writing"


@contextlib.contextmanager
def new_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder, locked while it is written; it is removed at the end.

    Folders of the same prefix left by killed processes are removed first. The lock
    file is next to the folder, not in it.
    """
    import tempfile  # takes 3 ms, which an answer does not need

    _clear(parent, prefix)
    with _held(lambda: tempfile.mkstemp(LOCK, prefix, parent)) as lock:
        new = lock.with_name(lock.name.removesuffix(LOCK))
        new.mkdir(0o700)
        try:
            yield new
        finally:
            shutil.rmtree(new, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _lock(handle: int, *, waits: bool = True) -> None:
    """Lock an open file for this process, but not on Windows, which has no `flock`.

    Raises:
        BlockingIOError: another process holds it and we do not wait, or, on Windows,
            may hold it: what a killed process left is not removed there.
    """
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    elif not waits:
        raise BlockingIOError


@contextlib.contextmanager
def _held(create: Callable[[], tuple[int, Any]]) -> Iterator[Path]:
    """Yield a new file; hold its lock, where the file system has locks.

    `create` returns its handle, which is closed at the end, and its path.
    """
    while True:
        handle, path = create()
        if sys.platform == "win32":  # where an open file cannot be moved
            os.close(handle)
            yield Path(path)
            return
        try:
            with contextlib.suppress(OSError):
                _lock(handle)
            if os.fstat(handle).st_nlink:  # nobody removed it before it was locked
                yield Path(path)
                return
        finally:
            os.close(handle)


def _clear(parent: Path, prefix: str) -> None:
    """Remove the folders of this prefix whose writers are gone."""
    for lock in parent.glob(f"{glob.escape(prefix)}*{LOCK}"):
        with contextlib.suppress(OSError), locked_file(lock):
            shutil.rmtree(lock.with_name(lock.name.removesuffix(LOCK)), True)


@contextlib.contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold a lock file, which one process at a time can; it is removed at the end.

    Raises:
        BlockingIOError: another process holds it.
    """
    with open(path, "w") as file:
        _lock(file.fileno(), waits=False)
        if not os.fstat(file.fileno()).st_nlink:  # its holder has just removed it
            raise BlockingIOError
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def sync(*paths: Path) -> None:
    """Wait until files and folders are written to disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; on success it is renamed to `path`.

    An old file stays unchanged if writing fails. The temporary file exists and is
    locked meanwhile; those that killed processes left for `path` are removed first.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        with contextlib.suppress(OSError), open(left, "rb") as file:
            _lock(file.fileno(), waits=False)
            left.unlink()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    flags = os.O_CREAT | os.O_WRONLY
    with _held(lambda: (os.open(temporary, flags, 0o666), temporary)):
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


CONFIG = "config.json"  # required for a folder to be a model
CARD = "README.md"
NEW_TOKENS = "new_tokens.txt"  # the words that `vocab --extend` has added
# The files of a model folder; a folder with any other file is never replaced.
_OF_A_LAYER = (CONFIG, "model.safetensors")
_MODULES = ("Pooling", "MultiVectorMask", "Normalize")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
DESCRIPTION = frozenset(  # all but the weights, and what reports on a training
    (
        CONFIG,
        *_TOKENIZER,  # tokenizer.json where vocab.txt cannot hold the tokenizer
        # For sentence-transformers.
        *(f"{n}_{name}/{CONFIG}" for n in range(1, 6) for name in _MODULES),
        f"1_SpladePooling/{CONFIG}",
        *(f"{n}_Dense/{name}" for n in range(1, 6) for name in _OF_A_LAYER),
        "config_sentence_transformers.json",
        "modules.json",
        "sentence_bert_config.json",
    )
)
FILES = DESCRIPTION | {
    CARD,
    "doubtful_labels.csv",
    "model.safetensors",
    "report.html",
    "comparison.json",
    "scores.json",
    NEW_TOKENS,
    "target_vocab.txt",  # of a decoder, where it has its own
    *(f"generator/{name}" for name in (*_OF_A_LAYER, *_TOKENIZER)),  # of an ELECTRA
}
_AT_FDCWD = -100  # of Linux's <fcntl.h>
_RENAME_EXCHANGE = 2
# Errors of kernels and file systems that cannot exchange two folders.
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


@contextlib.contextmanager
def replaced_folder(
    folder: str | os.PathLike[str],
    *,
    files: frozenset[str] = FILES,
    needed: str = CONFIG,
    kind: str = "a model folder",
) -> Iterator[Path]:
    """Yield a new folder next to `folder`; on success it replaces `folder`.

    Args:
        folder: absent, empty, or to be replaced.
        files: the files that a replaceable folder may hold, by relative path.
        needed: the file that it must hold.
        kind: the kind of folder, for error messages.

    Raises:
        CheckpointError: `folder` is a file or holds other files, or the new folder
            cannot be written. The old folder is unchanged.
    """
    check_path("folder", folder)
    target = Path(os.path.realpath(folder))  # the target of a link, not the link
    check_replaceable(target, files=files, needed=needed, kind=kind)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(target.parent, f".{target.name}-") as new:
            yield new
            new.chmod(0o755)
            # Check again, since writing took a while.
            check_replaceable(target, files=files, needed=needed, kind=kind)
            _swap(new, target)
    except CheckpointError as error:
        # The user did not choose the new folder's name.
        error.args = (str(error).replace(str(new), str(target)),)
        raise
    except OSError as error:
        raise CheckpointError(
            f"{target}: cannot be written: {reason_of(error)}"
        ) from None


def check_replaceable(
    folder: str | os.PathLike[str],
    *,
    files: frozenset[str] = FILES,
    needed: str = CONFIG,
    kind: str = "a model folder",
) -> None:
    """Raise unless a folder is absent, empty or holds only a model.

    Arguments and errors as in `replaced_folder`.
    """
    target = Path(folder)
    try:
        if not target.is_dir():
            # A file, or links in a circle.
            if os.path.lexists(os.path.realpath(target)):
                raise CheckpointError(f"{target}: must be a folder; is a file")
            return
        found = {str(path.relative_to(target)) for path in _entries(target, files)}
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be read: {error.strerror}") from None
    others = sorted(found - files)
    if others or (found and needed not in found):
        raise CheckpointError(
            f"{target}: must be a new folder or {kind}; holds other files "
            f"({', '.join((others or sorted(found))[:3])})"
        )


def _entries(target: Path, files: frozenset[str]) -> Iterator[Path]:
    """Yield the entries of a folder and of its allowed subfolders."""
    inner = {parent for name in files for parent in Path(name).parents}
    waiting = [target]
    while waiting:
        for entry in waiting.pop().iterdir():
            known = entry.relative_to(target) in inner and not entry.is_symlink()
            if known and entry.is_dir():
                waiting.append(entry)
            else:
                yield entry


def _swap(new: Path, target: Path) -> None:
    """Rename `new` to `target`; an old target is deleted."""
    if not target.exists():
        new.rename(target)
    elif not _exchange(new, target):
        # Without an exchange there is a moment without a folder.
        old = new.with_name(f"{new.name}-old")
        target.rename(old)
        try:
            new.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders; returns false if the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # not Linux, or an old C library
        return False
    names = os.fsencode(first), os.fsencode(second)
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number))
