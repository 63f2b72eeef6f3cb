"""How many of the labels that a report names to be checked are wrong.

    python benchmarks/label_check.py [--seeds 5] [--share 0.05] [--vectors]

Trains a logistic regression on TF-IDF, and with `--vectors` one on the vectors of
all-MiniLM-L6-v2, replaces a share of the test labels by another class, and counts
the rows that `labels_to_check` names, and confident learning alone, and how many of
them were replaced. The thresholds of `labels_to_check` were chosen on BANKING77; AG
News and the SMS Spam Collection had no part in them. Rows named with an original label
count as errors, also where the data set itself is wrong. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from inputs import Rows, banking, encoder_path, news, sms
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bert_keras.scoring.doubtful_labels import doubtful_labels, labels_to_check

SETS = {
    "BANKING77, 10 rows a class": banking(10),
    "AG News, 25 rows a class": news(25),
    "AG News, 500 rows a class": news(500),
    "SMS, 100 rows": sms(100),
    "SMS, 1,000 rows": sms(1000),
}


def replaced(
    labels: np.ndarray, classes: int, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels with a share replaced by another class, and the rows."""
    rows = rng.choice(len(labels), round(share * len(labels)), replace=False)
    given = labels.copy()
    given[rows] = (given[rows] + rng.integers(1, classes, len(rows))) % classes
    return given, rows


def probabilities(train: Rows, test: Rows, features: str) -> tuple[Any, list[str]]:
    """Return the probabilities of the test rows, [N, C], and the classes."""
    texts: list[Any] = [[text for text, _ in part] for part in (train, test)]
    model: Any = LogisticRegression(max_iter=1000)
    if features == "TF-IDF":
        model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), model)
    else:
        from bert_keras import embed

        texts = [embed(encoder_path(), part) for part in texts]
    model.fit(texts[0], [label for _, label in train])
    return model.predict_proba(texts[1]), model.classes_.tolist()


def counts(train: Rows, test: Rows, features: str, share: float, rng: Any) -> list[Any]:
    """Return the accuracy, the replaced labels, and the named and right rows twice."""
    p, classes = probabilities(train, test, features)
    true = np.array([classes.index(label) for _, label in test])
    given, wrong = replaced(true, len(classes), share, rng)
    found = [(p.argmax(axis=1) == true).mean(), len(wrong)]
    for rows in (labels_to_check(given, p), doubtful_labels(given, p)):
        found += [len(rows), np.isin(rows, wrong).sum()]
    return found


def shown(named: float, right: float, wrong: float) -> str:
    precision = f"{right / named:.2f}" if named else "-"
    return (
        f"{named:.1f} named, {right:.1f} replaced "
        f"(precision {precision}, recall {right / wrong:.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--vectors", action="store_true", help="also on MiniLM")
    options = parser.parse_args()
    print(f"means of {options.seeds} seeds; {options.share:.0%} of the labels replaced")
    for name, rows_of in SETS.items():
        for features in ("TF-IDF", *(["MiniLM"] if options.vectors else [])):
            found = []
            for seed in range(1, options.seeds + 1):
                rng = np.random.default_rng(seed)
                train, test = rows_of(rng)
                found.append(counts(train, test, features, options.share, rng))
            accuracy, wrong, *rest = np.mean(found, axis=0).tolist()
            print(
                f"{name}, {features}: accuracy {accuracy:.3f}, {wrong:.0f} replaced\n"
                f"  labels to check:     {shown(*rest[:2], wrong)}\n"
                f"  confident learning:  {shown(*rest[2:], wrong)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
