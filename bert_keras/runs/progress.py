"""Lines about a run, apart from what a command answers: `say`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")
_SECONDS_BETWEEN_LINES = 5.0  # where no one can see a line change in place


def say(line: str) -> None:
    """Print a line about the run, apart from what a command answers on stdout."""
    print(line, file=sys.stderr, flush=True)


def every_few_seconds(items: Iterable[_T], line: Callable[[], str]) -> Iterator[_T]:
    """Yield the items, and say a line about them every five seconds."""
    last = time.perf_counter()
    for item in items:
        now = time.perf_counter()
        if now - last > _SECONDS_BETWEEN_LINES:
            say(line())
            last = now
        yield item
