"""Folders that are being written, and those that killed processes left: `new_folder`.

The kernel releases the lock of a process that ends, however it ends, so a folder with a
free lock belongs to no process. Folders without a lock file are left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK = ".writing"


@contextlib.contextmanager
def new_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder, locked while it is written; it is removed at the end.

    Folders of the same prefix that killed processes left are removed first. The lock
    file lies beside the folder, not in it.

    Raises:
        OSError: the folder cannot be created.
    """
    _clear(parent, prefix)
    with _locked(parent, prefix) as lock:
        new = lock.with_name(lock.name.removesuffix(LOCK))
        new.mkdir(0o700)
        try:
            yield new
        finally:
            shutil.rmtree(new, ignore_errors=True)
            lock.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new lock file that this process holds."""
    while True:
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=LOCK, dir=parent)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:  # nobody has cleared it before it was locked
                yield Path(name)
                return
        finally:
            os.close(handle)


def _clear(parent: Path, prefix: str) -> None:
    """Remove the folders of this prefix whose writers are gone."""
    for lock in parent.glob(f"{glob.escape(prefix)}*{LOCK}"):
        with contextlib.suppress(OSError), open(lock, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_nlink:  # its writer has not just removed it
                shutil.rmtree(lock.with_name(lock.name.removesuffix(LOCK)), True)
                lock.unlink(missing_ok=True)
