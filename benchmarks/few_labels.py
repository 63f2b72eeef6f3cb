"""Accuracy and seconds of the methods of `train` with few labelled rows.

    python benchmarks/few_labels.py [--sets news-8 banking-10] \
[--methods linear contrastive] [--draws 3] [--first-draw 0] [--test-rows 2000] \
[--classes 16] [--no-folds] [--max-length 64] [--epochs 4] [--unlabeled 400] \
[--peer] [--setfit]

Each draw trains all-MiniLM-L6-v2 by each method on the same random rows, of AG News and
BANKING77 so many of each class, and scores the same test rows. `--classes` takes rows
of so many random classes alone. Without dev rows, contrastive is also trained on three
folds, whose seconds count; `--no-folds` gives it the training rows as dev rows, and
only its accuracy counts then. `--epochs` is for finetune; `--unlabeled` gives the
others further rows without their labels. `--peer`, which needs scikit-learn, adds its
logistic regression on the vectors of sentence-transformers, and `--setfit`, which needs
setfit, its trainer: one epoch of all pairs, or 20 pairs of each kind for a row if that
is less, the paper's number. Without `--methods`, the peers run alone. Seconds are for
the whole call of `train`, or for the vectors and the fit, without the test rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

import numpy as np
from inputs import Rows, banking, cola, encoder_path, news, sms

SETS = {
    **{f"news-{count}": news(count) for count in (4, 8, 16, 64, 256)},
    **{f"banking-{count}": banking(count) for count in (3, 5, 10, 13)},
    **{f"sms-{count}": sms(count) for count in (16, 64, 256, 1024)},
    **{f"cola-{count}": cola(count) for count in (16, 64, 256, 1024)},
}
_FEW_FOR_SETFIT = 64  # rows, of which SetFit's default makes at most 4,000 pairs


def of_classes(count: int, *sets: Rows, seed: int) -> list[Rows]:
    """Return the rows of some random classes."""
    names = sorted({label for _, label in sets[0]})
    kept = set(np.random.default_rng(seed).permutation(names)[:count].tolist())
    return [[row for row in rows if row[1] in kept] for rows in sets]


def ours(
    method: str,
    train: Rows,
    test: Rows,
    others: Rows,
    seed: int,
    options: argparse.Namespace,
    *,
    encoder: str | None = None,
) -> tuple[float, float]:
    import keras

    from bert_keras.data.table import as_columns
    from bert_keras.inference.predictor import Predictor
    from bert_keras.training.config import TrainConfig
    from bert_keras.training.finetune import train as train_model

    rows = [
        as_columns(text=[text for text, _ in each], label=[label for _, label in each])
        for each in (train, test)
    ]
    keras.utils.clear_session()
    config = TrainConfig(
        method=method, seed=seed, max_length=options.max_length, explain_mistakes=0
    )
    if method == "finetune":
        config = dataclasses.replace(config, epochs=options.epochs)
    unlabeled = None
    if others and method != "finetune":
        unlabeled = as_columns(text=[text for text, _ in others])
    no_folds = options.no_folds and method == "contrastive"
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = train_model(
            "classification",
            encoder=encoder or encoder_path(),
            train=rows[0],
            dev=rows[0] if no_folds else None,
            unlabeled=unlabeled,
            output=Path(folder) / "model",
            config=config,
        )
    seconds = time.perf_counter() - start
    answers = Predictor(found.model).answers(rows[1])
    return found.model.task.score(rows[1], answers)["accuracy"], seconds


def peer(train: Rows, test: Rows) -> tuple[float, float]:
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    model = SentenceTransformer(str(encoder_path()), device="cpu")
    start = time.perf_counter()
    vectors = model.encode([text for text, _ in train])
    fitted = LogisticRegression(max_iter=1000).fit(vectors, [row[1] for row in train])
    seconds = time.perf_counter() - start
    vectors = model.encode([text for text, _ in test])
    return float(fitted.score(vectors, [row[1] for row in test])), seconds


def setfit(
    train: Rows,
    test: Rows,
    seed: int,
    *,
    encoder: str | None = None,
    device: str = "cpu",
) -> tuple[float, float]:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    texts, labels = (list(each) for each in zip(*train, strict=True))
    model = SetFitModel.from_pretrained(encoder or encoder_path(), device=device)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            report_to="none",
            save_strategy="no",
            seed=seed,
            batch_size=16,
            num_epochs=1,
            num_iterations=20 if len(train) > _FEW_FOR_SETFIT else None,
        )
        start = time.perf_counter()
        rows = Dataset.from_dict({"text": texts, "label": labels})
        Trainer(model=model, args=arguments, train_dataset=rows).train()
        seconds = time.perf_counter() - start
    found = model.predict([text for text, _ in test], use_labels=True)
    right = [a == label for a, (_, label) in zip(found, test, strict=True)]
    return float(np.mean(right)), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["news-8"])
    parser.add_argument("--methods", nargs="+", default=[])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--first-draw", type=int, default=0)
    parser.add_argument("--test-rows", type=int, default=2000)
    parser.add_argument("--classes", type=int)
    parser.add_argument("--no-folds", action="store_true")
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--unlabeled", type=int, default=0)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--setfit", action="store_true")
    options = parser.parse_args()
    for name in options.sets:
        found: dict[str, list[tuple[float, float]]] = {}
        for draw in range(options.first_draw, options.first_draw + options.draws):
            train, test = SETS[name](np.random.default_rng(draw))
            if options.classes:
                train, test = of_classes(options.classes, train, test, seed=draw)
            end = options.test_rows + options.unlabeled
            test, others = test[: options.test_rows], test[options.test_rows : end]
            for method in options.methods:
                made = ours(method, train, test, others, draw, options)
                found.setdefault(method, []).append(made)
            if options.peer:
                found.setdefault("scikit-learn", []).append(peer(train, test))
            if options.setfit:
                found.setdefault("setfit", []).append(setfit(train, test, draw))
            for method, values in found.items():
                print(f"{name}  draw {draw}  {method}: {values[-1]}", flush=True)
        for method, values in found.items():
            accuracy, seconds = np.array(values).T
            spread = accuracy.std(ddof=1) if len(values) > 1 else 0.0
            print(
                f"{name}  {method}: accuracy {accuracy.mean():.4f} ± {spread:.4f}, "
                f"{np.median(seconds):.1f} s, {len(values)} draws",
                flush=True,
            )


if __name__ == "__main__":
    main()
