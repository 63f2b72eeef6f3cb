"""What pretraining for a time is worth: recipes and objectives, at equal time.

    python benchmarks/pretraining_budget.py [--minutes 90] [--size 4/256/4] \
[--seeds 3] [--arms defaults budget replaced-token] [--work FOLDER]

Learns 8,000 pieces from all files of `data/wiki_en` except the last, writes examples of
128 tokens without masks or pairs, and pretrains for the minutes with each recipe:

- `defaults`: 256 examples an update and the rate 1e-4, as the paper, with the steps
  that the time allows;
- `budget`: what `--minutes` chooses by itself; without `--size`, the size, too;
- `replaced-token`: the same on replaced tokens, of the size and the batch of `budget`.

Then fine-tunes each on AG News (1,024 rows), SMS (1,024) and CoLA (1,024), and prints
updates, tokens, held-out scores and accuracies. Nothing else may run beside it. Runs
that are in the folder are not repeated, and an interrupted one goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from few_labels import ours
from inputs import DATA, cola, news, sms

SETS = {"news": news(256), "sms": sms(1024), "cola": cola(1024)}
ARMS = ("defaults", "budget", "replaced-token")
_TEST_ROWS = 2000


def prepare(work: Path) -> None:
    """Write the vocabulary and the data, unless they exist."""
    files = sorted((DATA / "wiki_en").glob("wiki_*"))
    verb = [sys.executable, "-m", "bert_keras"]
    vocab = work / "vocabulary"
    if not (vocab / "vocab.txt").exists():
        words = [*files[:-1], "--size", "8000", "--output", vocab]
        subprocess.run([*verb, "vocab", *words], check=True)
    for name, part in (("train", files[:-1]), ("held_out", files[-1:])):
        words = [*part, "--vocab", vocab, "--masking", "dynamic"]
        words += ["--next-sentence", "none", "--output", work / name]
        subprocess.run([*verb, "pretraining-data", *words], check=True)


def pretrained(
    arm: str, seed: int, options: argparse.Namespace, chosen: dict[str, Any]
) -> dict[str, Any]:
    """Return the scores of a pretrained model; `chosen` gets what `budget` chooses."""
    import bert_keras
    from bert_keras.pretraining import PretrainConfig

    work, size = options.work, chosen.get("size", options.size)
    config = PretrainConfig(minutes=options.minutes, seed=seed)
    if arm == "defaults":
        changes: dict[str, Any] = {"batch_size": 256, "learning_rate": 1e-4}
        config = dataclasses.replace(config, **changes)
    elif arm == "replaced-token":
        config = dataclasses.replace(
            config, objective=arm, batch_size=chosen.get("batch_size")
        )
    tokens = len((work / "vocabulary/vocab.txt").read_text().splitlines())
    sizes = bert_keras.BertConfig.from_preset(size, vocab_size=tokens) if size else None
    result = bert_keras.pretrain(
        sizes,
        work / "train",
        work / f"{arm}-{options.minutes:g}-{seed}",
        vocab=work / "vocabulary",
        held_out=work / "held_out",
        config=config,
    )
    if arm == "budget":
        found = result.model.encoder.config
        parts = found.num_hidden_layers, found.hidden_size, found.num_attention_heads
        settings = json.loads((result.folder.parent / "settings.json").read_text())
        chosen.update(size="/".join(map(str, parts)), batch_size=settings["batch_size"])
    rows = [row for row in result.history if "loss" in row]
    tokens_read = sum(row["tokens"] for row in rows)
    return {"steps": rows[-1]["step"], "tokens": tokens_read, **result.scores} | {
        "folder": result.folder
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--size")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--work", type=Path, default=Path("pretraining_budget"))
    parser.set_defaults(max_length=64, epochs=4, no_folds=False)
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    prepare(options.work)
    chosen: dict[str, Any] = {}
    for arm in sorted(options.arms, key=("budget", *ARMS).index):  # which chooses first
        for seed in range(options.seeds):
            row = pretrained(arm, seed, options, chosen)
            folder = row.pop("folder")
            for name, rows in SETS.items():
                train, test = rows(np.random.default_rng(seed))
                row[name], _ = ours(
                    "finetune",
                    train,
                    test[:_TEST_ROWS],
                    [],
                    seed,
                    options,
                    encoder=str(folder),
                )
            row["mean"] = statistics.mean(row[name] for name in SETS)
            print(json.dumps({"arm": arm, "seed": seed, **row}), flush=True)


if __name__ == "__main__":
    main()
