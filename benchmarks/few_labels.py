"""Accuracy and seconds of the methods of `train` with few labelled rows.

    python benchmarks/few_labels.py [--sets news-8 banking-10] \
[--methods linear contrastive] [--draws 3] [--test-rows 2000] [--peer]

Each draw trains all-MiniLM-L6-v2 by each method on the same random rows, of AG News and
BANKING77 so many of each class, and scores the same test rows. Without dev rows,
contrastive is also trained on three folds, whose seconds count. `--peer` adds
scikit-learn's logistic regression on the vectors of sentence-transformers. Seconds are
for the whole call of `train`, or for the vectors and the fit, without the test rows.
Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from inputs import encoder_path
from label_check import Rows, banking, news, sms

SETS = {
    **{f"news-{count}": news(count) for count in (4, 8, 16, 64, 256)},
    **{f"banking-{count}": banking(count) for count in (5, 10)},
    **{f"sms-{count}": sms(count) for count in (16, 64, 256, 1024)},
}


def ours(method: str, train: Rows, test: Rows, seed: int) -> tuple[float, float]:
    from bert_keras.data.table import as_columns
    from bert_keras.inference.predictor import Predictor
    from bert_keras.training.config import TrainConfig
    from bert_keras.training.finetune import train as train_model

    rows = [
        as_columns(text=[text for text, _ in each], label=[label for _, label in each])
        for each in (train, test)
    ]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = train_model(
            "classification",
            encoder=encoder_path(),
            train=rows[0],
            output=Path(folder) / "model",
            config=TrainConfig(method=method, seed=seed),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["news-8"])
    parser.add_argument("--methods", nargs="+", default=["linear", "finetune"])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--test-rows", type=int, default=2000)
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    for name in options.sets:
        found: dict[str, list[tuple[float, float]]] = {}
        for draw in range(options.draws):
            train, test = SETS[name](np.random.default_rng(draw))
            test = test[: options.test_rows]
            for method in options.methods:
                made = ours(method, train, test, draw)
                found.setdefault(method, []).append(made)
            if options.peer:
                found.setdefault("scikit-learn", []).append(peer(train, test))
        for method, values in found.items():
            accuracy, seconds = np.array(values).T
            spread = accuracy.std(ddof=1) if len(values) > 1 else 0.0
            print(
                f"{name}  {method}: accuracy {accuracy.mean():.4f} ± {spread:.4f}, "
                f"{np.median(seconds):.1f} s, {len(values)} draws"
            )


if __name__ == "__main__":
    main()
