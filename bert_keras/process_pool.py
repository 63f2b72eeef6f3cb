"""Work for several processes, whose results come as they are ready: `map_unordered`.

The processes are new ones (`spawn`): TensorFlow does not outlive a fork. Each loads it
once, without its notes, with one thread and no GPU, and ends when its parent does, even
when that one was killed.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for_end
from typing import Any

from bert_keras.errors import ConfigError, DataError
from bert_keras.quiet import load_tensorflow

_WAITING = 1  # items that lie ready for the worker that is free next
_function: Callable[[Any], Any]  # of this process, where it is a worker
_error: Exception | None = None


def map_unordered(
    make: Callable[[], Callable[[Any], Any]], items: Iterable[Any], *, workers: int
) -> Iterator[Any]:
    """Yield what a function gives for each item, in the order in which they are ready.

    At most one item more than there are workers is held at any time.

    Args:
        make: makes the function, in each process; it, the items and the results can
            be pickled.
        items: what the function takes.
        workers: processes.

    Raises:
        ConfigError: `make` cannot be pickled.
        DataError: a process was killed.
        Exception: what the function raises. Items that others work on are finished.
    """
    try:
        data = pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            "what other processes run must be a function at the top of a module; "
            f"received one that cannot be pickled: {error}"
        ) from None
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(data,),
    )
    running: set[Future[Any]] = set()
    try:
        for item in items:
            running.add(pool.submit(_run, item))
            if len(running) >= workers + _WAITING:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    except BrokenProcessPool:
        raise DataError(
            "a worker process ended before its work was done; it may have been out of "
            'memory, or the script lacks `if __name__ == "__main__":`'
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(data: bytes) -> None:
    """Make this process a worker."""
    global _function, _error
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells when to stop
    try:
        load_tensorflow()
        import tensorflow as tf

        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        _function = pickle.loads(data)()
    except Exception as error:  # to be raised where it is seen
        _error = error


def _run(item: Any) -> Any:
    if _error is not None:
        raise _error
    return _function(item)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_end([parent.sentinel])
        os._exit(1)
