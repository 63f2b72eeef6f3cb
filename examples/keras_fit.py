"""`model.compile` and `model.fit` in your own code, strings in.

    python examples/keras_fit.py ENCODER_FOLDER

ENCODER_FOLDER is a Hugging Face BERT folder or a Google checkpoint. Learns from reviews
of `examples/data/ratings` (below three stars is bad, above is good), and prints the
accuracy on others before and after, then the probabilities of two new texts.
"""

import csv
import sys
from pathlib import Path

import keras

from bert_keras import AdamW, TaskModel

DATA = Path(__file__).resolve().parent / "data/ratings"


def read(name: str) -> tuple[list[str], list[str]]:
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], float(row["label"])) for row in csv.DictReader(file)]
    rows = [(text, stars) for text, stars in rows if stars != 3]
    labels = ["good" if stars > 3 else "bad" for _, stars in rows]
    return [text for text, _ in rows], labels


keras.utils.set_random_seed(1)
model = TaskModel.from_pretrained(
    sys.argv[1], "classification", classes=("bad", "good"), max_length=64
)
model.compile(AdamW(2e-4))  # with the task's own loss and metrics
before = model.evaluate(*read("dev"), verbose=0, return_dict=True)
model.fit(*read("train"), batch_size=16, epochs=6, verbose=2)
after = model.evaluate(*read("dev"), verbose=0, return_dict=True)
print(f"accuracy before {before['accuracy']:.2f}  after {after['accuracy']:.2f}")
logits = model.predict(["a wonderful evening", "awful service"], verbose=0)
print(model.task.classes, keras.ops.softmax(logits).numpy().round(2).tolist())
