"""Does the second sentence follow the first? Training on pairs from plain documents.

    python examples/next_sentence.py ENCODER_FOLDER

Trains on `examples/data/stories`: one sentence per line, a blank line between stories.
Half of the pairs are neighbours; in the other half, the second sentence is from another
story. Prints the scores on 120 pairs from stories about other people and things (which
also select the best epoch) before and after training, then two answers. With
all-MiniLM-L6-v2, in about 90 seconds on two cores:

    accuracy                     before 0.53  after 0.84
    loss                         before 0.69  after 0.42
    expected_calibration_error   before 0.02  after 0.01
    0.86  Lena borrowed a wheelbarrow. The wheelbarrow had lost its wheel.
    0.15  Lena borrowed a wheelbarrow. The whole village heard the church bell.

A checkpoint of BERT's pretraining contains this head and needs no training:

    bert-keras predict CHECKPOINT_FOLDER --task next-sentence "I slept." "Then I woke."
"""

import sys
from pathlib import Path

from bert_keras import NextSentence, Predictor, TrainConfig, evaluate, train
from bert_keras.models import new_model

DATA = Path(__file__).resolve().parent / "data/stories"
PAIRS = [
    ("Lena borrowed a wheelbarrow.", "The wheelbarrow had lost its wheel."),
    ("Lena borrowed a wheelbarrow.", "The whole village heard the church bell."),
]

encoder = sys.argv[1]
pairs = NextSentence.read(DATA / "train.txt")
dev = NextSentence.read(DATA / "dev.txt")
config = TrainConfig(epochs=6, batch_size=8, learning_rate=2e-4, max_length=48)
task = NextSentence(calibration="temperature")
before = evaluate(Predictor(new_model(task, encoder, config)), dev)
result = train(
    task,
    encoder=encoder,
    train=pairs,
    dev=dev,
    output="models/stories",
    config=config,
)
for name in ("accuracy", "loss", "expected_calibration_error"):
    after = result.scores["dev"][name]
    print(f"{name:<28} before {before[name]:.2f}  after {after:.2f}")
answers = Predictor(result.model).predict(PAIRS)
for (first, second), answer in zip(PAIRS, answers, strict=True):
    print(f"{answer['probability']:.2f}  {first} {second}")
