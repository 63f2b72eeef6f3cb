"""The stars of a review by ordinal classification.

Source: Frank and Hall 2001, "A Simple Approach to Ordinal Classification": one binary
output asks "more than 1 star?", the next "more than 2?", and so on.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert_keras.tasks.classifier import PooledTask


@keras.saving.register_keras_serializable(package="stars")
@dataclasses.dataclass(frozen=True)
class Stars(PooledTask):
    """The number of stars of a review, from 1 to `most`."""

    name = "stars"
    columns = {"text": "review", "label": "stars"}
    best_score = "within_one"

    most: int = 5

    @property
    def units(self):
        return self.most - 1  # outputs of the linear layer on [CLS]

    def targets(self, columns):
        """Return the stars of each row, int32 [N]."""
        stars = [str(number) for number in range(1, self.most + 1)]
        return 1 + columns.indices("label", stars)

    def encode_targets(self, targets):
        """Return 0 or 1 per step, float32 [B, most - 1]: 3 stars are 1, 1, 0, 0."""
        stars = tf.expand_dims(tf.cast(targets, tf.int32), 1)
        return tf.cast(stars > tf.range(1, self.most), tf.float32)

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def answer(self, outputs, batch):
        """Return `stars` int32 [B] and `mean` float32 [B], the expected stars."""
        steps = tf.sigmoid(outputs)
        return {
            "stars": 1 + tf.reduce_sum(tf.cast(steps > 0.5, tf.int32), axis=1),
            "mean": 1 + tf.reduce_sum(steps, axis=1),
        }

    def score(self, columns, answers):
        off = np.abs(answers["stars"] - self.targets(columns))
        return {
            "num_examples": len(columns),
            "accuracy": float(np.mean(off == 0)),
            "within_one": float(np.mean(off <= 1)),
            "mean_absolute_error": float(np.mean(off)),
        }
