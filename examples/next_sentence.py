"""Does the second sentence follow the first? Pairs made of plain documents.

    python examples/next_sentence.py ENCODER_FOLDER

Trains on `examples/data/stories`: a sentence a line, a blank line between documents.
Half of the neighbours are kept, half get a second sentence of another document. Prints
the scores of the dev documents and the answers to two new pairs.

A checkpoint from BERT's pretraining has this head: it answers without any training.

    bert-keras predict CHECKPOINT_FOLDER --task next-sentence "I slept." "Then I woke."
"""

import sys
from pathlib import Path

from bert_keras import NextSentence, Predictor, TrainConfig, train

DATA = Path(__file__).resolve().parent / "data/stories"
PAIRS = [
    ("She put the kettle on.", "Soon the water was boiling."),
    ("She put the kettle on.", "The referee blew his whistle."),
]

result = train(
    NextSentence,
    encoder=sys.argv[1],
    train=NextSentence.read(DATA / "train.txt"),
    dev=NextSentence.read(DATA / "dev.txt"),
    output="models/stories",
    config=TrainConfig(epochs=12, batch_size=8, learning_rate=1e-4, max_length=64),
    task_settings={"calibration": "temperature"},
)
for name in ("accuracy", "loss", "expected_calibration_error"):
    print(f"{name:<28} {result.scores['dev'][name]:.2f}")
answers = Predictor(result.model).predict(PAIRS)
for (first, second), answer in zip(PAIRS, answers, strict=True):
    print(f"{answer['probability']:.2f}  {first} {second}")
