"""Seconds and memory to load a BERT-base, compared with transformers.

    python benchmarks/load_speed.py [--rounds 5] [--size base]

Writes random weights of that size to a temporary folder, as safetensors and as Google's
checkpoint, and loads them by `BertEncoder.from_pretrained` and by transformers'
`BertModel.from_pretrained`, alternately, each time in a new process. Only this call is
measured, after the imports and a first variable. Prints the minimum seconds over the
rounds and the processor time of that round, the peak memory of the call relative to the
size of the weights, and the ratio. transformers maps the file: it reads the weights,
and uses memory for them, only when they are used.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
from alternating import result_of

from bert_keras.checkpoints import write_google, write_huggingface
from bert_keras.checkpoints.matching import encoder_shapes
from bert_keras.config import BertConfig

ROOT = Path(__file__).resolve().parents[1]
LOADERS = {
    "ours": """
import keras
from bert_keras.model.encoder import BertEncoder as model
keras.Variable(0.0)
""",
    "transformers": """
import torch
from transformers import BertModel as model
torch.zeros(1)
""",
}
MEASURE = """
import json, sys, time
def peak():  # of this program only: `getrusage` also counts its parent
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
before = peak()
started, busy = time.perf_counter(), time.process_time()
model = model.from_pretrained(sys.argv[1])
seconds, busy = time.perf_counter() - started, time.process_time() - busy
print(json.dumps({"seconds": seconds, "busy": busy, "bytes": peak() - before}))
"""


def make(folder: Path, config: BertConfig) -> tuple[dict[str, Path], int]:
    """Write the checkpoints; return their folders and the bytes of the weights."""
    draw = np.random.default_rng(0)
    arrays = {
        name: 0.02 * draw.standard_normal(shape, np.float32)
        for name, shape in encoder_shapes(config).items()
    }
    said = {**config.to_dict(), "architectures": ["BertModel"]}
    write_huggingface(folder / "safetensors", arrays, said)
    write_google(folder / "google", arrays, {**said, "hidden_act": "gelu_new"})
    folders = {name: folder / name for name in ("safetensors", "google")}
    return folders, sum(array.nbytes for array in arrays.values())


def load(who: str, folder: Path) -> dict[str, float]:
    """Return the seconds and the bytes of one load in a new process."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["PYTHONPATH"] = str(ROOT)
    environment["TRANSFORMERS_VERBOSITY"] = "error"
    command = [sys.executable, "-c", LOADERS[who] + MEASURE, str(folder)]
    return result_of(command, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", default="base", help="a preset, such as base, tiny")
    options = parser.parse_args()
    config = BertConfig.from_preset(options.size)
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores")
    with tempfile.TemporaryDirectory(prefix="bert-keras-") as work:
        folders, size = make(Path(work), config)
        print(f"{options.size}: {size / 1e6:,.0f} MB; minimum of {options.rounds}")
        runs = [
            ("ours", "safetensors"),
            ("transformers", "safetensors"),
            ("ours", "google"),
        ]
        found: dict[tuple[str, str], list[dict[str, float]]] = {run: [] for run in runs}
        for _ in range(options.rounds):
            for who, kind in runs:
                found[who, kind].append(load(who, folders[kind]))
    least = {run: min(row["seconds"] for row in rows) for run, rows in found.items()}
    for (who, kind), rows in found.items():
        memory = max(row["bytes"] for row in rows) / size
        busy = min(row["busy"] for row in rows)
        print(
            f"{who:<13}{kind:<12}{least[who, kind]:6.2f} s, busy {busy:.2f} s, "
            f"memory {memory:.2f} x the weights"
        )
    ratio = least["transformers", "safetensors"] / least["ours", "safetensors"]
    print(f"ours / transformers, speed on safetensors: {ratio:.2f}")


if __name__ == "__main__":
    main()
