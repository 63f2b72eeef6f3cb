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

from bert_keras.errors import reason_of
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
_LEAVE_SECONDS = 1.0  # so long the peers' last words are heard, then all is closed
_HELLO, _GOODBYE, _ERROR = b"+", b"-", b"!"
_PORT_BITS, _WORKER_BYTES, _KEY_BYTES = 16, 4, 4


class WorkerWatch:
    """Ends this process when one that it trains with has ended; a `with` block.

    A process that dies is missed at once, a machine that is gone within 20 seconds.
    The others then say one line and end with `EXIT_CODE`; finished checkpoints stay,
    and one that is being written is finished. So it is where the block is left with an
    error, but that workers that have errors at the same time tell their own. A block
    that is left without one takes its leave. Either way its sockets are closed and its
    thread ends.

    The chief listens at the address of the cluster alone; where this machine has no
    such interface, nobody is watched, and one line says so.

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
        self._selector: selectors.BaseSelector
        self._thread = threading.Thread(target=self._watch, name="workers", daemon=True)
        self._wake: socket.socket  # one byte into it ends the thread
        self._woken: socket.socket
        self._key = b""
        self._failed: set[socket.socket] = set()
        self._leaves = self._fails = False
        self._answered = threading.Event()
        self.finish: Callable[[float], object] = lambda seconds: None

    def __enter__(self) -> WorkerWatch:
        if self._devices.workers == 1:
            return self
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        number = 0
        try:
            if self._devices.is_chief and (listener := self._listen()) is not None:
                key = int.from_bytes(os.urandom(_KEY_BYTES), "big")
                number = key << _PORT_BITS | listener.getsockname()[1]
            number = self._devices.agree(number)
            self._key = (number >> _PORT_BITS).to_bytes(_KEY_BYTES, "big")
            if number and not self._devices.is_chief:
                self._join_chief(number & (1 << _PORT_BITS) - 1)
        except BaseException:
            self._close()
            raise
        self._thread.start()
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
        self._wake.send(_GOODBYE)
        self._thread.join(2 * _LEAVE_SECONDS)

    def _listen(self) -> socket.socket | None:
        """Listen at the chief's address in the cluster, on a free port."""
        host, reason = self._devices.host, "no such address"
        try:
            for family, *_, address in socket.getaddrinfo(
                host, 0, type=socket.SOCK_STREAM
            ):
                try:
                    self._listener = socket.create_server(
                        address[:2], family=family, backlog=128
                    )
                    self._selector.register(self._listener, selectors.EVENT_READ)
                    return self._listener
                except OSError as error:
                    reason = reason_of(error)
        except OSError as error:
            reason = reason_of(error)
        _say(
            f"workers cannot be watched from {host} ({reason}): if one dies, "
            "TensorFlow tells"
        )
        return None

    def _send(self, word: bytes) -> None:
        for peer in list(self._peers):
            with contextlib.suppress(OSError):
                peer.sendall(word)

    def _join_chief(self, port: int) -> None:
        host = self._devices.host
        try:
            chief = socket.create_connection((host, port), _CONNECT_SECONDS)
        except OSError as error:
            _say(
                f"worker 0 cannot be watched at {host}:{port} ({reason_of(error)}): "
                "if it dies, TensorFlow tells"
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
        """Hear the peers until this process has taken its leave, and close all."""
        last: float | None = None  # when to hear no longer
        while last is None or (self._heard() and time.monotonic() < last):
            wait = None if last is None else max(last - time.monotonic(), 0)
            for key, _ in self._selector.select(wait):
                found = key.fileobj
                if found is self._woken:
                    self._selector.unregister(self._woken)
                    self._stop_listening()
                    last = time.monotonic() + _LEAVE_SECONDS
                elif found is self._listener:
                    self._welcome(self._listener)
                elif isinstance(found, socket.socket) and found in self._peers:
                    self._hear(found)
        self._close()

    def _heard(self) -> bool:
        """Say whether a peer has not said its last word."""
        return bool(self._selector.get_map())

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _close(self) -> None:
        """Close every socket; the thread, if it has begun, ends with this."""
        self._stop_listening()
        for each in (*self._peers, self._wake, self._woken):
            each.close()
        self._selector.close()

    def _welcome(self, listener: socket.socket) -> None:
        """Take a worker's connection; a stranger's is closed."""
        with contextlib.suppress(OSError):
            peer, _ = listener.accept()
            try:
                peer.settimeout(_HELLO_SECONDS)
                size = _KEY_BYTES + _WORKER_BYTES + len(_HELLO)
                said = peer.recv(size, socket.MSG_WAITALL)
                if len(said) == size and said.startswith(self._key):
                    peer.settimeout(None)
                    number = said[_KEY_BYTES : _KEY_BYTES + _WORKER_BYTES]
                    self._add(peer, int.from_bytes(number, "big"))
            finally:
                if peer not in self._peers:
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
    _say(
        f"worker {worker} has ended, so this one ends, too; the same "
        "command on all workers goes on after the last checkpoint"
    )
    os._exit(EXIT_CODE)


def _say(line: str) -> None:
    print(f"bert-keras: {line}", file=sys.stderr, flush=True)
