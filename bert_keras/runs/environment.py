"""The versions and the hardware of a run, to report with each result."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bert_keras.lazy_names import quiet_imports, requirements
from bert_keras.runs.progress import is_watched


def load_tensorflow() -> None:
    """Import TensorFlow and its text ops, by default silently; errors are raised.

    Their messages would bury the line that tells a user what is wrong.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow_text" in sys.modules:
        return
    import logging

    watched = is_watched()
    if watched:
        print("loading TensorFlow …", end="\r", file=sys.stderr, flush=True)
    try:
        with staying(), quiet_imports(), requirements():
            import tensorflow_text  # noqa: F401
    finally:
        if watched:
            print(end="\033[K", file=sys.stderr, flush=True)
    # It warns of functions that are traced again, as happens with several runs.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


@contextlib.contextmanager
def staying() -> Iterator[None]:
    """Import modules in the block: no garbage collection looks at what stays.

    Collections of TensorFlow's million objects take a quarter of the processor time of
    answering one text; of an engine's modules a tenth, half of it at exit.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


_PACKAGES = "bert_keras tensorflow tensorflow-text keras keras-hub numpy".split()


def environment() -> dict[str, str]:
    """Return the versions of the computing packages, and the machine."""
    import importlib.metadata  # takes 15 ms, which `--help` does not need
    import platform

    facts = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            facts[package] = "not installed"
    facts["system"] = f"{platform.system()} {platform.machine()}"
    processor = _cpuinfo("model name") or platform.processor() or "unknown"
    facts["processor"] = f"{processor}, {os.cpu_count()} cores"
    return facts


# Of a processor, what decides the speed of matrix products; Linux's names.
FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def processor_features() -> dict[str, bool]:
    """Return which of `FEATURES` the processor has; all `False` where unknown."""
    flags = set(_cpuinfo("flags").split())
    return {name: name in flags for name in FEATURES}


@functools.cache
def computes_bfloat16() -> bool:
    """Return whether the processor has instructions for products in bfloat16."""
    features = processor_features()
    return features["avx512_bf16"] or features["amx_bf16"]


def emulates(precision: str) -> bool:
    """Return whether the processor is known to lack the instructions of a precision."""
    is_known = processor_features()["avx2"]
    return precision == "mixed_bfloat16" and is_known and not computes_bfloat16()


def _cpuinfo(name: str) -> str:
    """Return an entry of the first processor in /proc/cpuinfo; empty if absent."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")
