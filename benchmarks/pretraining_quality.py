"""Pretraining on Wikipedia, compared with transformers on the same batches.

    python benchmarks/pretraining_quality.py [--steps 2000] [--size 2/128/2] [--seeds 1]
        [--objective replaced-token]

Learns 8,000 pieces from all files of `data/wiki_en` except the last, writes examples of
128 tokens without masks, and trains both sides from the same initial weights, on the
same batches with the same masks: 16 examples, learning rate 1e-3, 10% warmup, dropout
0.1. The reference is `BertForPreTraining` in a plain torch loop with fused AdamW.
Prints the mean loss of each tenth of the steps, held-out perplexity and accuracies, and
real tokens per second. The data is written to `--work` and reused.

With `--objective replaced-token`, the reference is `ElectraForMaskedLM`, a quarter as
wide, beside `ElectraForPreTraining`, with shared embeddings and the paper's weight of
50; the held-out scores are then the generator's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from alternating import result_of
from inputs import DATA
from seeded_runs import SIDES

WIKIPEDIA = DATA / "wiki_en"
BATCH, RATE, WARMUP, VOCABULARY, HELD_OUT = 16, 1e-3, 0.1, 8_000, 1_000
REPLACED_TOKEN = "replaced-token"


def prepare(options: argparse.Namespace) -> None:
    """Write the vocabulary, the data and the initial weights, unless they exist."""
    work, size = options.work, options.size
    files = sorted(WIKIPEDIA.glob("wiki_*"))
    verb = [sys.executable, "-m", "bert_keras"]
    vocab = work / "vocabulary"
    if not (vocab / "vocab.txt").exists():
        words = [*files[:-1], "--size", str(VOCABULARY), "--output", vocab]
        subprocess.run([*verb, "vocab", *words], check=True)
    for name, part in (("train", files[:-1]), ("held_out", files[-1:])):
        words = [*part, "--vocab", vocab, "--masking", "dynamic"]
        command = [*verb, "pretraining-data", *words, "--output", work / name]
        subprocess.run(command, check=True)
    first = first_weights(work, options)
    if not first.exists():
        import bert_keras
        from bert_keras.files.atomic import replaced_folder
        from bert_keras.pretraining.pretrainer import (
            generator_config,
            new_pretrainer,
            write_pretrainer,
        )

        tokenizer = bert_keras.WordPieceTokenizer.from_folder(vocab)
        sizes = bert_keras.BertConfig.from_preset(size, vocab_size=tokenizer.vocab_size)
        config = bert_keras.pretraining.PretrainConfig(seed=0)
        heads: dict[str, Any] = {"next_sentence": True}
        if options.objective == REPLACED_TOKEN:
            sizes = sizes.replace(
                model_type="electra", embedding_size=sizes.hidden_size
            )
            heads = {"next_sentence": False, "generator": generator_config(sizes, 0.25)}
        with replaced_folder(first) as folder:
            model = new_pretrainer(sizes, config, **heads)
            write_pretrainer(folder, model, tokenizer)


def first_weights(work: Path, options: argparse.Namespace) -> Path:
    kind = "detecting" if options.objective == REPLACED_TOKEN else "first"
    return work / f"{kind}_{options.size.replace('/', '-')}"


def run_bert_keras(options: argparse.Namespace) -> dict[str, Any]:
    import bert_keras

    work, seed = options.work, options.seed
    first = first_weights(work, options)
    name = f"run_{first.name}_{options.steps}_{seed}"
    result = bert_keras.pretrain(
        first,
        work / "train",
        work / name,
        held_out=work / "held_out",
        config=bert_keras.pretraining.PretrainConfig(
            steps=options.steps,
            batch_size=BATCH,
            learning_rate=RATE,
            warmup_ratio=WARMUP,
            seed=seed,
            checkpoint_every=options.steps,
            evaluate_every=options.steps,
            held_out_examples=HELD_OUT,
            objective=options.objective,
        ),
    )
    rows = [row for row in result.history if "loss" in row]
    edges = [0, *(row["step"] for row in rows)]
    losses = [
        loss
        for row, before in zip(rows, edges, strict=False)
        for loss in [row["loss"]] * (row["step"] - before)
    ]
    later = rows[len(rows) // 10 :]  # the first row includes tracing
    seconds = sum(row["tokens"] / row["tokens_per_second"] for row in later)
    speed = sum(row["tokens"] for row in later) / seconds
    return {"losses": losses, "speed": speed, **result.scores}


def run_transformers(options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from peer import PeerUpdates
    from transformers import BertForPreTraining

    work, steps, seed = options.work, options.steps, options.seed
    torch.manual_seed(seed)
    random.seed(seed)
    torch.set_num_threads(os.cpu_count() or 1)
    first = first_weights(work, options)
    model: Any
    if options.objective == REPLACED_TOKEN:
        model = replaced_token_peer(first)
    else:
        model = BertForPreTraining.from_pretrained(first)
    update = PeerUpdates(model, RATE, steps)
    losses, tokens, started = [], 0, 0.0
    batches = itertools.islice(batches_of(work / "train", work, seed, None), steps)
    for number, (inputs, labels, pairs) in enumerate(batches):
        if number == steps // 10:
            started, tokens = time.perf_counter(), 0
        if options.objective == REPLACED_TOKEN:
            loss = model(inputs, labels)
        else:
            loss = model(**inputs, labels=labels, next_sentence_label=pairs).loss
        update(loss)
        losses.append(loss.item())
        tokens += int(inputs["attention_mask"].sum())
        if number % 50 == 0:
            print(f"step {number} loss {losses[-1]:.4f}", file=sys.stderr, flush=True)
    speed = tokens / (time.perf_counter() - started)
    return {"losses": losses, "speed": speed, **held_out_scores(model, work)}


def replaced_token_peer(folder: Path) -> Any:
    """Return generator and discriminator of transformers, with shared embeddings.

    Call: inputs and labels, as in `batches_of`; returns the loss of both. Source: Clark
    et al. 2020 (arXiv:2003.10555), section 2.
    """
    import torch
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    class Pair(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.judge = ElectraForPreTraining.from_pretrained(folder)
            self.fill = ElectraForMaskedLM.from_pretrained(folder / "generator")
            embeddings = self.judge.electra.embeddings
            self.fill.electra.embeddings = embeddings
            self.fill.generator_lm_head.weight = embeddings.word_embeddings.weight

        def forward(self, inputs: Any, labels: Any) -> Any:
            found = self.fill(**inputs, labels=labels)
            kept = labels >= 0
            noise = -torch.empty_like(found.logits[kept]).exponential_().log()
            read = inputs["input_ids"].clone()
            read[kept] = (found.logits[kept].detach() + noise).argmax(-1)
            replaced = kept & (read != labels)
            judged = self.judge(**{**inputs, "input_ids": read}, labels=replaced.long())
            return found.loss + 50 * judged.loss

    return Pair()


def held_out_scores(model: Any, work: Path) -> dict[str, float]:
    """Return the scores of `pretrain`, on the same examples with the same masks."""
    import torch

    totals = {"loss": 0.0, "correct": 0, "count": 0, "pairs": 0, "right": 0}
    model.eval()
    count = -(-HELD_OUT // BATCH)
    with torch.inference_mode():
        batches = batches_of(work / "held_out", work, 0, 1, shuffle=0, redraw=False)
        for inputs, labels, pairs in itertools.islice(batches, count):
            kept, wanted = labels >= 0, labels[labels >= 0]
            if hasattr(model, "fill"):
                logits = model.fill(**inputs).logits[kept]
            else:
                found = model(**inputs)
                logits = found.prediction_logits[kept]
                guesses = found.seq_relationship_logits.argmax(-1)
                totals["right"] += int((guesses == pairs).sum())
            sums = torch.nn.functional.cross_entropy(logits, wanted, reduction="sum")
            totals["loss"] += float(sums)
            totals["correct"] += int((logits.argmax(-1) == wanted).sum())
            totals["count"] += len(wanted)
            totals["pairs"] += len(pairs)
    mean = totals["loss"] / totals["count"]
    scores = {
        "perplexity": math.exp(mean),
        "masked_lm_loss": mean,
        "masked_lm_accuracy": totals["correct"] / totals["count"],
    }
    if totals["right"]:
        scores["next_sentence_accuracy"] = totals["right"] / totals["pairs"]
    return scores


def batches_of(
    data: Path, work: Path, seed: int, epochs: int | None, **how: Any
) -> Any:
    """Yield our batches as torch's: inputs, labels [B, T] (-100: none), pairs [B]."""
    import numpy as np
    import torch

    from bert_keras import WordPieceTokenizer
    from bert_keras.pretraining import pretraining_dataset

    tokenizer = WordPieceTokenizer.from_folder(work / "vocabulary")
    settings = {"batch_size": BATCH, "seed": seed, "epochs": epochs, **how}
    dataset = pretraining_dataset(data, tokenizer, **settings)
    names = {"token_ids": "input_ids", "segment_ids": "token_type_ids"}
    names["padding_mask"] = "attention_mask"
    for batch, labels in dataset.as_numpy_iterator():
        dense = np.full(batch["token_ids"].shape, -100, "int64")
        rows, columns = np.nonzero(batch["masked_positions"] >= 0)
        places = batch["masked_positions"][rows, columns]
        dense[rows, places] = labels["masked_lm"][rows, columns]
        inputs = {
            theirs: torch.from_numpy(batch[ours].astype("int64"))
            for ours, theirs in names.items()
        }
        pairs = torch.from_numpy(labels["next_sentence"].astype("int64"))
        yield inputs, torch.from_numpy(dense), pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--size", default="2/128/2", help="layers/hidden/heads")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--objective", choices=("masked", REPLACED_TOKEN), default="masked"
    )
    parser.add_argument("--work", type=Path, default=Path("models/pretraining_quality"))
    parser.add_argument("--side", choices=SIDES, help="run only this side")
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not WIKIPEDIA.is_dir():
        print(f"skipped: {WIKIPEDIA} is absent (WikiExtractor's output)")
        return
    if options.seed is not None:
        found = globals()[f"run_{options.side}"](options)
        print(json.dumps(found))
        return
    prepare(options)
    sides = [options.side] if options.side else list(SIDES)
    speeds: dict[str, list[float]] = {side: [] for side in sides}
    for seed, side in itertools.product(range(options.seeds), sides):
        command = [sys.executable, __file__, "--side", side, "--seed", str(seed)]
        command += ["--steps", str(options.steps), "--size", options.size]
        command += ["--work", str(options.work), "--objective", options.objective]
        found = result_of(command, stderr=None)
        tenth = max(options.steps // 10, 1)
        curve = [
            f"{statistics.mean(found['losses'][start : start + tenth]):.3f}"
            for start in range(0, options.steps, tenth)
        ]
        speeds[side].append(found["speed"])
        pairs = f"next {found.get('next_sentence_accuracy', math.nan):.4f}  "
        print(
            f"seed {seed} {side:<13} perplexity {found['perplexity']:.2f}  "
            f"masked {found['masked_lm_accuracy']:.4f}  "
            f"{'' if options.objective == REPLACED_TOKEN else pairs}"
            f"{found['speed']:,.0f} real tokens/s  loss {' '.join(curve)}",
            flush=True,
        )
    if len(sides) == 2:
        ours, theirs = (statistics.median(speeds[side]) for side in SIDES)
        print(f"speed, bert_keras / transformers: {ours / theirs:.2f}")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
