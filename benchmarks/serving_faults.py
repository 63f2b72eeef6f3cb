"""A served SavedModel under load: a new version appears, SIGTERM, and `kill -9`.

    python benchmarks/serving_faults.py [--clients 32] [--seconds 60]

Clients send one text per request to `bert-keras serve`, on connections that stay open.
In the middle of the time a second version, which answers differently, is moved into the
folder. Each answer must come from one of the two versions. Then the server is stopped
with SIGTERM under load: an accepted request is one that the server has read; the lost
ones are those that were sent whole and had no answer although the server had not closed
the connection before. At last the server is killed under load and started again: the
time until it is ready is compared with the time of the first start.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from http_load import Connection, started
from inputs import encoder_path
from serving_load import MAX_LENGTH, TOLERANCE, mixed_texts

PATH = "/v1/models/served:predict"


def write_versions(folder: Path, texts: list[str]) -> list[list[float]]:
    """Export two classifiers with other heads; return the answers of each to texts."""
    from bert_keras import Predictor, TaskModel

    answers = []
    for number in (1, 2):
        model = TaskModel.from_pretrained(
            encoder_path(),
            "classification",
            classes=("ham", "spam"),
            max_length=MAX_LENGTH,
            seed=number,
        )
        model.export(folder / f"version{number}")
        found = Predictor(model).predict(texts)
        answers.append([each["probabilities"]["spam"] for each in found])
    return answers


class Clients:
    """Clients that ask until they are stopped, and what became of each request."""

    def __init__(self, port: int, texts: list[str], answers: list[list[float]]) -> None:
        self._port, self._texts, self._answers = port, texts, answers
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.first_of_new = 0.0  # when version 2 answered first
        self.last_of_old = 0.0
        self.is_over = False

    async def run(self, count: int) -> None:
        """Ask from a number of connections at once."""
        await asyncio.gather(*(self._client(first) for first in range(count)))

    async def _client(self, number: int) -> None:
        connection = Connection(self._port, PATH, lambda text: {"instances": [text]})
        while not self.is_over:
            number = (number + 97) % len(self._texts)
            try:
                status, answer = await connection.ask(self._texts[number])
            except ConnectionRefusedError:
                self.outcomes["refused"] += 1
                return
            except (OSError, asyncio.IncompleteReadError):
                self.outcomes["without an answer"] += 1
                return
            self.outcomes[self._outcome(number, status, answer)] += 1
        connection.close()

    def _outcome(self, number: int, status: int, answer: Any) -> str:
        if status != 200:
            return f"status {status}"
        (row,) = answer["predictions"]
        spam = row["probabilities"][row["classes"].index("spam")]
        old, new = (abs(each[number] - spam) < TOLERANCE for each in self._answers)
        if old == new:
            return "of both versions" if old else "of no version"
        if old:
            self.last_of_old = time.perf_counter()
            return "of version 1"
        self.first_of_new = self.first_of_new or time.perf_counter()
        return "of version 2"


async def version_change(
    clients: Clients, options: argparse.Namespace, put: Any
) -> None:
    """Move a new version into the folder while clients ask."""
    asking = asyncio.create_task(clients.run(options.clients))
    await asyncio.sleep(options.seconds / 2)
    since = time.perf_counter()
    put()
    await asyncio.sleep(options.seconds / 2)
    clients.is_over = True
    await asking
    if not clients.first_of_new:
        raise SystemExit("version 2 never answered: give more --seconds")
    print(
        f"version change, {options.clients} clients, {options.seconds:g} s: answers "
        f"{dict(clients.outcomes)}; version 2 answered after "
        f"{clients.first_of_new - since:.1f} s, version 1 last after "
        f"{clients.last_of_old - since:.1f} s"
    )


async def stopped(clients: Clients, options: argparse.Namespace, process: Any) -> None:
    """Send a signal while clients ask."""
    asking = asyncio.create_task(clients.run(options.clients))
    await asyncio.sleep(5)
    before = clients.outcomes.total()
    since = time.perf_counter()
    process.send_signal(options.signal)
    await asking
    code = await asyncio.to_thread(process.wait, 60)
    print(
        f"{options.signal.name} after {before} answers: {dict(clients.outcomes)}; "
        f"exit {code} after {time.perf_counter() - since:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--port", type=int, default=18_601)
    options = parser.parse_args()
    texts = mixed_texts()[:300]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answers = write_versions(folder, texts)
        served = folder / "served"
        served.mkdir()
        (folder / "version1").rename(served / "1")
        command = [sys.executable, "-m", "bert_keras", "serve", f"served={served}"]
        command += ["--quiet", "--no-grpc", "--port", str(options.port)]

        def clients() -> Clients:
            return Clients(options.port, texts, answers)

        def run() -> Any:
            return started(command, options.port, "/v2/health/ready")

        start = time.perf_counter()
        with run() as process:
            loading = time.perf_counter() - start
            print(f"ready after {loading:.1f} s")
            asyncio.run(
                version_change(
                    clients(),
                    options,
                    lambda: (folder / "version2").rename(served / "2"),
                )
            )
            options.signal = signal.SIGTERM
            asyncio.run(stopped(clients(), options, process))
        with run() as process:
            options.signal = signal.SIGKILL
            asyncio.run(stopped(clients(), options, process))
        start = time.perf_counter()
        with run():
            again = time.perf_counter() - start
        print(f"ready again after {again:.1f} s, {again / loading:.2f} of the first")


if __name__ == "__main__":
    main()
