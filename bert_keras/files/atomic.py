"""A folder that is written whole or not at all: `replaced_folder`.

The new folder is made beside the old one, and then they change places in one step, so
that a run that is killed, at any moment, leaves the old folder or the new one.
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
    """Give a path beside `path` to write to; it takes its place when all went well.

    Raises:
        OSError: the disk refuses; what stood at `path` stands as it did.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


CONFIG = "config.json"  # without which a folder is no model
# What a model folder of ours holds; a folder with anything else is never replaced.
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
# What a kernel or a file system says that cannot exchange two folders.
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


@contextlib.contextmanager
def replaced_folder(
    folder: str | os.PathLike[str],
    *,
    files: frozenset[str] = FILES,
    needed: str = CONFIG,
) -> Iterator[Path]:
    """Give a new folder beside `folder`; it takes its place when all went well.

    Args:
        folder: absent, empty, or to be replaced.
        files: what may stand in a folder that is replaced, by relative path.
        needed: the one of them that must stand there.

    Raises:
        CheckpointError: `folder` is a file or holds something else than a model, or
            the disk refuses. The old folder stands as it did.
    """
    check_path("folder", folder)
    target = Path(os.path.realpath(folder))  # what a link points to, not the link
    check_replaceable(target, files=files, needed=needed)
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
        check_replaceable(target, files=files, needed=needed)  # writing took a while
        _swap(new, target)
    except CheckpointError as error:
        # The new folder has a name that the user never gave.
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
            f"{target}: must be a new folder or a model folder; holds other files "
            f"({', '.join((others or sorted(found))[:3])})"
        )


def _entries(target: Path, files: frozenset[str]) -> Iterator[Path]:
    """Yield what stands in a folder, and what in the folders that may be in it."""
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
    """Put `new` in the place of `target`; an old target ends up elsewhere, deleted."""
    if not target.exists():
        new.rename(target)
    elif not _exchange(new, target):
        # Where folders cannot be exchanged there is a moment without any.
        old = new.with_name(f"{new.name}-old")
        target.rename(old)
        try:
            new.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Let two folders change names in one step; says if the system can."""
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
