"""What pretraining for a time is worth: recipes and objectives, at equal time.

    python benchmarks/pretraining_budget.py [--minutes 90] [--size 4/256/4] \
[--seeds 3] [--arms budget defaults replaced-token] [--tasks news sms cola] \
[--corpus FOLDER] [--work FOLDER] [--processor-time]

Learns 8,000 pieces from all files of `data/wiki_en` except the last, writes examples of
128 tokens without masks or pairs, and pretrains for the minutes with each recipe:

- `budget`: what `--minutes` chooses by itself; without `--size`, the size, too;
- `defaults`: 256 examples an update and the rate 1e-4, as the paper, with the steps
  that the time allows, of the same size;
- `replaced-token`: as `budget`, of its size and batch, on replaced tokens;
- `before`: as `budget`, with dropout, the paper's initial weights and warmup, and the
  rate 1e-3; `dropout` and `narrow` have one of the first two each;
- `masks-30`: as `budget`, with 30% of the tokens masked.

Then fine-tunes each on AG News (1,024 rows), SMS (1,024) and CoLA (1,024), unless
`--tasks` names others or none, and prints updates, tokens, held-out scores with 15% of
the tokens masked, and accuracies. `--corpus` reads the `train.txt` and `held_out.txt`
of a folder, as `examples/python_corpus.py` writes, in place of Wikipedia: text of one
kind, of which small models learn something within minutes. The minutes are of the
clock, and nothing else may run beside it, or of the processor with `--processor-time`,
for which it is bound to one core (`taskset -c 0`). Runs that are in the folder are not
repeated, and an interrupted one goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from few_labels import ours
from inputs import DATA, cola, news, sms

SETS = {"news": news(256), "sms": sms(1024), "cola": cola(1024)}
_DROPOUT = {"dropout": 0.1}
_NARROW = {"initializer_range": 0.02}
_BEFORE = {**_DROPOUT, **_NARROW, "warmup_ratio": 0.01}
ARMS: dict[str, dict[str, Any]] = {  # options, and sizes in place of the chosen
    "budget": {},
    "defaults": {**_BEFORE, "batch_size": 256, "learning_rate": 1e-4},
    "replaced-token": {"objective": "replaced-token"},
    "before": {**_BEFORE, "learning_rate": 1e-3},
    "dropout": _DROPOUT,
    "narrow": _NARROW,
    "masks-30": {"mask_rate": 0.3},
}
_TEST_ROWS = 2000


def prepare(work: Path, corpus: Path | None) -> None:
    """Write the vocabulary and the data, unless they exist."""
    if (work / "held_out").exists():
        return
    files = sorted((DATA / "wiki_en").glob("wiki_*"))
    parts = {"train": files[:-1], "held_out": files[-1:]}
    others: list[str] = []
    if corpus is not None:
        parts = {name: [corpus / f"{name}.txt"] for name in parts}
        others = ["--form", "text"]
    verb = [sys.executable, "-m", "bert_keras"]
    vocab = work / "vocabulary"
    words = [*parts["train"], "--size", "8000", "--output", vocab]
    subprocess.run([*verb, "vocab", *words], check=True)
    for name, part in parts.items():
        words = [*part, "--vocab", vocab, "--masking", "dynamic", *others]
        words += ["--next-sentence", "none", "--output", work / name]
        subprocess.run([*verb, "pretraining-data", *words], check=True)


def pretrained(
    arm: str, seed: int, options: argparse.Namespace, chosen: dict[str, Any]
) -> dict[str, Any]:
    """Return the scores of a pretrained model; `chosen` gets what `budget` chooses."""
    import bert_keras
    from bert_keras.pretraining import PretrainConfig
    from bert_keras.runs.run_folder import settings_of

    work, size = options.work, chosen.get("size", options.size)
    config = PretrainConfig(
        minutes=options.minutes, seed=seed, batch_size=chosen.get("batch_size")
    )
    names = {each.name for each in dataclasses.fields(PretrainConfig)}
    of_config = {k: v for k, v in ARMS[arm].items() if k in names}
    config = dataclasses.replace(config, **of_config)
    own = {k: v for k, v in ARMS[arm].items() if k not in names}
    tokens = len((work / "vocabulary/vocab.txt").read_text().splitlines())
    sizes = None
    if size:
        sizes = config.new_sizes(size, tokens, **own)
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
        settings = settings_of(result.folder.parent) or {}
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
    parser.add_argument("--arms", nargs="+", default=[*ARMS][:3], choices=ARMS)
    parser.add_argument("--tasks", nargs="*", default=[*SETS], choices=SETS)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--work", type=Path, default=Path("pretraining_budget"))
    parser.add_argument("--processor-time", action="store_true")
    parser.set_defaults(max_length=64, epochs=4, no_folds=False)
    options = parser.parse_args()
    if options.processor_time:
        from bert_keras.pretraining.clock import Clock

        Clock.now = staticmethod(time.process_time)
    options.work.mkdir(exist_ok=True)
    prepare(options.work, options.corpus)
    chosen: dict[str, Any] = {}
    arms = sorted(options.arms, key=[*ARMS].index)  # `budget` chooses first
    for seed, arm in itertools.product(range(options.seeds), arms):
        row = pretrained(arm, seed, options, chosen)
        folder = row.pop("folder")
        for name in options.tasks:
            train, test = SETS[name](np.random.default_rng(seed))
            found = ours(
                *("finetune", train, test[:_TEST_ROWS], [], seed, options),
                encoder=str(folder),
            )
            row[name] = found[0]
        if options.tasks:
            row["mean"] = statistics.mean(row[name] for name in options.tasks)
        print(json.dumps({"arm": arm, "seed": seed, **row}), flush=True)


if __name__ == "__main__":
    main()
