"""Classification of a text, or of a pair of texts, into one of C classes.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.1: softmax(C W^T).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.metrics import classification_scores
from bert_keras.table import Columns
from bert_keras.tasks.base import PooledTask

CLASS_WEIGHTS = ("none", "balanced")


@keras.saving.register_keras_serializable(package="bert_keras")
@dataclasses.dataclass(frozen=True)
class Classification(PooledTask):
    """One class for each text or pair.

    Args:
        classes: names of the classes, in the order of the outputs; two at least.
        class_weights: `none`, or `balanced`: an example weighs N / (C * N of its class)
            in the training loss, so that rare classes count as much as frequent ones.
        pairs: whether a row is a pair of texts.

    Raises:
        ConfigError: a setting is out of its range.
    """

    name = "classification"
    summary = "one class for a text or a pair of texts (spam, sentiment, paraphrase …)"
    best_score = "accuracy"

    classes: tuple[str, ...]
    class_weights: str = "none"
    pairs: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise ConfigError(
                "`classes` must be two or more different names; "
                f"received {', '.join(map(repr, self.classes)) or 'none'}"
            )
        if self.class_weights not in CLASS_WEIGHTS:
            raise ConfigError(
                f"`class_weights` must be one of {', '.join(CLASS_WEIGHTS)}; "
                f"received {self.class_weights!r}"
            )

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Classification:
        """Return the task with the classes of the data, sorted; numbers by value."""
        found = set(columns["label"])
        if len(found) < 2:
            message = f"`label` must have two classes or more; has {found.pop()!r} only"
            raise columns.error([(0, message)])
        numeric = all(name.isdecimal() for name in found)
        order = sorted(found, key=int) if numeric else sorted(found)
        return cls(tuple(order), pairs="text_pair" in columns, **settings)

    @classmethod
    def from_model_config(cls, config: Mapping[str, Any]) -> Classification:
        names = config.get("id2label")
        if names is None:  # the two of Hugging Face's default
            names = {0: "LABEL_0", 1: "LABEL_1"}
        try:
            by_id = {int(key): str(value) for key, value in names.items()}
            return cls(tuple(by_id[index] for index in range(len(by_id))))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise CheckpointError(
                "config.json: `id2label` must map 0, 1 … to different class names; "
                f"received {str(names)[:200]}"
            ) from None

    def model_config(self) -> dict[str, Any]:
        return {
            "id2label": {str(i): name for i, name in enumerate(self.classes)},
            "label2id": {name: i for i, name in enumerate(self.classes)},
            "problem_type": "single_label_classification",
        }

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the class of each row, int32 [N]; unknown ones are named by line."""
        index = {name: i for i, name in enumerate(self.classes)}
        labels = columns["label"]
        unknown = [
            (row, f"`label` must be one of {_shown(self.classes)}; received {label!r}")
            for row, label in enumerate(labels)
            if label not in index
        ]
        if unknown:
            raise columns.error(unknown)
        return np.array([index[label] for label in labels], dtype="int32")

    def example_weights(self, columns: Columns) -> np.ndarray | None:
        if self.class_weights == "none":
            return None
        targets = self.targets(columns)
        counts = np.bincount(targets, minlength=len(self.classes))
        weights = len(targets) / (len(self.classes) * np.maximum(counts, 1))
        return weights[targets].astype("float32")

    def encode_targets(self, targets: Any) -> Any:
        """Return class numbers for class names; numbers pass unchanged."""
        if getattr(targets, "dtype", None) != tf.string:
            return targets
        same = tf.expand_dims(targets, -1) == tf.constant(self.classes)
        known = tf.debugging.Assert(
            tf.reduce_all(tf.reduce_any(same, -1)),
            [
                f"a label is none of the classes {_shown(self.classes)}; labels:",
                targets,
            ],
        )
        with tf.control_dependencies([known] if known is not None else []):
            return tf.argmax(tf.cast(same, tf.int32), -1, output_type=tf.int32)

    @property
    def units(self) -> int:
        return len(self.classes)

    def loss(self) -> keras.losses.Loss:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self) -> list[Any]:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `label` string [B], `score` float32 [B] (its probability),
        `probabilities` float32 [B, C] and `classes` string [B, C] beside them.
        """
        probabilities = tf.nn.softmax(tf.cast(outputs, tf.float32))
        names = tf.constant(self.classes)
        return {
            "label": tf.gather(names, tf.argmax(probabilities, axis=-1)),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
            # Tiled: server-side batching wants the batch first in every output.
            "classes": tf.tile(names[tf.newaxis], [tf.shape(outputs)[0], 1]),
        }

    def rows(self, answers: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Return `label`, `score` and `probabilities`, by class, of each text."""
        return [
            {
                "label": row["label"],
                "score": row["score"],
                "probabilities": dict(
                    zip(self.classes, row["probabilities"], strict=True)
                ),
            }
            for row in super().rows(answers)
        ]

    def score(
        self, columns: Columns, answers: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        return classification_scores(
            self.targets(columns), answers["probabilities"], class_names=self.classes
        )

    def mistakes(
        self, columns: Columns, answers: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        targets = self.targets(columns)
        predicted = answers["probabilities"].argmax(axis=1)
        wrong = np.flatnonzero(predicted != targets)
        wrong = wrong[np.argsort(-answers["score"][wrong], kind="stable")]
        texts = self.texts(columns)
        return [
            {
                "line": columns.lines[row],
                "text": "  |  ".join(part[row] for part in texts),
                "label": self.classes[targets[row]],
                "prediction": self.classes[predicted[row]],
                "probability": float(answers["score"][row]),
            }
            for row in wrong
        ]

    def describe(self, columns: Columns) -> dict[str, Any]:
        counts = collections.Counter(columns["label"])
        classes = {name: counts.get(name, 0) for name in self.classes}
        return {"rows": len(columns), "classes": classes}


def _shown(names: tuple[str, ...], most: int = 12) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
