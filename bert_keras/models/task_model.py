"""The Keras model of a task: `fit`, `evaluate` and `predict` on raw strings.

Training, prediction and export share `TaskModel`, so they treat texts identically.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.answering.backend import Backend
from bert_keras.checkpoints.model_types import check_architecture
from bert_keras.distribution.replicas import replica_count
from bert_keras.errors import ConfigError
from bert_keras.lazy_names import register_with_keras
from bert_keras.model.encoder import BertEncoder, frozen_paths, seed_behind, with_frozen
from bert_keras.model.heads import new_heads
from bert_keras.model.optimizers import BertAdamW
from bert_keras.models.fit_data import (
    check_columns,
    check_not_one_hot,
    check_rows,
    drawn,
    has_texts,
    new_seed,
    read_rows,
    row_dataset,
    split_rows,
    unused_settings,
    validation_rows,
)
from bert_keras.models.keras_hub_task import Task as KerasHubTask
from bert_keras.models.trainable_model import TrainableModel
from bert_keras.models.truncated_rows import TruncatedRows
from bert_keras.reading.windows import Drawn
from bert_keras.runs.notes import say, say_once
from bert_keras.settings import check_type, check_whole_number
from bert_keras.tasks.base import Batch, Task, default_learning_rate, refuse_weights
from bert_keras.tasks.given_labels import label_errors
from bert_keras.tasks.protocols import Writing, lengths_of, windows_of
from bert_keras.text.preprocessor import Preprocessor, one_or_all

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing since Python 3.11

register_with_keras()  # a saved model names its task
_REPORTED_BATCH = "_has_reported_a_batch"


@keras.saving.register_keras_serializable(package="bert_keras")
class TaskModel(Backend, TrainableModel, KerasHubTask):
    """A task's head on an encoder; `fit`, `evaluate` and `predict` take raw strings.

    A functional Keras model from a batch dict (see `BertEncoder`) to logits. Strings,
    or a tuple of two for pairs, are turned into batches by the preprocessor; a
    `tf.data.Dataset` of strings, of dicts of strings by role (`text`, `text_pair`) or
    of batch dicts is also accepted. `from_pretrained` loads the head of a folder that
    has one; the constructor initializes it randomly.

    Args:
        encoder: the encoder; trained with the head, except for layers that the task
            freezes.
        task: the task of the head.
        preprocessor: strings to batches.
        seed: seed of the head's initializer and dropout; may equal the encoder's seed,
            which leads to different numbers.

    Attributes:
        has_pretrained_head: whether `train` made the model, and all of its weights are
            pretrained, also because it has no head.

    Example:
        >>> model = TaskModel.from_pretrained(
        ...     "models/bert", "classification", classes=("ham", "spam")
        ... )
        >>> model.compile()  # AdamW, the task's loss and metrics
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
        check_type("encoder", encoder, BertEncoder)
        check_type("task", task, Task)
        if preprocessor is not None:  # there may be none, for batch dicts only
            check_type("preprocessor", preprocessor, Preprocessor)
        for output in task.needs.outputs:
            if output not in encoder.output:
                raise ConfigError(
                    f"`encoder` must have `outputs={task.needs.outputs}` for the "
                    f"task {task.name}; received one without {output}"
                )
        architecture = task.head_codec.architecture_of(task)
        if isinstance(task, Writing):
            architecture = "EncoderDecoderModel"
        check_architecture(encoder.config, architecture, task=task.name)
        self.backbone = encoder
        self.preprocessor = preprocessor
        if preprocessor is not None and not encoder.config.type_vocab_size:
            preprocessor.on_pairs = _tell_no_segments
        inputs = task.needs.keras_inputs()
        # With equal seeds, head and embeddings would drop the same units in each step.
        own = None if seed is None else seed_behind(encoder.config, seed) + 1
        outputs = task.outputs(encoder, inputs, own)
        packs = getattr(preprocessor, "layout", None) == "packed"
        if packs and "cls_positions" not in inputs and is_one_vector(outputs):
            raise ConfigError(
                f"`inputs` that the task {task.name} needs must have `cls_positions`, "
                "where texts start in packed rows, for one output per text: return "
                "batch_inputs(cls_positions=True)"
            )
        super().__init__(
            inputs=inputs, outputs=outputs, compile=False, name=name or task.name
        )
        self.task = task
        self.seed = seed
        self.has_pretrained_head = False
        for line in new_heads(self, encoder):
            say(line)

    @property
    def task(self) -> Task:
        """The task, with its lengths within the positions of the encoder."""
        return self._task

    @task.setter
    def task(self, task: Task) -> None:
        if isinstance(task, Writing):
            task = task.within(self.backbone.config)
        self._task = task

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        task: str | type[Task] | Task | None = None,
        *,
        max_length: int | None = None,
        truncation: str | None = None,
        layout: str | None = None,
        precision: str | None = None,
        rematerialize: bool = False,
        seed: int | None = None,
        add_tokens: Sequence[str] | None = None,
        **settings: Any,
    ) -> Self:
        """Return a task's model on the encoder of a folder, checkpoint or hub name.

        The head is the folder's if it holds one of the same task with the same
        labels; otherwise it is initialized randomly, with a message.

        Args:
            path: a model folder, a Hugging Face folder, a Google checkpoint,
                `hf://owner/name`.
            task: name, class or task; `None`: the task of the folder's head.
            max_length, truncation, layout: as in `Preprocessor`; by default the
                folder's, or else the task's.
            precision: `float32`, `mixed_bfloat16` or `mixed_float16`; by default
                Keras's own.
            rematerialize: as in `BertEncoder`.
            seed: of the head's initializer and dropout.
            add_tokens: words that the tokenizer gets as added tokens; their embeddings
                start as the mean of the embeddings of their pieces.
            **settings: of the task, such as `classes`; by default the folder's.

        Raises:
            CheckpointError: a part is missing, broken or of another shape.
            ConfigError: a setting is missing, unknown or out of its range.

        Example:
            >>> model = TaskModel.from_pretrained(
            ...     "hf://google-bert/bert-base-uncased",
            ...     "classification", classes=("ham", "spam"), max_length=64)
        """
        from bert_keras.models.pretrained_model import pretrained_model

        given = {"max_length": max_length, "truncation": truncation, "layout": layout}
        return pretrained_model(
            cls,
            path,
            task,
            settings=settings,
            preprocessing={k: v for k, v in given.items() if v is not None},
            add_tokens=add_tokens,
            dtype=precision,
            rematerialize=rematerialize,
            seed=seed,
        )

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        task: str | type[Task] | Task | None = None,
        *,
        load_weights: bool = True,
        **settings: Any,
    ) -> Self:
        """Call `from_pretrained` under the name that every `Task` of KerasHub has.

        `BertConfig.from_preset` returns sizes, without weights.

        Raises:
            ConfigError: `load_weights` is False.
        """
        if not load_weights:
            raise ConfigError(
                "`load_weights` must be True; received False: put a task on "
                "`BertEncoder(config)` for random weights"
            )
        return cls.from_pretrained(preset, task, **settings)

    def save_to_preset(self, preset_dir: str | os.PathLike[str]) -> None:
        """Write a model folder, like `save_model`; `from_preset` opens it.

        KerasHub's own layout is `to_keras_hub(model).save_to_preset(folder)`.
        """
        from bert_keras.models.model_folder import save_model

        save_model(self, preset_dir)

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        verbose: bool | None = None,
    ) -> None:
        """Write a SavedModel like `export_model`: strings in, answers out.

        `filepath` is the folder of the SavedModel itself; an existing one is replaced.
        `verbose` is accepted for Keras; nothing is printed.

        Raises:
            ConfigError: another format, which cannot hold the text handling.
        """
        if format != "tf_saved_model":
            raise ConfigError(
                "`format` must be 'tf_saved_model', whose graph reads strings; "
                f"received {format!r}: `model.backbone.export` takes ids in any format"
            )
        from bert_keras.exports.saved_model import write_saved_model

        write_saved_model(self, filepath)

    def summary(
        self,
        line_length: int | None = None,
        positions: Sequence[float] | None = None,
        print_fn: Callable[[str], object] | None = None,
        **kwargs: Any,
    ) -> None:
        """Print the preprocessor and the layers, like `keras.Model.summary`."""
        if self.preprocessor is not None:
            settings = self.preprocessor.settings().items()
            shown = ", ".join(f"{name}={value}" for name, value in settings)
            size = self.preprocessor.tokenizer.vocab_size
            line = f"Preprocessor: WordPiece, {size:,} tokens; {shown}"
            (print_fn or print)(line)
        # KerasHub's table has rows for its own tokenizers only.
        keras.Model.summary(self, line_length, positions, print_fn, **kwargs)

    def _own_optimizer(self) -> keras.optimizers.Optimizer:
        return BertAdamW(
            default_learning_rate(self.task, self.backbone.config.hidden_size)
        )

    # A task freezes layers only in its own model: setting `trainable` of a layer would
    # freeze it in every model on the same encoder.

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
        """Train like `keras.Model.fit`.

        Texts in memory are shuffled each epoch (unlike in KerasHub's `Task`); a
        dataset, or batch dicts, keep their order. A batched `tf.data.Dataset` holds
        pairs of texts and labels, or dicts with the columns of the texts and `label`.

        `validation_split` selects random rows, each class in proportion, with the seed
        of `keras.utils.set_random_seed`, see `stratified_holdout`. With `shuffle=False`
        it takes the last rows, like Keras; for rows sorted by class these would all be
        of one class.

        Without `y`, `masked-lm` draws new masks in each epoch.

        Truncated texts are reported in one line, as by `train`: texts in memory before
        training, texts of a dataset after the first epoch.

        A model made in a strategy's scope is trained on its replicas, see
        `TrainableModel`; each text then has its own row. `class_weight` may name
        classes; the others have weight 1.

        Settings by which `train` learns from its rows are reported as not used:
        `class_weights`, `scaling`, and those that are fitted on the dev set.
        """
        if batch_size is not None:
            check_whole_number("batch_size", batch_size, least=1)
        if kwargs.get("class_weight") is not None:
            given = kwargs["class_weight"]
            kwargs["class_weight"] = self.task.weights_by_class(given)
        trained = self.has_pretrained_head
        if unused := unused_settings(self.task, has_trained_head=trained):
            say(f"only `train` uses {', '.join(unused)}; `fit` does not")
        rows = read_rows(self.task, x, y, sample_weight)
        held = kwargs.pop("validation_data", None)
        if split := kwargs.pop("validation_split", None):
            if held is None:
                rows, held = split_rows(self.task, rows, split, shuffle=shuffle)
            else:
                say("`validation_split` is not used: `validation_data` is given")
        x, y, sample_weight = rows
        self._check_not_one_hot(x, y)
        truncated = [self._truncated_rows(of) for of in ("train", "validation")]
        if held is not None:
            of = " of `validation_data`"
            rows = read_rows(self.task, *validation_rows(held), of=of)
            self._check_not_one_hot(*rows[:2], of=of)
            held = self._read(truncated[1], *rows)
            if not isinstance(held, tf.data.Dataset):
                if isinstance(rows[0], dict):  # batch dicts, which are not read
                    check_rows(*rows, of=of)
                size = kwargs.pop("validation_batch_size", None) or batch_size or 32
                held = row_dataset(*rows).batch(size)
        kwargs["validation_data"] = drawn(self.task, held)
        x = self._read(truncated[0], x, y)
        if not isinstance(x, tf.data.Dataset | dict):
            if shuffle or y is None or self.task.reads_windows:
                dataset = row_dataset(x, y, sample_weight)
                if shuffle:
                    dataset = dataset.shuffle(len(dataset), seed=new_seed())
                x, y, sample_weight = dataset.batch(batch_size or 32), None, None
                batch_size = None
        x = drawn(self.task, x, each_epoch=True)
        kwargs["callbacks"] = with_callbacks(kwargs.get("callbacks"), truncated)
        # Otherwise TensorFlow creates the optimizer's variables while it traces the
        # step, and then has to trace the step a second time.
        if keras.config.backend() == "tensorflow" and self.compiled:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        with label_errors():
            return super().fit(x, y, batch_size, sample_weight, shuffle=False, **kwargs)

    def _check_not_one_hot(self, x: Any, y: Any, *, of: str = "") -> None:
        loss = self.loss if self.compiled else self.task.loss()
        check_not_one_hot(loss, x, y, self.output, of=of)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer like `keras.Model.predict`; reports truncated texts.

        Raises:
            ConfigError: `x` is no list of rows, or has none.
            DataError: a row has no value.
        """
        x, *_ = read_rows(self.task, x, is_labelled=False)
        truncated = self._truncated_rows()
        found = super().predict(self._read(truncated, x), *args, **kwargs)
        truncated.report()
        return found

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Score like `keras.Model.evaluate`; datasets are as in `fit`.

        Truncated texts are reported.
        """
        if batch_size is not None:
            check_whole_number("batch_size", batch_size, least=1)
        x, y, sample_weight = read_rows(self.task, x, y, sample_weight)
        self._check_not_one_hot(x, y)
        truncated = self._truncated_rows()
        x = self._read(truncated, x, y)
        if y is None and not isinstance(x, tf.data.Dataset | dict):
            x = row_dataset(x).batch(batch_size or 32)
            batch_size = None
        with label_errors():
            found = super().evaluate(
                drawn(self.task, x), y, batch_size, sample_weight, **kwargs
            )
        truncated.report()
        return found

    def train_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Update like `keras.Model`; reports the first batch with truncated texts."""
        self._report_batch(x, y)
        return super().train_on_batch(x, y, *args, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Score like `keras.Model`; reports the first batch with truncated texts."""
        self._report_batch(x, y)
        return super().test_on_batch(x, y, *args, **kwargs)

    def predict_on_batch(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer like `keras.Model`; reports the first batch with truncated texts."""
        self._report_batch(x, None)
        return super().predict_on_batch(x, *args, **kwargs)

    def _report_batch(self, x: Any, y: Any) -> None:
        """Report truncated rows of a batch, once for a model."""
        attributes: dict[str, Any] = self.__dict__  # without Keras's tracking
        if self.preprocessor is None or attributes.get(_REPORTED_BATCH):
            return
        truncated = self._truncated_rows("batch")
        if y is None:
            truncated.counts_targets = False
        self._read(truncated, x, y)
        attributes[_REPORTED_BATCH] = any(c.cut or c.longer for c in truncated.counts)

    def _truncated_rows(self, of: str = "") -> TruncatedRows:
        """Return a new count of the truncated rows of a data set."""
        length = getattr(self.preprocessor, "max_length", 0)
        return TruncatedRows(self.task, length, self._lengths, of=of)

    def _read(self, truncated: TruncatedRows, x: Any, y: Any = None, *_: Any) -> Any:
        """Return what Keras reads; report truncated rows that are in memory.

        `truncated` counts the truncated rows of a dataset while Keras reads it.
        """
        if isinstance(x, tf.data.Dataset):
            return truncated.watched(x)
        is_batch = isinstance(x, dict) and not has_texts(self.task, x)
        if not is_batch and isinstance(x, list | tuple | dict | np.ndarray | tf.Tensor):
            truncated.report_rows(
                row_dataset(x, y if truncated.counts_targets else None)
            )
        return x

    def _lengths(self, texts: Any, targets: Any) -> list[Any]:
        """Return the lengths of texts and, unless they are `None`, targets, in graph.

        As pairs of the numbers of read and of truncated tokens, int32 [B] each.
        """
        # Otherwise texts and lists of words would share a graph for any rank.
        ranks = [part.shape.rank for part in tf.nest.flatten(texts)]
        settings = repr((self.task, self.preprocessor.settings(), ranks))
        return self._traced_lengths(texts, targets, settings)

    @tf.function(autograph=False, reduce_retracing=True)
    def _traced_lengths(self, texts: Any, targets: Any, settings: str) -> list[Any]:
        """Call the task's functions in a graph that further calls share.

        `settings` are as in `_traced`.
        """
        found: list[Any] = [lengths_of(self.task, self.preprocessor, texts)]
        if targets is not None and isinstance(self.task, Writing):
            found.append(self.task.target_lengths(self.preprocessor, targets))
        if self.task.reads_windows:
            read = found[0][0]
            found.append(windows_of(self.task, self.preprocessor, texts, read))
        return found

    @tf.autograph.experimental.do_not_convert  # has no Python control flow to convert
    def preprocess_samples(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        preprocessor: Preprocessor | None = None,
    ) -> Any:
        """Turn batches of strings into batch dicts, in graph.

        `preprocessor` overrides the model's, for another layout.
        """
        if has_texts(self.task, x):
            check_columns(self.task, x)
            x = one_or_all(tuple(x[role] for role in self.task.roles))
        # `train_on_batch` passes lists and arrays unchanged.
        y = tf.convert_to_tensor(y) if isinstance(y, list | np.ndarray) else y
        preprocessor = preprocessor or self.preprocessor
        # Keras splits the rows of a batch among replicas; JAX compiles a model anew for
        # each number of rows.
        if replica_count(self) > 1 and self.task.reads_windows:
            raise ConfigError(
                "`long` must be truncate or head-tail for `fit` on several replicas; "
                "received windows: `train` splits a batch by its texts"
            )
        if replica_count(self) > 1 or keras.config.backend() == "jax":
            preprocessor = preprocessor.replace(layout="padded")
        if tf.executing_eagerly():
            return self._examples(x, y, sample_weight, preprocessor)
        settings = repr((self.task, preprocessor.settings()))
        return self._traced(x, y, sample_weight, preprocessor, settings)

    @tf.function(autograph=False)
    def _traced(
        self, x: Any, y: Any, weights: Any, preprocessor: Preprocessor, settings: str
    ) -> Any:
        """Call `_examples` in a graph that further calls of `fit` share.

        Otherwise each call would trace the text handling again. `settings` names the
        settings of task and preprocessor; other settings lead to another graph.
        """
        return self._examples(x, y, weights, preprocessor)

    def _examples(
        self, x: Any, y: Any, weights: Any, preprocessor: Preprocessor
    ) -> Any:
        if self.task.compares:
            refuse_weights(self.task, weights)
        if isinstance(x, dict):
            if y is not None:
                y = self.task.encode_targets(y)
        elif y is None:
            x = self.task.features(preprocessor, x)
        else:
            task: Any = self.task  # some draw windows
            drawn = {}
            if isinstance(x, Drawn):
                x, drawn = x.texts, {"draws": x.draws}
            x, y, weights = task.examples(preprocessor, x, y, weights, **drawn)
        if keras.config.backend() != "tensorflow":
            # What only the answers need may be strings, which other backends lack.
            x = {name: x[name] for name in self._inputs_struct if name in x}
        return keras.utils.pack_x_y_sample_weight(x, y, weights)

    def infer(self, batch: Batch) -> Any:
        """Return what the task's `answer` reads of a batch dict, in graph."""
        return self.task.infer(self, batch)

    def computed(self, batch: Batch) -> Any:
        return self(batch, training=False)

    def get_config(self) -> dict[str, Any]:
        return {
            "encoder": keras.saving.serialize_keras_object(self.backbone),
            "task": keras.saving.serialize_keras_object(self.task),
            "preprocessor": self.preprocessor and self.preprocessor.get_config(),
            "seed": self.seed,
            "name": self.name,
            "frozen": frozen_paths(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        settings = dict(config)
        for key in ("encoder", "task"):
            settings[key] = keras.saving.deserialize_keras_object(
                settings[key], custom_objects=custom_objects
            )
        if settings["preprocessor"] is not None:
            own = Preprocessor.from_config(settings["preprocessor"])
            settings["preprocessor"] = own
        return with_frozen(cls, settings)


def with_head(
    model: TaskModel,
    task: Task,
    preprocessor: Preprocessor,
    head: Mapping[str, np.ndarray],
) -> TaskModel:
    """Return a model of another task on the same encoder.

    `head` are the weights of its head by path; those that are missing are random,
    without a message.
    """
    encoder, source = model.backbone, model.backbone.source
    encoder.source = None  # or the head would be reported as random
    try:
        made = TaskModel(encoder, task, preprocessor, seed=model.seed)
    finally:
        encoder.source = source
    for weight in made.weights:
        if weight.path in head:
            weight.assign(head[weight.path])
    return made


def with_callbacks(given: Any, more: Sequence[keras.callbacks.Callback]) -> Any:
    """Return what `fit` takes as callbacks, with more of them."""
    if isinstance(given, keras.callbacks.CallbackList):
        for each in more:
            given.append(each)
        return given
    one = isinstance(given, keras.callbacks.Callback)
    return [*([given] if one else given or ()), *more]


def is_one_vector(outputs: Any) -> bool:
    """Return whether a model's outputs are one vector per text, such as logits."""
    if not keras.utils.is_keras_tensor(outputs):
        return False
    return len(outputs.shape) == 2 and outputs.shape[1] is not None


def _tell_no_segments() -> None:
    say_once("the model has no segments: only [SEP] separates the two texts of a pair")
