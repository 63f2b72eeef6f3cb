r"""A number for a text: how many stars would the writer give?

    python examples/regression.py ENCODER_FOLDER

Trains on `examples/data/ratings` (1 to 5 stars) and prints the correlations and the
error on the dev rows, in stars, then the answers to three new texts. The same for two
texts, on the file of the STS benchmark as it is:

    bert-keras train regression --encoder ENCODER_FOLDER --output models/similarity \
        --train STS-B/train.tsv --dev STS-B/dev.tsv \
        --text sentence1 --text-pair sentence2 --label score --learning-rate 1e-4
"""

import sys
from pathlib import Path

from bert_keras import Predictor, Regression, TrainConfig, train

DATA = Path(__file__).resolve().parent / "data/ratings"
TEXTS = [
    "I love this kettle, it is quick and quiet.",
    "It is a table. It stands.",
    "Never again, it burst on the second evening.",
]

result = train(
    Regression,
    encoder=sys.argv[1],
    train=Regression.read(DATA / "train.csv"),
    dev=Regression.read(DATA / "dev.csv"),
    output="models/ratings",
    config=TrainConfig(epochs=12, batch_size=8, learning_rate=2e-4, max_length=64),
)
for name in ("spearman", "pearson", "root_mean_squared_error"):
    print(f"{name:<24} {result.scores['dev'][name]:.2f}")
answers = Predictor(result.model).predict(TEXTS)
for text, answer in zip(TEXTS, answers, strict=True):
    print(f"{answer['score']:.1f} stars  {text}")
