"""The versions and the hardware of a run, to report with each result."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from bert_keras.runs.progress import is_watched


def load_tensorflow() -> None:
    """Import TensorFlow and its text ops silently; errors are still raised.

    Their messages would bury the line that tells a user what is wrong, and no setting
    disables all of them: some are printed before the libraries read any.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" in sys.modules:
        return
    watched = is_watched()
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


_PACKAGES = (
    "bert_keras",
    "tensorflow",
    "tensorflow-text",
    "keras",
    "keras-hub",
    "numpy",
)


def environment() -> dict[str, str]:
    """Return the versions of the computing packages, and the machine."""
    facts = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            facts[package] = "not installed"
    facts["system"] = f"{platform.system()} {platform.machine()}"
    facts["processor"] = f"{_processor()}, {os.cpu_count()} cores"
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or "unknown"
