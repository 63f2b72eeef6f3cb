"""What some tasks can do and several rooms ask for, with `isinstance`: protocols.

A task has an ability by defining its methods; there is nothing to inherit or register.
What has a default for every task is a method of `Task`. The functions are what callers
use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from bert_keras.config import BertConfig
from bert_keras.data.columns import Columns
from bert_keras.errors import ConfigError, DataError, shown
from bert_keras.lazy_names import deferred

if TYPE_CHECKING:
    import tensorflow as tf
    from typing_extensions import Self  # in typing since Python 3.11

    from bert_keras.reading.token_rows import TokenizedText
    from bert_keras.tasks.base import Task
    from bert_keras.tasks.redaction import Redaction
    from bert_keras.text.preprocessor import Preprocessor
    from bert_keras.text.tokenizer import WordPieceTokenizer
else:
    (tf,) = deferred("tensorflow")

Batch = dict[str, Any]  # inputs of a model by name, each [R, …]
Run = Callable[[Batch], Any]  # returns what `infer` does, for a batch dict
Answers = Mapping[str, np.ndarray]  # outputs of `answer` by name, each [N, …]
# Truth, bool [N], and probability, float [N], of yes-or-no decisions by name.
Decisions = dict[str, tuple[np.ndarray, np.ndarray]]


# Rows.


def texts_of(
    task: Task, columns: Columns, *, use: str = "answer"
) -> tuple[list[Any], ...]:
    """Return the texts of each role: N strings, or N lists of strings, each.

    `use` is `answer`, `train` (for `Task.examples`) or `score` (for scored answers,
    perhaps followed by N sides, see `Task`); most tasks use the same texts.
    """
    return task.texts(columns, use=use)


def string_parts(items: Sequence[Any], count: int) -> tuple[list[Any], ...]:
    """Return `count` lists from strings, or from tuples of `count` strings."""
    for row, item in enumerate(items):
        parts = [item] if count == 1 else item
        is_list = isinstance(parts, tuple | list) and len(parts) == count
        if not is_list or not all(isinstance(part, str) for part in parts):
            names = {1: "a string", 2: "a pair of strings"}
            wanted = names.get(count, f"{count} strings")
            raise DataError(
                f"each item of `texts` must be {wanted}; received "
                f"{shown(item)} at index {row}"
            )
    if count == 1 or not items:
        return (list(items),) * count
    return tuple(list(part) for part in zip(*items, strict=True))


def is_text_with_list(item: Any, least: int = 1) -> bool:
    """Return whether an item is a text and a list of `least` or more non-empty ones."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        return False
    text, others = item
    is_list = isinstance(others, tuple | list) and len(others) >= least
    is_filled = is_list and all(isinstance(each, str) and each for each in others)
    return isinstance(text, str) and is_filled


def list_parts(
    items: Sequence[Any], form: str, *, least: int = 1, are_different: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Return the texts and the lists of items of the form (text, [text, …]).

    Args:
        items: as given to `predict`.
        form: what they must be, for the error.
        least: texts of a list, none of them empty.
        are_different: whether no two texts of a list may be equal.
    """
    for row, item in enumerate(items):
        is_fit = is_text_with_list(item, least)
        if not is_fit or are_different and len(set(item[1])) < len(item[1]):
            raise DataError(
                f"each item of `texts` must be {form}; received {shown(item)} at index "
                f"{row}"
            )
    return [item[0] for item in items], [list(item[1]) for item in items]


def training_examples(task: Task, columns: Columns) -> int:
    """Return how many groups of rows, or rows, `batch_size` counts in an epoch."""
    groups = task.gathered(columns)
    return len(columns if groups is None else groups)


# Text to batch.


class TextSpec(NamedTuple):
    """An input of texts: strings [B], or with `rank` 2 lists of strings [B, M]."""

    name: str
    rank: int = 1


def input_specs(task: Task) -> dict[str, tuple[tf.TensorSpec, ...]]:
    """Return name, dtype and shape of the SavedModel's inputs, by signature.

    The first is `serving_default`. `features` takes the inputs of each. They differ in
    rank, like texts [B] and lists of words [B, W]; prediction selects by rank.
    """
    return {
        name: tuple(
            tf.TensorSpec([None] * each.rank, tf.string, name=each.name)
            if isinstance(each, TextSpec)
            else each
            for each in specs
        )
        for name, specs in task.signatures().items()
    }


def text_specs(task: Task) -> dict[str, tuple[TextSpec, ...]]:
    """Return name and rank of the SavedModel's inputs, by signature; no TensorFlow."""
    return {
        name: tuple(
            each if isinstance(each, TextSpec) else TextSpec(each.name, each.shape.rank)
            for each in specs
        )
        for name, specs in task.signatures().items()
    }


# The model and its training.


def score_specs(task: Task) -> dict[str, tuple[tf.TensorSpec, ...]]:
    """Return the inputs of the texts to score, as `input_specs` those to answer."""
    if not task.scores_sides:
        return input_specs(task)
    sides = tf.TensorSpec([None], tf.int32, name="sides")
    texts = (tf.TensorSpec([None], tf.string, name=role) for role in task.roles)
    return {"score": (*texts, sides)}


def lengths_of(
    task: Task, preprocessor: Preprocessor, texts: Any, *, scored: bool = False
) -> tuple[Any, Any]:
    """Return how many tokens of each text are read, and how many are truncated.

    int32 [B] each, special tokens included; in graph. `scored` are texts to score.
    """
    measuring: Any = task
    if scored and task.scores_sides:
        return measuring.lengths(preprocessor, texts[0], sides=texts[1])
    return task.lengths(preprocessor, texts)


def windows_of(
    task: Task,
    preprocessor: Preprocessor,
    texts: Any,
    like: Any,
    *,
    scored: bool = False,
) -> Any:
    """Return the windows of each text, see `LongTextTask`, int32 [B, 2], in graph.

    0 for other tasks; `like` is int32 [B], and `scored` are texts to score.
    """
    windowed: Any = task
    if not task.reads_windows:
        return tf.zeros([tf.shape(like)[0], 2], tf.int32)
    if scored and task.scores_sides:
        return windowed.windows_of(preprocessor, texts[0], sides=texts[1])
    return windowed.windows_of(preprocessor, texts)


@runtime_checkable
class Writing(Protocol):
    """Writes texts in many steps of its layers: its answers, and so its targets.

    The model reads a number of tokens of a target. `score` takes the answers.
    """

    max_target_length: int

    def within(self, config: BertConfig) -> Self:
        """Return the task with this length within the positions of an encoder."""
        ...

    def target_tokenizer(self, preprocessor: Preprocessor) -> WordPieceTokenizer:
        """Return the tokenizer of the targets."""
        ...

    def target_lengths(
        self, preprocessor: Preprocessor, targets: Any
    ) -> tuple[Any, Any]:
        """Return how many tokens of each target are read, and how many are truncated.

        int32 [B] each; in graph.
        """
        ...


TAUGHT = "taught"  # the role of a teacher's vectors of the column `text`


# Answers.


def truncation_remedy(task: Task, windows: str) -> str:
    """Return what would let a task read its truncated texts whole, for a message.

    It is `windows`, how to set `long`, more windows, or what limits a question, or a
    sentence, of a text in windows; empty if there is nothing.
    """
    if task.may_read_windows:
        return windows
    if not task.reads_windows:
        if task.needs.rows_per_text is not None:
            return ""
        if hasattr(task, "max_question_tokens"):
            return "a higher `max_question_tokens`, up to half of `max_length`,"
        return "training with a higher `max_length`"
    if getattr(task, "combine", "") == "first":
        return "a `combine` of all windows"
    return "a higher `max_windows`" if getattr(task, "max_windows", None) else ""


@runtime_checkable
class Spelling(Protocol):
    """Its answers hold parts of the texts, which engines, without strings, cannot cut.

    An engine computes `numbers` for the windows of a batch, and Python the answers.
    """

    def numbers(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return what `spelled` reads, by name, in graph.

        The arguments are as of `answer`, with the entries of `LongTexts.answer_specs`.
        """
        ...

    def spelled(
        self, numbers: Answers, rows: Sequence[TokenizedText], *, scored: bool = False
    ) -> dict[str, np.ndarray]:
        """Return the answers to B texts, arrays [B, …] as of `answer`.

        Args:
            numbers: of the windows of the texts, in their order, and their batch.
            rows: the texts.
            scored: whether the answers are for `score`.
        """
        ...


def check_scores_pairs(task: Task) -> None:
    """Raise ConfigError unless a task scores pairs of texts."""
    if not task.scores_pairs:
        raise ConfigError(
            "to rank documents, a model must score pairs of texts, of the task "
            "reranking or regression, or a classification of pairs whose "
            "`positive_class` names the class that says relevant; received one of "
            f"{task.name}"
        )


def pair_answers(task: Task, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return `score` of each pair, by which it is ranked, and the window that decided.

    Args:
        task: scores pairs, see `check_scores_pairs`.
        answers: its answers to pairs, arrays or tensors [B, …].
    """
    scoring: Any = task
    windows = {name: answers[name] for name in ("start", "end") if name in answers}
    return {"score": scoring.pair_scores(answers), **windows}


@runtime_checkable
class Redacting(Protocol):
    """Finds entities, which can be replaced in the texts."""

    def redaction(
        self, preprocessor: Preprocessor, types: str | Sequence[str] | None
    ) -> Redaction:
        """Return what replaces the entities of some types; `None`: of all.

        Raises:
            ConfigError: the task has no such type.
        """
        ...


def redaction_of(
    task: Any, preprocessor: Preprocessor, types: str | Sequence[str] | None
) -> Redaction:
    """Return what replaces the entities of some types in texts, see `Redacting`.

    Raises:
        ConfigError: the task finds no entities, or has no such type.
    """
    if not isinstance(task, Redacting):
        raise ConfigError(
            "to redact texts, a model must find their entities, as of the task "
            f"token-classification; received one of {task.name}"
        )
    return task.redaction(preprocessor, types)


def check_dense(task: Any, what: str) -> None:
    """Raise ConfigError unless a task gives dense vectors, which `what` reads."""
    kind = getattr(task, "kind", "dense")
    if kind != "dense":
        raise ConfigError(f"{what} needs vectors of `kind` dense; received {kind}")


# Scores and the report.


@runtime_checkable
class Deciding(Protocol):
    """The report draws curves of yes-or-no decisions, and doubts labels."""

    def decisions(self, columns: Columns, answers: Answers) -> Decisions:
        """Return truth and probability of each decision by name; may be empty."""
        ...

    def doubtful_labels(
        self, columns: Columns, answers: Answers
    ) -> list[dict[str, Any]]:
        """Return the rows whose label is worth a look, least probable label first.

        The rows must be held out: a model repeats labels it has learnt.
        """
        ...

    def rival(self, mistake: Mapping[str, Any]) -> str | None:
        """Return the answer that a mistake is explained against; `None`: all others."""
        ...
