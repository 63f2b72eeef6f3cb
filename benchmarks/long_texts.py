"""Accuracy on movie reviews of 750 words: the default length, 128 tokens and TF-IDF.

    python benchmarks/long_texts.py [--draws 2] [--rows 400] [--test-rows 400]
        [--work FOLDER]

For each draw of random reviews (Pang and Lee 2004), trains `classification` on
all-MiniLM-L6-v2 with its defaults, and with a maximum length of 128 tokens, on the same
rows, and scikit-learn's logistic regression on TF-IDF of the whole texts, words and
pairs of words. A tenth of the rows is set aside for dev by `train`; TF-IDF is trained
on all of them. Prints the accuracy on the same test rows, and the seconds. The defaults
take about half an hour for a draw on two cores. With `--work`, the same command
continues an interrupted run. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from inputs import DATA, encoder_path
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bert_keras import Classification, TrainConfig, train
from bert_keras.data.columns import Columns

HOW = ("TF-IDF", "128 tokens", "defaults")


def score(
    how: str, rows: Columns, test: Columns, seed: int, folder: Path
) -> tuple[float, str]:
    """Return the accuracy on the test rows, and what was trained."""
    if how == "TF-IDF":
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            LogisticRegression(C=10.0, max_iter=1000),
        )
        model.fit(rows["text"], rows["label"])
        return model.score(test["text"], test["label"]), "whole texts"
    result = train(
        Classification,
        encoder=encoder_path(),
        train=rows,
        test=test,
        output=folder,
        config=TrainConfig(seed=seed, max_length=128 if how == "128 tokens" else None),
    )
    keras.backend.clear_session()
    length = result.model.preprocessor.max_length
    epochs = max(row["epoch"] for row in result.history)
    accuracy = float(result.scores["test"]["accuracy"])
    return accuracy, f"{length} tokens, {epochs} epochs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--test-rows", type=int, default=400)
    parser.add_argument("--how", nargs="+", choices=HOW, default=HOW)
    parser.add_argument("--work", type=Path, help="folder of the runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(options, options.work or Path(temporary))


def measure(options: argparse.Namespace, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    reviews = Classification.read(DATA / "movie_reviews/reviews.csv")
    for draw in range(1, options.draws + 1):
        order = np.random.default_rng(draw).permutation(len(reviews))
        rows = reviews.take(order[: options.rows].tolist())
        test = reviews.take(order[options.rows :][: options.test_rows].tolist())
        for how in options.how:
            done = work / f"{draw}-{how}.txt"
            if not done.is_file():
                start = time.perf_counter()
                folder = work / f"{draw}-{how.split()[0]}"
                accuracy, what = score(how, rows, test, draw, folder)
                seconds = time.perf_counter() - start
                done.write_text(f"accuracy {accuracy:.3f}  {what}, {seconds:.0f} s")
            print(f"draw {draw}  {how:<11}{done.read_text()}", flush=True)


if __name__ == "__main__":
    main()
