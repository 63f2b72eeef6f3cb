"""Workers: what they cannot be given, and one that is killed."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import refused

from bert_keras.runs.process_pool import map_in_processes


def maker(folder: Path) -> Callable[[int], int]:
    return functools.partial(mark_or_die, folder)


def mark_or_die(folder: Path, item: tuple[int, bytes]) -> int:
    """Leave the process's number behind; the first item kills its process."""
    (folder / str(os.getpid())).touch()
    if item[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        time.sleep(60)
    finally:
        (folder / f"{os.getpid()}.tidy").touch()
    return item[0]


def test_no_work_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(multiprocessing.process.BaseProcess, "start")
    assert list(map_in_processes(functools.partial(maker, Path()), [], workers=2)) == []


def test_unpicklable_items_are_rejected() -> None:
    action = map_in_processes(lambda: abs, [1, 2], workers=2)
    refused(lambda: list(action), "top of a module")


@pytest.mark.slow
def test_a_killed_worker_ends_the_work(tmp_path: Path) -> None:
    make = functools.partial(maker, tmp_path)
    # More than a pipe holds: another item is on its way when the worker dies.
    items = [(number, bytes(1 << 20)) for number in range(9)]
    action = map_in_processes(make, items, workers=2)
    refused(lambda: list(action), "worker process ended", "__main__")
    assert_gone(tmp_path)


@pytest.mark.slow
def test_an_interrupt_ends_the_workers_tidily(tmp_path: Path) -> None:
    def items() -> Iterator[tuple[int, bytes]]:
        yield 1, b""
        yield 2, b""
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.1)
        raise KeyboardInterrupt

    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        list(map_in_processes(functools.partial(maker, tmp_path), items(), workers=3))
    assert time.perf_counter() - start < 45  # a worker would sleep for 60 seconds
    assert len(list(tmp_path.glob("*.tidy"))) == 2
    assert_gone(tmp_path)


def assert_gone(folder: Path) -> None:
    for path in folder.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.stem), 0)
