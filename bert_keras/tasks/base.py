"""The contract of a task, and the Keras model that a task puts on an encoder.

A task says which columns it reads, which targets they give, which head stands on the
encoder, which loss trains it, how outputs become answers and how answers are scored.
One file in this folder is one task.
"""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from keras import ops

from bert_keras.encoder import BertEncoder, batch_inputs, complete
from bert_keras.errors import DataError
from bert_keras.packing import Preprocessor
from bert_keras.table import Columns, read_columns

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11


class Task(abc.ABC):
    """What makes a task: columns, targets, head, loss, answers and scores.

    A subclass is a frozen dataclass of plain settings, which are saved with the model.

    Attributes:
        name: how the command line calls it.
        summary: one line for `bert-keras tasks`.
        architecture: Hugging Face's class name of the same model.
        text_roles: roles of the texts, in the order in which they are packed.
        pairs: whether a row is a pair of texts.
        columns: role to the default name of its column.
        optional_roles: roles that a file may lack.
        best_score: the score by which the best epoch is chosen; higher is better.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    architecture: ClassVar[str]
    text_roles: ClassVar[tuple[str, ...]] = ("text", "text_pair")
    columns: ClassVar[Mapping[str, str]]
    optional_roles: ClassVar[tuple[str, ...]] = ()
    best_score: ClassVar[str]
    pairs: bool

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        columns: Mapping[str, str | int | None] | None = None,
        header: str = "auto",
    ) -> Columns:
        """Return the columns of a file; `columns` overrides the default names."""
        chosen = dict(columns or {})
        # A role that the user names must be there; a default one may be missing.
        optional = [role for role in cls.optional_roles if role not in chosen]
        wanted = {**cls.columns, **chosen}
        return read_columns(path, wanted, optional=optional, header=header)

    @classmethod
    @abc.abstractmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Self:
        """Return the task with what the training data settles, such as the classes."""

    @classmethod
    @abc.abstractmethod
    def from_model_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the task of a Hugging Face `config.json` that is not ours."""

    @abc.abstractmethod
    def model_config(self) -> dict[str, Any]:
        """Return the entries of `config.json` that Hugging Face reads."""

    def texts(self, columns: Columns) -> tuple[list[str], ...]:
        """Return the texts of each role that the model reads, N strings each."""
        roles = self.text_roles[: 1 + self.pairs]
        missing = [role for role in roles if role not in columns]
        if missing:
            raise DataError(
                f"the model reads pairs of texts, the column of `{missing[0]}` is "
                "missing: name it",
                path=columns.path,
            )
        return tuple(columns[role] for role in roles)

    @abc.abstractmethod
    def targets(self, columns: Columns) -> np.ndarray:
        """Return what the model learns, [N, …]; bad values are named by line."""

    def example_weights(self, columns: Columns) -> np.ndarray | None:
        """Return the weight of each example in the loss, float32 [N], or `None`."""
        return None

    def encode_targets(self, targets: Any) -> Any:
        """Return targets as the loss wants them, in graph; `fit` may give others."""
        return targets

    @abc.abstractmethod
    def head(self, encoder: BertEncoder, seed: int | None) -> keras.layers.Layer:
        """Return the layer that makes logits of the encoder's pooled output."""

    @abc.abstractmethod
    def loss(self) -> keras.losses.Loss:
        """Return the loss of a batch."""

    @abc.abstractmethod
    def metrics(self) -> list[Any]:
        """Return the metrics shown while training."""

    @abc.abstractmethod
    def answer(self, logits: Any) -> dict[str, tf.Tensor]:
        """Return what a person or a program wants to know, in graph; [B, …] each."""

    @abc.abstractmethod
    def score(
        self, columns: Columns, answers: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Return the scores of answers [N, …] against the columns."""

    def rows(self, answers: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Return the answers of a batch as one dict a text, fit for JSON."""
        plain = {key: _plain(value) for key, value in answers.items()}
        return [
            dict(zip(plain, values, strict=True))
            for values in zip(*plain.values(), strict=True)
        ]

    def mistakes(
        self, columns: Columns, answers: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """Return wrong answers for the report, most confident first."""
        return []

    def describe(self, columns: Columns) -> dict[str, Any]:
        """Return facts of a data set for the report."""
        return {"rows": len(columns)}

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]


@keras.saving.register_keras_serializable(package="bert_keras")
class TaskModel(keras_hub.models.Task):
    """A task's head on an encoder; `fit`, `evaluate` and `predict` take raw strings.

    A functional Keras model from a batch dict (see `BertEncoder`) to logits. Strings,
    or a tuple of two for pairs, are turned into batches by the preprocessor on the way;
    a `tf.data.Dataset` of strings, or of batch dicts, does as well.

    Args:
        encoder: the encoder; trained with the head.
        task: what to put on it.
        preprocessor: strings to batches.
        seed: seed of the head's initializer and dropout.

    Example:
        >>> model = TaskModel(encoder, Classification(("ham", "spam")), preprocessor)
        >>> model.compile(AdamW(5e-5), loss=model.task.loss())
        >>> model.fit(["win a prize now", "see you at six"], ["spam", "ham"])
    """

    def __init__(
        self,
        encoder: BertEncoder,
        task: Task,
        preprocessor: Preprocessor,
        *,
        seed: int | None = None,
        name: str | None = None,
    ) -> None:
        self.backbone = encoder
        self.preprocessor = preprocessor
        inputs = batch_inputs()
        head = task.head(encoder, seed)
        logits = head(encoder(inputs)["pooled_output"])
        super().__init__(
            inputs=inputs, outputs=logits, compile=False, name=name or task.name
        )
        self.task = task
        self.seed = seed

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(inputs, dict):
            inputs = complete(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        *,
        shuffle: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Train, as `keras.Model.fit` does.

        Texts in memory are shuffled each epoch (KerasHub's `Task` would not); a
        dataset, or batch dicts, come in the order that they have.
        """
        in_memory = not isinstance(x, tf.data.Dataset | dict)
        if in_memory and shuffle and not kwargs.get("validation_split"):
            rows = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
            dataset = tf.data.Dataset.from_tensor_slices(rows)
            seed = int(np.random.randint(2**31))  # what `set_random_seed` settles
            dataset = dataset.shuffle(max(len(dataset), 1), seed=seed)
            x, y, sample_weight = dataset.batch(batch_size or 32), None, None
            batch_size = None
        # Else TensorFlow makes the optimizer's variables while it traces the step, and
        # then has to trace the step a second time.
        if keras.config.backend() == "tensorflow" and self.compiled:
            self.optimizer.build(self.trainable_variables)
        return super().fit(x, y, batch_size, sample_weight, shuffle=False, **kwargs)

    @tf.autograph.experimental.do_not_convert  # has no Python control flow to convert
    def preprocess_samples(
        self, x: Any, y: Any = None, sample_weight: Any = None
    ) -> Any:
        """Return what `fit` feeds: batches of strings become batch dicts, in graph."""
        if not isinstance(x, dict):
            x = self.preprocessor(x)
        if y is not None:
            y = self.task.encode_targets(y)
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)

    def answer(self, texts: Any) -> dict[str, tf.Tensor]:
        """Return the answers for tf.string [B], or a pair of those, in graph.

        Prediction and export are this function, so they answer alike.
        """
        return self.task.answer(self(self.preprocessor(texts), training=False))

    def count_tokens(self) -> None:
        """Show in `fit` the number of real tokens and their share of the rows."""
        self.real_tokens = keras.metrics.Sum(name="real_tokens")
        self.real_share = keras.metrics.Mean(name="real_share")

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        if hasattr(self, "real_tokens"):
            mask = ops.cast(x["padding_mask"], "float32")
            self.real_tokens.update_state(mask)
            self.real_share.update_state(mask)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {
            "encoder": keras.saving.serialize_keras_object(self.backbone),
            "task": keras.saving.serialize_keras_object(self.task),
            "preprocessor": self.preprocessor.get_config(),
            "seed": self.seed,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        settings = dict(config)
        for key in ("encoder", "task"):
            settings[key] = keras.saving.deserialize_keras_object(
                settings[key], custom_objects=custom_objects
            )
        settings["preprocessor"] = Preprocessor.from_config(settings["preprocessor"])
        return cls(**settings)


def as_columns(**roles: Sequence[str]) -> Columns:
    """Return columns of rows in memory, as `Task.read` returns those of a file."""
    cells = {role: list(values) for role, values in roles.items() if values is not None}
    count = len(next(iter(cells.values())))
    return Columns("rows in memory", cells, list(range(1, count + 1)))


def _plain(values: np.ndarray) -> list[Any]:
    """Return an array as Python values; TensorFlow's strings as `str`."""
    if values.dtype == object:
        values = np.vectorize(lambda text: text.decode("utf-8"), otypes=[object])(
            values
        )
    return values.tolist()
