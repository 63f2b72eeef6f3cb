"""The Keras model of a task: `fit`, `evaluate` and `predict` on raw strings.

`TaskModel` is what training, prediction and export share, so they treat texts alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from bert_keras.distribution.replicated_fit import ReplicatedFit, replica_count
from bert_keras.errors import ConfigError
from bert_keras.model.encoder import BertEncoder, complete, seed_behind
from bert_keras.text.preprocessor import Preprocessor

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task


@keras.saving.register_keras_serializable(package="bert_keras")
class TaskModel(ReplicatedFit, keras_hub.models.Task):
    """A task's head on an encoder; `fit`, `evaluate` and `predict` take raw strings.

    A functional Keras model from a batch dict (see `BertEncoder`) to logits. Strings,
    or a tuple of two for pairs, are turned into batches by the preprocessor on the way;
    a `tf.data.Dataset` of strings, or of batch dicts, does as well.

    Args:
        encoder: the encoder; trained with the head.
        task: what to put on it.
        preprocessor: strings to batches.
        seed: the head's initializer and dropout follow from it; may be that of the
            encoder, whose own draws stay others.

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
        inputs = task.inputs()
        # Of equal seeds head and embeddings would drop the same units in each step.
        own = None if seed is None else seed_behind(encoder.config, seed) + 1
        outputs = task.outputs(encoder, inputs, own)
        # A model for batch dicts alone may have no preprocessor.
        packs = getattr(preprocessor, "layout", None) == "packed"
        if packs and "cls_positions" not in inputs and is_one_vector(outputs):
            raise ConfigError(
                f"`inputs` of the task {task.name} must have `cls_positions`, where "
                "texts start in packed rows, for one output a text: return "
                "batch_inputs(cls_positions=True)"
            )
        super().__init__(
            inputs=inputs, outputs=outputs, compile=False, name=name or task.name
        )
        self.task = task
        self.seed = seed

    # What a task leaves as it is, is so in its model alone: setting `trainable` of a
    # layer would freeze it in every model on the same encoder.

    @property
    def trainable_weights(self) -> list[Any]:
        frozen = self._frozen()
        return [w for w in super().trainable_weights if id(w) not in frozen]

    @property
    def trainable_variables(self) -> list[Any]:
        frozen = self._frozen()
        return [v for v in super().trainable_variables if id(v) not in frozen]

    @property
    def non_trainable_weights(self) -> list[Any]:
        trained = {id(weight) for weight in self.trainable_weights}
        return [weight for weight in self.weights if id(weight) not in trained]

    @property
    def non_trainable_variables(self) -> list[Any]:
        trained = {id(variable) for variable in self.trainable_variables}
        return [each for each in self.variables if id(each) not in trained]

    def _frozen(self) -> set[int]:
        """Return the ids of the variables that the task does not train."""
        layers = self.task.frozen(self.backbone)
        return {id(variable) for layer in layers for variable in layer.variables}

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(inputs, dict):
            inputs = complete(inputs, self._inputs_struct)
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

        A model made in a strategy's scope is trained on its replicas, see
        `ReplicatedFit`; texts then have a row each.
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
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        return super().fit(x, y, batch_size, sample_weight, shuffle=False, **kwargs)

    @tf.autograph.experimental.do_not_convert  # has no Python control flow to convert
    def preprocess_samples(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        preprocessor: Preprocessor | None = None,
    ) -> Any:
        """Return what `fit` feeds: batches of strings become batch dicts, in graph.

        Another preprocessor than the model's may lay the texts otherwise.
        """
        preprocessor = preprocessor or self.preprocessor
        if replica_count(self) > 1:  # Keras parts batches by rows
            preprocessor = preprocessor.replace(layout="padded")
        if isinstance(x, dict):
            if y is not None:
                y = self.task.encode_targets(y)
        elif y is None:
            x = self.task.features(preprocessor, x)
        else:
            x, y, sample_weight = self.task.examples(preprocessor, x, y, sample_weight)
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)

    def answer(
        self, texts: Any, *, preprocessor: Preprocessor | None = None
    ) -> dict[str, tf.Tensor]:
        """Return the answers for tf.string [B], or a tuple, one a role, in graph.

        Prediction and export are this function, so they answer alike. Another
        preprocessor than the model's may lay the texts otherwise.
        """
        return self.task.respond(
            texts,
            preprocessor or self.preprocessor,
            lambda batch: self(batch, training=False),
        )

    def measure(self, texts: Any, *, preprocessor: Preprocessor) -> dict[str, Any]:
        """Return what the task's `score` takes for texts, in graph."""
        return self.task.assess(
            texts, preprocessor, lambda batch: self(batch, training=False)
        )

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


def is_one_vector(outputs: Any) -> bool:
    """Say whether a model's outputs are one vector a text, such as of classes."""
    if not keras.utils.is_keras_tensor(outputs):
        return False
    return len(outputs.shape) == 2 and outputs.shape[1] is not None


def as_tensors(parts: Sequence[Sequence[Any]]) -> Any:
    """Return the texts of each role as a model takes them: one tensor, or a tuple.

    Args:
        parts: a list a role, of N strings or of N lists of strings.

    Returns:
        tf.string [N], or [N, M] for lists, shorter ones filled up with empty strings.
        Half a surrogate pair becomes broken UTF-8.
    """
    return one_or_all(tuple(_strings(part) for part in parts))


def one_or_all(texts: tuple[Any, ...]) -> Any:
    """Return the texts of the only role as they are; those of several as a tuple."""
    return texts if len(texts) > 1 else texts[0]


def _strings(texts: Sequence[Any]) -> tf.Tensor:
    if not len(texts) or isinstance(texts[0], str):
        return tf.constant([_bytes(text) for text in texts], tf.string)
    rows = [[_bytes(text) for text in row] for row in texts]
    return tf.ragged.constant(rows, tf.string, ragged_rank=1).to_tensor(b"")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
