"""Processor time and peak memory of large files of rows.

    python benchmarks/rows_memory.py [--rows 1000000] [--train 100000 400000]
        [--large 2000000 5000000] [--large-format csv]
        [--parts read predict train large]

Writes a CSV file of short rows, 94 MB for a million, and the same as Parquet and JSONL.
Each measurement has its own process.

    read     `read_columns` of each file, beside pyarrow's reader of the format
    predict  `predict --input` of the CSV file, until the first answer and until a later
             one, and the same for a file of ten rows
    train    an epoch of `train` with a model of 2 layers of random weights, on two
             numbers of rows: what a further row adds to the peak
    large    the same without the updates, for many rows: they are read, split,
             measured in tokens and shuffled, and batches of two epochs are made

Prints a table. Seconds are of the processor; memory is the largest resident set, in
MiB, with the libraries, whose own is the row `imports`; of `large` without mapped
files, which the system drops when it needs the memory.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from alternating import result_of
from inputs import write_random

WORDS = (
    "the film was a quiet surprise and its cast, though unknown, carried every scene "
    "with wit café über dull long great"
).split()
LABELS = ("negative", "positive")
PEERS = {
    "csv": "from pyarrow import csv; csv.read_csv(path)",
    "parquet": "from pyarrow import parquet; parquet.read_table(path)",
    "jsonl": "from pyarrow import json; json.read_json(path)",
}


def write_rows(path: Path, count: int) -> None:
    """Write a CSV file of rows with 15 words and a label each."""
    draws = random.Random(0)  # noqa: S311
    texts = [" ".join(draws.choices(WORDS, k=5)) for _ in range(2000)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["text", "label"])
        for _ in range(count):
            text = " ".join(draws.choices(texts, k=3))
            writer.writerow([text, draws.choice(LABELS)])


def write_others(path: Path) -> None:
    """Write the rows of a CSV file as Parquet and as JSONL."""
    from pyarrow import parquet

    table = parquet.read_table(as_parquet(path))
    with path.with_suffix(".jsonl").open("w", encoding="utf-8") as file:
        for batch in table.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def as_parquet(path: Path) -> Path:
    """Write the rows of a CSV file as Parquet; return its path."""
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    file = path.with_suffix(".parquet")
    with arrow_csv.open_csv(path) as reader:
        with parquet.ParquetWriter(file, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
    return file


def measure(what: str, path: str, model: str) -> None:
    """Do one thing in this process; print its seconds and the peak as JSON."""
    if what == "peer":
        exec(PEERS[path.rpartition(".")[2]], {"path": path})  # noqa: S102
    elif what == "read":
        from bert_keras.data.table import read_columns

        read_columns(path, {"text": "text", "label": "label"})
    elif what == "train":
        from bert_keras import TrainConfig, train

        train(
            "classification",
            train=path,
            encoder=model,
            output=Path(path).with_suffix(".model"),
            config=TrainConfig(epochs=1, batch_size=64, max_length=24),
        )
    mib = peak("self")
    if what == "large":
        with _anonymous_peak() as found:
            make_batches(path, model)
        mib = max(found)
    print(json.dumps({"seconds": time.process_time(), "MiB": mib}))


def make_batches(path: str, model: str) -> None:
    """Do all of a run of two epochs with a file of rows, except the updates."""
    from bert_keras import TrainConfig, load_predictor
    from bert_keras.training.choices import TrainRequest
    from bert_keras.training.finetune import plan_of
    from bert_keras.training.rows import TrainingRows

    config = TrainConfig(epochs=2, batch_size=64, max_length=24)
    output = Path(path).with_suffix(".model")
    request = TrainRequest(
        task="classification", train=path, encoder=model, output=output, config=config
    )
    plan, _ = plan_of(request)
    trained = load_predictor(model).model
    rows = TrainingRows(trained, plan.rows["train"], batch_size=64, epochs=2, seed=0)
    for _ in zip(range(100), rows.dataset(rows.steps_per_epoch - 50), strict=False):
        pass  # of the end of an epoch, and of the next one


@contextlib.contextmanager
def _anonymous_peak() -> Iterator[list[float]]:
    """Yield what gets the memory of this process without mapped files, in MiB."""
    found: list[float] = []
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(0.02):
            status = Path("/proc/self/status").read_text(encoding="utf-8")
            found.append(int(status.partition("RssAnon:")[2].split()[0]) / 1024)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        is_done.set()
        thread.join()


def peak(process: int | str) -> float:
    """Return the largest resident set of a process in MiB.

    Not `ru_maxrss`: a new process inherits it from its parent.
    """
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def until_answer(number: int, path: Path, model: Path) -> dict[str, float]:
    """Return the seconds and the peak until `predict` answers a row, from 1."""
    command = [sys.executable, "-m", "bert_keras", "predict", str(model)]
    with subprocess.Popen(
        [*command, "--input", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        for _ in range(number):
            process.stdout.readline()  # type: ignore[union-attr]
        seconds = _processor_seconds(process.pid)
        found = {"seconds": seconds, "MiB": peak(process.pid)}
        process.kill()
    return found


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def show(name: str, found: dict[str, float]) -> None:
    print(f"{name:<34} {found['seconds']:8.2f} s {found['MiB']:8.0f} MiB", flush=True)


def worker(what: str, path: Path, model: Path) -> dict[str, float]:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, __file__, "--measure", what, str(path), str(model)]
    found: dict[str, float] = result_of(command, env=environ)
    return found


def compare(
    parts: Sequence[str],
    rows: int,
    train: Sequence[int],
    large: Sequence[int],
    large_format: str,
) -> None:
    """Measure the parts, and print a line for each measurement."""
    from bert_keras import Classification

    with tempfile.TemporaryDirectory() as place:
        path, model = Path(place) / "rows.csv", Path(place) / "model"
        write_rows(path, rows)
        write_random(model, "tiny", Classification(LABELS), max_length=24)
        if "read" in parts:
            write_others(path)
            show("imports", worker("nothing", path, model))
            for ending in PEERS:
                file = path.with_suffix(f".{ending}")
                ours, peer = (worker(what, file, model) for what in ("read", "peer"))
                show(f"{ending}, {rows:,} rows", ours)
                show(f"{ending}, pyarrow", peer)
                ratio = peer["seconds"] / ours["seconds"]
                print(f"{ending}, pyarrow's seconds / ours {ratio:15.2f}")
        if "predict" in parts:
            few = Path(place) / "few.csv"
            write_rows(few, 10)
            show("first answer of 10 rows", until_answer(1, few, model))
            show(f"first answer of {rows:,} rows", until_answer(1, path, model))
            later = rows // 5
            show(f"answer {later:,} of {rows:,}", until_answer(later, path, model))
        for what, counts in (("train", train), ("large", large)):
            found = []
            for count in counts if what in parts else ():
                write_rows(path, count)
                is_parquet = what == "large" and large_format == "parquet"
                file = as_parquet(path) if is_parquet else path
                found.append(worker(what, file, model))
                show(f"{what}, {count:,} rows", found[-1])
            if found:
                more = (found[-1]["MiB"] - found[0]["MiB"]) * 2**20
                print(f"bytes per further row {more / (counts[-1] - counts[0]):26.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="default: 1000000")
    parser.add_argument("--train", type=int, nargs=2, default=(100_000, 400_000))
    many = (2_000_000, 5_000_000)
    parser.add_argument("--large", type=int, nargs=2, default=many)
    parser.add_argument("--large-format", choices=("csv", "parquet"), default="csv")
    names = ("read", "predict", "train", "large")
    parser.add_argument("--parts", nargs="+", choices=names, default=names)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
    else:
        given = (options.rows, options.train, options.large, options.large_format)
        compare(options.parts, *given)


if __name__ == "__main__":
    main()
