"""Does the second sentence follow the first? Training on pairs from plain documents.

    python examples/next_sentence.py ENCODER_FOLDER

Trains on `examples/data/stories`: one sentence per line, a blank line between
documents. Half of the pairs are neighbours; in the other half, the second sentence is
from another document. The pairs are drawn three times. Prints the scores on 120 pairs
of other documents (which also select the best epoch) before and after training, then
two answers.

A checkpoint from BERT's pretraining has this head and answers without training:

    bert-keras predict CHECKPOINT_FOLDER --task next-sentence "I slept." "Then I woke."
"""

import sys
from pathlib import Path

from bert_keras import NextSentence, Predictor, TrainConfig, evaluate, train
from bert_keras.inference.pretrained_model import new_model
from bert_keras.tasks.next_sentence import pairs_of_documents

DATA = Path(__file__).resolve().parent / "data/stories"
PAIRS = [
    ("She put the kettle on the stove.", "Soon the water in the kettle was boiling."),
    ("She put the kettle on the stove.", "The referee blew his whistle."),
]

encoder = sys.argv[1]
text = (DATA / "train.txt").read_text(encoding="utf-8")
documents = [block.splitlines() for block in text.split("\n\n")]
draws = [pairs_of_documents(documents, seed=seed) for seed in range(3)]
pairs = {
    role: [cell for draw in draws for cell in draw[role]]
    for role in ("text", "text_pair", "label")
}
dev = NextSentence.read(DATA / "dev.txt")
config = TrainConfig(epochs=4, batch_size=8, learning_rate=2e-4, max_length=48)
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
