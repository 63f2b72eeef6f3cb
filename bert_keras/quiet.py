"""TensorFlow, loaded without its notes about the machine: `load_tensorflow`."""

from __future__ import annotations

import os
import sys


def load_tensorflow() -> None:
    """Import TensorFlow and its text ops in silence; an error is raised as ever.

    The notes would drown the one line that tells a user what is wrong, and no setting
    turns all of them off: some are printed before the libraries read any.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" in sys.modules:
        return
    watched = sys.stderr is not None and sys.stderr.isatty()
    if watched:
        print("loading TensorFlow …", end="\r", file=sys.stderr, flush=True)
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import tensorflow_text  # noqa: F401
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
        if watched:
            print(end="\033[K", file=sys.stderr, flush=True)
