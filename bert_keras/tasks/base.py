"""The contract of a task: what differs between one use of BERT and another.

A task says which columns it reads, how texts become a batch, which outputs stand on the
encoder, which loss trains them, how outputs become answers and how answers are scored.
One file in this folder is one task.
"""

from __future__ import annotations

import abc
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.table import Columns
from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.model.encoder import BertEncoder, batch_inputs
from bert_keras.tasks.rows import TaskRows
from bert_keras.text.preprocessor import Preprocessor

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11


class Task(TaskRows):
    """What makes a task; a subclass is a frozen dataclass of plain settings.

    The settings are saved with the model. What is said to be in graph is traced by
    TensorFlow with core ops and those of the tokenizer, and lies in the SavedModel.

    Attributes, besides those of `TaskRows`:
        summary: one line for `bert-keras tasks`.
        architecture: Hugging Face's class name of the same model; `BertModel` where
            its tools have no such head.
        best_score: the score by which the best epoch is chosen; higher is better.
        pooler: whether the encoder has the pooler.
        encoder_outputs: extra outputs of the encoder, as `BertEncoder` names them.
        pretrained_scopes: scopes of head weights that training takes from the
            checkpoint where it has them, such as `cls/predictions/`.
        passed_scopes: scopes that its folders may hold and that it has no use for.
        free_settings: settings that a trained model may change: no weight and no
            label depends on them.
        answers_ids: whether the answers can be given without the texts, so that the
            signature `ids` of an export gives them; it gives `logits` if not.
        max_length, learning_rate: those of training where the user does not say.
        compares: whether the loss compares the rows of a batch with each other, so
            that it cannot come in parts.
        rows_per_text: rows of a text in the padded layout; `None`: as many as it needs.
        ignored_target: what stands in the targets of windows where nothing is learned.
    """

    summary: ClassVar[str]
    architecture: ClassVar[str] = "BertModel"
    best_score: ClassVar[str]
    pooler: ClassVar[bool] = True
    encoder_outputs: ClassVar[tuple[str, ...]] = ()
    pretrained_scopes: ClassVar[tuple[str, ...]] = ()
    passed_scopes: ClassVar[tuple[str, ...]] = ()
    free_settings: ClassVar[tuple[str, ...]] = ()
    answers_ids: ClassVar[bool] = True
    max_length: ClassVar[int] = 128
    learning_rate: ClassVar[float] = 5e-5
    compares: ClassVar[bool] = False
    rows_per_text: ClassVar[int | None] = 1
    ignored_target: ClassVar[int] = 0

    # Settings.

    @classmethod
    def parse_settings(cls, settings: Sequence[str]) -> dict[str, Any]:
        """Return settings of the command line, `name=value` each; values as in JSON.

        Raises:
            ConfigError: there is no such setting.
        """
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        found = {}
        for setting in settings:
            name, equals, value = setting.partition("=")
            if not equals or name not in known:
                raise ConfigError(
                    f"`--set` must be NAME=VALUE with a setting of {cls.name} "
                    f"({', '.join(known)}); received {setting!r}"
                )
            try:
                found[name] = json.loads(value)
            except ValueError:
                found[name] = value  # a word
        return found

    def changed(self, **settings: Any) -> Self:
        """Return the task of a trained model with other settings.

        Raises:
            ConfigError: a setting is not free to change.
        """
        for name in settings:
            if name not in self.free_settings:
                raise ConfigError(
                    f"a trained {self.name} model may change "
                    f"{', '.join(self.free_settings) or 'no setting'}; received {name}"
                )
        return dataclasses.replace(self, **settings)  # type: ignore[type-var]

    # From strings to the batch dict, in graph.

    def signature(self) -> tuple[tf.TensorSpec, ...]:
        """Return name, dtype and shape of each input of the SavedModel."""
        return tuple(tf.TensorSpec([None], tf.string, name=role) for role in self.roles)

    def more_signatures(self) -> dict[str, tuple[tf.TensorSpec, ...]]:
        """Return other forms of the inputs, by the name of their signature.

        `features` takes them too. They differ from `signature` in their ranks, as texts
        [B] and lists of words [B, W] do: prediction chooses by that.
        """
        return {}

    def features(self, preprocessor: Preprocessor, texts: Any) -> dict[str, Any]:
        """Return the batch dict of texts, in graph.

        It may hold more than the model's inputs, for `answer` to use.
        """
        return preprocessor(texts)

    def examples(
        self, preprocessor: Preprocessor, texts: Any, targets: Any, weights: Any = None
    ) -> tuple[dict[str, Any], Any, Any]:
        """Return batch, targets and weights of the loss, or `None`, in graph."""
        batch = self.features(preprocessor, texts)
        return batch, self.encode_targets(targets), weights

    def encode_targets(self, targets: Any) -> Any:
        """Return targets as the loss wants them, in graph; `fit` may give others."""
        return targets

    def redrawn(self, rows: tuple[Any, ...], draws: Any) -> tuple[Any, ...]:
        """Return training rows (texts, targets, …) with what each epoch draws anew.

        In graph; draws are int64 [B], another number for each row and epoch.
        """
        return rows

    def probe(self, preprocessor: Preprocessor, texts: Any) -> dict[str, Any]:
        """Return the batch dict of texts for `measure`, whatever `features` gives."""
        return self.features(preprocessor, texts)

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        """Return each text's tokens, int32 [B], and whether it is cut, bool [B]."""
        return preprocessor.lengths(texts)

    # The model.

    def inputs(self) -> dict[str, Any]:
        """Return the Keras inputs; one output a text needs `cls_positions`."""
        return batch_inputs(cls_positions=self.pooler)

    @abc.abstractmethod
    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> Any:
        """Return the Keras tensor, or tensors, that the loss and `answer` take."""

    def frozen(self, encoder: BertEncoder) -> Sequence[keras.layers.Layer]:
        """Return the layers of the encoder that a model of the task does not train.

        They stay trainable in other models on the same encoder.
        """
        return ()

    @abc.abstractmethod
    def loss(self) -> keras.losses.Loss:
        """Return the loss of a batch."""

    def metrics(self) -> list[Any]:
        """Return the metrics shown while training."""
        return []

    # Answers and scores.

    def respond(
        self,
        texts: Any,
        preprocessor: Preprocessor,
        run: Callable[[dict[str, Any]], Any],
    ) -> dict[str, tf.Tensor]:
        """Return the answers of texts, in graph; `run` computes a batch's outputs.

        A task whose texts may fill more rows than memory has room for runs several
        batches, here and in `assess`.
        """
        batch = self.features(preprocessor, texts)
        return self.answer(run(batch), batch)

    @abc.abstractmethod
    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return what a person or a program wants to know, in graph; [B, …] each."""

    def measure(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return what `score` takes, in graph; [B, …] each: the answers, unless more is
        scored than a person asks for, or other texts, those of `probe`.
        """
        return self.answer(outputs, batch)

    def assess(
        self,
        texts: Any,
        preprocessor: Preprocessor,
        run: Callable[[dict[str, Any]], Any],
    ) -> dict[str, tf.Tensor]:
        """Return what `score` takes for texts, in graph; see `respond`."""
        batch = self.probe(preprocessor, texts)
        return self.measure(run(batch), batch)

    @abc.abstractmethod
    def score(
        self, columns: Columns, answers: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Return the scores of what `measure` gave, [N, …], against the columns."""

    def further_scores(
        self, model: Any, columns: Columns, batch_size: int
    ) -> dict[str, Any]:
        """Return scores of a trained `TaskModel` that one pass cannot give."""
        return {}

    def tune(self, columns: Columns, answers: Mapping[str, np.ndarray]) -> Self:
        """Return the task with settings that dev answers tell, such as a threshold."""
        return self

    def settle(self, model: keras.Model) -> Self:
        """Return the task for good, once training is over and `model` is at its best.

        It may move a setting into the weights of the head, so that other tools that
        read the model folder get the same answers.
        """
        return self

    def rows(self, answers: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Return the answers of a batch as one dict a text, fit for JSON."""
        plain = {key: plain_values(value) for key, value in answers.items()}
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

    # What is saved.

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Say whether a Hugging Face `config.json` that is not ours is of this task."""
        named = cls.architecture in (config.get("architectures") or ())
        return named and cls.architecture != "BertModel"  # which has no head

    @classmethod
    def from_model_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the task of a Hugging Face `config.json` that is not ours."""
        raise CheckpointError(
            f"config.json: says nothing of the task {cls.name}: train it on this "
            "model first"
        )

    def model_config(self) -> dict[str, Any]:
        """Return the entries of `config.json` that Hugging Face reads."""
        return {}

    def write_files(
        self, folder: Path, *, hidden_size: int, preprocessor: Preprocessor
    ) -> None:
        """Write into a model folder what other tools want, files of `folder.FILES`."""
        return

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def get_config(self) -> dict[str, Any]:
        return self.settings()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)


def plain_values(values: np.ndarray) -> list[Any]:
    """Return an array as Python values; TensorFlow's strings as `str`."""
    if values.dtype == object:
        decode = np.vectorize(lambda text: text.decode("utf-8", "replace"), [object])
        values = decode(values)
    return values.tolist()
