"""Train your own Keras model on a pretrained encoder: own head, own loss, callbacks.

    python examples/own_model.py ENCODER_FOLDER
    KERAS_BACKEND=jax python examples/own_model.py ENCODER_FOLDER
    python examples/own_model.py ENCODER_FOLDER export

Trains on `examples/data/emails`, writes `own_model.keras`, prints the accuracy on the
84 e-mails of the test set and, on TensorFlow, writes the SavedModel `own_model`, which
reads strings. The last command does that for a model that was trained on JAX.
"""

import csv
import sys
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from bert_keras import BertAdamW, BertEncoder, Preprocessor, WordPieceTokenizer


def read(name: str) -> tuple[list[str], list[str]]:
    path = Path(__file__).resolve().parent / f"data/emails/{name}.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    return [row["text"] for row in rows], [row["label"] for row in rows]


FOLDER = sys.argv[1]
CLASSES = sorted(set(read("train")[1]))
preprocessor = Preprocessor(WordPieceTokenizer.from_folder(FOLDER), max_length=64)


def batches(name: str) -> tf.data.Dataset:
    texts, labels = read(name)
    numbers = [CLASSES.index(label) for label in labels]
    rows = tf.data.Dataset.from_tensor_slices((texts, numbers))
    if name == "train":
        rows = rows.shuffle(len(texts), seed=1)
    return rows.batch(12).map(lambda text, number: (preprocessor(text), number))


@keras.saving.register_keras_serializable()
def focal_loss(y_true: Any, y_pred: Any) -> Any:
    loss = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, True)
    return (1 - keras.ops.exp(-loss)) ** 2 * loss  # what is easy counts less


def train() -> None:
    keras.utils.set_random_seed(1)
    encoder = BertEncoder.from_pretrained(FOLDER, pooler=False)
    x, mask = encoder.output["sequence_output"], encoder.input["padding_mask"]
    x = keras.layers.GlobalAveragePooling1D()(x, mask=mask)
    x = keras.layers.Dense(64, activation="gelu")(x)
    model = keras.Model(encoder.input, keras.layers.Dense(len(CLASSES))(x))
    model.compile(BertAdamW(2e-4), focal_loss, metrics=["accuracy"])
    best = keras.callbacks.ModelCheckpoint(
        "own_model.keras", monitor="val_accuracy", save_best_only=True
    )
    stop = keras.callbacks.EarlyStopping("val_accuracy", patience=2)
    rows = {"x": batches("train"), "validation_data": batches("dev")}
    model.fit(**rows, epochs=4, callbacks=[best, stop], shuffle=False, verbose=2)


def export(model: keras.Model) -> None:
    text = keras.Input((), dtype="string", name="text")
    keras.Model(text, model(preprocessor(text))).export("own_model", verbose=False)
    served = tf.saved_model.load("own_model")
    logits = served.serve(tf.constant(["Win a free phone now!", "Dinner at eight?"]))
    print([CLASSES[number] for number in tf.argmax(logits, axis=1)])


if sys.argv[2:] != ["export"]:
    train()
model = keras.saving.load_model("own_model.keras")
print("accuracy", round(model.evaluate(batches("test"), verbose=0)[1], 2))
if keras.config.backend() == "tensorflow":
    export(model)
