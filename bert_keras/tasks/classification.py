"""Classification of a text, or of a pair of texts, into one of C classes.

The head and the reading of a text are in `PooledTask` (`tasks/classifier.py`), the
settings in `classification_settings`. `pairs` is true for pairs, false for single
texts, and `None` for a folder that does not say which: the model then reads both. With
`entailment` there is no output for each class: an entailment model scores whether the
text entails a sentence about the class.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.1: softmax(C W^T).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.data.class_names import (
    check_names,
    label_names,
    listed,
    numbers_of,
    sorted_names,
    unfit_names,
    with_clean_names,
)
from bert_keras.data.columns import Columns
from bert_keras.errors import ConfigError, shown
from bert_keras.lazy_names import deferred, serializable
from bert_keras.settings import with_options_documented
from bert_keras.tasks.classification_settings import ClassificationSettings
from bert_keras.tasks.classifier import SingleLabel
from bert_keras.tasks.entailment import EntailedClasses, EntailedCodec
from bert_keras.tasks.hugging_face import SINGLE_LABEL

if TYPE_CHECKING:
    import tensorflow as tf
else:
    (tf,) = deferred("tensorflow")


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class Classification(ClassificationSettings, EntailedClasses, SingleLabel):
    """One class for each text or pair.

    `class_weights="balanced"` weights an example by N / (C * N of its class) in the
    training loss. A label whose score is below `abstain_below` is "" and `abstained`
    true.
    """

    name = "classification"
    head_codec = EntailedCodec(problem_type=SINGLE_LABEL)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", check_names(self.classes, least=2))
        # The command line passes the class `1` as a number.
        named = str(self.positive_class)
        number = numbers_of([named], self.classes).get(named)
        named = named if number is None else self.classes[number]
        object.__setattr__(self, "positive_class", named)
        super().__post_init__()
        if self.positive_class and self.positive_class not in self.classes:
            raise ConfigError(
                f"`positive_class` must be one of {listed(self.classes)}; "
                f"received {self.positive_class!r}"
            )

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Classification:
        """Return the task with the classes of the data, sorted; numbers by value."""
        labels = label_names(columns["label"])
        columns.refuse(unfit_names([label] for label in labels))
        found = set(labels)
        if len(found) < 2:
            message = (
                f"`label` must have two classes or more; has {shown(found.pop())} only"
            )
            columns.refuse([(0, message)])
        learned = {"classes": sorted_names(found), "pairs": "text_pair" in columns}
        return cls(**{**learned, **with_clean_names(settings)})

    def example_weights(self, columns: Columns) -> np.ndarray | None:
        if self.class_weights == "none":
            return None
        targets = self.targets(columns)
        counts = np.bincount(targets, minlength=len(self.classes))
        weights = len(targets) / (len(self.classes) * np.maximum(counts, 1))
        return weights[targets].astype("float32")

    def linear_targets(self, columns: Columns) -> tuple[str, np.ndarray]:
        return "softmax", np.eye(self.units)[self.targets(columns)]

    @property
    def names(self) -> tuple[str, ...]:
        return self.classes

    @property
    def scores_pairs(self) -> bool:  # type: ignore[override]
        """Whether it reads pairs, and `positive_class` says which class is relevant."""
        return bool(self.positive_class) and self.pairs is not False

    def pair_scores(self, answers: Mapping[str, Any]) -> Any:
        """Return the probabilities of `positive_class`."""
        return answers["probabilities"][:, self.classes.index(self.positive_class)]

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `label` string [B], its probability `score` float32 [B],
        `probabilities` float32 [B, C] and their `classes` string [B, C]; if the task
        may abstain also `abstained` bool [B].
        """
        probabilities = tf.nn.softmax(self.scaled_logits(outputs))
        names = self.class_tensor(outputs, batch)
        best = tf.argmax(probabilities, axis=-1)
        answers = {
            "label": tf.gather(names, best, batch_dims=1),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
            "classes": names,
        }
        if self.may_abstain:
            abstained = answers["score"] < self.abstain_below
            answers["label"] = tf.where(abstained, "", answers["label"])
            answers["abstained"] = abstained
        return answers
