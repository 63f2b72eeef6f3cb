"""Notes: lines that tell the user what was guessed, truncated or not used.

`say` prints a note to stderr, and the `collected` blocks around it keep it. Results
hold their notes, so that a program reads what a user of the command line sees.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator
from typing import NamedTuple


class _Block(NamedTuple):
    """A `collected` block: its notes, and whether they are shown."""

    notes: list[str]
    shown: bool


# From the outer block to the inner one.
_blocks: contextvars.ContextVar[tuple[_Block, ...]]
_blocks = contextvars.ContextVar("blocks", default=())
_printed: set[str] = set()  # by `say_once`


@contextlib.contextmanager
def collected(*, shown: bool = True) -> Iterator[list[str]]:
    """Collect the notes of a `with` block, or of a function as its decorator.

    Blocks nest. A note goes to the inner block and on to the outer ones, and is printed
    once in all of them. With `shown=False` it goes no further, as in an estimate, whose
    notes the run itself will say; only if the block raises are they passed on. Notes of
    other threads are printed, and not collected.

    Example:
        >>> with collected(shown=False) as notes:
        ...     say("2 of 9 texts are truncated")
        >>> notes
        ['2 of 9 texts are truncated']
    """
    block = _Block([], shown)
    token = _blocks.set((*_blocks.get(), block))
    failed = True
    try:
        yield block.notes
        failed = False
    finally:
        _blocks.reset(token)
        if failed and not shown:
            for note in block.notes:
                say(note)


@contextlib.contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Put a prefix, such as a path, before the notes of a `with` block."""
    with collected(shown=False) as notes:
        yield
    for note in notes:
        say(f"{prefix}{note}")


def notes_so_far() -> tuple[str, ...]:
    """Return the notes of the inner `collected` block."""
    return tuple(_blocks.get()[-1].notes) if _blocks.get() else ()


def say(note: str) -> None:
    """Print a note to stderr, where answers are not, and collect it."""
    if _is_new(note):
        write(note)


def say_once(note: str) -> None:
    """Collect a note, and print it unless this process has printed it before."""
    if _is_new(note) and note not in _printed:
        _printed.add(note)
        write(note)


def _is_new(note: str) -> bool:
    """Collect a note; return whether it is to be printed."""
    is_new = True
    for block in reversed(_blocks.get()):
        is_new = note not in block.notes
        if is_new:
            block.notes.append(note)
        if not block.shown:
            return False
    return is_new


def show(line: str) -> None:
    """Print a line that is no note, such as one of a table, where notes are shown."""
    if all(block.shown for block in _blocks.get()):
        write(line)


def write(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr, flush=True)
