"""Measure a row of an ablation table: data, pretraining, fine-tuning, scores."""

import json
import subprocess
import sys
from pathlib import Path

from tables import COLUMNS, Column, Row

import bert_keras
from bert_keras import BertConfig, TrainConfig, find_task
from bert_keras.pretraining import PretrainConfig

PARTS = ("train", "dev", "test")
DATA = Path(__file__).resolve().parents[1] / "data"
MASK_RATE = 0.5  # more to learn from in each step, since steps are few
LENGTH = 64
RECIPE = {"batch_size": 16, "learning_rate": 1e-3, "warmup_ratio": 0.1}


def prepare(work: Path) -> None:
    """Build the corpus, the vocabulary and the data, unless they exist."""
    verb = [sys.executable, "-m", "bert_keras"]
    corpus, vocab = work / "corpus", work / "vocabulary"
    text = {name: corpus / f"{name}.txt" for name in ("train", "held_out")}
    rates = {"train": MASK_RATE, "held_out": 0.15}
    vocabulary = [text["train"], "--size", "4000", "--output", vocab]
    if not text["train"].exists():
        script = Path(__file__).with_name("origins.py")
        subprocess.run([sys.executable, script, corpus], check=True)
    if not (vocab / "vocab.txt").exists():
        subprocess.run([*verb, "vocab", *vocabulary], check=True)
    settings = ["--form", "text", "--masking", "dynamic", "--max-length", str(LENGTH)]
    for name, file in text.items():
        words = ["pretraining-data", file, "--vocab", vocab, "--output", work / name]
        words += ["--mask-rate", str(rates[name])]
        subprocess.run([*verb, *words, *settings], check=True)


def measure(
    work: Path, row: Row, steps: int, columns: tuple[str, ...], seed: int
) -> dict[str, float]:
    """Return the scores of a row; pretrain and fine-tune unless that is done."""
    steps = round(steps * row.share)
    words = [row.size.replace("/", "-"), *(f"{k}={v}" for k, v in row.settings.items())]
    folder = work / "runs" / "_".join([*words, str(steps), str(seed)])
    done = folder / "scores.json"
    scores = json.loads(done.read_text()) if done.exists() else {}
    if "perplexity" not in scores:
        scores["perplexity"] = pretrain(work, row, steps, folder / "run", seed)
    for name in columns:
        if COLUMNS[name].task == "classification" and "objective" in row.settings:
            continue  # [CLS], which the classifier reads, attends to no other token
        if name not in scores:
            encoder = folder / "run" / "model"
            tuned = fine_tune(work, folder / name, encoder, COLUMNS[name], seed)
            scores[name] = 100 * tuned
        done.write_text(json.dumps(scores))
    return scores


def pretrain(work: Path, row: Row, steps: int, run: Path, seed: int) -> float:
    """Return the held-out perplexity of a row's model, which is in `run/model`."""
    tokens = (work / "vocabulary" / "vocab.txt").read_text().splitlines()
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    still["initializer_range"] = 0.08  # small models learn faster with it
    result = bert_keras.pretrain(
        BertConfig.from_preset(row.size, vocab_size=len(tokens), **still),
        work / "train",
        run,
        vocab=work / "vocabulary",
        held_out=work / "held_out",
        config=PretrainConfig(steps=steps, seed=seed, **(RECIPE | row.settings)),
    )
    return result.scores["perplexity"]


def fine_tune(
    work: Path, output: Path, encoder: Path, column: Column, seed: int
) -> float:
    """Return the score of a pretrained encoder's task on the test rows."""
    task = find_task(column.task)
    place = DATA if "/" in column.files else work / "corpus"
    parts = {p: task.read(place / column.files.format(p)) for p in PARTS}
    tuned = bert_keras.train(
        task,
        encoder=encoder,
        output=output,
        config=TrainConfig(
            method="finetune",
            epochs=column.epochs,
            batch_size=16 if column.task == "classification" else 8,
            learning_rate=column.learning_rate,
            seed=seed,
        ),
        task_settings=column.settings,
        **parts,
    )
    return tuned.scores["test"][column.score]
