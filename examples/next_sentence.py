"""Does the second sentence follow the first? Pairs made of plain documents.

    python examples/next_sentence.py ENCODER_FOLDER

Trains on `examples/data/stories`: a sentence a line, a blank line between documents.
Half of the neighbours are kept, half get a second sentence of another document. Prints
the scores of 120 pairs of other documents (they choose the epoch, too), before and
after, then the answers to two new pairs. With all-MiniLM-L6-v2:

A checkpoint from BERT's pretraining has this head: it answers without any training.

    bert-keras predict CHECKPOINT_FOLDER --task next-sentence "I slept." "Then I woke."
"""

import sys
from pathlib import Path

from bert_keras import NextSentence, Predictor, TrainConfig, evaluate, train
from bert_keras.inference.pretrained_model import new_model

DATA = Path(__file__).resolve().parent / "data/stories"
PAIRS = [
    ("She put the kettle on the stove.", "Soon the water in the kettle was boiling."),
    ("She put the kettle on the stove.", "The referee blew his whistle."),
]

encoder = sys.argv[1]
dev = NextSentence.read(DATA / "dev.txt")
config = TrainConfig(epochs=8, batch_size=8, learning_rate=2e-4, max_length=48)
task = NextSentence(calibration="temperature")
before = evaluate(Predictor(new_model(task, encoder, config)), dev)
result = train(
    task,
    encoder=encoder,
    train=NextSentence.read(DATA / "train.txt"),
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
