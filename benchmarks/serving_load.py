"""A served model under load: throughput, latency and memory, compared with `predict`.

    python benchmarks/serving_load.py [--clients 64] [--seconds 60] [--peers]

The same texts, nine SMS messages to one Wikipedia paragraph, are answered by `predict`
in its own process and by `bert-keras serve`, one text per request, from clients that
each wait for their answer before the next request. Each answer is compared with
`predict`. Then requests are sent at random times, at half the measured rate, and then
one by one. Each figure is printed with its goal. Memory is the resident set of the
server. The clients share the machine's cores with the server; their processor time is
printed. With `--peers`, a FastAPI endpoint with a transformers pipeline, and
infinity-emb, answer the same texts with the same weights; infinity-emb needs older
versions than ours, so `--peer-python` names the interpreter of its own environment:
`pip install 'infinity-emb[server,torch]'`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alternating import result_of
from http_load import QUIET, Load, percentile, percentiles, started
from inputs import DATA, encoder_path, messages

MAX_LENGTH, TEXTS, TOLERANCE = 256, 2000, 1e-4


def mixed_texts() -> list[str]:
    """Return 2,000 texts, a tenth of them paragraphs."""
    pages = DATA / "wiki_en/wiki_00"
    draw = random.Random(0)
    if not (DATA / "sms_spam").is_dir() or not pages.is_file():
        words = "the meeting is on monday at noon and lunch follows for all".split()
        sizes = [15] * 9 + [150]
        return [
            " ".join(draw.choices(words, k=draw.choice(sizes))) for _ in range(TEXTS)
        ]
    short = [text for _, text in messages()]
    lines = pages.read_text(encoding="utf-8").splitlines()
    long = [line[:1500] for line in lines if len(line) > 300]
    texts = draw.sample(short, TEXTS - TEXTS // 10)
    texts += draw.choices(long, k=TEXTS // 10)
    draw.shuffle(texts)
    return texts


def write_model(folder: str) -> None:
    """Write a classifier on all-MiniLM-L6-v2, with an untrained head."""
    from bert_keras import TaskModel, save_model

    path = encoder_path()
    classes = ("ham", "spam")
    model = TaskModel.from_pretrained(
        path, "classification", classes=classes, max_length=MAX_LENGTH, seed=1
    )
    save_model(model, folder)


def run_offline(folder: str) -> None:
    """Print the answers of `predict`, its texts/s and the time of one text as JSON."""
    from bert_keras import load_predictor

    texts = mixed_texts()
    predictor = load_predictor(folder)
    predictor.predict(texts[:200])
    start, used = time.perf_counter(), time.process_time()
    answers = predictor.predict(texts)
    rate = len(texts) / (time.perf_counter() - start)
    cost = (time.process_time() - used) / len(texts)
    alone = []
    for text in texts[:300]:
        start = time.perf_counter()
        predictor.predict([text])
        alone.append(time.perf_counter() - start)
    found = {
        "answers": [(a["label"], a["probabilities"]["spam"]) for a in answers],
        "rate": rate,
        "cost": cost,
        "alone": alone,
    }
    print(json.dumps(found))


def offline(folder: str) -> dict[str, Any]:
    return result_of([sys.executable, __file__, "--offline", folder], env=QUIET)


def memory_of(process: subprocess.Popen[bytes]) -> int:
    """Return the resident set of a process in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def processor_seconds_of(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time that a process has used."""
    stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii")
    ticks = stat.rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


async def sampled_memory(
    process: subprocess.Popen[bytes], found: list[tuple[float, int]]
) -> None:
    while True:
        found.append((time.perf_counter(), memory_of(process)))
        await asyncio.sleep(1)


@dataclasses.dataclass(frozen=True)
class Measured:
    """Texts/s under load, processor seconds per text, latencies of one client."""

    rate: float
    cost: float
    alone: list[float]


async def measured(load: Load, process: Any, options: argparse.Namespace) -> Measured:
    """Measure a server under load, at half load, and with one client."""
    rate, cost = await under_load(load, process, options)
    await load.open(rate / 2, options.seconds / 2, options.most)
    half, wrong = load.latencies, load.wrong
    await load.closed(1, 20, 300)
    alone = load.latencies
    print(f"half load: {wrong} wrong answers (goal: 0), {percentiles(half)}")
    print(f"one client: {percentiles(alone)}")
    p99, p99_alone, median = (
        percentile(half, 99),
        percentile(alone, 99),
        percentile(alone, 50),
    )
    print(
        f"99th percentile at half load: {p99:.1f} ms; one text alone over REST: 99th "
        f"percentile {p99_alone:.1f} ms, median {median:.1f} ms; that is "
        f"{p99 / p99_alone:.1f} and {p99 / median:.1f} times as long (goal: under 5)"
    )
    return Measured(rate, cost, alone)


async def under_load(
    load: Load, process: Any, options: argparse.Namespace
) -> tuple[float, float]:
    """Return texts/s of all clients, and the server's processor seconds per text."""
    await load.closed(options.clients, 10, options.most)
    samples: list[tuple[float, int]] = []
    sampler = asyncio.create_task(sampled_memory(process, samples))
    used, start = time.process_time(), time.perf_counter()
    server = processor_seconds_of(process)
    rate = await load.closed(options.clients, options.seconds, options.most)
    used = time.process_time() - used
    cost = (processor_seconds_of(process) - server) / len(load.latencies)
    sampler.cancel()
    print(
        f"{options.clients} clients: {rate:.1f} texts/s, {load.wrong} wrong answers of "
        f"{len(load.latencies)} (goal: 0), {percentiles(load.latencies)}"
    )
    print(
        f"  processor time of the clients: {used / (time.perf_counter() - start):.0%} "
        "of a core"
    )
    settled = min(60, options.seconds / 2)
    sizes = [size for when, size in samples if when - start >= settled]
    grown = sizes[-1] / sizes[0] - 1 if sizes else 0.0
    print(
        f"  memory: {samples[-1][1] / 1e6:.0f} MB, grown by {grown:.2%} after "
        f"{settled:.0f} s (goal: under 2%)"
    )
    return rate, cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--most",
        type=int,
        default=1_000_000,
        help="maximum number of requests in each part",
    )
    parser.add_argument(
        "--model", help="model folder of a classifier with the classes ham and spam"
    )
    parser.add_argument("--port", type=int, default=18_501)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument(
        "--peer-python",
        default=sys.executable,
        help="the interpreter of an environment with the peers",
    )
    parser.add_argument("--offline", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument(
        "serve", nargs="*", help="options of `bert-keras serve`, after --"
    )
    options = parser.parse_args()
    if options.offline:
        return run_offline(options.offline)
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or str(Path(folder) / "minilm")
        if not options.model:
            write_model(model)
        compare(model, options)


def compare(model: str, options: argparse.Namespace) -> None:
    texts, before = mixed_texts(), offline(model)
    wanted = before["answers"]

    def is_right(place: int, answer: Any) -> bool:
        (row,) = answer["predictions"]
        label, spam = wanted[place]
        near = abs(row["probabilities"][row["classes"].index("spam")] - spam)
        return near < TOLERANCE and (
            row["label"] == label or abs(spam - 0.5) < TOLERANCE
        )

    load = Load(
        options.port,
        "/v1/models/served:predict",
        texts,
        to_body=lambda text: {"instances": [text]},
        is_right=is_right,
    )
    command = [
        sys.executable,
        "-m",
        "bert_keras",
        "serve",
        f"served={model}",
        "--quiet",
    ]
    command += ["--port", str(options.port), "--no-grpc", *options.serve]
    with started(command, options.port, "/v2/health/ready") as process:
        served = asyncio.run(measured(load, process, options))
    after = offline(model)
    rate, cost = (statistics.mean((before[k], after[k])) for k in ("rate", "cost"))
    alone = before["alone"] + after["alone"]
    print(
        f"predict: {before['rate']:.1f} texts/s before, {after['rate']:.1f} after; one "
        f"text: {percentiles(alone)}"
    )
    print(
        f"processor time per text: served {served.cost * 1000:.1f} ms, predict "
        f"{cost * 1000:.1f} ms; on an otherwise idle machine served / predict would be "
        f"{cost / served.cost:.2f}"
    )
    print(f"served / predict: {served.rate / rate:.2f} (goal: at least 0.85)")
    slower = percentile(served.alone, 50) - percentile(alone, 50)
    print(f"one text, served - predict: {slower:.1f} ms (goal: at most 3 ms)")
    if options.peers:
        run_peers(model, texts, options, served.rate)


def run_peers(
    model: str, texts: list[str], options: argparse.Namespace, rate: float
) -> None:
    """Measure `serve` for vectors, and the installed peers, with the same clients.

    Args:
        rate: texts/s of `serve` for classes.
    """
    encoder = encoder_path()
    command = ["-m", "bert_keras", "serve", f"served={encoder}", "--quiet", "--no-grpc"]
    command = [sys.executable, *command, "--port", str(options.port)]
    print("bert-keras serve, vectors: ", end="")
    with started(command, options.port, "/v2/health/ready"):
        vectors = rate_of(
            "/v1/models/served:predict",
            lambda text: {"instances": [text]},
            texts,
            options,
        )
    python = options.peer_python
    infinity = [str(Path(python).with_name("infinity_emb")), "v2", "--engine", "torch"]
    infinity += ["--device", "cpu", "--served-model-name", "served", "--model-id"]

    def peer(
        name: str,
        needs: str,
        command: list[str],
        path: str,
        to_body: Callable[[str], Any],
        *,
        ours: float,
        goal: str,
    ) -> None:
        print(f"{name}: ", end="")
        if subprocess.run(
            [python, "-c", f"import {needs}"], stderr=subprocess.DEVNULL, check=False
        ).returncode:
            return print(f"{python} lacks one of {needs}")
        command = [python, *command, "--port", str(options.port)]
        with started(command, options.port, "/health"):
            theirs = rate_of(path, to_body, texts, options)
        print(f"  serve / {name}: {ours / theirs:.1f} (goal: {goal})")

    peer(
        "fastapi and transformers, classes",
        "fastapi, transformers, uvicorn",
        [str(Path(__file__).with_name("serving_peer.py")), "--encoder", model],
        "/predict",
        lambda text: {"text": text},
        ours=rate,
        goal="at least 3",
    )
    for kind, folder, path, ours in (
        ("classes", model, "/classify", rate),
        ("vectors", encoder, "/embeddings", vectors),
    ):
        peer(
            f"infinity-emb, {kind}",
            "infinity_emb",
            [*infinity, folder],
            path,
            lambda text: {"model": "served", "input": [text]},
            ours=ours,
            goal="over 1",
        )


def rate_of(
    path: str,
    to_body: Callable[[str], Any],
    texts: list[str],
    options: argparse.Namespace,
) -> float:
    """Print and return the texts/s of a server under the load of all clients."""
    load = Load(
        options.port, path, texts, to_body=to_body, is_right=lambda place, answer: True
    )

    async def measure() -> float:
        await load.closed(options.clients, 10, options.most)
        return await load.closed(options.clients, options.seconds / 2, options.most)

    rate = asyncio.run(measure())
    print(
        f"{rate:.1f} texts/s, {load.wrong} failed of {len(load.latencies)}, "
        f"{percentiles(load.latencies)}"
    )
    return rate


if __name__ == "__main__":
    main()
