"""The run folder of a worker that writes nothing: `SilentRun`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class SilentRun:
    """Stands in the place of a `RunFolder` where another worker, the chief, writes.

    Nothing is read either, so that the folder may lie on the chief's own disk: what a
    run goes on from comes from the chief, see `replicas.take_from_first`.

    Args:
        path: the folder of the run.
    """

    steps: tuple[int, ...] = ()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __enter__(self) -> SilentRun:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        pass

    def save(self, step: int, write: Callable[[Path], object], *, keep: int) -> None:
        """Do nothing."""

    def put(self, name: str, write: Callable[[Path], object]) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Return at once."""

    def finish(self, seconds: float) -> None:
        """Return at once."""

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Do nothing."""

    def add_note(self, name: str, values: Mapping[str, Any]) -> None:
        """Do nothing."""

    def rows(
        self, last_step: int, wanted: Callable[[Mapping[str, Any]], bool] = bool
    ) -> list[dict[str, Any]]:
        """Return no rows."""
        return []
