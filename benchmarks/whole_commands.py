"""Time whole commands beside plain scripts of the peer, from start to end.

    python benchmarks/whole_commands.py [--work one-text sms …] [--rounds 3]
        [--peer-python PYTHON] [--json FILE]

People wait for whole processes: imports, reading the model, tracing, computing and
writing count. Each side runs in a new process, one after the other, alternating. The
peers are `whole_command_peer.py`: transformers, or sentence-transformers for vectors,
with threads on all cores, texts sorted by length and no gradients where none are
needed; training makes the same updates. `export` is compared with loading the folder.

    one-text   `predict` of one text
    sms        `predict --input` of 1,000 messages
    few-rows   `train` on 32 messages, 20 epochs
    emails     `train` on 392 e-mails, 6 epochs of batches of 16, as `make demo`
    evaluate   `evaluate` on 1,000 messages
    features   `features` of 1,400 abstracts
    search     `search` of one query among them, with an index
    export     `export` of a SavedModel
    serve      `serve`, until it answers a question about the model
    answer     `serve`, until it answers a text
    engine-text, engine-sms, engine-answer
               the same of an export for ONNX Runtime, beside scripts of onnxruntime and
               tokenizers
    engine-int8
               1,000 messages by an export in int8, beside optimum's pipeline
    engine-vector
               the vector of one text by an export, beside fastembed

optimum-onnx and fastembed are not in `.venv-peers`: `--peer-python` names a Python that
has them.

Bytes are what a process and its children write, including to pipes (`wchar` of
`/proc`); memory is the largest resident set.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alternating import times_as_fast, write_results
from inputs import DATA, encoder_path, messages

HERE = Path(__file__).resolve().parent
EMAILS = HERE.parent / "examples/data/emails"
TEXT = "You have won a free prize, call now"
QUERY = "heat transfer at a stagnation point"
GOALS = {
    "one-text": 1.0,
    "sms": 1.3,
    "few-rows": 1.2,
    "emails": 1.5,
    "evaluate": 1.0,
    "features": 1.3,
    "search": 1.0,
    "export": 0.6,
    "serve": 1.0,
    "answer": 1.0,
    "engine-text": 0.8,
    "engine-sms": 1.0,
    "engine-answer": 1.0,
    "engine-int8": 1.3,
    "engine-vector": 1.0,
}
_EXPORTS = {  # what is exported for ONNX Runtime, and the options
    "engine": ("classifier",),
    "engine-int8": ("classifier", "--int8"),
    "engine-vector": (encoder_path(),),
}
_PATIENCE = 600.0  # seconds


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a process has cost.

    Args:
        seconds: from its start to its end, or until it answers.
        user, system: seconds of processor time.
        written: bytes.
        memory: bytes.
    """

    seconds: float
    user: float
    system: float
    written: int
    memory: int


def cost_of(command: list[str], *, url: str = "", body: bytes | None = None) -> Cost:
    """Run a process to its end, or until it answers `body`, or GET, at `url`.

    Raises:
        RuntimeError: the process fails, or does not answer.
    """
    # Without cached byte code each process would compile thousands of modules.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, env=environment
        )
        if url:
            wait_for(url, process, body)
            seconds = time.perf_counter() - started
            written = written_by(process.pid)
            process.terminate()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if not url:
            seconds = time.perf_counter() - started
            written = written_by(process.pid)  # while its entry is still there
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode and not url:
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            raise RuntimeError(f"{command}: {lines[-1] if lines else ''}")
    return Cost(
        seconds, usage.ru_utime, usage.ru_stime, written, 1024 * usage.ru_maxrss
    )


def written_by(process: int) -> int:
    """Return the bytes that a process has written; 0 if the system does not tell."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path(f"/proc/{process}/io").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("wchar")).split()[1])
    return 0


def wait_for(url: str, process: subprocess.Popen[bytes], body: bytes | None) -> None:
    """Return when a server answers; raise RuntimeError if it does not."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):  # refused, or slow at first
            urllib.request.urlopen(url, body, timeout=60).close()  # noqa: S310
            return
        time.sleep(0.02)
    raise RuntimeError(f"{url} does not answer")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def write_csv(path: Path, names: list[str], rows: list[list[str]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def write_inputs(folder: Path, exports: set[str]) -> None:
    """Write the files that the commands read, and a classifier as transformers does.

    Also exports of it or the encoder, by their names in `_EXPORTS`.
    """
    rows = messages()
    write_csv(folder / "few.csv", ["label", "text"], rows[:32])
    write_csv(folder / "sms.csv", ["text"], [[text] for _, text in rows[:1000]])
    write_csv(folder / "labelled.csv", ["label", "text"], rows[1000:2000])
    lines = (DATA / "cranfield/corpus.jsonl").read_text("utf-8").splitlines()
    abstracts = [json.loads(line)["text"] for line in lines]  # two are empty
    write_csv(
        folder / "abstracts.csv", ["text"], [[text] for text in abstracts if text]
    )
    subprocess.run(
        peer("classifier", encoder_path(), folder / "classifier"), check=True
    )
    for name in exports:
        model, *words = _EXPORTS[name]
        export = ours("export", folder / model, folder / name, "--format", "onnx")
        subprocess.run([*export, *words], check=True)


def export_of(work: str) -> str | None:
    """Return the name in `_EXPORTS` of what a work reads."""
    if not work.startswith("engine"):
        return None
    return work if work in _EXPORTS else "engine"


def ours(*words: Any) -> list[str]:
    return [sys.executable, "-m", "bert_keras", *map(str, words)]


def peer(*words: Any, python: str = sys.executable) -> list[str]:
    script = HERE / "whole_command_peer.py"
    return [python, str(script), *map(str, words)]


def commands(
    work: str, folder: Path, output: Path, port: int, python: str
) -> dict[str, list[str]]:
    """Return the command of each side; both write to `output`."""
    encoder, model = encoder_path(), folder / "classifier"
    if work == "few-rows":
        given = ["--train", folder / "few.csv", "--epochs", 20]
    else:
        given = ["--train", EMAILS / "train.csv", "--dev", EMAILS / "dev.csv"]
        given += ["--epochs", 6, "--batch-size", 16, "--learning-rate", 2e-4]
    train = ["train", "classification", "--encoder", encoder, *given]
    load = [sys.executable, "-c"]
    load += [f"import bert_keras; bert_keras.load_predictor({str(model)!r})"]
    texts, index = folder / "abstracts.csv", folder / "index.npz"
    found = {
        "one-text": (
            ours("predict", model, TEXT),
            peer("predict", model, "--text", TEXT),
        ),
        "sms": (
            ours("predict", model, "--input", folder / "sms.csv"),
            peer("predict", model, "--input", folder / "sms.csv"),
        ),
        "few-rows": (
            ours(*train, "--output", output),
            peer("train", encoder, folder / "few.csv", output, "--epochs", 20),
        ),
        "emails": (
            ours(*train, "--output", output),
            peer(
                *("train", encoder, EMAILS / "train.csv", output, "--epochs", 6),
                *("--dev", EMAILS / "dev.csv"),
            ),
        ),
        "evaluate": (
            ours("evaluate", model, folder / "labelled.csv"),
            peer("predict", model, "--input", folder / "labelled.csv"),
        ),
        "features": (
            ours("features", encoder, texts, "--output", output.with_suffix(".npz")),
            peer("vectors", encoder, texts, output.with_suffix(".npz")),
        ),
        "search": (
            ours("search", encoder, texts, QUERY, "--index", index),
            peer("search", encoder, texts, folder / "peer.npz", "--text", QUERY),
        ),
        "export": (ours("export", model, output), load),
        "serve": (
            ours("serve", f"model={model}", "--port", port, "--no-grpc"),
            peer("serve", model, "--port", port),
        ),
    }
    found["answer"] = found["serve"]
    engine, sms = folder / (export_of(work) or ""), folder / "sms.csv"
    found |= {
        "engine-text": (
            ours("predict", engine, TEXT),
            peer("engine", engine, "--text", TEXT),
        ),
        "engine-sms": (
            ours("predict", engine, "--input", sms),
            peer("engine", engine, "--input", sms),
        ),
        "engine-answer": (
            ours("serve", f"model={engine}", "--port", port),
            peer("serve_engine", engine, "--port", port),
        ),
        "engine-int8": (
            ours("predict", engine, "--input", sms),
            peer("optimum", engine, "--input", sms, python=python),
        ),
        "engine-vector": (
            ours("predict", engine, TEXT),
            peer("fastembed", engine, "--text", TEXT, python=python),
        ),
    }
    return dict(zip(("bert_keras", "peer"), found[work], strict=True))


def rounds_of(
    work: str, folder: Path, rounds: int, python: str
) -> dict[str, list[Cost]]:
    """Return the costs of each side and round; a round before the first is dropped.

    It fills the caches of files, and writes the indices of `search`.
    """
    costs: dict[str, list[Cost]] = {"bert_keras": [], "peer": []}
    for number in range(rounds + 1):
        for side in costs:
            port, output = free_port(), folder / f"{work}-{side}"
            command = commands(work, folder, output, port, python)[side]
            if work == "serve" or work.endswith("answer"):
                url = f"http://127.0.0.1:{port}/v1/models/model"  # any for the peer
                body = json.dumps({"instances": [TEXT]}).encode()
                is_text = work != "serve"
                url += ":predict" if is_text else ""
                cost = cost_of(command, url=url, body=body if is_text else None)
            else:
                cost = cost_of(command)
            if number:
                costs[side].append(cost)
            for path in folder.glob(f"*{work}-{side}*"):  # and the folder of a run
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        print(f"{work}: round {number} of {rounds}", flush=True)
    return costs


def result_of(work: str, costs: dict[str, list[Cost]]) -> dict[str, Any]:
    """Return what is saved of a work: seconds, ratio, and medians of other costs."""
    mine, theirs = costs["bert_keras"], costs["peer"]
    seconds = {side: [cost.seconds for cost in each] for side, each in costs.items()}
    medians = {
        name: {
            side: statistics.median(getattr(cost, name) for cost in each)
            for side, each in costs.items()
        }
        for name in ("user", "system", "written", "memory")
    }
    ratio = times_as_fast([c.seconds for c in mine], [c.seconds for c in theirs])
    return {"seconds": seconds, "ratio": ratio, "goal": GOALS[work], **medians}


def measured(
    works: list[str], rounds: int, python: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as name:
        write_inputs(Path(name), {e for e in map(export_of, works) if e})
        for work in works:
            yield work, result_of(work, rounds_of(work, Path(name), rounds, python))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", nargs="+", choices=GOALS, default=list(GOALS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not DATA.exists():
        print(f"skipped: {DATA} is missing")
        return
    results = {}
    for work, found in measured(options.work, options.rounds, options.peer_python):
        results[work] = found
        write_results(options.json, results)  # of what is done, if a later one fails
        written = [each / 1e6 for each in found["written"].values()]
        memory = [each / 1e6 for each in found["memory"].values()]
        middle = {side: statistics.median(s) for side, s in found["seconds"].items()}
        print(
            f"{work}: bert_keras {middle['bert_keras']:.1f} s, peer "
            f"{middle['peer']:.1f} s, ratio {found['ratio']:.2f}, "
            f"goal {found['goal']:g}; written {written[0]:.0f} and {written[1]:.0f} "
            f"MB, memory {memory[0]:.0f} and {memory[1]:.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
