"""The lengths of a run's texts in tokens, and its longest input, which follows them."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.data.columns import Columns
from bert_keras.errors import ConfigError
from bert_keras.models.folder import Folder
from bert_keras.models.pretrained_model import max_length_of
from bert_keras.models.task_model import TaskModel
from bert_keras.settings import options_of
from bert_keras.tasks.base import Task, replaced
from bert_keras.tasks.protocols import (
    Linear,
    TextTargets,
    lengths_of,
    may_read_windows,
    reads_windows,
    texts_of,
    whole_by,
    windows_of,
)
from bert_keras.text.preprocessor import Preprocessor, as_tensors
from bert_keras.text.truncation import Truncation, percent
from bert_keras.training.config import TrainConfig
from bert_keras.training.data import UNLABELED
from bert_keras.training.methods import vectors_of

_AT_ONCE = 1024  # texts
_STEP = 16  # tokens to which a chosen length is rounded up
_MOST_COST = 8.0  # times the computation of the task's default length
_FIXED_SHARE = 0.99  # of the texts that a length holds if all rows are padded to it
_MEASURED = 1000  # texts at most, to choose how long ones are read
_LONG_SHARE = 0.1  # of the tokens unread, from which long texts are read in windows
_WINDOW, _TRAIN_WINDOWS, _ROWS_AT_ONCE = 256, 4, 4
_IN_WINDOWS = ("finetune", "linear")  # methods that then read them so
# After a linear probe, by `benchmarks/gpu_quality.py` (`probed`): rows of an update,
# epochs, and the share of the usual learning rate.
_PROBED = 4, 5, 0.5


@dataclasses.dataclass(frozen=True)
class TextLengths:
    """How many tokens of each text are read, and how many are not, int32 [N] each."""

    read: np.ndarray
    lost: np.ndarray
    windows: np.ndarray | None = None  # that a task combines, int32 [N, 2]
    max_length: int = 0  # of a row; 0: texts are read in rows that are not combined

    @property
    def whole(self) -> np.ndarray:
        """All tokens of each text, special tokens included, int32 [N]."""
        return self.read + self.lost

    def at(self, max_length: int) -> TextLengths:
        """Return the lengths with another maximum length."""
        read = np.minimum(self.read, max_length)  # a query may have a smaller one
        return TextLengths(read, self.whole - read, max_length=max_length)

    def take(self, rows: Sequence[int]) -> TextLengths:
        """Return the lengths of some of the texts."""
        windows = None if self.windows is None else self.windows[rows]
        return TextLengths(self.read[rows], self.lost[rows], windows, self.max_length)

    @property
    def are_longer(self) -> bool:
        """Whether a text is longer than a row."""
        return bool(self.max_length and (self.whole > self.max_length).any())

    def truncation(self) -> Truncation:
        found = Truncation()
        found.add(self.read, self.lost)
        if self.windows is not None:
            found.add_windows(self.read, self.lost, self.windows, self.max_length)
        return found


class RowLengths(Truncation):
    """Counts truncated texts, and keeps the tokens of each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, read: np.ndarray, lost: np.ndarray) -> None:
        super().add(read, lost)
        self._parts.append((read, lost))

    def lengths(self, max_length: int) -> TextLengths | None:
        """Return the lengths; `None` if not all texts were measured, as short ones."""
        if self.texts == 0 or sum(len(read) for read, _ in self._parts) != self.texts:
            return None
        read, lost = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return TextLengths(read, lost, max_length=max_length)


def measure_lengths(
    model: TaskModel,
    data: Mapping[str, Columns],
    *,
    follows: bool,
    is_fixed: bool = False,
    method: str = "finetune",
    tell: Callable[[str], object],
) -> dict[str, TextLengths]:
    """Set a model's maximum length, and return the lengths of each data set's texts.

    Args:
        model: with the task's default length, or the user's.
        data: the rows by name: `train`, `dev` and the tests.
        follows: whether the length follows the training and dev texts, see
            `chosen_length`. A task that reads windows keeps its length.
        is_fixed: whether all rows are padded to the length, as on a TPU.
        method: of the run; `linear` draws no windows.
        tell: gets a line about the length, and one for each data set with texts, or
            with targets, that are truncated.
    """
    cuts = model.task.needs.rows_per_text is not None  # a task with windows does not
    limit = model.backbone.config.max_position_embeddings
    preprocessor = model.preprocessor
    if cuts:
        preprocessor = preprocessor.replace(max_length=limit)
    found = _lengths(model.task, preprocessor, data)
    if follows and cuts:
        sizes = [found[name].whole for name in ("train", "dev") if name in found]
        default = model.preprocessor.max_length
        chosen, line = chosen_length(
            np.concatenate(sizes), default, model.backbone.config, is_fixed=is_fixed
        )
        model.preprocessor = model.preprocessor.replace(max_length=chosen)
        tell(line)
    length = model.preprocessor.max_length
    if cuts:
        found = {name: each.at(length) for name, each in found.items()}
    for name, each in found.items():
        draws = name == "train" and method != "linear"
        drawn = getattr(model.task, "train_windows", 0) if draws else 0
        for line in each.truncation().lines(
            of=f"{name} texts",
            length=length,
            in_windows=not cuts,
            drawn=drawn,
            whole_by=whole_by(model.task, "--set long=windows"),
        ):
            tell(line)
    for name, columns in data.items():
        tell_truncated_targets(model, columns, of=f"{name} targets", tell=tell)
    return found


def reads_long_texts(
    task: Task,
    config: TrainConfig,
    rows: Columns,
    encoder: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any],
    one_replica: bool,
    tell: Callable[[str], object],
) -> tuple[Task, TrainConfig]:
    """Return task and config that read long texts in windows, if many are long.

    Neither `long` nor the maximum length is given, the task has one text a row and a
    linear head, and the longest input that `train` would choose leaves a tenth of the
    tokens unread. Windows and their number are as measured by
    `benchmarks/gpu_quality.py`. With method finetune on an encoder of vectors, the head
    is fitted before all weights are trained, so that few epochs do; linear reads all
    windows of a text.

    Args:
        task: of the run.
        config: of the run, as given.
        rows: the training rows; up to 1,000 of them are measured.
        encoder: as in `train`.
        settings: of the task, as given.
        one_replica: whether the strategy has a single one, and not on a TPU.
        tell: gets a line if windows are read.
    """
    is_open = config.method in _IN_WINDOWS and config.max_length is None
    is_open = is_open and config.teacher is None and "long" not in settings
    is_single = isinstance(task, Linear) and len(task.roles) == 1
    if not is_open or not is_single or not may_read_windows(task):
        return task, config
    folder = Folder.open(encoder)
    limit = folder.checkpoint.config.max_position_embeddings
    some = rows.take(range(0, len(rows), -(-len(rows) // _MEASURED)))
    (texts,) = texts_of(task, some)
    if max(map(len, texts)) + 2 <= limit:  # few tokens have less than a character
        return task, config
    whole = Preprocessor(folder.tokenizer, max_length=limit)
    sizes = _lengths(task, whole, {"train": some})["train"].whole
    default = max_length_of(task, folder.checkpoint, None)
    length, _ = chosen_length(sizes, default, folder.checkpoint.config)
    read, all_of_them = int(np.minimum(sizes, length).sum()), int(sizes.sum())
    if all_of_them - read < _LONG_SHARE * all_of_them:
        return task, config
    window = min(_WINDOW, limit)
    longer = percent(int((sizes > length).sum()), len(sizes))
    line = (
        f"long texts: {longer} have more than {length:,} tokens, so they are read in "
        f"windows of {window}, {all_of_them / read:,.1f} times the tokens"
    )
    way_back = "(--set long=truncate reads the start alone)"
    if config.method == "linear":
        tell(f"{line} {way_back}")
        config = dataclasses.replace(config, max_length=window)
        return replaced(task, long="windows"), config
    line += f", of which an epoch draws {_TRAIN_WINDOWS}; "
    own = vectors_of(encoder, task, rows, settings)
    if own and one_replica:
        config = probed(config, task, folder.checkpoint.config.hidden_size)
        line += (
            f"the head is fitted on the {own['pooling']} of the tokens, and then all "
            f"weights are trained, at a learning rate of {config.learning_rate:.2g}; "
        )
    elif own:
        own = {"pooling": own["pooling"]}
        line += f"the head reads the {own['pooling']} of the tokens; "
    batch = cast(int, config.finalized(task, len(rows)).batch_size)
    parts = config.accumulation
    if parts == 1 and batch > _ROWS_AT_ONCE:
        parts = math.gcd(batch, _ROWS_AT_ONCE)
        line += f"an update computes its rows in {parts} parts "
    tell(f"{line.rstrip('; ')} {way_back}")
    return (
        replaced(task, long="windows", train_windows=_TRAIN_WINDOWS, **own),
        dataclasses.replace(config, max_length=window, accumulation=parts),
    )


def keeps_windows(
    task: Task,
    config: TrainConfig,
    encoder: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any],
    tell: Callable[[str], object],
) -> TrainConfig:
    """Return the config with the length of the windows that a task has inherited.

    A line tells them. `settings` are the user's; the other arguments are as in `train`.
    """
    is_inherited = reads_windows(task) and "long" not in settings
    if not is_inherited or config.max_length is not None:
        return config
    length = Folder.open(encoder).preprocessing.get("max_length")
    tell(
        f"long texts are read in windows of {length:,} tokens, as by the encoder's "
        "folder (--set long=truncate reads the start alone)"
    )
    return dataclasses.replace(config, max_length=length)


def check_truncation(task: Task, config: TrainConfig) -> None:
    """Raise ConfigError if `truncation` is given and windows read the texts."""
    default = options_of(TrainConfig)["truncation"].default
    if reads_windows(task) and config.truncation != default:
        raise ConfigError(
            "`truncation` has no effect with `long` windows, in which the first text "
            f"of a pair takes at most half; received {config.truncation}"
        )


def probed(config: TrainConfig, task: Task, hidden_size: int) -> TrainConfig:
    """Return the config of a run that fits the head first, where nothing is given."""
    batch_size, epochs, share = _PROBED
    batch_size = math.lcm(batch_size, config.accumulation)  # which must divide it
    return dataclasses.replace(
        config.with_rate(task, hidden_size, share=share),
        linear_probe=True,
        batch_size=config.batch_size or batch_size,
        epochs=config.epochs or epochs,
    )


def tell_truncated_targets(
    model: Any, columns: Columns, *, of: str, tell: Callable[[str], object]
) -> None:
    """Pass a line to `tell` if targets that are texts are truncated.

    Args:
        model: with `task` and `preprocessor`.
        columns: the rows.
        of: what the line calls the targets.
        tell: gets the line.
    """
    task: Task = model.task
    if not isinstance(task, TextTargets):
        return
    targets, found = task.targets(columns), Truncation()
    for start in range(0, len(targets), _AT_ONCE):
        part = tf.constant(targets[start : start + _AT_ONCE].tolist(), tf.string)
        sizes = task.target_lengths(model.preprocessor, part)
        found.add(*(each.numpy() for each in sizes))
    if found.cut:
        tell(found.line(of=of, length=task.max_target_length))


def chosen_length(
    sizes: np.ndarray, default: int, config: BertConfig, *, is_fixed: bool = False
) -> tuple[int, str]:
    """Return the maximum length that holds texts of these tokens, and a line about it.

    It is at least the default and at most the number of the encoder's positions, and
    costs at most eight times the computation of the default. If all rows are padded to
    it (`is_fixed`), it need hold only 99% of the texts.
    """
    wanted = float(np.quantile(sizes, _FIXED_SHARE if is_fixed else 1.0))
    most = max(default, _STEP * math.ceil(wanted / _STEP))
    chosen = most = min(most, config.max_position_embeddings)

    def cost(length: int) -> float:
        rows = np.full_like(sizes, length) if is_fixed else np.minimum(sizes, length)
        return _computation(rows, config)

    while chosen > default and cost(chosen) > _MOST_COST * cost(default):
        chosen = max(default, chosen - _STEP)
    held = percent(int((sizes <= chosen).sum()), len(sizes))
    line = f"max length: {chosen:,} tokens, which hold {held} of {len(sizes):,} texts"
    if chosen > default:
        before = percent(int((sizes <= default).sum()), len(sizes))
        line += (
            f" ({default:,}: {before}), for {cost(chosen) / cost(default):.1f} times "
            "the computation"
        )
    if chosen < most:
        line += f"; {most:,} would need more than {_MOST_COST:g} times"
    return chosen, f"{line} (--max-length sets another)"


def _computation(sizes: np.ndarray, config: BertConfig) -> float:
    """Return the multiplications of a block for texts of these tokens, up to a factor.

    For T tokens, the dense layers need T (4 H^2 + 2 H I) and attention 2 T^2 H.
    """
    tokens = sizes.astype("float64")
    dense = 2 * config.hidden_size + config.intermediate_size
    return float((tokens * dense + tokens**2).sum())


def _lengths(
    task: Task, preprocessor: Preprocessor, data: Mapping[str, Columns]
) -> dict[str, TextLengths]:
    """Return the lengths of each data set's texts, as they are scored, or answered."""

    def lengths(parts: Any, *, scored: bool) -> Any:
        read, lost = lengths_of(task, preprocessor, parts, scored=scored)
        windows = windows_of(task, preprocessor, parts, read, scored=scored)
        return read, tf.cast(lost, tf.int32), windows

    graphs: dict[Any, Any] = {}  # by the ranks of the texts, for any number of them

    def graph_of(parts: Any, *, scored: bool) -> Any:
        specs = tf.nest.map_structure(
            lambda part: tf.TensorSpec([None] * part.shape.rank, part.dtype), parts
        )
        key = repr(specs), scored
        if key not in graphs:
            graphs[key] = tf.function(
                functools.partial(lengths, scored=scored),
                input_signature=[specs],
                autograph=False,
            )
        return graphs[key]

    found = {}
    for name, columns in data.items():
        scored = name != UNLABELED
        use = "score" if scored else "answer"
        texts = texts_of(task, columns, use=use)
        starts = range(0, len(texts[0]), _AT_ONCE)
        parts = (as_tensors([p[at : at + _AT_ONCE] for p in texts]) for at in starts)
        in_windows = reads_windows(task)
        count = 3 if in_windows else 2
        kept = [graph_of(each, scored=scored)(each)[:count] for each in parts]
        read, lost, *windows = map(np.concatenate, zip(*kept, strict=True))
        found[name] = TextLengths(read, lost)
        if in_windows:
            length = preprocessor.max_length
            found[name] = TextLengths(read, lost, windows[0], length)
    return found
