"""The contract of a task: `Task`, with its `Column`s.

A simple task defines `targets`, `outputs`, `loss`, `answer` and `score`; see
`examples/own_task`. Other methods have a default. What callers must know whether a task
can do it is in `protocols`; settings are in `plain_settings`, Hugging Face's names of
heads in `hugging_face`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, final

import numpy as np

from bert_keras.data.class_names import renamed
from bert_keras.data.columns import Columns
from bert_keras.data.holdout import Strata
from bert_keras.data.row_source import RowSource
from bert_keras.data.rows import ColumnNames, quote
from bert_keras.errors import ConfigError, DataError
from bert_keras.reading.windows import LongTexts
from bert_keras.settings import options_of
from bert_keras.tasks.hugging_face import HeadCodec
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.plain_settings import PlainSettings, check_effects
from bert_keras.tasks.protocols import (
    Answers,
    Batch,
    Run,
    TextSpec,
    string_parts,
)

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    from typing_extensions import Self  # in typing since Python 3.11

    from bert_keras.checkpoints import Checkpoint
    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor

_BASE_RATE, _BASE_SIZE, _HIGHEST_RATE = 5e-5, 768, 3e-4
AnyTask = TypeVar("AnyTask", bound="Task")
Features = TypeVar("Features", bound=Callable[..., Any])
__all__ = ["Answers", "Batch", "Column", "Run", "Task"]


class Column(str):
    """The default name of a column, and what the task accepts in its place.

    Args:
        name: the name.
        optional: whether the column may be missing.
        empty: whether its cells may be empty.
        lists: whether its cells may be lists in JSONL.
        single: whether its cells may be lists of one text in JSONL.
    """

    optional: bool
    empty: bool
    lists: bool
    single: bool

    def __new__(
        cls,
        name: str,
        *,
        optional: bool = False,
        empty: bool = False,
        lists: bool = False,
        single: bool = False,
    ) -> Self:
        found = super().__new__(cls, name)
        found.optional, found.empty = optional, empty
        found.lists, found.single = lists, single
        return found


def roles_with(columns: Mapping[str, str], what: str) -> list[str]:
    """Return the roles of columns that are `optional`, `empty`, `lists` or `single`."""
    return [role for role, column in columns.items() if getattr(column, what, False)]


def by_role(usual: Mapping[str, str], columns: ColumnNames) -> dict[str, Any]:
    """Return columns by role, given by the role or by its usual column.

    The role `text` of `Reranking`, for example, is also called `query`.
    """
    roles = {str(name): role for role, name in usual.items()}
    roles |= {role: role for role in usual}
    chosen: dict[str, Any] = {}
    for given, column in columns.items():
        role = roles.get(given)
        if role is None:
            names = (
                role if str(name) == role else f"{role} (or {name})"
                for role, name in usual.items()
            )
            raise ConfigError(
                f"a role of `columns` must be one of {', '.join(names)}; "
                f"received {given}"
            )
        if role in chosen:
            raise ConfigError(
                f"`columns` must name the column of {role} once; received "
                f"{chosen[role]} and {column}"
            )
        chosen[role] = column
    return chosen


def read_table(columns: Mapping[str, str], source: RowSource) -> Columns:
    """Return the rows of a table with labels.

    A role that the user names must exist; a default one may be missing.
    """
    optional = roles_with(columns, "optional")
    return source.table(
        {**columns, **source.columns},
        optional=[role for role in optional if role not in source.columns],
        empty=roles_with(columns, "empty"),
        lists=roles_with(columns, "lists"),
        singles=roles_with(columns, "single"),
    )


def by_reader(features: Features) -> Features:
    """Mark a method `features` that returns the batch which `row_reader` describes."""
    vars(features)["by_reader"] = True
    return features


class Task(PlainSettings, abc.ABC):
    """A use of BERT; a subclass is a frozen dataclass of its plain settings.

    Methods marked "in graph" are traced by TensorFlow into the SavedModel, with only
    core ops and the tokenizer's ops.

    Attributes:
        name: name of the task on the command line.
        best_score: the score that selects the best epoch; higher is better.
        roles: roles of the texts that the model reads, in order. A property if it
            depends on the settings.
        columns: role to the default name of its column, labels included; a `Column`
            may be optional, or have other cells than one text.
        vector_output: the name of the vectors of texts among the answers, for search
            and other uses; empty for other tasks. A property if it depends on the
            settings.
        needs: what the task asks of the encoder, of its rows and of its training. A
            property if it depends on the settings.
        head_codec: how Hugging Face's `config.json` names the head, both ways.
        most_score: the largest value of `best_score`, such as 100 for percentages;
            `None` if it is 1 or follows from the name.
        scores_groups: whether a score is of all rows of a group, as of a query's
            documents, so that a validation split never divides one.
        compares: whether the loss compares the rows of a batch, which then cannot be
            split.
        reads_windows: whether a long text is read in several rows for one answer, see
            `LongTextTask`.
        may_read_windows: whether it is not, and there is a setting to do so.
        scores_sides: whether queries and documents are read in different ways: the
            sides of texts, int32 [B], 0 for a query and 1 for a document, follow the
            texts to score, and `lengths` and `windows_of` take them as `sides`.
        scores_pairs: whether pairs of texts are scored, so that documents can be ranked
            for a query; `pair_scores` then returns the scores, [B], of their answers.
    """

    best_score: ClassVar[str]
    most_score: ClassVar[float | None] = None
    scores_groups: ClassVar[bool] = False
    compares: bool = False
    reads_windows: bool = False
    may_read_windows: bool = False
    scores_sides: bool = False
    scores_pairs: bool = False
    roles: tuple[str, ...] = ("text",)
    columns: ClassVar[Mapping[str, str]]
    vector_output: str = ""
    needs: Needs = Needs()
    head_codec: ClassVar[HeadCodec] = HeadCodec()

    # Rows.

    @final
    @classmethod
    def read(
        cls,
        source: Any,
        *,
        columns: ColumnNames | None = None,
        header: str = "auto",
        roles: Sequence[str] | None = None,
        others: Mapping[str, str] | None = None,
        bad_rows: str = "error",
    ) -> Columns:
        """Return the rows of a file, or of a table in memory.

        Args:
            source, header, bad_rows: as in `read_columns`.
            columns: role to column, overriding the default name; a role is given by
                its name or by its default column.
            roles: the only roles to read, for rows without labels; `None`: all.
            others: further roles to columns for rows without labels, which may be
                missing and have any cells.

        Raises:
            ConfigError: the task has no such role.
        """
        chosen = by_role(cls.columns, columns or {})
        found = RowSource(
            source,
            chosen,
            header,
            bad_rows,
            labelled=roles is None,
            others=others or {},
        )
        own = cls.read_own(found)
        if own is not None:
            return own
        if roles is not None:
            return found.table(**cls._of_texts(found, roles))
        return read_table(cls.columns, found)

    @classmethod
    def _of_texts(cls, source: RowSource, roles: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of `RowSource.table` for rows without labels."""
        chosen = source.columns
        # A second text is read even by a model of single texts, which refuses it.
        optional = roles_with(cls.columns, "optional")
        may_be = [r for r in optional if r != "label" and r not in roles]
        more = [r for r in may_be if r == "text_pair" or r in chosen]
        names = (*roles, *more)
        unread = [role for role in chosen if role not in names]
        if unread:
            raise ConfigError(
                f"`columns` must name columns of {', '.join(names)}, "
                f"which the model reads; received {unread[0]}"
            )
        return {
            "columns": {role: chosen.get(role, cls.columns[role]) for role in names},
            "optional": [role for role in more if role not in chosen],
            "empty": roles_with(cls.columns, "empty"),
        }

    @classmethod
    def read_own(cls, source: RowSource) -> Columns | None:
        """Return the rows of a file of the task's own format; `None`: it is a table."""
        return None

    @classmethod
    def stream_own(
        cls, source: RowSource, rows_at_once: int
    ) -> Iterator[Columns] | None:
        """Yield the rows of such a file without labels; by default in one part."""
        rows = cls.read_own(source)
        return iter([rows]) if rows else None

    @property
    def forms(self) -> list[tuple[str, ...]]:
        """The columns of a table of texts: alternatives, the preferred one first."""
        return [self.roles]

    def texts(self, columns: Columns, *, use: str) -> tuple[list[Any], ...]:
        """Return the texts of each role, see `texts_of`; by default its column."""
        what = "a text" if len(self.roles) == 1 else "pairs of texts"
        for role in self.roles:
            columns.require(role, reason=f"the model reads {what}")
        return tuple(columns[role] for role in self.roles)

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Self:
        """Return the task with settings from the training rows, such as classes."""
        return cls(**settings)

    def with_objective_of(self, columns: Columns) -> Self:
        """Return the task with the objective that `from_columns` chooses for rows."""
        return self

    @classmethod
    def inherited(cls, held: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings that a new task takes from its encoder's folder.

        `held` is the folder's task, or `None`; `given` are the settings of the user.
        """
        return {}

    def adjusted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return changed settings with those that follow from them."""
        return dict(settings)

    def new_names(self, classes: Any) -> tuple[str, ...]:
        """Return new names of classes, from a list or from a word with commas."""
        return renamed(classes, len(getattr(self, "classes", ())))

    @classmethod
    def strata(cls, columns: Columns, **settings: Any) -> Strata:
        """Return the classes of each row, whose shares a validation split keeps."""
        return [()] * len(columns)

    def target_strata(self, targets: np.ndarray) -> Strata:
        """Return the classes of each row from targets given to `fit`, [N, C].

        Empty if they are unknown.
        """
        return []

    @classmethod
    def groups(cls, columns: Columns) -> list[str] | None:
        """Return what rows share that stay together in a validation split.

        By default the first text of a pair: validation should not ask about a text
        that the model has seen in training.
        """
        return columns["text"] if "text_pair" in columns else None

    def notes(self, columns: Columns) -> list[str]:
        """Return warnings about the rows, shown before training."""
        return []

    def describe(self, columns: Columns) -> dict[str, Any]:
        """Return facts about a data set for the report, `rows` among them."""
        return {"rows": len(columns)}

    def example_weights(self, columns: Columns) -> np.ndarray | None:
        """Return the weight of each example in the loss, float32 [N], or `None`."""
        return None

    def gathered(self, columns: Columns) -> list[list[int]] | None:
        """Return the groups of rows that are in the same training batch.

        `batch_size` counts groups then. `None`: each row is by itself.
        """
        return None

    def weights_by_class(self, given: Any) -> Any:
        """Return `class_weight` of `fit`, with the number of each class.

        Raises:
            ConfigError: the task does not have one class for each row, or there is no
                such class.
        """
        if hasattr(self, "classes"):
            raise ConfigError(f"`class_weight` must be None for the task {self.name}")
        return given

    def resample(self, rows: tuple[Any, ...], draws: Any) -> tuple[Any, ...]:
        """Return training rows (texts, targets, …) as they are drawn in an epoch.

        In graph. In `fit` without targets, these are `None`. `draws`, int64 [B], are
        random numbers of each row and epoch.
        """
        return rows

    @abc.abstractmethod
    def targets(self, columns: Columns) -> np.ndarray:
        """Return the training targets, [N, …]; errors name bad rows by line."""

    # Text to batch.

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        """Return one list per role from the items given to `predict`.

        Raises:
            DataError: an item is not of a form that the task reads.
        """
        return string_parts(items, len(self.roles))

    def signatures(self) -> Mapping[str, tuple[TextSpec | tf.TensorSpec, ...]]:
        """Return the inputs of the SavedModel by signature, see `input_specs`."""
        return {"serving_default": tuple(TextSpec(role) for role in self.roles)}

    @property
    def reader(self) -> LongTexts:
        """How a text is read; by default it is truncated to a row."""
        return LongTexts()

    @property
    def row_reader(self) -> LongTexts:
        """How `TokenRows` makes the batch of texts without a graph."""
        return self.reader

    @property
    def reads_by_reader(self) -> bool:
        """Whether the batch of texts is the one that `row_reader` describes."""
        features: Any = type(self).features
        if features is Task.features:
            return not overrides(self, "respond")
        return getattr(features, "by_reader", False)

    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        """Return the batch dict of texts, in graph.

        It may hold more than the model's inputs, for `answer` to use.

        Raises:
            ConfigError: there is one text instead of one for each role.
        """
        check_parts(self, texts)
        return preprocessor(texts)

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        """Return how many tokens of each text are read, and how many are truncated.

        int32 [B] each, special tokens included; in graph.
        """
        return preprocessor.lengths(texts)

    def encode_targets(self, targets: Any) -> Any:
        """Return targets or labels in the form of the loss, in graph."""
        return targets

    def examples(
        self, preprocessor: Preprocessor, texts: Any, targets: Any, weights: Any = None
    ) -> tuple[Batch, Any, Any]:
        """Return batch, targets and weights (or `None`) for the loss, in graph."""
        return self.features(preprocessor, texts), self.encode_targets(targets), weights

    # The model.

    @abc.abstractmethod
    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the Keras tensor or tensors for the loss and `answer`."""

    @abc.abstractmethod
    def loss(self) -> keras.losses.Loss:
        """Return the loss of a batch."""

    def named_outputs(self, outputs: Any, model: Any) -> dict[str, Any]:
        """Return the Keras outputs of a model by the names of Hugging Face's optimum.

        Args:
            outputs: what `outputs` returned.
            model: the TaskModel, for tensors within it.
        """
        return outputs if isinstance(outputs, dict) else {"logits": outputs}

    def from_named(self, named: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """Return `outputs` for `answer` from `named_outputs` of a batch, in graph."""
        return named["logits"] if set(named) == {"logits"} else named

    def metrics(self) -> list[Any]:
        """Return the metrics shown during training."""
        return []

    def frozen(self, encoder: BertEncoder) -> Sequence[keras.layers.Layer]:
        """Return the layers of the encoder that the task does not train.

        They stay trainable in other models.
        """
        return ()

    def finalize(self, model: keras.Model) -> Self:
        """Return the final task, with `model` at its best epoch.

        It may fold a setting into the weights, so that other tools give the same
        answers.
        """
        return self

    def start(self, model: keras.Model, checkpoint: Checkpoint) -> list[str] | None:
        """Set weights of a new model outside of the `scopes` it needs.

        Returns:
            Notes on the weights of the head; `None` if it stays random.
        """
        return None

    def start_from(self, model: Any, columns: Columns) -> list[str]:
        """Set new weights by the rows from which a model will learn; return notes."""
        return []

    def is_new(self, path: str) -> bool:
        """Return whether a weight uses `new_learning_rate`: it is not the encoder's."""
        return not path.startswith("bert/")

    def unfold(self, model: keras.Model) -> None:
        """Undo what `finalize` folded into the weights of a head, to train it further.

        The weights become what this task's settings need.
        """

    def linear_targets(self, columns: Columns) -> tuple[str, np.ndarray]:
        """Return the loss of a linear head on one vector of a text, and its targets.

        With them the head can be fitted on fixed vectors. The loss is `softmax`,
        `sigmoid` or `squared`, see `training.linear_head`; the targets are float
        [N, C].

        Raises:
            ConfigError: the task has another head, as by default.
        """
        raise ConfigError(f"the head of {self.name} must be linear on one vector")

    def tune(self, columns: Columns, answers: Answers) -> Self:
        """Return the task with settings that dev answers fit, such as a threshold."""
        return self

    # Students.

    @property
    def learns_from(self) -> str:
        """What a student learns of its teacher.

        `answers` to whole texts, whatever the teacher's tokens, see `soft_targets`;
        such answers that are `vectors`, and no labels; or the outputs for the same
        `batches`.
        """
        return "answers" if overrides(self, "soft_targets") else "batches"

    def soft_targets(self, answers: Answers, teacher: Self) -> np.ndarray:
        """Return the outputs that the model should have, float32 [N, C].

        The task `teacher` gave the `answers`; their last axis is its classes, in their
        order.

        Raises:
            ConfigError: answers to whole texts teach nothing, as by default.
        """
        raise ConfigError(f"a student of {self.name} must learn from batches")

    def aligned(self, model: str, *, width: int, hidden_size: int) -> Self:
        """Return the task of a student of the vectors of a model.

        Args:
            model: its hash, see `retrieval.index_model`.
            width: of its vectors. A linear layer leads to it from another one.
            hidden_size: of the student's encoder.
        """
        return self

    def candidates(self, columns: Columns) -> list[list[str]] | None:
        """Return the texts of each row whose scores with its first text are learned.

        The scores are of a teacher of another task, of pairs. Each row has as many
        texts; missing ones are empty. `None`: the task learns no such scores.

        Raises:
            ConfigError, DataError: the settings or the rows have none to compare.
        """
        return None

    # Answers.

    @abc.abstractmethod
    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return the answers by name, in graph; each [B, …]."""

    def infer(self, model: Any, batch: Batch) -> Any:
        """Return what `answer_inferred` reads of a `TaskModel`, in graph."""
        return model(batch, training=False)

    def answer_inferred(
        self, outputs: Any, batch: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Return the answers from what `infer` returned for a batch, in graph.

        They have the window that decided where there is one.
        """
        return self.answer(outputs, batch)

    def respond(
        self, texts: Any, preprocessor: Preprocessor, run: Run, *, scored: bool = False
    ) -> dict[str, Any]:
        """Return the answers to texts, in graph.

        A task that runs several batches for a text, or scores more than its answers,
        overrides it.

        Args:
            texts: tf.string [B], or a tuple, one per role.
            preprocessor: lays out the texts.
            run: returns what `infer` does, for a batch dict.
            scored: whether the answers are for `score` rather than for users.
        """
        batch = self.features(preprocessor, texts)
        return self.answer_inferred(run(batch), batch)

    @property
    def answers_ids(self) -> bool:
        """Whether `answer` needs only token ids.

        The `ids` signature of an export then returns the answers, otherwise the logits.
        """
        return type(self).features is Task.features

    @property
    def is_plain(self) -> bool:
        """Whether texts are answered from their ids alone, one batch for all."""
        return self.answers_ids and not overrides(self, "respond")

    def of_signature(self, name: str) -> Self:
        """Return the task that answers the texts of a signature of an export."""
        return self

    def recipe(self) -> dict[str, Any]:
        """Return how `answer` turns outputs into answers, as values of JSON.

        For `answers.json` of an export to an engine, whose readers have only the ids
        and the outputs.
        """
        return {"meaning": "see the settings of the task"}

    # Scores and the report.

    @abc.abstractmethod
    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return the scores of answers, [N, …], against the labels of the rows."""

    def unreached(self, rows: str) -> list[str]:
        """Return notes on goals of settings that were not reached on the named rows."""
        return []

    def further_scores(
        self, model: Any, columns: Columns, batch_size: int
    ) -> dict[str, Any]:
        """Return scores of a trained `TaskModel` that need more than one pass."""
        return {}

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return wrong answers for the report, the ones to look at first in front.

        Each has the `line` of its row and, to be explained, `label` and `prediction`.
        """
        return []

    def shown(self, columns: Columns, answers: Answers) -> list[str]:
        """Return lines with a few answers, shown after each epoch."""
        return []

    # Explanations.

    def explained(self, item: Item) -> list[Target]:
        """Return the numbers of the model's outputs that are explained for an item.

        By default the largest output of a text.

        Raises:
            ConfigError: the task has no answer `item.target` or `item.against`.
        """
        rows = item.joined()
        outputs = item.outputs(rows)[0]
        numbers = [str(number) for number in range(len(outputs))]
        index, against = item.choose(numbers, int(outputs.argmax()))
        names = [f"output {number}" for number in numbers]
        return [item.one_output(rows, names, index, against, unit="value")]

    def paired(self) -> Task:
        """Return the task that reads what is explained.

        Itself by default. A task whose answers are vectors of single texts explains
        the similarity of two: the returned task reads pairs, and has the method
        `pair_answers`, which returns the answer to each pair from those to all texts in
        turn.

        Raises:
            ConfigError: the settings do not allow explanations.
        """
        return self


def overrides(task: type[Task] | Task, method: str) -> bool:
    """Return whether a task defines a method of `Task` in place of the default."""
    kind = task if isinstance(task, type) else type(task)
    return getattr(kind, method) is not getattr(Task, method)


def stream_rows(
    task: Task, source: RowSource, *, rows_at_once: int
) -> Iterator[Columns]:
    """Yield the rows of a file without labels in parts, see `stream_columns`.

    The column `id`, or the one that the source names for the role `id`, is read, too.
    """
    chosen = dict(source.columns)
    name = chosen.pop("id", None)
    source = dataclasses.replace(
        source,
        columns=by_role(task.columns, chosen),
        labelled=False,
        others={"id": "id" if name is None else name},
    )
    own = task.stream_own(source, rows_at_once)
    if own is None:
        rules = task._of_texts(source, task.roles)
        own = source.stream(rows_at_once=rows_at_once, **rules)
    for number, rows in enumerate(own):
        if number == 0 and name is not None and "id" not in rows:
            raise DataError(f"has no column {quote(name)} of ids", path=rows.path)
        yield rows


def check_parts(task: Task, texts: Any) -> None:
    """Raise ConfigError if there is one text instead of one for each role."""
    if len(task.roles) > 1 and not isinstance(texts, tuple):
        raise ConfigError(
            f"a row of this {task.name} model must be {', '.join(task.roles)}; "
            "received one text"
        )


def may_change(task: PlainSettings, name: str) -> bool:
    """Return whether a setting of a trained model may change.

    It is `free`, or `None`, other than by default: the folder does not say it.
    """
    declared = options_of(type(task)).get(name)
    if declared is None:
        return False
    is_unknown = getattr(task, name) is None and declared.default is not None
    return declared.free or is_unknown


def replaced(task: AnyTask, /, **settings: Any) -> AnyTask:
    """Return a task with other settings, and what follows from them."""
    return dataclasses.replace(task, **task.adjusted(settings))  # type: ignore[type-var]


def changed(task: AnyTask, /, **settings: Any) -> AnyTask:
    """Return the task of a trained model with other settings.

    Raises:
        ConfigError: a setting may not change after training.
    """
    names = [field.name for field in dataclasses.fields(task)]  # type: ignore[arg-type]
    allowed = [name for name in names if may_change(task, name)]
    for name, value in settings.items():
        if name not in allowed and value != getattr(task, name, ...):
            raise ConfigError(
                f"a trained {task.name} model may change "
                f"{', '.join(allowed) or 'no setting'}; received {name}"
            )
    if "classes" in settings:
        settings["classes"] = task.new_names(settings["classes"])
    found = replaced(task, **settings)
    check_effects(found, settings)
    return found


def answers_as(task: Task, other: Task) -> bool:
    """Return whether tasks are equal, but for settings that only scores read."""
    if type(task) is not type(other):
        return False
    found = {
        name: getattr(other, name)
        for name, declared in options_of(type(task)).items()
        if declared.read_by == ("scores",)
    }
    return task == other or dataclasses.replace(task, **found) == other  # type: ignore[type-var]


def default_learning_rate(
    task: Task, hidden_size: int, *, few_updates: bool = False
) -> float:
    """Return the peak learning rate of a task for an encoder of this hidden size.

    The task's own, if it has one. Otherwise the paper's 5e-5 for BERT-base, higher for
    narrower encoders in inverse proportion to their hidden size, and at most 3e-4, the
    highest rate with which Google fine-tuned its small models (Turc et al. 2019,
    arXiv:1908.08962). Some tasks and few updates need more, see `Needs.rate_times` and
    `Needs.times_if_few`.
    """
    if task.needs.learning_rate is not None:
        return task.needs.learning_rate
    is_higher = few_updates and hidden_size < _BASE_SIZE
    times = task.needs.times_if_few if is_higher else 1.0
    rate = min(times * _BASE_RATE * _BASE_SIZE / hidden_size, _HIGHEST_RATE)
    return task.needs.rate_times * rate


def refuse_weights(task: Task, weights: Any) -> None:
    """Raise ConfigError if there are weights of rows, which the loss cannot use."""
    if weights is not None:
        raise ConfigError(
            f"`sample_weight` must be None for this {task.name} model, whose loss is "
            "not a mean over rows"
        )
