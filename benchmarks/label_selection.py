"""Accuracy by the number of labelled rows: rows that `select` chooses, and random ones.

    python benchmarks/label_selection.py [--pool 2000] [--test 1000] [--seeds 5]
        [--cache FILE]

Rows of AG News, 20 to 200 of them; the classifier is logistic regression on the vectors
of all-MiniLM-L6-v2. Each seed draws another pool. Each strategy of `select_rows` begins
with 20 rows by coverage; the rows of a size include the rows of smaller ones. Prints
accuracy on the same test rows, mean and standard deviation over the seeds, and the rows
with which a strategy reaches the accuracy of random ones, interpolated. `--cache` keeps
the vectors. About 2 minutes on two cores. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from inputs import DATA, encoder_path
from sklearn.linear_model import LogisticRegression

from bert_keras import Classification
from bert_keras.retrieval import embed
from bert_keras.retrieval.selection import _FEW, _SHORTLIST, covering_rows
from bert_keras.scoring.embeddings import unit_rows

SIZES = (20, 40, 60, 80, 100, 120, 140, 160, 180, 200)
STRATEGIES = ("random", "margin", "coverage", "mixture")


def vectors_of(texts: list[str], cache: Path | None) -> np.ndarray:
    if cache is not None and cache.exists():
        return np.load(cache)
    found = unit_rows(embed(encoder_path(), texts, max_length=64))
    if cache is not None:
        np.save(cache, found)
    return found


def chosen(
    strategy: str, x: np.ndarray, y: np.ndarray, rows: list[int], size: int, seed: int
) -> list[int]:
    """Return `rows` with others, `size` in all, as `select_rows` chooses them."""
    left, count = np.setdiff1d(np.arange(len(x)), rows), size - len(rows)
    if strategy == "random":
        return rows + np.random.default_rng(seed).permutation(left)[:count].tolist()
    few = len(rows) < _FEW * len(set(y))
    if rows and not (strategy == "coverage" or strategy == "mixture" and few):
        p = np.sort(fitted(x[rows], y[rows]).predict_proba(x[left]), axis=1)
        order = np.argsort(p[:, -1] - p[:, -2], kind="stable")
        if strategy == "margin":
            return rows + left[order[:count]].tolist()
        left = left[order[: _SHORTLIST * count]]
    found = covering_rows(x[left], count, covered=x[rows], seed=seed)
    return rows + left[found].tolist()


def fitted(x: np.ndarray, y: np.ndarray) -> LogisticRegression:
    return LogisticRegression(C=10.0, max_iter=300).fit(x, y)


def curve(strategy: str, pool: tuple, test: tuple, seed: int, size: int) -> list[float]:
    """Return the accuracy for each of `SIZES`."""
    draw = np.random.default_rng(seed).permutation(len(pool[0]))[:size]
    (x, y), rows, scores = (each[draw] for each in pool), [], []
    for number in SIZES:
        rows = chosen(strategy, x, y, rows, number, seed)
        scores.append(float(fitted(x[rows], y[rows]).score(*test)))
    return scores


def rows_to_reach(scores: np.ndarray, wanted: float) -> float:
    """Return the first number of rows that reaches an accuracy, interpolated."""
    above = np.flatnonzero(scores >= wanted)
    if not len(above):
        return np.nan
    place = int(above[0])
    if place == 0:
        return SIZES[0]
    low, high = scores[place - 1 : place + 1]
    share = (wanted - low) / (high - low)
    return SIZES[place - 1] + share * (SIZES[place] - SIZES[place - 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pool", type=int, default=2000, help="rows of a seed's pool")
    parser.add_argument("--test", type=int, default=1000, help="rows to score")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", type=Path, help=".npy file that keeps the vectors")
    options = parser.parse_args()
    pool = Classification.read(DATA / "agnews/pool.tsv").take(range(3000))
    test = Classification.read(DATA / "agnews/val.tsv").take(range(options.test))
    x = vectors_of(pool["text"] + test["text"], options.cache)
    labels = np.array(pool["label"] + test["label"])
    parts = [(x[part], labels[part]) for part in (np.s_[:3000], np.s_[3000:])]
    print("rows     ", *(f"{size:>13}" for size in SIZES))
    means = {}
    for strategy in STRATEGIES:
        found = np.array(
            [
                curve(strategy, *parts, seed, options.pool)
                for seed in range(options.seeds)
            ]
        )
        means[strategy], spread = found.mean(axis=0), found.std(axis=0)
        cells = zip(means[strategy], spread, strict=True)
        print(f"{strategy:<9}", *(f"{m:.3f} ± {s:.3f}" for m, s in cells), flush=True)
    print("rows that reach the accuracy of random rows, as a share of these:")
    for strategy in STRATEGIES[1:]:
        cells = zip(SIZES, means["random"], strict=True)
        shares = [rows_to_reach(means[strategy], score) / size for size, score in cells]
        print(f"{strategy:<9}", *(f"{share:13.2f}" for share in shares))


if __name__ == "__main__":
    main()
