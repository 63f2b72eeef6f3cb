r"""Predict a number for a text: how many stars would the writer give?

    python examples/regression.py ENCODER_FOLDER

Trains on 75 reviews of `examples/data/ratings` (1 to 5 stars). Prints the correlations
and the error in stars on 60 other reviews (which also select the best epoch) before and
after training, then the answers for three new texts. With all-MiniLM-L6-v2,
in about 45 seconds on two cores:

    spearman                 before  0.03  after  0.75
    pearson                  before  0.00  after  0.76
    root_mean_squared_error  before  1.43  after  0.95
    4.1 stars  I love this kettle, it is quick and quiet.
    3.8 stars  It is a table. It stands.
    1.6 stars  Never again, it burst on the second evening.

The same task for pairs of texts, with the original files of the STS benchmark:

    bert-keras train regression --encoder ENCODER_FOLDER --output models/similarity \
        --train STS-B/train.tsv --dev STS-B/dev.tsv \
        --text sentence1 --text-pair sentence2 --label score --learning-rate 1e-4
"""

import sys
from pathlib import Path

from bert_keras import Predictor, Regression, TrainConfig, evaluate, train
from bert_keras.models import new_model

DATA = Path(__file__).resolve().parent / "data/ratings"
TEXTS = [
    "I love this kettle, it is quick and quiet.",
    "It is a table. It stands.",
    "Never again, it burst on the second evening.",
]

encoder = sys.argv[1]
train_rows = Regression.read(DATA / "train.csv")
dev = Regression.read(DATA / "dev.csv")
config = TrainConfig(epochs=12, batch_size=8, learning_rate=2e-4, max_length=64)
task = Regression.from_columns(train_rows)
before = evaluate(Predictor(new_model(task, encoder, config)), dev)
result = train(
    task,
    encoder=encoder,
    train=train_rows,
    dev=dev,
    output="models/ratings",
    config=config,
)
for name in ("spearman", "pearson", "root_mean_squared_error"):
    after = result.scores["dev"][name]
    print(f"{name:<24} before {before[name]:5.2f}  after {after:5.2f}")
answers = Predictor(result.model).predict(TEXTS)
for text, answer in zip(TEXTS, answers, strict=True):
    print(f"{answer['score']:.1f} stars  {text}")
