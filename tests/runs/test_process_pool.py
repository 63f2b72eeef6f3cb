"""Workers: what they cannot be given, and one that is killed."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import refused

from bert_keras.runs.process_pool import map_unordered


def maker(folder: Path) -> Callable[[int], int]:
    return functools.partial(mark_or_die, folder)


def mark_or_die(folder: Path, item: int) -> int:
    """Leave the process's number behind; the first item kills its process."""
    (folder / str(os.getpid())).touch()
    if item == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return item


def test_nothing_to_do_starts_nothing() -> None:
    start = time.perf_counter()
    assert list(map_unordered(functools.partial(maker, Path()), [], workers=2)) == []
    assert time.perf_counter() - start < 1


def test_what_cannot_be_pickled_is_refused() -> None:
    action = map_unordered(lambda: abs, [1, 2], workers=2)
    refused(lambda: list(action), "top of a module")


@pytest.mark.slow
def test_a_killed_worker_ends_the_work(tmp_path: Path) -> None:
    items = map_unordered(functools.partial(maker, tmp_path), range(9), workers=2)
    refused(lambda: list(items), "worker process ended", "__main__")
    for path in tmp_path.iterdir():  # the other one is gone, too
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name), 0)
