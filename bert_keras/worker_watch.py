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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_keras.strategy import Devices

# Of sysexits.h: a service that is needed is not there.
EXIT_CODE = 69
# A machine that is gone, and closes nothing, is missed after these.
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 5, 5, 3
_CONNECT_SECONDS, _HELLO_SECONDS, _NOTICE_SECONDS = 30.0, 5.0, 2.0
_HELLO, _GOODBYE = b"+", b"-"
_PORT_BITS, _WORKER_BYTES, _KEY_BYTES = 16, 4, 4


class WorkerWatch:
    """Ends this process when one that it trains with has ended; a `with` block.

    A process that dies is missed at once, a machine that is gone within 20 seconds.
    The others then say one line and end with `EXIT_CODE`; finished checkpoints stay. A
    block that is left without an error takes its leave, and the others go on.

    Args:
        devices: the workers; nothing is done for one alone.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._peers: dict[socket.socket, int] = {}
        self._listener: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._key = b""

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
        if kind is not None:
            # What TensorFlow says where a peer is gone is told better by the watch.
            threading.Event().wait(_NOTICE_SECONDS)
        for peer in list(self._peers):
            with contextlib.suppress(OSError):
                if kind is None:
                    peer.sendall(_GOODBYE)
                peer.shutdown(socket.SHUT_WR)

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
        """Hear of a peer what is a goodbye, or its end."""
        try:
            said = peer.recv(1)
        except OSError:
            said = b""
        if said != _GOODBYE:
            _end(self._peers[peer])
        self._selector.unregister(peer)


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
