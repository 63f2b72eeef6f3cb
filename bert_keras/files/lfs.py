"""Git LFS: a clone without it has pointers, small text files, in place of large files.

Format: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md.
"""

from __future__ import annotations

import os

from bert_keras.errors import BertKerasError, CheckpointError

POINTER = b"version https://git-lfs.github.com/spec/"
REMEDY = (
    "a pointer of Git LFS, not the file itself: run `git lfs pull` in its repository"
)


def check_no_pointer(
    path: str | os.PathLike[str], *, error: type[BertKerasError] = CheckpointError
) -> None:
    """Raise `error` if a local file is a pointer of Git LFS.

    A file that cannot be read passes: its reader reports why.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(len(POINTER))
    except (OSError, ValueError):
        return
    if start == POINTER:
        raise error(f"{os.fspath(path)}: is {REMEDY}")
