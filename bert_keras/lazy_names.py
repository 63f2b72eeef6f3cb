"""Public names that are imported on first use: `attach_names`.

Their first use may import TensorFlow, which is as quiet as `TF_CPP_MIN_LOG_LEVEL` says.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from lazy_loader import attach_stub

# The letters of messages that a level drops.
_DROPPED = {"1": "I", "2": "IW", "3": "IWE"}
_NOTE = "WARNING: All log messages before absl::InitializeLog"
_MORE = "To enable the following instructions"  # the second line of a message


def attach_names(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package with a stub file."""
    find, names, public = attach_stub(package, file)

    def find_quietly(name: str) -> Any:
        with quiet_imports():
            return find(name)

    return find_quietly, names, public


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Drop what TensorFlow prints below `TF_CPP_MIN_LOG_LEVEL` while it is imported.

    Some lines ignore the level, as they are printed before the libraries read it. All
    other lines on stderr are kept, and appear at the end. Nothing is dropped where the
    level is 0 or not set.
    """
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
    if level not in _DROPPED or "tensorflow_text" in sys.modules:
        yield
        return
    import tempfile  # takes 10 ms, which `--help` does not need

    letters = _DROPPED[level]
    date = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: "
    dropped = rf"[{letters}]\d{{4}} \d\d:\d\d:|{date}[{letters}] |{_NOTE}|{_MORE}"
    kept = os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            printed.seek(0)
            for line in printed:
                if not re.match(dropped.encode(), line):
                    os.write(2, line)
