"""What is imported on first use: public names, and what only graphs need.

`attach_names` is for the names of a package, `deferred` for the modules that a module
uses inside of functions: settings, rows and scores of a task need no Keras. The first
use may import TensorFlow, which is as quiet as `TF_CPP_MIN_LOG_LEVEL` says.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from lazy_loader import attach_stub

from bert_keras.errors import ConfigError, install_line

# The letters of messages that a level drops.
_DROPPED = {"1": "I", "2": "IW", "3": "IWE"}
_TENSORFLOW = ("tensorflow", "tensorflow_text", "keras", "keras_hub")
# What bert_keras requires, and bert_keras-runtime does not.
_LEFT_OUT = (
    *_TENSORFLOW,
    *("pyarrow", "jinja2", "markupsafe", "rich", "yaml", "google_crc32c"),
    *("huggingface_hub", "fsspec", "typing_extensions"),
)
_NOTE = "WARNING: All log messages before absl::InitializeLog"
_MORE = "To enable the following instructions"  # the second line of a message


def attach_names(
    package: str, file: str, moved: Mapping[str, str] = {}
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package with a stub file.

    Args:
        package: the name of the package.
        file: its `__init__.py`.
        moved: names that were public in it, with their packages of today.
    """
    find, names, public = attach_stub(package, file)

    def find_quietly(name: str) -> Any:
        with quiet_imports(), requirements():
            if name not in moved:
                return find(name)
            warnings.warn(
                f"{package}.{name} is now {moved[name]}.{name}",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(importlib.import_module(moved[name]), name)

    return find_quietly, names, public


class _Deferred(types.ModuleType):
    """A module that is imported when a name of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        found = sys.modules.get(self.__name__)
        if found is None:
            with quiet_imports(), requirements():
                found = importlib.import_module(self.__name__)
        return getattr(found, name)


def deferred(*names: str) -> Iterator[Any]:
    """Yield modules that are imported on first use.

    For type checkers they are imported `if TYPE_CHECKING`.

    Example:
        >>> keras, tf = deferred("keras", "tensorflow")
    """
    return map(_Deferred, names)


@contextlib.contextmanager
def requirements() -> Iterator[None]:
    """Raise a ConfigError if an import within needs what bert_keras-runtime lacks."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _LEFT_OUT:
            raise
        needed = f"the package {name}: "
        if name in _TENSORFLOW:
            needed = f"TensorFlow, and {error.name} is not installed: "
        raise ConfigError(f"this needs {needed}{install_line()}") from None


_Class = TypeVar("_Class", bound=type)
_WAITING: list[type] = []


def serializable(cls: _Class) -> _Class:
    """Register a class of this package with Keras, as soon as Keras is imported."""
    _WAITING.append(cls)
    if "keras" in sys.modules:
        register_with_keras()
    return cls


def register_with_keras() -> None:
    """Register the `serializable` classes: a model that holds one imports this."""
    import keras

    while _WAITING:
        keras.saving.register_keras_serializable(package="bert_keras")(_WAITING.pop())


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
