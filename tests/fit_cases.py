"""Keras's `fit` in a separate process, on one device or on two logical CPUs.

    python fit_cases.py FOLDER OUTPUT STRATEGY

`FOLDER` holds a tiny encoder and pretraining data. Weights and the history of each
model go into `OUTPUT/NAME.npz`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 9  # two replicas have unequal parts, of the first batch, too


def classifier(folder: Path) -> tuple[Any, Any]:
    """Return a classifier of texts, and as many texts as leave one for the end."""
    import tensorflow as tf
    from conftest import ROWS

    from bert_keras.model.encoder import BertEncoder
    from bert_keras.model.optimizers import BertAdamW
    from bert_keras.models.task_model import TaskModel
    from bert_keras.tasks.classification import Classification
    from bert_keras.text.preprocessor import Preprocessor
    from bert_keras.text.tokenizer import WordPieceTokenizer

    tokenizer = WordPieceTokenizer.from_folder(folder / "encoder")
    encoder = BertEncoder.from_pretrained(str(folder / "encoder"))
    task = Classification(("ham", "spam", "promo"))
    model = TaskModel(
        encoder, task, Preprocessor(tokenizer, max_length=24, layout="packed"), seed=1
    )
    model.compile(
        BertAdamW(1e-2, global_clipnorm=0.1), loss=task.loss(), metrics=task.metrics()
    )
    texts, labels = zip(*(ROWS * 4)[: 4 * BATCH + 1], strict=True)
    weights = np.linspace(0.5, 1.5, len(texts), dtype="float32")
    data = tf.data.Dataset.from_tensor_slices((list(texts), list(labels), weights))
    return model, data.batch(BATCH)


def weighted(y_true: Any, y_pred: Any) -> Any:
    """Return a loss of the user's that is one number, and no mean over the rows."""
    from keras import losses, ops

    each = losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    classes = ops.cast(y_true, "int32")
    weights = ops.take(ops.convert_to_tensor([1.0, 2.0, 5.0]), classes, axis=0)
    return ops.sum(each * weights) / ops.sum(weights)


def own_number(folder: Path) -> tuple[Any, Any]:
    """Return what `classifier` does, with `weighted` as its loss."""
    from keras import optimizers

    model, data = classifier(folder)
    model.compile(optimizers.SGD(0.1), loss=weighted)
    return model, data.map(lambda texts, labels, _: (texts, labels))


def own_sum(folder: Path) -> tuple[Any, Any]:
    """Return what `classifier` does, with a loss that is a sum over the batch."""
    import keras

    model, data = classifier(folder)
    loss = keras.losses.SparseCategoricalCrossentropy(True, reduction="sum")
    model.compile(keras.optimizers.SGD(0.01), loss=loss)
    model.compile(model.optimizer, loss=model.loss)  # again, with what it has
    return model, data


def pretrainer(folder: Path) -> tuple[Any, Any]:
    """Return a pretrainer and batches; those of an epoch end with one example."""
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.model.optimizers import BertAdamW
    from bert_keras.pretraining.input import pretraining_dataset
    from bert_keras.pretraining.pretrainer import BertPretrainer
    from bert_keras.pretraining.task import pretraining_loss, pretraining_metrics
    from bert_keras.text.tokenizer import WordPieceTokenizer

    tokenizer = WordPieceTokenizer.from_folder(folder / "encoder")
    encoder = BertEncoder.from_pretrained(str(folder / "encoder"))
    model = BertPretrainer(encoder, seed=2)
    model.compile(
        BertAdamW(3e-3, global_clipnorm=0.1),
        loss=pretraining_loss(),
        loss_weights={"masked_lm": 1.0, "next_sentence": 0.5},
        metrics=pretraining_metrics(),
    )
    data = pretraining_dataset(
        folder / "data", tokenizer, batch_size=14, shuffle=0, redraw=False
    )
    return model, data


def main(folder: str, output: str, strategy: str) -> None:
    import keras
    import tensorflow as tf

    if strategy == "mirrored":
        (cpu,) = tf.config.list_physical_devices("CPU")
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, halves)
    from bert_keras.distribution.strategy import find_strategy

    devices = find_strategy(strategy)
    for make in (classifier, own_number, own_sum, pretrainer):
        keras.utils.set_random_seed(3)
        with devices.strategy.scope():
            model, data = make(Path(folder))
        history = model.fit(data, validation_data=data, epochs=2, verbose=0).history
        weights = {f"weights/{w.path}": w.numpy() for w in model.weights}
        np.savez(Path(output) / f"{make.__name__}.npz", **weights, **history)


if __name__ == "__main__":
    main(*sys.argv[1:])
