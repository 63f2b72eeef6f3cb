"""What a result must carry: the versions and the hardware of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

_PACKAGES = (
    "bert_keras",
    "tensorflow",
    "tensorflow-text",
    "keras",
    "keras-hub",
    "numpy",
)


def environment() -> dict[str, str]:
    """Return versions of the packages that compute, and the machine."""
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
