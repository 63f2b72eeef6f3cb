"""The clock of a run with a budget of time: `Clock`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from bert_keras.errors import CheckpointError

FILE = "budget.json"  # in a checkpoint


class Clock:
    """The time of a run: what this process and earlier ones have spent of a budget.

    Args:
        total: seconds of the budget. It begins now.
    """

    now = staticmethod(time.monotonic)  # a benchmark counts time of the processor

    def __init__(self, total: float) -> None:
        self.total, self._begun = total, self.now()
        self._before = 0.0  # of earlier processes, until the last checkpoint
        self._trained_from: float | None = None  # seconds before the first update

    @property
    def spent(self) -> float:
        """Seconds of the run."""
        return self._before + self.now() - self._begun

    @property
    def left(self) -> float:
        """Seconds until the budget ends, at least 0."""
        return max(self.total - self.spent, 0.0)

    @property
    def trained(self) -> float:
        """Seconds since the first update."""
        return 0.0 if self._trained_from is None else self.spent - self._trained_from

    @property
    def share(self) -> float:
        """Share of the time of training that has passed, 0 to 1."""
        whole = self.trained + self.left
        return min(self.trained / whole, 1.0) if whole > 0 else 1.0

    def start(self) -> None:
        """Note that training starts, unless it has started before."""
        if self._trained_from is None:
            self._trained_from = self.spent

    def checkpoint(self) -> Callable[[Path], object]:
        """Return a function that writes the time of now into a folder."""
        text = json.dumps({"seconds": self.spent, "trained_from": self._trained_from})
        return lambda folder: (folder / FILE).write_text(text, encoding="utf-8")

    def restore(self, folder: Path) -> None:
        """Go on with the time that was left at a checkpoint.

        Raises:
            CheckpointError: it is broken.
        """
        try:
            state = json.loads((folder / FILE).read_text(encoding="utf-8"))
            self._before = float(state["seconds"])
            self._trained_from = float(state["trained_from"])
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{folder / FILE}: broken or missing") from None
