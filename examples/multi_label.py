"""Several classes for one text: what do guests of a restaurant talk about?

    python examples/multi_label.py ENCODER_FOLDER

Trains on `examples/data/reviews`, whose rows have any number of the classes food,
place, price and service, separated by commas. Prints the scores on 62 test rows before
and after training, the threshold of each class, and the answers for three new texts.
With all-MiniLM-L6-v2, in about 40 seconds on two cores:

    micro_f1     before 0.36  after 0.85
    macro_f1     before 0.28  after 0.85
    exact_match  before 0.11  after 0.68
    food     is predicted from 0.18
    place    is predicted from 0.67
    price    is predicted from 0.20
    service  is predicted from 0.50
    food, service   The soup was wonderful and the waiter a gentleman.
    price           Nice cellar, but they want fifteen euros for a beer.
    nothing         We came back on Thursday.
"""

import sys
from pathlib import Path

from bert_keras import MultiLabel, Predictor, TrainConfig, evaluate, train
from bert_keras.models import new_model

DATA = Path(__file__).resolve().parent / "data/reviews"
TEXTS = [
    "The soup was wonderful and the waiter a gentleman.",
    "Nice cellar, but they want fifteen euros for a beer.",
    "We came back on Thursday.",
]

encoder = sys.argv[1]
rows = {
    name: MultiLabel.read(DATA / f"{name}.csv") for name in ("train", "dev", "test")
}
config = TrainConfig(epochs=12, batch_size=8, learning_rate=2e-4, max_length=64)
task = MultiLabel.from_columns(rows["train"])
before = evaluate(Predictor(new_model(task, encoder, config)), rows["test"])
result = train(task, encoder=encoder, **rows, output="models/reviews", config=config)
for name in ("micro_f1", "macro_f1", "exact_match"):
    after = result.scores["test"][name]
    print(f"{name:<12} before {before[name]:.2f}  after {after:.2f}")
task = result.model.task
for name, threshold in zip(task.classes, task.thresholds, strict=True):
    print(f"{name:<8} is predicted from {threshold:.2f}")
answers = Predictor(result.model).predict(TEXTS)
for text, answer in zip(TEXTS, answers, strict=True):
    print(f"{', '.join(answer['labels']) or 'nothing':<15} {text}")
