"""The contract of a task: `Task`, in one part for its data and one for its model.

`TaskData` reads rows and scores answers. `TaskModelling` defines features, outputs,
loss and answers. `Task` adds the settings, which are saved with the model.

A simple task defines `targets`, `outputs`, `loss`, `answer` and `score`; see
`examples/own_task`.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from typing_extensions import Self  # in typing since Python 3.11

from bert_keras.config import BertConfig
from bert_keras.data.holdout import Strata
from bert_keras.data.rows import ColumnNames
from bert_keras.data.table import Columns, read_columns
from bert_keras.errors import ConfigError, DataError, shown
from bert_keras.model.encoder import BertEncoder, batch_inputs
from bert_keras.tasks.answer_rows import row_of
from bert_keras.tasks.catalog import TASKS, with_settings
from bert_keras.text.preprocessor import Preprocessor

if TYPE_CHECKING:
    from bert_keras.checkpoints import Checkpoint

Batch = dict[str, Any]  # inputs of a model by name, each [R, …]
Run = Callable[[Batch], Any]  # returns what `infer` does, for a batch dict
Answers = Mapping[str, np.ndarray]  # outputs of `answer` by name, each [N, …]

_BASE_RATE, _BASE_SIZE, _HIGHEST_RATE = 5e-5, 768, 3e-4


class TaskData(abc.ABC):
    """The part of a task for rows: it reads them and scores answers.

    Attributes:
        name: name of the task on the command line.
        best_score: the score that selects the best epoch; higher is better.
        most_score: its largest value, if its name does not tell; see `slice_scores`.
        roles: roles of the texts that the model reads, in order. A property if it
            depends on the settings.
        columns: role to the default name of its column, labels included.
        optional_roles: roles whose column may be missing.
        empty_roles: roles whose cells may be empty.
        list_roles: roles whose cells may be lists in JSONL.
        single_roles: roles whose cells may be lists of one text in JSONL.
    """

    name: ClassVar[str]
    best_score: ClassVar[str]
    most_score: ClassVar[float | None] = None
    roles: tuple[str, ...] = ("text",)
    columns: ClassVar[Mapping[str, str]]
    optional_roles: ClassVar[tuple[str, ...]] = ()
    empty_roles: ClassVar[tuple[str, ...]] = ()
    list_roles: ClassVar[tuple[str, ...]] = ()
    single_roles: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def read_own(
        cls, source: Any, columns: ColumnNames, *, header: str, labelled: bool
    ) -> Columns | None:
        """Return the rows of a file of the task's own format; `None`: it is a table.

        `labelled` is whether labels are read; the others are as in `read`. A task may
        also take the argument `bad_rows`.
        """
        return None

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        columns: ColumnNames | None = None,
        header: str = "auto",
        roles: Sequence[str] | None = None,
        bad_rows: str = "error",
    ) -> Columns:
        """Return the rows of a file, or of a table in memory.

        Args:
            source, header, bad_rows: as in `read_columns`.
            columns: role to column, overriding the default name.
            roles: the only roles to read, for rows without labels; `None`: all.

        Raises:
            ConfigError: the task has no such role.
        """
        chosen = dict(columns or {})
        for role in chosen:
            if role not in cls.columns:
                raise ConfigError(
                    f"a role of `columns` must be one of {', '.join(cls.columns)}; "
                    f"received {role}"
                )
        options: dict[str, Any] = {"header": header, "labelled": roles is None}
        if "bad_rows" in inspect.signature(cls.read_own).parameters:
            options["bad_rows"] = bad_rows
        own = cls.read_own(source, chosen, **options)
        if own is not None:
            return own
        if roles is not None:
            # A second text is read even by a model of single texts, which refuses it.
            may_be = [r for r in cls.optional_roles if r != "label" and r not in roles]
            more = [r for r in may_be if r == "text_pair" or r in chosen]
            unread = [role for role in chosen if role not in (*roles, *more)]
            if unread:
                raise ConfigError(
                    f"`columns` must name columns of {', '.join((*roles, *more))}, "
                    f"which the model reads; received {unread[0]}"
                )
            names = (*roles, *more)
            wanted = {role: chosen.get(role, cls.columns[role]) for role in names}
            optional = [role for role in more if role not in chosen]
            return read_columns(
                source,
                wanted,
                optional=optional,
                empty=cls.empty_roles,
                header=header,
                bad_rows=bad_rows,
            )
        wanted = {**cls.columns, **chosen}
        # A role that the user names must exist; a default one may be missing.
        optional = [r for r in cls.optional_roles if r in wanted and r not in chosen]
        return read_columns(
            source,
            wanted,
            optional=optional,
            empty=cls.empty_roles,
            lists=cls.list_roles,
            singles=cls.single_roles,
            header=header,
            bad_rows=bad_rows,
        )

    @classmethod
    def strata(cls, columns: Columns, **settings: Any) -> Strata:
        """Return the classes of each row, whose shares a validation split keeps."""
        return [()] * len(columns)

    @classmethod
    def groups(cls, columns: Columns) -> list[str] | None:
        """Return what rows share that stay together in a validation split.

        By default the first text of a pair: a model that has seen it in training is
        not asked about it in validation.
        """
        return columns["text"] if "text_pair" in columns else None

    @classmethod
    def inherited(cls, held: Any) -> dict[str, Any]:
        """Return settings that a new task takes from the task of its encoder's folder.

        `held` is that task, or `None`.
        """
        return {}

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Self:
        """Return the task with settings from the training rows, such as classes."""
        return cls(**settings)

    def texts(self, columns: Columns, *, use: str = "answer") -> tuple[list[Any], ...]:
        """Return the texts of each role: N strings, or N lists of strings, each.

        `use` is `answer`, `train` (for `examples`) or `score` (for scored answers);
        most tasks use the same texts.
        """
        what = "a text" if len(self.roles) == 1 else "pairs of texts"
        for role in self.roles:
            columns.require(role, reason=f"the model reads {what}")
        return tuple(columns[role] for role in self.roles)

    def refuse_unread(self, columns: Columns) -> None:
        """Raise a DataError if rows hold a text that the model does not read."""
        return

    @property
    def forms(self) -> list[tuple[str, ...]]:
        """The columns of a table of texts: alternatives, the preferred one first."""
        return [self.roles]

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        """Return one list per role from the items given to `predict`.

        Raises:
            DataError: an item is not a string, or not a tuple of one string per role.
        """
        return self._parts(items, len(self.roles))

    def _parts(self, items: Sequence[Any], count: int) -> tuple[list[Any], ...]:
        for row, item in enumerate(items):
            parts = [item] if count == 1 else item
            is_list = isinstance(parts, tuple | list) and len(parts) == count
            if not is_list or not all(isinstance(part, str) for part in parts):
                names = {1: "a string", 2: "a pair of strings"}
                wanted = names.get(count, f"{count} strings")
                raise DataError(
                    f"`texts` must hold {wanted} in each place; received at {row}: "
                    f"{shown(item)}"
                )
        if count == 1 or not items:
            return (list(items),) * count
        return tuple(list(part) for part in zip(*items, strict=True))

    @abc.abstractmethod
    def targets(self, columns: Columns) -> np.ndarray:
        """Return the training targets, [N, …]; errors name bad rows by line."""

    def example_weights(self, columns: Columns) -> np.ndarray | None:
        """Return the weight of each example in the loss, float32 [N], or `None`."""
        return None

    def notes(self, columns: Columns) -> list[str]:
        """Return warnings about the rows, shown before training."""
        return []

    def describe(self, columns: Columns) -> dict[str, Any]:
        """Return facts about a data set for the report."""
        return {"rows": len(columns)}

    @abc.abstractmethod
    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return the scores of answers, [N, …], against the labels of the rows."""

    def further_scores(
        self, model: Any, columns: Columns, batch_size: int
    ) -> dict[str, Any]:
        """Return scores of a trained `TaskModel` that need more than one pass."""
        return {}

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return wrong answers for the report, most confident first."""
        return []

    def shown(self, columns: Columns, answers: Answers) -> list[str]:
        """Return lines with a few answers, shown after each epoch."""
        return []

    def tune(self, columns: Columns, answers: Answers) -> Self:
        """Return the task with settings fitted on dev answers, such as a threshold."""
        return self

    def rows(self, answers: Answers) -> list[dict[str, Any]]:
        """Return the answers of a batch as one JSON-serializable dict per text.

        Outputs of our own tasks get the form of `answer_rows`.
        """
        plain = {key: plain_values(value) for key, value in answers.items()}
        return [
            row_of(dict(zip(plain, values, strict=True)))
            for values in zip(*plain.values(), strict=True)
        ]


class TaskModelling(TaskData):
    """The part of a task for the model: features, outputs, loss and answers.

    Methods marked "in graph" are traced by TensorFlow into the SavedModel, with only
    core ops and those of the tokenizer.

    Attributes:
        pooler: whether the encoder has the pooler.
        encoder_outputs: extra outputs of the encoder, by their names in `BertEncoder`.
        pretrained_scopes: scopes of the pretraining heads, such as `cls/predictions/`,
            that training loads from the checkpoint if it has them; the others are
            ignored.
        max_length, learning_rate: defaults for training; without a learning rate,
            that of `default_learning_rate`.
        compares: whether the loss compares the rows of a batch with each other, so
            that a batch cannot be split.
        rows_per_text: rows per text in the padded layout; `None`: varies by text.
        scores_answers: whether `score` takes what users get, so that an export is
            scored by its answers.
        not_for_engines: why engines such as OpenVINO cannot run the model; empty if
            they can.
    """

    pooler: ClassVar[bool] = True
    encoder_outputs: ClassVar[tuple[str, ...]] = ()
    pretrained_scopes: ClassVar[tuple[str, ...]] = ()
    max_length: ClassVar[int] = 128
    learning_rate: ClassVar[float | None] = None
    compares: ClassVar[bool] = False
    rows_per_text: ClassVar[int | None] = 1
    scores_answers: ClassVar[bool] = False
    not_for_engines: ClassVar[str] = ""

    def signatures(self) -> dict[str, tuple[tf.TensorSpec, ...]]:
        """Return name, dtype and shape of the SavedModel's inputs, by signature.

        The first is `serving_default`. `features` takes the inputs of each. They differ
        in rank, like texts [B] and lists of words [B, W]; prediction selects by rank.
        """
        specs = (tf.TensorSpec([None], tf.string, name=role) for role in self.roles)
        return {"serving_default": tuple(specs)}

    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        """Return the batch dict of texts, in graph.

        It may hold more than the model's inputs, for `answer` to use.

        Raises:
            ConfigError: there is one text instead of one for each role.
        """
        if len(self.roles) > 1 and not isinstance(texts, tuple):
            raise ConfigError(
                f"a row of this {self.name} model must be {', '.join(self.roles)}; "
                "received one text"
            )
        return preprocessor(texts)

    @property
    def answers_ids(self) -> bool:
        """Whether `answer` needs only token ids.

        The `ids` signature of an export then returns the answers, otherwise the logits.
        """
        return type(self).features is TaskModelling.features

    @property
    def is_plain(self) -> bool:
        """Whether answers are those to the ids of the texts, one batch for all."""
        plain = type(self).respond is TaskModelling.respond
        return self.answers_ids and plain

    def examples(
        self, preprocessor: Preprocessor, texts: Any, targets: Any, weights: Any = None
    ) -> tuple[Batch, Any, Any]:
        """Return batch, targets and weights (or `None`) for the loss, in graph."""
        batch = self.features(preprocessor, texts)
        return batch, self.encode_targets(targets), weights

    def encode_targets(self, targets: Any) -> Any:
        """Return targets or labels in the form of the loss, in graph."""
        return targets

    def refuse_weights(self, weights: Any) -> None:
        """Raise ConfigError if `examples` got weights of texts that it cannot use."""
        if weights is not None:
            raise ConfigError(f"`sample_weight` must be None for the task {self.name}")

    def redrawn(self, rows: tuple[Any, ...], draws: Any) -> tuple[Any, ...]:
        """Return training rows (texts, targets, …) with fresh randomness, in graph.

        In `fit` without targets, these are `None`: a task that draws them needs none.
        `draws`, int64 [B], are random numbers of each row and epoch.
        """
        return rows

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        """Return the tokens of each text that are read, and those that are truncated.

        int32 [B] each, special tokens included.
        """
        return preprocessor.lengths(texts)

    def inputs(self) -> Batch:
        """Return the Keras inputs; one output per text needs `cls_positions`."""
        return batch_inputs(cls_positions=self.pooler)

    @abc.abstractmethod
    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the Keras tensor or tensors for the loss and `answer`."""

    def within(self, config: BertConfig) -> Self:
        """Return the task with its lengths within the positions of an encoder."""
        return self

    def start(self, model: keras.Model, checkpoint: Checkpoint) -> list[str] | None:
        """Set weights of a new model outside of `pretrained_scopes`.

        Returns notes on the weights of the head, or `None` if it stays random.
        """
        return None

    def is_new(self, path: str) -> bool:
        """Return whether `new_learning_rate` applies to a weight, as to those of the
        head.
        """
        return not path.startswith("bert/")

    def frozen(self, encoder: BertEncoder) -> Sequence[keras.layers.Layer]:
        """Return the layers of the encoder that the task does not train.

        They stay trainable in other models on the same encoder.
        """
        return ()

    def default_learning_rate(self, hidden_size: int) -> float:
        """Return the peak learning rate for an encoder of this hidden size.

        That of the task if it has one. Otherwise the paper's 5e-5 for BERT-base, higher
        for narrower encoders in inverse proportion to their hidden size, and at most
        3e-4, the highest rate with which Google fine-tuned its small models (Turc et
        al. 2019, arXiv:1908.08962).
        """
        if self.learning_rate is not None:
            return self.learning_rate
        return min(_BASE_RATE * _BASE_SIZE / hidden_size, _HIGHEST_RATE)

    @abc.abstractmethod
    def loss(self) -> keras.losses.Loss:
        """Return the loss of a batch."""

    def metrics(self) -> list[Any]:
        """Return the metrics shown during training."""
        return []

    def infer(self, model: Any, batch: Batch) -> Any:
        """Return what `answer` reads of a `TaskModel`, in graph: its outputs.

        A task whose answers take many steps of its layers overrides it.
        """
        return model(batch, training=False)

    @abc.abstractmethod
    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return the answers by name, in graph; each [B, …]."""

    def recipe(self) -> dict[str, Any]:
        """Return how `answer` turns outputs into answers, as values of JSON.

        For `answers.json` of an export to an engine, whose readers have only the ids
        and the outputs.
        """
        return {"meaning": "see the settings of the task"}

    def respond(
        self, texts: Any, preprocessor: Preprocessor, run: Run, *, scored: bool = False
    ) -> dict[str, tf.Tensor]:
        """Return the answers to texts, in graph.

        Override it if several batches have to be run, or if `score` needs more than the
        answers.

        Args:
            texts: tf.string [B], or a tuple, one per role.
            preprocessor: lays out the texts.
            run: returns what `infer` does, for a batch dict.
            scored: whether the answers are for `score` rather than for users.
        """
        batch = self.features(preprocessor, texts)
        return self.answer(run(batch), batch)

    def settle(self, model: keras.Model) -> Self:
        """Return the final task after training, with `model` at its best epoch.

        It may fold a setting into the weights, so that other tools give the same
        answers.
        """
        return self


class Task(TaskModelling):
    """A use of BERT; a subclass is a frozen dataclass of its plain settings.

    Attributes, besides those of `TaskData` and `TaskModelling`:
        architecture: Hugging Face's class name of the same model; `BertModel` if
            Transformers has no such head.
        free_settings: settings that may change after training: no weight and no label
            depends on them.
        later_settings: settings that earlier versions do not know: at their default
            they are not written, so that folders and runs of both stay equal.
    """

    architecture: ClassVar[str] = "BertModel"
    free_settings: ClassVar[tuple[str, ...]] = ()
    later_settings: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = TASKS.get(cls.__dict__.get("name", ""))
        if known is not None and known.place == f"{cls.__module__}:{cls.__qualname__}":
            cls.__doc__ = with_settings(cls.__doc__, known.settings)

    def changed(self, **settings: Any) -> Self:
        """Return the task of a trained model with other settings.

        Raises:
            ConfigError: a setting may not change after training.
        """
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        allowed = [name for name in names if self.may_change(name)]
        for name, value in settings.items():
            if name not in allowed and value != getattr(self, name, ...):
                raise ConfigError(
                    f"a trained {self.name} model may change "
                    f"{', '.join(allowed) or 'no setting'}; received {name}"
                )
        if "classes" in settings:
            settings["classes"] = self.renamed(settings["classes"])
        return self.replaced(**settings)

    def may_change(self, name: str) -> bool:
        """Return whether a setting may change after training."""
        return name in self.free_settings

    def renamed(self, classes: Any) -> tuple[str, ...]:
        """Return new names for the outputs, from a list or from a word with commas.

        Raises:
            ConfigError: they are not as many as the outputs.
        """
        held = getattr(self, "classes", ())
        found = classes.split(",") if isinstance(classes, str) else list(classes)
        if len(found) != len(held):
            raise ConfigError(
                f"`classes` must name each of the {len(held)} outputs; "
                f"received {shown(classes)}"
            )
        return tuple(map(str, found))

    def replaced(self, **settings: Any) -> Self:
        """Return the task with other settings, and what follows from them."""
        return dataclasses.replace(self, **settings)  # type: ignore[type-var]

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values, `later_settings` only if they differ."""
        values: dict[str, Any] = dataclasses.asdict(self)  # type: ignore[call-overload]
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            default, factory = field.default, field.default_factory
            if factory is not dataclasses.MISSING:
                default = factory()
            if field.name in self.later_settings and values[field.name] == default:
                del values[field.name]
        return values

    def get_config(self) -> dict[str, Any]:
        return self.settings()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Return whether a Hugging Face `config.json` is of this task's model."""
        named = cls.architecture in (config.get("architectures") or ())
        return named and cls.architecture != "BertModel"  # which has no head

    @classmethod
    def from_model_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the task described by a Hugging Face `config.json`."""
        raise ConfigError(
            f"has no settings of the task {cls.name}: train it on this model first"
        )

    def model_config(self) -> dict[str, Any]:
        """Return the entries that Hugging Face reads from `config.json`."""
        return {}

    def folder_config(
        self, config: BertConfig, preprocessor: Preprocessor
    ) -> dict[str, Any]:
        """Return what other tools read from the `config.json` of a model folder."""
        return {
            "model_type": "bert",
            "architectures": [self.architecture],
            **config.to_dict(),
            **self.model_config(),
            "pad_token_id": preprocessor.tokenizer.pad_id,
        }

    def write_files(
        self, folder: Path, *, hidden_size: int, preprocessor: Preprocessor
    ) -> None:
        """Write the files of `atomic.FILES` that other tools need in a model folder."""
        return


def plain_values(values: np.ndarray) -> list[Any]:
    """Return an array as Python values; TensorFlow's strings as `str`."""
    if values.dtype == object:
        decode = np.vectorize(lambda text: text.decode("utf-8", "replace"), [object])
        values = decode(values)
    return values.tolist()
