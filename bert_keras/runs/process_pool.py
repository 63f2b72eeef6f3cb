"""Work for several processes, whose results come as they are ready: `map_unordered`.

The processes are new ones (`spawn`): TensorFlow does not outlive a fork. Each loads it
once, without its notes, with one thread and no GPU, and ends when its parent does, even
when that one was killed.

Each worker has a pipe of its own, and asks for what it is to do next. So workers start
side by side, and the end of one is seen at once (`concurrent.futures`, in Python 3.11,
waits for ever if one is killed while another one starts).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from bert_keras.errors import ConfigError, DataError
from bert_keras.runs.environment import load_tensorflow

_READY, _RESULT, _ERROR = range(3)  # what a worker's message is
_SECONDS_TO_END = 10.0
_NOTHING = object()


def map_unordered(
    make: Callable[[], Callable[[Any], Any]], items: Iterable[Any], *, workers: int
) -> Iterator[Any]:
    """Yield what a function gives for each item, in the order in which they are ready.

    Besides those that are worked on, one item is held at a time.

    Args:
        make: makes the function, in each process; it, the items and the results can
            be pickled.
        items: what the function takes.
        workers: processes.

    Raises:
        ConfigError: `make` cannot be pickled.
        DataError: a process was killed.
        Exception: what the function raises; the others' work is broken off.
    """
    try:
        data = pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            "what other processes run must be a function at the top of a module; "
            f"received one that cannot be pickled: {error}"
        ) from None
    waiting = iter(items)
    item = next(waiting, _NOTHING)
    pool: dict[Connection, BaseProcess] = {}
    new: set[Connection] = set()  # which do not have the function yet
    try:
        for _ in range(workers if item is not _NOTHING else 0):
            pipe, process = _started()
            pool[pipe] = process
            new.add(pipe)
        open_ = set(pool)
        while open_:
            ready = wait(list(open_))
            for pipe in [each for each in open_ if each in ready]:
                kind, value = pipe.recv()
                if kind == _ERROR:
                    raise value
                if pipe in new:
                    new.remove(pipe)
                    pipe.send_bytes(data)
                elif item is _NOTHING:
                    open_.remove(pipe)
                else:
                    pipe.send(item)
                    item = next(waiting, _NOTHING)
                if kind == _RESULT:
                    yield value
    except (EOFError, ConnectionError):
        raise DataError(
            "a worker process ended before its work was done; it may have been out of "
            'memory, or the script lacks `if __name__ == "__main__":`'
        ) from None
    finally:
        _end(pool)


def _started() -> tuple[Connection, BaseProcess]:
    """Return a new worker and the pipe to it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there,), daemon=True)
    process.start()
    there.close()  # so that the pipe ends with the process
    return here, process


def _end(pool: dict[Connection, BaseProcess]) -> None:
    """End the workers, whatever they do; what they began to write is removed."""
    for pipe, process in pool.items():
        pipe.close()
        process.terminate()
    for process in pool.values():
        process.join(_SECONDS_TO_END)
        process.kill()
        process.join()


def _work(pipe: Connection) -> None:
    """Do what the parent says, until there is no more."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells when to stop
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and files are tidied up
    try:
        pipe.send((_READY, None))
        function = _function(pipe.recv_bytes())
        pipe.send((_READY, None))
        while True:
            pipe.send((_RESULT, function(pipe.recv())))
    except Exception as error:
        try:
            pipe.send((_ERROR, error))
        except OSError:  # there is no parent who would hear it
            sys.exit(1)


def _function(data: bytes) -> Callable[[Any], Any]:
    load_tensorflow()
    import tensorflow as tf

    # Too late where the user's script, which a new process imports, has made a tensor.
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    return pickle.loads(data)()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
