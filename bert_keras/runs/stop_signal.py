"""Stop a long run when the system requests it: `StopSignal`.

A scheduler that needs its machine back sends SIGTERM and some seconds later SIGKILL; a
person presses Ctrl-C. In both cases the run saves its state and raises `RunStopped`.

The exit code of the command line is then 75, EX_TEMPFAIL of `<sysexits.h>`: the work is
saved, and the same command resumes. It differs from 130 and 143, the codes of processes
killed by such a signal, so that Slurm's `--requeue`, a job's `podFailurePolicy` or a
loop in a shell can distinguish the two.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

EXIT_CODE = 75
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class RunStopped(Exception):
    """A run has saved its state and ends on request; `by_hand`: by Ctrl-C."""

    def __init__(self, message: str, *, by_hand: bool = False) -> None:
        super().__init__(message)
        self.by_hand = by_hand


class StopSignal:
    """Records SIGTERM and SIGINT in a `with` block; a second one ends the process.

    In threads other than the main one, where Python delivers no signals, it records
    nothing. `vote`, for workers that train together and stop together, takes whether
    this worker got a signal and returns whether any did.

    Example:
        >>> with StopSignal() as stop:
        ...     for step in range(steps):
        ...         update()
        ...         if stop.is_due():
        ...             save()
        ...             stop.leave()
    """

    def __init__(self, vote: Callable[[bool], bool] | None = None) -> None:
        self._vote = vote
        self._name = ""
        self._is_due = False
        self._at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def is_due(self) -> bool:
        """Return whether a signal has come, so that the state should be saved now."""
        self._is_due = (self._vote or bool)(bool(self._name))
        return self._is_due

    def leave(self, last: Callable[[], object] | None = None) -> None:
        """Raise RunStopped if `is_due` has returned true; `last` is called before."""
        if not self._is_due:
            return
        if last is not None:
            last()
        raise self._stopped()

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal raise immediately, in a `with` block.

        For work that is repeated when the run resumes, such as scoring. Workers that
        stop together finish it.
        """
        if self._vote is None:
            self._at_once = True
            if self._name:
                raise self._stopped()
        try:
            yield
        except Exception:
            if self._at_once and self._name:  # Keras copies errors that leave a layer
                raise self._stopped() from None
            raise
        finally:
            self._at_once = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._name:  # a second signal
            self.__exit__()
            signal.raise_signal(number)
            return
        self._name = signal.Signals(number).name
        if self._at_once:
            raise self._stopped()

    def _stopped(self) -> RunStopped:
        by = self._name or "another worker"
        return RunStopped(
            f"stopped by {by}; the work so far is saved", by_hand=by == "SIGINT"
        )
