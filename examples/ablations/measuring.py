"""A row of an ablation table measured: data, pretraining, fine-tuning, scores."""

import json
import subprocess
import sys
from pathlib import Path

from tables import TASKS, Row

import bert_keras
from bert_keras import BertConfig, PretrainConfig, TrainConfig, find_task

DATA = Path(__file__).resolve().parents[1] / "data"
RECIPE = {"batch_size": 16, "learning_rate": 2e-3, "warmup_share": 0.1}


def prepare(work: Path) -> None:
    """Make corpus, vocabulary and data, where they are missing."""
    verb = [sys.executable, "-m", "bert_keras"]
    corpus, vocab = work / "corpus", work / "vocabulary"
    text = {name: corpus / f"{name}.txt" for name in ("train", "held_out")}
    vocabulary = [text["train"], "--size", "4000", "--output", vocab]
    if not text["train"].exists():
        script = DATA.with_name("python_corpus.py")
        subprocess.run([sys.executable, script, corpus], check=True)
    if not (vocab / "vocab.txt").exists():
        subprocess.run([*verb, "vocab", *vocabulary], check=True)
    settings = ["--form", "text", "--max-length", "64", "--masking", "dynamic"]
    for name, file in text.items():
        words = ["pretraining-data", file, "--vocab", vocab, "--output", work / name]
        subprocess.run([*verb, *words, *settings], check=True)


def measure(work: Path, row: Row, steps: int) -> dict[str, float]:
    """Return the scores of a row; pretrains and fine-tunes unless that was done."""
    words = [row.size.replace("/", "-"), *(f"{k}={v}" for k, v in row.settings.items())]
    folder = work / "runs" / "_".join([*words, str(steps)])
    done = folder / "scores.json"
    if done.exists():
        return json.loads(done.read_text())
    tokens = (work / "vocabulary" / "vocab.txt").read_text().splitlines()
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    still["initializer_range"] = 0.08  # a model so small starts faster
    result = bert_keras.pretrain(
        BertConfig.from_preset(row.size, vocab_size=len(tokens), **still),
        work / "train",
        folder / "run",
        vocab=work / "vocabulary",
        held_out=work / "held_out",
        config=PretrainConfig(steps=steps, **RECIPE, **row.settings),
    )
    scores = {"perplexity": result.scores["perplexity"]}
    for column, (name, files, score, settings, epochs) in TASKS.items():
        if column == "e-mails" and "objective" in row.settings:
            continue  # its first token, which the classifier reads, sees no other
        task = find_task(name)
        parts = {p: task.read(DATA / files.format(p)) for p in ("train", "dev", "test")}
        config = TrainConfig(epochs=epochs, batch_size=16, learning_rate=1e-3)
        tuned = bert_keras.train(
            task,
            encoder=result.folder,
            output=folder / name,
            config=config,
            task_settings=settings,
            **parts,
        )
        scores[column] = 100 * tuned.scores["test"][score]
    done.write_text(json.dumps(scores))
    return scores
