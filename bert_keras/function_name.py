"""What tells one function from another from run to run: `name_of`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, with what `functools.partial` gave it."""
    if isinstance(function, functools.partial):
        given = [*map(repr, function.args)]
        given += [
            f"{key}={value!r}" for key, value in sorted(function.keywords.items())
        ]
        return f"{name_of(function.func)}({', '.join(given)})"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', 'builtins')}.{named.__qualname__}"
