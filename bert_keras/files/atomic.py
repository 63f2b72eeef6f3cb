"""A folder that is written whole or not at all: `replaced_folder`.

The new folder is created beside the old one and takes its place in one step, so that a
reader finds, and a killed run leaves, the old folder or the new one at any moment.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bert_keras.errors import CheckpointError, reason_of
from bert_keras.files.places import check_path
from bert_keras.files.unfinished import new_folder


@contextlib.contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; without an error it is renamed to `path`.

    Raises:
        OSError: the file cannot be written; an old file is unchanged.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


CONFIG = "config.json"  # without which a folder is no model
# The files of a model folder; a folder with any other file is never replaced.
FILES = frozenset(
    (
        CONFIG,
        "model.safetensors",
        "report.html",
        "scores.json",
        "tokenizer_config.json",
        "vocab.txt",
        # Of sentence-transformers.
        "1_Pooling/config.json",
        "config_sentence_transformers.json",
        "modules.json",
        "sentence_bert_config.json",
    )
)
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
    """Yield a new folder beside `folder`; without an error it replaces `folder`.

    Args:
        folder: absent, empty, or to be replaced.
        files: the files that a folder may hold to be replaced, by relative path.
        needed: the one of them that it must hold.
        kind: what such a folder is, for errors.

    Raises:
        CheckpointError: `folder` is a file or holds other files, or the new folder
            cannot be written. The old folder is unchanged.
    """
    check_path("folder", folder)
    target = Path(os.path.realpath(folder))  # what a link points to, not the link
    check_replaceable(target, files=files, needed=needed, kind=kind)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        stack = contextlib.ExitStack()
        new = stack.enter_context(new_folder(target.parent, f".{target.name}-"))
    except OSError as error:
        raise CheckpointError(
            f"{target}: cannot be written: {reason_of(error)}"
        ) from None
    try:
        yield new
        new.chmod(0o755)
        # Once more, since writing took a while.
        check_replaceable(target, files=files, needed=needed, kind=kind)
        _swap(new, target)
    except CheckpointError as error:
        # The user did not choose the new folder's name.
        error.args = (str(error).replace(str(new), str(target)),)
        raise
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{target}: cannot be written: {reason}") from None
    finally:
        stack.close()


def check_replaceable(
    folder: str | os.PathLike[str],
    *,
    files: frozenset[str] = FILES,
    needed: str = CONFIG,
    kind: str = "a model folder",
) -> None:
    """Raise unless a folder is absent, empty or holds a model and nothing else.

    Arguments and errors as in `replaced_folder`.
    """
    target = Path(folder)
    try:
        if not target.is_dir():
            if target.exists():
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
    """Yield the entries of a folder and of the subfolders that it may have."""
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
