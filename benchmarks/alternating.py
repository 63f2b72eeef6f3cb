"""Time programs alternately, each in its own process.

A drift of the machine's speed then affects all of them, and ratios within a round stay
comparable. `measured` starts the workers, and a worker calls `time_on_request`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_READY = "ready\n"
Seconds = dict[str, list[float]]


def time_on_request(run: Callable[[], object], *, warmups: int, repeats: int) -> None:
    """Run a function once for each line of standard input, and print its seconds.

    Args:
        run: what is timed.
        warmups: calls before the first line is read.
        repeats: calls for each line; their median is printed.
    """
    for _ in range(warmups):
        run()
    print(_READY, end="", flush=True)
    for _ in sys.stdin:
        spent = []
        for _ in range(repeats):
            started = time.perf_counter()
            run()
            spent.append(time.perf_counter() - started)
        print(json.dumps(statistics.median(spent)), flush=True)


def measured(commands: Mapping[str, Sequence[str]], rounds: int) -> Seconds:
    """Return the seconds of each worker and round; a worker that fails is left out.

    Args:
        commands: the commands of the workers, by the names in the result.
        rounds: how often each worker runs.
    """
    workers: dict[str, Any] = {}
    for name, command in commands.items():
        print(f"starting {name}", flush=True)
        errors = tempfile.TemporaryFile("w+")
        worker: Any = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        while (line := worker.stdout.readline()) and line != _READY:
            pass
        if line:
            workers[name] = worker
        else:
            errors.seek(0)
            lines = errors.read().strip().splitlines()
            print(f"{name} failed: {lines[-1] if lines else ''}", flush=True)
    seconds: Seconds = {name: [] for name in workers}
    for number in range(1, rounds + 1):
        print(f"round {number} of {rounds}", flush=True)
        for name, worker in workers.items():
            worker.stdin.write("go\n")
            worker.stdin.flush()
            seconds[name].append(json.loads(worker.stdout.readline()))
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    return seconds


def times_as_fast(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios of the seconds within each round."""
    return statistics.median(b / a for a, b in zip(ours, theirs, strict=True))


def result_of(command: Sequence[Any], **settings: Any) -> Any:
    """Return the JSON in the last line that a program prints; exit if it fails.

    `settings` are arguments of `subprocess.run`.
    """
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    done = subprocess.run(command, text=True, check=False, **settings)
    if done.returncode:
        sys.exit(done.stderr or done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


def precisions() -> tuple[str, ...]:
    """Return the precisions to measure: bfloat16 only where it is not emulated."""
    from bert_keras.runs.environment import computes_bfloat16

    return ("float32", "bfloat16") if computes_bfloat16() else ("float32",)


def machine() -> dict[str, Any]:
    """Return the versions, the processor and its features."""
    from bert_keras.runs.environment import environment, processor_features

    return {**environment(), "features": processor_features()}


def write_results(path: Path | None, results: Any) -> None:
    """Write results and the machine as JSON, if there is a path."""
    if path is not None:
        text = json.dumps({"machine": machine(), "results": results}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")
