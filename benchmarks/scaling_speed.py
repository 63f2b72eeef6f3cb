"""Speed of pretraining on 1 and 2 replicas: real tokens per second, and the limits.

    python benchmarks/scaling_speed.py [--rounds 3] [--steps 12] [--batch-size 32]

Each variant runs in its own processes, alternating with the others, and its fastest
round counts: one device; two logical devices of one process under Mirrored; one and two
workers over loopback. All share the machine's cores, so two replicas cannot be faster
than one that keeps all cores busy. The efficiency, the speed as a share of one
device's, therefore shows the cost of replicas (copies of the weights, all-reduces,
smaller products), not the gain from more machines. The model is 4/256/4 without
dropout; the first steps, in which graphs are traced, are left out. Takes about six
minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SKIPPED = 4
WAYS = {
    "one device": ("single", 1),
    "2 logical devices": ("mirrored", 1),
    "1 worker": ("multi-worker", 1),
    "2 workers": ("multi-worker", 2),
}


def measure(folder: Path, strategy: str, steps: int, batch_size: int) -> dict[str, Any]:
    """Return the measurements of a training process; runs in that process."""
    import tensorflow as tf

    if strategy == "mirrored":
        (cpu,) = tf.config.list_physical_devices("CPU")
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, halves)
    from bert_keras.distribution.strategy import find_strategy

    devices = find_strategy(strategy)  # before any computation
    from bert_keras.config import BertConfig
    from bert_keras.distribution.replicas import distributed
    from bert_keras.model.optimizers import BertAdamW
    from bert_keras.models.objective import TaskObjective
    from bert_keras.pretraining.config import PretrainConfig
    from bert_keras.pretraining.input import pretraining_dataset
    from bert_keras.pretraining.pretrainer import new_pretrainer
    from bert_keras.text.tokenizer import WordPieceTokenizer
    from bert_keras.training.train_step import TrainStep

    tokenizer = WordPieceTokenizer.from_folder(folder / "vocab")
    sizes = BertConfig.from_preset("4/256/4", vocab_size=tokenizer.vocab_size).replace(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    with devices.strategy.scope():
        model = new_pretrainer(sizes, PretrainConfig(), next_sentence=True)
        optimizer = BertAdamW(1e-4)
        optimizer.build(model.trainable_variables)
    dataset = distributed(
        devices.strategy,
        lambda share: pretraining_dataset(
            folder / "data",
            tokenizer,
            batch_size=batch_size,
            epochs=None,
            layout="packed",
            share=share,
        ),
    )
    update = TrainStep(model, optimizer, TaskObjective(model), dataset.element_spec)
    batches, tokens, waited, start = iter(dataset), 0.0, 0.0, 0.0
    for step in range(SKIPPED + steps):
        if step == SKIPPED:
            tokens, waited, start = 0.0, 0.0, time.perf_counter()
            busy = time.process_time()
        before = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - before
        made = update([batch])
        made.wait()
        tokens += made.real_tokens
    seconds = time.perf_counter() - start
    return {
        "tokens_per_second": tokens / seconds,
        "input_wait_share": waited / seconds,
        "cores_used": (time.process_time() - busy) / seconds,
        "worker": devices.worker,
    }


def start(words: list[str], workers: int, strategy: str) -> dict[str, Any]:
    """Return the measurements of a variant's first worker, with the cores of all."""
    addresses = []
    for _ in range(workers):
        with socket.socket() as free:
            free.bind(("", 0))
            addresses.append(f"localhost:{free.getsockname()[1]}")
    processes = []
    for index in range(workers):
        task = {"type": "worker", "index": index}
        cluster = json.dumps({"cluster": {"worker": addresses}, "task": task})
        environment = dict(os.environ)
        if strategy == "multi-worker":
            environment["TF_CONFIG"] = cluster
        command = [sys.executable, __file__, "--measure", strategy, *words]
        processes.append(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    found = []
    for process in processes:
        said, wrong = process.communicate()
        if process.returncode:
            raise SystemExit(wrong[-2000:])
        found.append(json.loads(said.splitlines()[-1]))
    cores = sum(each["cores_used"] for each in found)
    return {**min(found, key=lambda each: each["worker"]), "cores_used": cores}


def speed_of(found: dict[str, Any]) -> float:
    return float(found["tokens_per_second"])


def write_data(folder: Path) -> None:
    """Write a vocabulary and pretraining data of random words."""
    import numpy as np

    from bert_keras import WordPieceTokenizer
    from bert_keras.pretraining import write_pretraining_data
    from bert_keras.pretraining.config import PretrainingDataConfig

    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokens += [f"##{number}" for number in range(8000 - len(tokens))]
    (folder / "vocab").mkdir()
    tokenizer = WordPieceTokenizer(tokens)
    tokenizer.save(folder / "vocab")
    random = np.random.default_rng(1)
    documents = [
        "\n".join(" ".join(random.choice(words, 14)) for _ in range(40))
        for _ in range(120)
    ]
    write_pretraining_data(
        documents,
        folder / "data",
        to_sentences=str.splitlines,
        tokenizer=tokenizer,
        config=PretrainingDataConfig(max_length=128, masking="dynamic"),
        say=lambda line: None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="the fastest counts")
    parser.add_argument("--steps", type=int, default=12, help="timed, per variant")
    parser.add_argument("--batch-size", type=int, default=32, help="of all replicas")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sizes = {"steps": options.steps, "batch_size": options.batch_size}
        print(json.dumps(measure(Path(options.folder), options.measure, **sizes)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        words = ["--folder", folder, "--steps", str(options.steps)]
        words += ["--batch-size", str(options.batch_size)]
        best: dict[str, dict[str, Any]] = {}
        for number in range(1, options.rounds + 1):
            for name, (strategy, workers) in WAYS.items():
                found = start(words, workers, strategy)
                best[name] = max(best.get(name, found), found, key=speed_of)
                said = f"round {number}  {name:<18} {speed_of(found):8,.0f}"
                print(said, file=sys.stderr, flush=True)
    alone = speed_of(best["one device"])
    for name, found in best.items():
        speed = speed_of(found)
        print(
            f"{name:<18} {speed:8,.0f} real tokens/s  {speed / alone:4.0%} of one "
            f"device  {found['input_wait_share']:4.0%} waiting for input  "
            f"{found['cores_used']:.1f} of {os.cpu_count()} cores busy"
        )
    load = os.getloadavg()[0]
    print(
        f"limit: all ways share {os.cpu_count()} cores (load {load:.1f} at the end), "
        "so a second replica adds no cores; the loss is its copy of "
        "the weights, their update and the all-reduce; for one worker, the update by "
        "the strategy"
    )


if __name__ == "__main__":
    main()
