"""Fine-tuning quality on GLUE, compared with transformers, with several seeds each.

    python benchmarks/glue_quality.py [--task mrpc|cola|stsb] [--seeds 3]

Both sides train all-MiniLM-L6-v2 on the same rows with the same recipe (`RECIPES`) and
score the last epoch on the dev rows: accuracy and F1 (MRPC), Matthews correlation
(CoLA), Pearson and Spearman correlation (STS-B). Prints the scores of each run, means
and standard deviations. MRPC takes about an hour on two cores. `--rows` and `--epochs`
shorten it for a trial; the scores are then meaningless.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path

import numpy as np
import seeded_runs
from inputs import DATA, encoder_path

from bert_keras.data.columns import Columns
from bert_keras.data.table import read_columns
from bert_keras.scoring.classification import (
    classification_scores,
    matthews_correlation,
)
from bert_keras.scoring.correlation import pearson, spearman

BATCH, MAX_LENGTH = 32, 128


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Columns and classes of a data set (none: a regression), and its recipe."""

    columns: dict[str, str | int]
    header: str
    classes: tuple[str, ...]
    epochs: int
    learning_rate: float


RECIPES = {
    "mrpc": Recipe(
        {"text": "#1 String", "text_pair": "#2 String", "label": "Quality"},
        header="yes",
        classes=("0", "1"),
        epochs=3,
        learning_rate=5e-5,
    ),
    "cola": Recipe(
        {"text": 3, "label": 1},
        header="no",
        classes=("0", "1"),
        epochs=4,
        learning_rate=5e-5,
    ),
    "stsb": Recipe(
        {"text": "sentence1", "text_pair": "sentence2", "label": "score"},
        header="yes",
        classes=(),
        epochs=4,
        learning_rate=1e-4,
    ),
}


def texts_of(columns: Columns) -> list:
    """Return strings, or pairs of strings as tuples."""
    if "text_pair" not in columns:
        return columns["text"]
    return list(zip(columns["text"], columns["text_pair"], strict=True))


def predict_bert_keras(
    recipe: Recipe, train: Columns, dev: Columns, seed: int
) -> list[str]:
    from bert_keras import Classification, Predictor, Regression, TrainConfig
    from bert_keras.models.loading import new_model
    from bert_keras.training.updates import fit

    config = TrainConfig(
        epochs=recipe.epochs,
        batch_size=BATCH,
        learning_rate=recipe.learning_rate,
        max_length=MAX_LENGTH,
        seed=seed,
    )
    if recipe.classes:
        task = Classification(recipe.classes, pairs="text_pair" in train)
    else:
        task = Regression.from_columns(train)
    model = new_model(task, encoder_path(), config)
    fit(model, train, config)
    answers = Predictor(model).predict(texts_of(dev))
    key = "label" if recipe.classes else "score"
    return [str(answer[key]) for answer in answers]


def predict_transformers(
    recipe: Recipe, train: Columns, dev: Columns, seed: int
) -> list[str]:
    from peer import TransformersPeer

    peer = TransformersPeer(encoder_path(), recipe.classes, seed)
    peer.fine_tune(
        texts_of(train),
        train["label"],
        epochs=recipe.epochs,
        batch_size=BATCH,
        learning_rate=recipe.learning_rate,
        max_length=MAX_LENGTH,
    )
    settings = {"batch_size": BATCH, "max_length": MAX_LENGTH}
    return peer.predict(texts_of(dev), by_length=False, **settings)[1]


def scores(name: str, predicted: list[str], labels: list[str]) -> dict[str, float]:
    """Return the scores that GLUE reports for a task."""
    if name == "stsb":
        found, true = [float(x) for x in predicted], [float(x) for x in labels]
        return {"Pearson": pearson(true, found), "Spearman": spearman(true, found)}
    found, true = [int(x) for x in predicted], [int(x) for x in labels]
    if name == "cola":
        return {"Matthews": matthews_correlation(true, found)}
    both = classification_scores(true, np.eye(2)[found], class_names=("0", "1"))
    return {"accuracy": both["accuracy"], "F1": both["f1"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=RECIPES, default="mrpc")
    parser.add_argument("--data", type=Path, help="holds train.tsv and dev.tsv")
    parser.add_argument("--epochs", type=int, help="default: as in the recipe")
    parser.add_argument("--rows", type=int, help="use only the first rows")
    seeded_runs.add_arguments(parser)
    options = parser.parse_args()
    folder = options.data or DATA / f"glue_{options.task}"
    if not folder.is_dir():
        print(f"skipped: {folder} is absent (train.tsv and dev.tsv of {options.task})")
        return
    recipe = RECIPES[options.task]
    if options.epochs:
        recipe = dataclasses.replace(recipe, epochs=options.epochs)

    def one(side: str, seed: int) -> dict[str, float]:
        read = {"columns": recipe.columns, "header": recipe.header}
        train = read_columns(folder / "train.tsv", **read)
        dev = read_columns(folder / "dev.tsv", **read)
        if options.rows:
            train, dev = (each.take(range(options.rows)) for each in (train, dev))
        predicted = globals()[f"predict_{side}"](recipe, train, dev, seed)
        return scores(options.task, predicted, dev["label"])

    seeded_runs.run(options, one)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
