"""The Keras model of a task: `fit`, `evaluate` and `predict` on raw strings.

`TaskModel` is what training, prediction and export share, so they treat texts alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from bert_keras.data.table import as_columns, rows_aside
from bert_keras.distribution.replicated_fit import ReplicatedFit, replica_count
from bert_keras.errors import ConfigError
from bert_keras.model.encoder import BertEncoder, complete, seed_behind
from bert_keras.settings import check_share
from bert_keras.tasks.given_labels import told
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

        `validation_split` sets rows aside at random, by the seed that
        `keras.utils.set_random_seed` sets, and leaves at least one row of each class
        in training. Keras itself takes the last rows, as this does with
        `shuffle=False`; of rows sorted by class that would be one class.

        A model made in a strategy's scope is trained on its replicas, see
        `ReplicatedFit`; texts then have a row each.
        """
        split = kwargs.pop("validation_split", None)
        if split and kwargs.get("validation_data") is None:
            kept, aside = self._split((x, y, sample_weight), split, shuffle)
            x, y, sample_weight = kept
            held = keras.utils.pack_x_y_sample_weight(*aside)
            dataset = tf.data.Dataset.from_tensor_slices(held)
            kwargs["validation_data"] = dataset.batch(batch_size or 32)
        in_memory = not isinstance(x, tf.data.Dataset | dict)
        if in_memory and shuffle:
            rows = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
            dataset = tf.data.Dataset.from_tensor_slices(rows)
            dataset = dataset.shuffle(max(len(dataset), 1), seed=_new_seed())
            x, y, sample_weight = dataset.batch(batch_size or 32), None, None
            batch_size = None
        # Else TensorFlow makes the optimizer's variables while it traces the step, and
        # then has to trace the step a second time.
        if keras.config.backend() == "tensorflow" and self.compiled:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        with told():
            return super().fit(x, y, batch_size, sample_weight, shuffle=False, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Score, as `keras.Model.evaluate` does."""
        with told():
            return super().evaluate(*args, **kwargs)

    def _split(
        self, data: tuple[Any, Any, Any], share: float, shuffle: bool
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return texts, targets and weights to train on, and those set aside."""
        check_share("validation_split", share)
        leaves = [leaf for part in data for leaf in _leaves(part)]
        if not all(isinstance(leaf, list) or hasattr(leaf, "shape") for leaf in leaves):
            types = ", ".join(type(leaf).__name__ for leaf in leaves)
            raise ConfigError(
                "`validation_split` needs lists or arrays; for others give "
                f"`validation_data`; received {types}"
            )
        sizes = {
            len(leaf) if isinstance(leaf, list) else leaf.shape[0] for leaf in leaves
        }
        if len(sizes) != 1:
            raise ConfigError(
                "`x`, `y` and `sample_weight` must have equally many rows for "
                f"`validation_split`; received {', '.join(map(str, sorted(sizes)))}"
            )
        (total,) = sizes
        count = total - math.floor(total * (1 - share))
        aside = list(range(total - count, total))
        if shuffle:
            kinds = self._kinds(data[1]) or [()] * total
            aside = rows_aside(kinds, count, _new_seed())
        kept = sorted(set(range(total)) - set(aside))
        if not aside or not kept:
            raise ConfigError(
                "`validation_split` must leave rows on both sides, and in training "
                f"one of each class; received {share} of {total} rows"
            )
        found = [tuple(_take(part, rows) for part in data) for rows in (kept, aside)]
        return found[0], found[1]

    def _kinds(self, y: Any) -> list[Collection[str]]:
        """Return what each row holds of what training must see; empty if unknown."""
        labels = np.asarray(y, dtype=object)
        one = (str, bytes, int, np.integer)
        if labels.ndim != 1 or not all(isinstance(each, one) for each in labels):
            return []
        return self.task.kinds(as_columns(label=labels), **self.task.settings())

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


def _new_seed() -> int:
    """Return a seed, which follows from that of `keras.utils.set_random_seed`."""
    return int(np.random.randint(2**31))


def _leaves(part: Any) -> list[Any]:
    """Return the lists and arrays of texts, targets or weights."""
    if isinstance(part, tuple):
        return [leaf for each in part for leaf in _leaves(each)]
    if isinstance(part, dict):
        return [leaf for each in part.values() for leaf in _leaves(each)]
    return [] if part is None else [part]


def _take(part: Any, rows: list[int]) -> Any:
    """Return some rows of texts, targets or weights."""
    if isinstance(part, tuple):
        return tuple(_take(each, rows) for each in part)
    if isinstance(part, dict):
        return {key: _take(each, rows) for key, each in part.items()}
    if part is None:
        return None
    if isinstance(part, list):
        return [part[row] for row in rows]
    if isinstance(part, tf.Tensor | tf.RaggedTensor):
        return tf.gather(part, rows)
    return np.asarray(part)[rows]


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
