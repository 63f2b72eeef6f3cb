"""A function applied to many items by several processes: `map_in_processes`.

`concurrent.futures.ProcessPoolExecutor` with new processes (`spawn`), since TensorFlow
does not survive a fork. Two properties are added here: the source is read at most one
item ahead of the workers, and workers end at once when the parent stops early or is
killed. For this each worker holds the reading end of a pipe; when the parent closes
the other end, or dies, the worker sends itself SIGTERM.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any

from bert_keras.errors import ConfigError, DataError
from bert_keras.runs.environment import load_tensorflow

_SECONDS_TO_END = 10.0


def map_in_processes(
    make: Callable[[], Callable[[Any], Any]],
    items: Iterable[Any],
    *,
    workers: int,
    tensorflow: bool = True,
    in_order: bool = False,
) -> Iterator[Any]:
    """Yield the result of a function for each item.

    `make` makes the function, once in each process; it, the items and the results must
    be picklable. `tensorflow` is whether the function needs it. With `in_order` the
    results are in the order of the items, otherwise in the order in which they finish.

    Raises:
        ConfigError: `make` cannot be pickled.
        DataError: a process died.
        Exception: whatever the function raises; the other processes are stopped.
    """
    try:
        data = pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            "the function for other processes must be at the top of a module; "
            f"received one that cannot be pickled: {error}"
        ) from None
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin, initargs=(theirs,)
    )
    running: list[Future[Any]] = []

    def finished() -> Iterator[Any]:
        """Wait for the next result; yield it, and the others that are there by then."""
        nonlocal running
        awaited = running[:1] if in_order else running
        done = wait(awaited, return_when=FIRST_COMPLETED).done
        running = [future for future in running if future not in done]
        yield from (future.result() for future in done)

    try:
        for item in items:
            running.append(pool.submit(_run, data, tensorflow, item))
            if len(running) > workers:
                yield from finished()
        while running:
            yield from finished()
    except BrokenProcessPool:
        if sys.version_info < (3, 11, 5):  # where the executor waits forever (gh-94777)
            pool._call_queue._reader.close()  # type: ignore[attr-defined]
        raise DataError(
            "a worker process ended before its work was done; it may have been out of "
            'memory, or the script lacks `if __name__ == "__main__":`'
        ) from None
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()


def _begin(pipe: Connection) -> None:
    """Prepare a new worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()


def _end_with_parent(pipe: Connection) -> None:
    """End this process when the other end of a pipe is closed."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_SECONDS_TO_END)
    os._exit(1)


def _run(make: bytes, tensorflow: bool, item: Any) -> Any:
    """Call the function for one item; SIGTERM lets it remove its partial files."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        return _function(make, tensorflow)(item)
    except SystemExit:  # the executor would treat it as a result and continue
        os._exit(1)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second would break the cleanup
    sys.exit(1)


@functools.lru_cache(maxsize=1)
def _function(make: bytes, tensorflow: bool) -> Callable[[Any], Any]:
    if tensorflow:
        _load_tensorflow()
    return pickle.loads(make)()


def _load_tensorflow() -> None:
    load_tensorflow()
    import tensorflow as tf

    # Too late if the user's script, which a new process imports, has created a tensor.
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
