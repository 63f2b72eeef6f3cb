"""Workers that train together end together: `WorkerWatch`.

A worker that dies leaves the others in an all-reduce that never ends: TensorFlow's own
watch takes its time and aborts the process with pages of text. So each worker keeps a
connection to the chief, which the kernel closes when a process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bert_keras.runs.stop_signal import RunStopped

if TYPE_CHECKING:
    from bert_keras.distribution.strategy import Devices

# Of sysexits.h: a service that is needed is not there.
EXIT_CODE = 69
# A machine that is gone, and closes nothing, is missed after these.
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 5, 5, 3
_CONNECT_SECONDS, _HELLO_SECONDS, _NOTICE_SECONDS = 30.0, 5.0, 2.0
_WRITE_SECONDS = 300.0  # a checkpoint that is being written is waited for, so long
_TOGETHER_SECONDS = 1.0  # workers that see the same error see it within these
_HELLO, _GOODBYE, _ERROR = b"+", b"-", b"!"
_PORT_BITS, _WORKER_BYTES, _KEY_BYTES = 16, 4, 4


class WorkerWatch:
    """Ends this process when one that it trains with has ended; a `with` block.

    A process that dies is missed at once, a machine that is gone within 20 seconds.
    The others then say one line and end with `EXIT_CODE`; finished checkpoints stay,
    and one that is being written is finished. So it is where the block is left with an
    error, but that workers that have errors at the same time tell their own. A block
    that is left without one takes its leave.

    Args:
        devices: the workers; nothing is done for one alone.

    Attributes:
        finish: called before this process is ended, in another thread than the main
            one, with the most seconds that it may take; returns when nothing is being
            written.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._peers: dict[socket.socket, int] = {}
        self._listener: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._key = b""
        self._failed: set[socket.socket] = set()
        self._leaves = self._fails = False
        self._answered = threading.Event()
        self.finish: Callable[[float], object] = lambda seconds: None

    def __enter__(self) -> WorkerWatch:
        if self._devices.workers == 1:
            return self
        number = 0
        if self._devices.is_chief:
            self._listener = socket.create_server(("", 0), backlog=128)
            key = int.from_bytes(os.urandom(_KEY_BYTES), "big")
            number = key << _PORT_BITS | self._listener.getsockname()[1]
        number = self._devices.agree(number)
        self._key = (number >> _PORT_BITS).to_bytes(_KEY_BYTES, "big")
        if self._listener is None:
            self._join_chief(number & (1 << _PORT_BITS) - 1)
        else:
            self._selector.register(self._listener, selectors.EVENT_READ)
        threading.Thread(target=self._watch, name="workers", daemon=True).start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._devices.workers == 1:
            return
        # All workers of a run that was asked to stop leave after the same step.
        self._fails = kind is not None and not issubclass(kind, RunStopped)
        self._send(_ERROR if self._fails else _GOODBYE)
        if self._fails:
            # What TensorFlow says where a peer is gone is told better by the watch. The
            # chief may be writing yet: a scheduler that sees a worker's end kills it.
            waits = bool(self._peers) and not self._devices.is_chief
            self._answered.wait(2 * _WRITE_SECONDS if waits else _NOTICE_SECONDS)
        self._leaves = True  # from here on this process tells its own end
        for peer in list(self._peers):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_WR)

    def _send(self, word: bytes) -> None:
        for peer in list(self._peers):
            with contextlib.suppress(OSError):
                peer.sendall(word)

    def _join_chief(self, port: int) -> None:
        host = self._devices.host
        try:
            chief = socket.create_connection((host, port), _CONNECT_SECONDS)
        except OSError as error:
            print(
                f"bert-keras: worker 0 cannot be watched at {host}:{port} "
                f"({error.strerror or error}): if it dies, TensorFlow tells",
                file=sys.stderr,
                flush=True,
            )
            return
        chief.settimeout(None)
        number = self._devices.worker.to_bytes(_WORKER_BYTES, "big")
        chief.sendall(self._key + number + _HELLO)
        self._add(chief, 0)

    def _add(self, peer: socket.socket, worker: int) -> None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, _IDLE_SECONDS),
            (socket.TCP_KEEPINTVL, _PROBE_SECONDS),
            (socket.TCP_KEEPCNT, _PROBES),
        ):
            peer.setsockopt(socket.IPPROTO_TCP, option, value)
        self._peers[peer] = worker
        self._selector.register(peer, selectors.EVENT_READ)

    def _watch(self) -> None:
        while self._selector.get_map():
            for key, _ in self._selector.select():
                found = key.fileobj
                if found is self._listener:
                    self._welcome()
                elif isinstance(found, socket.socket):
                    self._hear(found)

    def _welcome(self) -> None:
        """Take a worker's connection; a stranger's is closed."""
        if self._listener is None:
            return
        with contextlib.suppress(OSError):
            peer, _ = self._listener.accept()
            peer.settimeout(_HELLO_SECONDS)
            size = _KEY_BYTES + _WORKER_BYTES + len(_HELLO)
            said = peer.recv(size, socket.MSG_WAITALL)
            peer.settimeout(None)
            if len(said) == size and said.startswith(self._key):
                number = said[_KEY_BYTES : _KEY_BYTES + _WORKER_BYTES]
                self._add(peer, int.from_bytes(number, "big"))
            else:
                peer.close()

    def _hear(self, peer: socket.socket) -> None:
        """Hear a peer's goodbye, its error or its end."""
        try:
            said = peer.recv(1)
        except OSError:
            said = b""
        if not self._devices.is_chief:
            self._answered.set()
        if said == _ERROR:
            self._failed.add(peer)
            wait = threading.Timer(_TOGETHER_SECONDS, self._follow, [self._peers[peer]])
            wait.daemon = True
            wait.start()
            return
        self._selector.unregister(peer)
        if said != _GOODBYE and peer not in self._failed and not self._leaves:
            self.finish(_WRITE_SECONDS)
            _end(self._peers[peer])

    def _follow(self, worker: int) -> None:
        """End this process if it has no error of its own by now."""
        begin = time.monotonic()
        self.finish(_WRITE_SECONDS)
        if time.monotonic() - begin > _TOGETHER_SECONDS / 2:
            # An error waits for what is being written, too, before it is told.
            time.sleep(_TOGETHER_SECONDS)
        if not self._fails and not self._leaves:
            self._send(_ERROR)  # so that the one with the error tells it
            _end(worker)


def _end(worker: int) -> None:
    """End this process, whose main thread waits for a worker that is no more."""
    sys.stdout.flush()
    print(
        f"bert-keras: worker {worker} has ended, so this one ends, too; the same "
        "command on all workers goes on after the last checkpoint",
        file=sys.stderr,
        flush=True,
    )
    os._exit(EXIT_CODE)
