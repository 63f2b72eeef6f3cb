"""A file that is written whole or not at all: `written_beside`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


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
