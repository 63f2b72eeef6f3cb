"""Requests of many clients to an HTTP server on this machine, and their latencies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

READY_SECONDS = 180
QUIET = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}


class Connection:
    """A persistent HTTP/1.1 connection of a minimal client."""

    def __init__(self, port: int, path: str, to_body: Callable[[str], Any]) -> None:
        self._port, self._to_body = port, to_body
        self._head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json"
        )
        self._streams: Any = None

    async def ask(self, text: str) -> tuple[int, Any]:
        """Return status and JSON of the answer to a text."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        body = json.dumps(self._to_body(text)).encode()
        request = f"{self._head}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(request.encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head, re.I)
        answer = await reader.readexactly(int(size[1]) if size else 0)
        if re.search(rb"connection: close", head, re.I):
            self.close()
        return int(head[9:12]), json.loads(answer) if answer else None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Load:
    """Requests to one endpoint, their latencies, and the number of wrong answers."""

    def __init__(
        self,
        port: int,
        path: str,
        texts: list[str],
        *,
        to_body: Callable[[str], Any],
        is_right: Callable[[int, Any], bool],
    ) -> None:
        self._new = lambda: Connection(port, path, to_body)
        self._texts, self._is_right = texts, is_right
        self.latencies: list[float] = []
        self.wrong = 0

    def _reset(self) -> None:
        self.latencies, self.wrong = [], 0

    async def _ask(self, connection: Connection, number: int, since: float) -> None:
        place = number % len(self._texts)
        status, answer = await connection.ask(self._texts[place])
        self.latencies.append(time.perf_counter() - since)
        self.wrong += status != 200 or not self._is_right(place, answer)

    async def closed(self, clients: int, seconds: float, most: int) -> float:
        """Send requests from clients that wait for their answers; return texts/s."""
        self._reset()
        numbers = iter(range(most))
        start = time.perf_counter()

        async def client() -> None:
            connection = self._new()
            for number in numbers:
                now = time.perf_counter()
                if now - start > seconds:
                    break
                await self._ask(connection, number, now)
            connection.close()

        await asyncio.gather(*(client() for _ in range(clients)))
        return len(self.latencies) / (time.perf_counter() - start)

    async def open(self, rate: float, seconds: float, most: int) -> None:
        """Send `rate` texts per second at random times, however long answers take."""
        self._reset()
        draw = random.Random(1)
        free: list[Connection] = []
        tasks = []

        async def one(number: int, due: float) -> None:
            connection = free.pop() if free else self._new()
            await self._ask(connection, number, due)
            free.append(connection)

        start = due = time.perf_counter()
        for number in range(most):
            due += draw.expovariate(rate)
            if due - start > seconds:
                break
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.append(asyncio.create_task(one(number, due)))
        await asyncio.gather(*tasks)
        for connection in free:
            connection.close()


def percentile(latencies: list[float], place: int) -> float:
    """Return a percentile in milliseconds."""
    return statistics.quantiles(latencies, n=100)[place - 1] * 1000


def percentiles(latencies: list[float]) -> str:
    """Return the 50th, 90th and 99th percentile in milliseconds."""
    found = " / ".join(f"{percentile(latencies, place):.1f}" for place in (50, 90, 99))
    return f"ms {found} (50/90/99 %)"


@contextlib.contextmanager
def started(command: list[str], port: int, path: str) -> Iterator[Any]:
    """Run a server, and wait until it answers at a path."""
    process = subprocess.Popen(
        command, env=QUIET, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(READY_SECONDS * 4):
            time.sleep(0.25)
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(command)}: exited {process.returncode}")
            with contextlib.suppress(OSError):
                asyncio.run(_get(port, path))
                break
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


async def _get(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode()
    )
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer
