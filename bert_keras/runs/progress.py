"""The progress of long commands, printed to stderr: `Progress`.

On a terminal progress is shown as a bar, by `rich`; elsewhere as a line each minute,
and at the end of an epoch or a longer job. `set_quiet(True)` silences progress; notes,
such as one about a head with random weights, are still printed.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from bert_keras.errors import counted

_T = TypeVar("_T")
Fields = Callable[[], Sequence[str]]
_SECONDS_BETWEEN_LINES = 60.0
_SHORT = 5.0  # seconds of a job whose end is not reported
_SECONDS_BETWEEN_DRAWS = 0.2  # of a bar
_BAR_WIDTH = 20  # characters
_RECENT = 500  # calls of `add` from which the time left is estimated
_OUTLIER = 10.0  # times the median of these calls

_is_quiet = False


def set_quiet(is_quiet: bool) -> None:
    """Turn progress reports of this process off or on."""
    global _is_quiet
    _is_quiet = is_quiet


def report(line: str) -> None:
    """Print a line of progress to stderr, unless progress is turned off."""
    if not _is_quiet:
        from bert_keras.runs.notes import write  # `--help` needs no notes

        write(line)


def is_watched() -> bool:
    """Return whether progress is shown on a terminal that can redraw."""
    if _is_quiet or sys.stderr is None or os.environ.get("TERM") == "dumb":
        return False
    return sys.stderr.isatty()


def duration(seconds: float) -> str:
    """Return seconds as rounded text: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


_following: list[tuple[Callable[[float], float], bool]] = []


@contextlib.contextmanager
def followed_by(
    seconds: Callable[[float], float], *, may_be_less: bool = False
) -> Iterator[None]:
    """Add the work behind a `with` block to the times left that are shown in it.

    Args:
        seconds: returns the estimated seconds of that work from those that the block
            itself still takes.
        may_be_less: whether they are an upper bound.
    """
    _following.append((seconds, may_be_less))
    try:
        yield
    finally:
        _following.pop()


def in_proportion(ratio: float) -> Callable[[float], float]:
    """Return the `seconds` of work that takes `ratio` times what begins now."""
    begun = time.perf_counter()
    return lambda left: ratio * (time.perf_counter() - begun + left)


class Progress:
    """Reports the progress of a job, its speed and the time left.

    Use it in a `with` block, which removes the bar if the job is interrupted.

    Args:
        name: of the job, such as `scoring dev`.
        unit: what is counted, such as `texts`.
        total: number of units; `None` if unknown, and then no time left is shown.
        done: units that an earlier run completed.
        is_shown: whether anything is printed.
        later: seconds of other work that belongs to the job, such as scoring; included
            in the time left. NaN if unknown: then no time left is shown.
        may_end_early: whether the time left is an upper bound.
        seconds_between_draws: of the bar; longer if its fields are costly.
        has_speed: whether the units per second are shown.

    Attributes:
        done: completed units.

    Example:
        >>> with Progress("reading", unit="files", total=2) as progress:
        ...     for file in files:
        ...         progress.add(1, lambda: [f"{lines:,} lines"])
    """

    def __init__(
        self,
        name: str,
        *,
        unit: str,
        total: int | None = None,
        done: int = 0,
        is_shown: bool = True,
        later: Callable[[], float] = float,
        may_end_early: bool = False,
        seconds_between_draws: float = _SECONDS_BETWEEN_DRAWS,
        has_speed: bool = True,
    ) -> None:
        self.name = name
        self.unit = unit
        self.total = total
        self.done = done
        self.is_shown = is_shown
        self._has_speed = has_speed
        self._later = later
        self._may_end_early = may_end_early
        self._between_draws = seconds_between_draws
        self._before = done
        self._seconds = 0.0  # until the last pause
        self._clock: float | None = time.perf_counter()  # `None` in a pause
        self._last_shown = time.perf_counter()
        self._bar: Any = None
        self._added_at = math.nan  # seconds of work before the last `add`
        # Seconds per unit and units of the last calls of `add`, without the first one.
        self._paces: deque[tuple[float, int]] = deque(maxlen=_RECENT)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    @property
    def seconds(self) -> float:
        """Seconds of work in this process, without pauses."""
        running = 0.0 if self._clock is None else time.perf_counter() - self._clock
        return self._seconds + running

    @property
    def unit_seconds(self) -> float:
        """Mean seconds per unit; 0 before one is completed."""
        made = self.done - self._before
        return self.seconds / made if made else 0.0

    @property
    def typical_seconds(self) -> float:
        """Seconds per unit without outliers; NaN if unknown.

        The mean of the last calls of `add`, without the first one of all, which often
        traces graphs and then takes as long as a hundred others, and without calls that
        are much slower than most, which do so, too. Of the calls that are left the slow
        ones count like the fast ones: otherwise the time left would rise.
        """
        if not self._paces:
            return math.nan
        limit = _OUTLIER * sorted(self._paces)[(len(self._paces) - 1) // 2][0]
        usual = [(pace, count) for pace, count in self._paces if pace <= limit]
        units = sum(count for _, count in usual)
        return sum(pace * count for pace, count in usual) / units

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until job and later work are done, `None` if unknown."""
        if self.total is None:
            return None
        missing = max(self.total - self.done, 0)
        left = (missing * self.typical_seconds if missing else 0.0) + self._later()
        for seconds, _ in reversed(_following):  # from the inner block to the outer one
            left += seconds(left)
        return None if math.isnan(left) else left

    def resume(self) -> None:
        """Start the clock again."""
        if self._clock is None:
            self._clock = time.perf_counter()

    def skip(self, count: int) -> None:
        """Count units that an earlier run completed."""
        self.done += count
        self._before += count

    def add(
        self, count: int = 1, fields: Fields = tuple, *, ends: bool = False
    ) -> None:
        """Count units, and show progress when due, in any case if `ends`.

        `fields` returns further text; it is called only when progress is shown.
        """
        self.done += count
        if count > 0:
            if not math.isnan(self._added_at):
                self._paces.append(((self.seconds - self._added_at) / count, count))
            self._added_at = self.seconds
        if not self.is_shown or _is_quiet:
            return
        waited = time.perf_counter() - self._last_shown
        is_long = self.seconds > _SHORT
        if ends or (count > 0 and self.done == self.total and is_long):
            self._clear()
            self._print(fields)
        elif is_watched():
            if self._bar is None or waited > self._between_draws:
                self._draw(fields)
        elif waited > _SECONDS_BETWEEN_LINES:
            self._print(fields)

    def line(self, fields: Sequence[str] = ()) -> str:
        """Return the progress as one line of text."""
        done = counted(self.done, self.unit)
        if self.total is not None:
            done = f"{self.done:,} of {counted(self.total, self.unit)}"
        speed = [self._speed()] if self._has_speed else []
        return "  ".join([f"{self.name}: {done}", *speed, *fields, *self._left()])

    def _speed(self) -> str:
        rate, per = (1 / self.unit_seconds if self.unit_seconds else 0.0), "s"
        if 0 < rate < 0.1:
            rate, per = 60 * rate, "min"
        shown = f"{rate:,.0f}" if rate >= 1000 else f"{rate:,.1f}"
        return f"{shown} {self.unit}/{per}"

    def close(self) -> None:
        """Stop the clock until `resume`, and remove the bar from the terminal."""
        self._seconds, self._clock = self.seconds, None
        self._clear()

    def _clear(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _left(self) -> list[str]:
        left = self.seconds_left
        is_done = self.done == self.total
        if left is None or (is_done and left < 0.5):
            return []
        may_end_early = self._may_end_early and not is_done
        may_be_less = may_end_early or any(less for _, less in _following)
        at_most = "at most " if may_be_less else ""
        in_all = " in all" if is_done else ""
        return [f"{at_most}{duration(left)} left{in_all}"]

    def _print(self, fields: Fields) -> None:
        report(self.line(fields()))
        self._last_shown = time.perf_counter()

    def _draw(self, fields: Fields) -> None:
        if self._bar is None:
            self._bar = _new_bar(self)
        line = self.line(fields()).removeprefix(f"{self.name}: ")
        self._bar.update(self._bar.task_ids[0], completed=self.done, line=line)
        self._bar.refresh()
        self._last_shown = time.perf_counter()


def _new_bar(progress: Progress) -> Any:
    """Return a running bar of `rich`, refreshed when called: it has no thread."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(_BAR_WIDTH),
        TextColumn("{task.fields[line]}", markup=False),
        console=Console(stderr=True, highlight=False),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # otherwise answers would go to stderr
    )
    bars.add_task(progress.name, total=progress.total, line="")
    bars.start()
    return bars


def every_few_seconds(items: Iterable[_T], line: Callable[[], str]) -> Iterator[_T]:
    """Yield the items, and report their number, with a line about them."""
    with Progress("reading", unit="documents") as progress:
        for item in items:
            progress.add(fields=lambda: [line()])
            yield item
