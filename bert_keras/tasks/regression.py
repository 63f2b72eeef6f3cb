"""Regression: one number for a text, or for a pair of texts (similarity, rating …).

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.1 (STS-B): one output, mean
squared error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.data.class_names import class_entries, class_names
from bert_keras.data.columns import Columns
from bert_keras.data.holdout import Strata, quantiles
from bert_keras.errors import ConfigError
from bert_keras.lazy_names import deferred, serializable
from bert_keras.scoring.calibration import logit_of
from bert_keras.scoring.correlation import check_numbers, pearson, spearman
from bert_keras.settings import with_options_documented
from bert_keras.tasks.base import Answers, Batch
from bert_keras.tasks.classifier import PooledTask, label_numbers
from bert_keras.tasks.given_labels import numbers
from bert_keras.tasks.hugging_face import REGRESSION, PooledCodec, reads_pairs
from bert_keras.tasks.regression_settings import RegressionSettings

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_keras.checkpoints import sentence_files
    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target
    from bert_keras.model import heads, squared_error
else:
    keras, tf = deferred("keras", "tensorflow")
    (sentence_files,) = deferred("bert_keras.checkpoints.sentence_files")
    heads, squared_error = deferred(
        "bert_keras.model.heads", "bert_keras.model.squared_error"
    )


def is_cross_encoder(config: Mapping[str, Any]) -> bool:
    """Return whether a folder is a cross-encoder with one output: a reranker."""
    return (
        sentence_files.pair_scores(config) is not None and len(class_names(config)) == 1
    )


class NumberCodec(PooledCodec):
    """A pooled head with one output."""

    def entries(self, task: Any) -> dict[str, Any]:
        return {**class_entries(["score"]), "problem_type": self.problem_type}


class NumberTask(PooledTask):
    """A task with one number for each text or pair, such as a similarity.

    The answer is output * `std` + `mean`, or, with the activation `sigmoid`, the
    sigmoid of the output.
    """

    head_codec = NumberCodec(problem_type=REGRESSION)
    activation: str
    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def inherited(cls, held: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        found = super().inherited(held, given)
        if held is not None and "objective" not in given:  # on which it depends
            found["activation"] = held.activation
        return found

    @property
    def pair_activation(self) -> str:  # type: ignore[override]
        return self.activation

    def encode_targets(self, targets: Any) -> Any:
        """Return numbers for strings; numbers pass unchanged."""
        return numbers(targets, tf.float32)

    @property
    def units(self) -> int:
        return 1

    @property
    def scores_pairs(self) -> bool:  # type: ignore[override]
        """Whether the model reads pairs of texts."""
        return self.pairs is not False

    def pair_scores(self, answers: Mapping[str, Any]) -> Any:
        return answers["score"]

    def outputs(self, encoder: Any, inputs: Batch, seed: int | None) -> Any:
        # As in every pooled task, but in float32, since users read this number.
        head = heads.PooledHead.on(encoder, 1, seed=seed, dtype="float32")
        return head(self.reader.vector(encoder, inputs, seed))

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `score` float32 [B], in the units of the training file."""
        found = tf.cast(outputs, tf.float32)[:, 0]
        if self.activation == "sigmoid":
            return {"score": tf.sigmoid(found)}
        return {"score": found * self.std + self.mean}

    def soft_targets(self, answers: Answers, teacher: Any) -> np.ndarray:
        scores = np.asarray(answers["score"], np.float64)[:, None]
        if self.activation == "sigmoid":
            return logit_of(np.clip(scores, 0, 1))
        return (scores - self.mean) / self.std

    def recipe(self) -> dict[str, Any]:
        meaning = "the answer is output * scale + offset"
        if self.activation == "sigmoid":
            meaning = "the answer is the sigmoid of the output"
        return {
            "meaning": meaning,
            "activation": {"linear": "none"}.get(self.activation, self.activation),
            "scale": self.std,
            "offset": self.mean,
        }

    def explained(self, item: Item) -> list[Target]:
        """Return the number itself."""
        item.refuse("target", "against")
        rows = item.joined()
        return [
            item.weighted_sum("score", rows, [self.std], bias=self.mean, unit="score")
        ]


class RegressionCodec(NumberCodec):
    """A regression; a cross-encoder with one output is a reranker instead."""

    def reads(self, config: Mapping[str, Any]) -> bool:
        return not is_cross_encoder(config) and super().reads(config)

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        count = len(class_names(config))
        if count != 1:
            raise ConfigError(
                f"a regression must have one output (`id2label`); received {count}"
            )
        activation = sentence_files.pair_scores(config) or "linear"
        return {"pairs": reads_pairs(config), "activation": activation}


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class Regression(RegressionSettings, NumberTask):
    """One number for each text or pair, in the units of the training file.

    The head learns (target - mean) / std, so that the scale of the targets does not
    matter; the answer is output * std + mean. At the end of training, `mean` and `std`
    are folded into the head and become 0 and 1: the output of a saved model is the
    answer, as in Hugging Face's regression models.

    With the activation `sigmoid`, the answer is the sigmoid of the output, and targets,
    from 0 to 1, are not scaled.
    """

    name = "regression"
    head_codec = RegressionCodec(problem_type=REGRESSION)
    best_score = "spearman"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation == "sigmoid" and (self.mean, self.std) != (0.0, 1.0):
            raise ConfigError(
                "`mean` and `std` must be 0 and 1 with the activation sigmoid; "
                f"received {self.mean:g} and {self.std:g}"
            )

    @classmethod
    def strata(cls, columns: Columns, **settings: Any) -> Strata:
        return quantiles(label_numbers(columns))

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Regression:
        """Return the task with the mean and standard deviation of the targets."""
        task = cls(**{"pairs": "text_pair" in columns, **settings})
        values = task.targets(columns).astype("float64")
        if (values == values[0]).all():
            message = f"`label` must have two values or more; has {values[0]:g} only"
            columns.refuse([(0, message)])
        if task.activation == "sigmoid" and not 0 <= values.min() <= values.max() <= 1:
            columns.refuse([(0, "`label` must be from 0 to 1 for activation sigmoid")])
        if task.scaling == "none" or task.activation == "sigmoid":
            return task
        learned = {"mean": float(values.mean()), "std": float(values.std())}
        return dataclasses.replace(task, **{**learned, **settings})

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the number of each row, float32 [N]; bad ones are named by line."""
        return label_numbers(columns)

    def loss(self) -> keras.losses.Loss:
        if self.activation == "sigmoid":
            return keras.losses.BinaryCrossentropy(from_logits=True)
        return squared_error.ScaledSquaredError(self.mean, self.std)

    def linear_targets(self, columns: Columns) -> tuple[str, np.ndarray]:
        values = self.targets(columns)[:, None]
        if self.activation == "sigmoid":
            return "sigmoid", values
        return "squared", (values - self.mean) / self.std

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        targets, found = check_numbers(self.targets(columns), answers["score"])
        return {
            "spearman": spearman(targets, found),
            "pearson": pearson(targets, found),
            "root_mean_squared_error": float(np.sqrt(np.mean((found - targets) ** 2))),
            "mean_absolute_error": float(np.mean(np.abs(found - targets))),
            "num_examples": len(targets),
        }

    def finalize(self, model: keras.Model) -> Regression:
        """Fold mean and std into the head and return the task with 0 and 1."""
        head = model.get_layer("classifier")
        head.kernel.assign(head.kernel * self.std)
        head.bias.assign(head.bias * self.std + self.mean)
        return dataclasses.replace(self, mean=0.0, std=1.0)

    def unfold(self, model: keras.Model) -> None:
        """Divide a head whose outputs are answers by mean and std."""
        head = model.get_layer("classifier")
        head.kernel.assign(head.kernel / self.std)
        head.bias.assign((head.bias - self.mean) / self.std)

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return the rows whose error exceeds the targets' standard deviation."""
        targets = self.targets(columns).astype("float64")
        errors = np.abs(answers["score"] - targets)
        order = np.argsort(-errors, kind="stable")
        return [
            self.mistake(
                columns,
                row,
                label=float(targets[row]),
                prediction=float(answers["score"][row]),
                error=float(errors[row]),
            )
            for row in order[: int((errors > targets.std()).sum())]
        ]

    def describe(self, columns: Columns) -> dict[str, Any]:
        targets = self.targets(columns).astype("float64")
        facts = {"least": targets.min(), "mean": targets.mean(), "most": targets.max()}
        return {"rows": len(columns), **{k: float(v) for k, v in facts.items()}}
