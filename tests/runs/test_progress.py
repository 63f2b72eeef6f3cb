"""`Progress`: a bar on a terminal, lines in a pipe, nothing when quiet."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT, Clock

from bert_keras.runs.notes import say
from bert_keras.runs.progress import (
    Progress,
    duration,
    followed_by,
    in_proportion,
    report,
    set_quiet,
)


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    yield
    set_quiet(False)


def work(clock: Clock, pace: float = 2.0, **settings: Any) -> Progress:
    """Do 10 texts, each in as many seconds."""
    with Progress("reading", unit="texts", **settings) as shown:
        for number in range(10):
            clock.now += pace
            shown.add(1, lambda number=number: [f"number {number}"])
    return shown


def test_a_pipe_gets_a_line_each_minute_and_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    work(clock, pace=24.0, total=10, later=lambda: 3.0).add(0)
    assert capsys.readouterr().err.splitlines() == [
        "reading: 3 of 10 texts  2.5 texts/min  number 2  3 min left",
        "reading: 6 of 10 texts  2.5 texts/min  number 5  2 min left",
        "reading: 9 of 10 texts  2.5 texts/min  number 8  27 s left",
        "reading: 10 of 10 texts  2.5 texts/min  number 9  3 s left in all",
    ]
    work(clock)
    assert capsys.readouterr().err == ""  # of unknown length
    work(clock, total=10)
    assert capsys.readouterr().err.count("\n") == 1
    work(clock, pace=0.4, total=10)
    assert capsys.readouterr().err == ""
    assert (
        Progress("reading", unit="texts", total=1)
        .line()
        .startswith("reading: 0 of 1 text  ")
    )


def test_earlier_runs_and_pauses_do_not_count_in_the_rate(
    clock: Clock,
) -> None:
    shown = Progress("reading", unit="texts", total=30, done=10, is_shown=False)
    for _ in range(2):
        clock.now += 2.0
        shown.add(1)
    shown.skip(8)
    shown.close()
    clock.now += 100.0
    shown.resume()
    assert (shown.done, shown.unit_seconds, shown.seconds_left) == (20, 2.0, 20.0)
    assert shown.line() == "reading: 20 of 30 texts  0.5 texts/s  20 s left"


def test_a_slow_first_step_does_not_count_in_the_time_left(clock: Clock) -> None:
    """With 230 s of work to do, 6,646 s were told."""
    shown = Progress("training", unit="steps", total=230, is_shown=False)
    clock.now += 29.0  # traces graphs
    shown.add(1)
    assert shown.seconds_left is None and "left" not in shown.line()
    for _ in range(9):
        clock.now += 1.0
        shown.add(1)
    assert shown.seconds_left == pytest.approx(220.0)
    clock.now += 20.0  # traces another shape
    shown.add(1)
    for _ in range(9):
        clock.now += 1.0
        shown.add(1)
    assert shown.seconds_left == pytest.approx(210.0)
    unknown = Progress("a", unit="b", total=1, done=1, later=lambda: float("nan"))
    assert unknown.seconds_left is None


def test_the_time_left_does_not_rise_by_itself(clock: Clock) -> None:
    """It has: of the first calls the slower ones did not count, nor old ones later."""
    shown = Progress("training", unit="steps", total=2000, is_shown=False)
    left = []
    for number in range(1000):
        # Texts are read by length: the long ones first, and then the next window.
        clock.now += 2.0 if number % 100 < 20 else 0.5
        shown.add(1)
        left.append(shown.seconds_left)
    assert left[1] == 1998 * 2.0  # the first call is of unknown length
    ends = left[99::100]
    assert ends == pytest.approx([0.8 * (1900 - n) for n in range(0, 1000, 100)], 0.02)
    assert left[100::100] == pytest.approx(ends[:-1], 0.02)


def test_the_time_left_counts_the_work_that_follows(clock: Clock) -> None:
    shown = Progress("fold", unit="steps", total=5, is_shown=False, later=lambda: 1.0)
    for _ in range(3):
        clock.now += 2.0
        shown.add(1)
    assert shown.seconds_left == 5.0
    with followed_by(lambda left: 3 * left):  # three runs as long as this one
        with followed_by(lambda left: 10.0):  # its report
            assert shown.seconds_left == 60.0
        with followed_by(lambda left: float("nan")):
            assert shown.seconds_left is None
    with followed_by(in_proportion(0.5), may_be_less=True):
        assert shown.seconds_left == 7.5
        clock.now += 2.0
        shown.add(1)
        assert shown.seconds_left == 3.0 + 0.5 * 5.0
        assert shown.line().endswith("  at most 6 s left")  # 5.5
    assert shown.seconds_left == 3.0


def test_durations() -> None:
    assert [*map(duration, (0.2, 89, 90, 5000, 5400, 1e5))] == [
        *("0 s", "89 s", "2 min", "83 min", "1.5 h", "27.8 h")
    ]


def test_quiet_leaves_notes_alone(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    set_quiet(True)
    work(clock, total=10)
    report("a line of progress")
    say("a note")
    assert capsys.readouterr().err == "a note\n"


def test_another_worker_shows_nothing(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert work(clock, total=10, is_shown=False).done == 10
    assert capsys.readouterr().err == ""


_ON_A_TERMINAL = """
import sys
from bert_keras.runs.notes import say
from bert_keras.runs.progress import Progress
with Progress("reading [x]", unit="texts", total=4, seconds_between_draws=0) as shown:
    for number in range(4):
        shown.add(1, lambda: ["loss 0.5"])
        if number == 1:
            say("a note")
            print("an answer")
print("an error", file=sys.stderr)
"""


def test_a_terminal_gets_a_transient_bar() -> None:
    main, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _ON_A_TERMINAL],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        check=True,
    )
    os.close(terminal)
    written = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    os.close(main)
    assert done.stdout == "an answer\n"
    shown = written.decode()
    assert re.search(r"reading \[x\] .*1 of 4 texts .* loss 0\.5 .* s left", shown)
    # The last bar is erased before the error, and the cursor is seen again.
    assert "a note\r\n" in shown
    after = shown[shown.rindex("4 of 4 texts") :]
    assert "\x1b[2K" in after and "\x1b[?25h" in after
    assert after.rstrip().endswith("an error")
