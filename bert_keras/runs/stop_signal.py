"""Leaving a long run when the system asks for it: `StopSignal`.

A scheduler that wants its machine back sends SIGTERM and some seconds later SIGKILL; a
person presses Ctrl-C. Either way the run saves what it has and raises `RunStopped`.

The exit code of the command line is then 75, EX_TEMPFAIL of `<sysexits.h>`: the work is
saved, the same command resumes. It is none of 130 and 143, with which a process ends
that such a signal has killed, saved or not; so Slurm's `--requeue`, a job's
`podFailurePolicy` or a loop in a shell can tell the two apart.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

EXIT_CODE = 75
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class RunStopped(Exception):
    """A run has saved its state and ends because it was asked to."""


class StopSignal:
    """Notes SIGTERM and SIGINT within a `with` block; a second one ends at once.

    In another thread than the main one, where Python delivers no signals, it notes
    nothing.

    Args:
        vote: of workers that train together, and leave together: says of whether a
            signal has come to this one whether it has to any. `None` of one alone.

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
        self._told = False
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
        """Say whether a signal has come, so that what is to be kept is saved now."""
        self._told = (self._vote or bool)(bool(self._name))
        return self._told

    def leave(self, last: Callable[[], object] | None = None) -> None:
        """Raise where `is_due` has said so; `last` is called before.

        Raises:
            RunStopped: names the signal.
        """
        if not self._told:
            return
        if last is not None:
            last()
        raise self._stopped()

    def at_once(self) -> _AtOnce:
        """Return a context in which a signal raises where the program stands.

        It is for work that is repeated when the run resumes, such as scores. Workers
        that leave together finish it.
        """
        return _AtOnce(self)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._name:  # someone is in a hurry
            self.__exit__()
            signal.raise_signal(number)
            return
        self._name = signal.Signals(number).name
        if self._at_once:
            raise self._stopped()

    def _stopped(self) -> RunStopped:
        by = self._name or "another worker"
        return RunStopped(f"stopped by {by}; what was done is saved")


class _AtOnce:
    def __init__(self, stop: StopSignal) -> None:
        self.stop = stop

    def __enter__(self) -> None:
        if self.stop._vote is not None:
            return
        self.stop._at_once = True
        if self.stop._name:
            raise self.stop._stopped()

    def __exit__(self, *_: Any) -> None:
        self.stop._at_once = False
