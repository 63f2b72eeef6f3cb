"""KerasHub's `Task`, the base class of `TaskModel`, without the rest of KerasHub.

`import keras_hub` imports all of its models and, for one of its metrics, NLTK. Only its
own code needs them, so the body of the package runs when one of its names is first
read, as in `keras_hub.models`. Importing a submodule works as ever.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import types
from typing import Any

_LOCK = threading.RLock()


class _Deferred(types.ModuleType):
    """A package whose body runs when a name is first read that it lacks."""

    _runs = False

    def __getattr__(self, name: str) -> Any:
        with _LOCK:  # other threads wait; the body itself asks for what it imports
            if type(self) is _Deferred and not self._runs:
                self._runs = True
                try:
                    self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
                    self.__class__ = types.ModuleType  # type: ignore[assignment]
                finally:
                    self._runs = False
        return types.ModuleType.__getattribute__(self, name)


def _defer(package: str) -> None:
    """Let a package that is not imported run its body later."""
    spec = importlib.util.find_spec(package)
    if package not in sys.modules and spec is not None:
        module = importlib.util.module_from_spec(spec)
        module.__class__ = _Deferred
        sys.modules[package] = module


for _package in ("keras_hub", "kagglehub", "kagglesdk"):  # the others: for its presets
    _defer(_package)
try:
    from keras_hub.src.models.task import Task
except ImportError:  # another version of KerasHub
    from keras_hub.models import Task

__all__ = ["Task"]
