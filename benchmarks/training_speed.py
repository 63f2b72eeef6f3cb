"""Fine-tuning speed, compared with transformers on torch.

    python benchmarks/training_speed.py [--work sms base] [--rounds 3] [--json FILE]

Both sides train a classifier on the same rows in the same number of updates, with the
recipe of the paper, for one epoch. They run alternately, each in its own process, so
that a drift of the machine's speed affects both; the reported number is the ratio of
useful tokens per second within a round. Useful tokens are all but
padding. The first update, in which TensorFlow builds its graph
and torch warms up, is left out. transformers draws its batches at random in float32,
which is its default; in bfloat16 it uses autocast and batches grouped by length.
bfloat16 is left out on a processor that emulates it.

    sms     all-MiniLM-L6-v2, 1,280 SMS messages, batches of 32
    base    BERT-base with random weights, 192 contexts of SQuAD, cut to 8 to 128
            tokens, batches of 32
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from alternating import machine, precisions, result_of, write_results
from inputs import DATA, contexts, encoder_path, messages, write_random

CLASSES = ("no", "yes")
BATCH, MAX_LENGTH, RATE = 32, 128, 5e-5
WORKS = {"sms": 1280, "base": 192}
SIDES = ("bert_keras", "transformers")


def rows(work: str) -> tuple[list[str], list[str]]:
    """Return texts and labels, the same in each process."""
    draw = random.Random(0)
    if work == "sms":
        pairs = messages()
        draw.shuffle(pairs)
        chosen = pairs[: WORKS[work]]
        return [text for _, text in chosen], [
            CLASSES[label == "spam"] for label, _ in chosen
        ]
    found = contexts()
    draw.shuffle(found)
    texts = [
        " ".join(text.split()[: draw.randint(6, 110)]) for text in found[: WORKS[work]]
    ]
    return texts, [CLASSES[len(text) % 2] for text in texts]


def bert_keras_ends(encoder: str, work: str, precision: str, seed: int) -> list[float]:
    """Return the time after each update."""
    from bert_keras import Classification, TrainConfig, as_columns
    from bert_keras.models.loading import new_model
    from bert_keras.training.updates import fit

    texts, labels = rows(work)
    config = TrainConfig(
        epochs=1,
        batch_size=BATCH,
        learning_rate=RATE,
        max_length=MAX_LENGTH,
        precision="float32" if precision == "float32" else f"mixed_{precision}",
        seed=seed,
    )
    model = new_model(Classification(CLASSES), encoder, config)
    ends: list[float] = []
    columns = as_columns(text=texts, label=labels)
    fit(model, columns, config, after_update=lambda _: ends.append(time.perf_counter()))
    return ends


def transformers_ends(
    encoder: str, work: str, precision: str, seed: int
) -> list[float]:
    """Return the time after each update."""
    from peer import TransformersPeer

    texts, labels = rows(work)
    peer = TransformersPeer(encoder, CLASSES, seed)
    ends: list[float] = []
    peer.fine_tune(
        texts,
        labels,
        epochs=1,
        batch_size=BATCH,
        learning_rate=RATE,
        max_length=MAX_LENGTH,
        bfloat16=precision == "bfloat16",
        after_update=lambda: ends.append(time.perf_counter()),
    )
    return ends


def useful_tokens(encoder: str, work: str) -> int:
    """Return the number of tokens of all texts, with [CLS] and [SEP]."""
    from bert_keras import WordPieceTokenizer

    tokenizer = WordPieceTokenizer.from_folder(encoder)
    pieces = tokenizer.tokenize(rows(work)[0])
    return sum(min(len(each) + 2, MAX_LENGTH) for each in pieces)


def run_side(side: str, precision: str, work: str, encoder: str, seed: int) -> None:
    """Print the share of the rows after the first update, and their seconds."""
    measured = bert_keras_ends if side == "bert_keras" else transformers_ends
    ends = measured(encoder, work, precision, seed)
    share = (len(ends) - 1) / len(ends)
    print(json.dumps({"share": share, "seconds": ends[-1] - ends[0]}))


def measure(work: str, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the useful tokens per second of each side and round."""
    encoder = str(folder) if work == "base" else encoder_path()
    tokens = result_of([sys.executable, __file__, "--count", work, encoder])
    speeds: dict[str, list[float]] = {}
    for seed in range(rounds):
        for precision, side in itertools.product(precisions(), SIDES):
            command = [sys.executable, __file__, "--side", side, precision, work]
            found = result_of([*command, encoder, str(seed)])
            speed = tokens * found["share"] / found["seconds"]
            speeds.setdefault(f"{side} {precision}", []).append(speed)
            print(
                f"{work} round {seed + 1} {side} {precision}: {speed:,.0f} tokens/s",
                flush=True,
            )
    return speeds


def table(work: str, speeds: dict[str, list[float]]) -> dict[str, Any]:
    """Print and return the ratios to transformers in the same precision."""
    found: dict[str, Any] = {"tokens/s": speeds, "ratios": {}}
    for precision in precisions():
        ours, theirs = (speeds[f"{side} {precision}"] for side in SIDES)
        ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
        found["ratios"][precision] = statistics.median(ratios)
        print(
            f"{work:<6}{precision:<10}{statistics.median(ours):>8,.0f} tokens/s, "
            f"{statistics.median(ratios):.2f} times transformers (from "
            f"{ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", nargs="+", choices=tuple(WORKS), default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="JSON file for all results")
    parser.add_argument("--side", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--count", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        from bert_keras import Classification

        task = Classification(CLASSES)
        return write_random(options.write, "base", task, max_length=MAX_LENGTH)
    if options.count:
        print(useful_tokens(options.count[1], options.count[0]))
        return None
    if options.side:
        side, precision, work, encoder, seed = options.side
        return run_side(side, precision, work, encoder, int(seed))
    if not (DATA / "sms_spam").is_dir():
        print(f"skipped: {DATA} is absent")
        return None
    print(json.dumps(machine()))
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "base"
        if "base" in options.work:
            subprocess.run([sys.executable, __file__, "--write", folder], check=True)
        for work in options.work:
            results[work] = table(work, measure(work, folder, options.rounds))
    write_results(options.json, results)
    return None


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
