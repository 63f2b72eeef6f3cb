"""The lengths of a run's texts in tokens, and its longest input, which follows them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bert_keras.answering.answering import rows_together
from bert_keras.config import BertConfig
from bert_keras.data.columns import Columns
from bert_keras.errors import ConfigError
from bert_keras.lazy_names import deferred
from bert_keras.settings import OWN_LENGTHS, options_of
from bert_keras.tasks.base import Task, overrides, replaced
from bert_keras.tasks.protocols import (
    Writing,
    lengths_of,
    texts_of,
    truncation_remedy,
    windows_of,
)
from bert_keras.text.truncation import Truncation, percent
from bert_keras.training.choices import GIVEN, Choice, Facts
from bert_keras.training.config import TrainConfig
from bert_keras.training.data import UNLABELED

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_keras.models import pretrained_model
    from bert_keras.text import preprocessor as preprocessing
    from bert_keras.text.preprocessor import Preprocessor
    from bert_keras.training import methods
else:
    tf, pretrained_model = deferred("tensorflow", "bert_keras.models.pretrained_model")
    preprocessing, methods = deferred(
        "bert_keras.text.preprocessor", "bert_keras.training.methods"
    )

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
# Of a block in training, for each number of its output and each weight of its
# attention: measured with 6 blocks of hidden size 384, from 128 to 512 tokens.
_BYTES = 96, 9
_MOST_BYTES = 8e9  # of all blocks for the texts of an update that is not in parts


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
    task: Task, preprocessor: Preprocessor, data: Mapping[str, Columns], *, limit: int
) -> dict[str, TextLengths]:
    """Return the lengths of each data set's texts, as they are scored, or answered.

    Args:
        task, preprocessor: of the model; a task that cuts texts into rows reads them in
            rows of the preprocessor's maximum length.
        data: the rows by name.
        limit: up to how many tokens other tasks' texts are measured whole.
    """
    if task.needs.rows_per_text is not None:
        preprocessor = preprocessor.replace(max_length=limit)

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
        parts = (
            preprocessing.as_tensors([part[rows.start : rows.stop] for part in some])
            for at in range(0, len(texts[0]), _AT_ONCE)
            for some in [tuple(part[at : at + _AT_ONCE] for part in texts)]
            for rows in rows_together(some, most=_AT_ONCE)
        )
        in_windows = task.reads_windows
        count = 3 if in_windows else 2
        kept = [graph_of(each, scored=scored)(each)[:count] for each in parts]
        read, lost, *windows = map(np.concatenate, zip(*kept, strict=True))
        more = (windows[0], preprocessor.max_length) if in_windows else ()
        found[name] = TextLengths(read, lost, *more)
    return found


def choose_length(
    task: Task,
    lengths: Mapping[str, TextLengths],
    default: int,
    config: BertConfig,
    *,
    given: int | None,
    is_fixed: bool = False,
) -> tuple[dict[str, TextLengths], Choice]:
    """Choose the maximum length, and return the lengths at it.

    Args:
        task: of the run. If it reads windows, it keeps its length.
        lengths: of the rows by name; training and dev texts decide.
        default: the task's default length, or the given one.
        config: of the encoder.
        given: the user's length.
        is_fixed: whether all rows are padded to the length, as on a TPU.
    """
    if task.needs.rows_per_text is None or given is not None:
        windows = "of a window" if task.reads_windows else "the task's default"
        reason = GIVEN if given is not None else windows
        choice = Choice("max length", default, reason, "--max-length")
    else:
        sizes = [lengths[name].whole for name in ("train", "dev") if name in lengths]
        choice = chosen_length(
            np.concatenate(sizes), default, config, is_fixed=is_fixed
        )
    if task.needs.rows_per_text is None:
        return dict(lengths), choice
    return {name: each.at(choice.value) for name, each in lengths.items()}, choice


def truncation_notes(
    task: Task,
    preprocessor: Preprocessor,
    data: Mapping[str, Columns],
    lengths: Mapping[str, TextLengths],
    *,
    method: str,
) -> list[str]:
    """Return a line for each data set with texts, or targets, that are truncated.

    Args:
        task, preprocessor: of the model.
        data: the rows by name.
        lengths: of their texts.
        method: of the run; `linear` draws no windows.
    """
    notes = []
    for name, each in lengths.items():
        draws = name == "train" and method != "linear"
        drawn = getattr(task, "train_windows", 0) if draws else 0
        notes += each.truncation().lines(
            of=f"{name} texts",
            length=preprocessor.max_length,
            in_windows=task.needs.rows_per_text is None,
            drawn=drawn,
            remedy=truncation_remedy(task, "--set long=windows"),
        )
    for name, columns in data.items():
        notes += truncated_targets(task, preprocessor, columns, of=f"{name} targets")
    return notes


def choose_windows(
    facts: Facts, task: Task, config: TrainConfig, rows: Columns
) -> tuple[Task, TrainConfig, Choice | None]:
    """Return task and config that read long texts in windows, if many are long.

    Neither `long` nor the maximum length is given, the task has one text a row and a
    linear head, and the longest input that `train` would choose leaves a tenth of the
    tokens unread. Windows and their number are as measured by
    `benchmarks/gpu_quality.py`. With method finetune on a sentence encoder, the head
    is fitted before all weights are trained, so that few epochs do; linear reads all
    windows of a text. The choice is `None` if nothing changes.

    Args:
        facts: of the run.
        task: of the run.
        config: of the run, as given, with a method.
        rows: the training rows; up to 1,000 of them are measured.
    """
    is_open = config.method in _IN_WINDOWS and config.max_length is None
    is_open = is_open and config.teacher is None and "long" not in facts.given
    is_open = is_open and not facts.is_fixed
    is_single = overrides(task, "linear_targets") and len(task.roles) == 1
    if not is_open or not is_single or not task.may_read_windows:
        return task, config, None
    folder = facts.folder
    limit = folder.checkpoint.config.max_position_embeddings
    some = rows.spread(_MEASURED)
    (texts,) = texts_of(task, some)
    if max(map(len, texts)) + 2 <= limit:  # few tokens have less than a character
        return task, config, None
    whole = preprocessing.Preprocessor(folder.tokenizer, max_length=limit)
    measured = measure_lengths(task, whole, {"train": some}, limit=limit)
    sizes = measured["train"].whole
    default = pretrained_model.max_length_of(task, folder.checkpoint, None)
    length = chosen_length(sizes, default, folder.checkpoint.config).value
    read, all_of_them = int(np.minimum(sizes, length).sum()), int(sizes.sum())
    if all_of_them - read < _LONG_SHARE * all_of_them:
        return task, config, None
    window = min(_WINDOW, limit)
    longer = percent(int((sizes > length).sum()), len(sizes))
    line = (
        f"{longer} of the texts have more than {length:,} tokens; windows of {window} "
        f"have {all_of_them / read:,.1f} times the tokens"
    )
    if config.method == "linear":
        config = dataclasses.replace(config, max_length=window)
        choice = Choice("long texts", "windows", line, "--set long")
        return replaced(task, long="windows"), config, choice
    line += f"; an epoch draws {_TRAIN_WINDOWS} windows of a text"
    own = methods.vectors_of(facts, task)
    if own and facts.one_replica:
        config = probed(config, task, folder.checkpoint.config.hidden_size)
    elif own:
        own = {"pooling": own["pooling"]}
    batch = cast(int, config.finalized(task, len(rows)).batch_size)
    parts = config.accumulation
    if parts == 1 and batch > _ROWS_AT_ONCE:
        parts = math.gcd(batch, _ROWS_AT_ONCE)
    return (
        replaced(task, long="windows", train_windows=_TRAIN_WINDOWS, **own),
        dataclasses.replace(config, max_length=window, accumulation=parts),
        Choice("long texts", "windows", line, "--set long"),
    )


def in_parts(
    task: Task,
    config: TrainConfig,
    sizes: BertConfig,
    lengths: TextLengths,
    examples: int,
) -> TrainConfig:
    """Return the config with updates in parts, if their texts take much memory.

    Applies where the loss compares the texts of a batch, which are several a row, and
    neither batch nor parts are given: gradients are then computed from cached vectors
    ([Gao et al. 2021](https://arxiv.org/abs/2101.06983)), and stay the same.

    Args:
        task, config: of the run, with its maximum length.
        sizes: of the encoder.
        lengths: of the training texts.
        examples: the number of rows that they are of.
    """
    is_open = config.batch_size is None and config.accumulation == 1
    if not is_open or config.teacher is not None or not task.compares:
        return config
    batch = cast(int, config.finalized(task, examples).batch_size)
    length = cast(int, config.max_length)
    of_output, of_attention = _BYTES
    one_block = of_output * sizes.hidden_size
    one_block += of_attention * sizes.num_attention_heads * length
    tokens = min(batch, examples) * int(lengths.read.sum()) / examples
    parts = 1
    while parts < batch and batch % (2 * parts) == 0:
        if tokens / parts * sizes.num_hidden_layers * one_block <= _MOST_BYTES:
            break
        parts *= 2
    return dataclasses.replace(config, accumulation=parts)


def without_own_lengths(
    settings: Mapping[str, Any], config: TrainConfig
) -> tuple[dict[str, Any], list[str]]:
    """Return an encoder's settings without its lengths of queries and documents, if a
    maximum length is given, which is then of all texts; and a note about them.
    """
    lengths = {name: settings[name] for name in OWN_LENGTHS if settings.get(name)}
    if config.max_length is None or not lengths:
        return dict(settings), []
    stated = ", ".join(f"{name} {length}" for name, length in lengths.items())
    note = f"{stated} of the encoder's folder: not used, since --max-length is given"
    return {k: v for k, v in settings.items() if k not in lengths}, [note]


def inherited_windows(
    facts: Facts, task: Task, config: TrainConfig
) -> tuple[TrainConfig, Choice | None]:
    """Return the config with the length of the windows that a task has inherited.

    The choice is `None` if it has not.
    """
    is_inherited = task.reads_windows and "long" not in facts.given
    if not is_inherited or config.max_length is not None:
        return config, None
    length = facts.folder.preprocessing.get("max_length")
    reason = f"of {length:,} tokens, as in the encoder's folder"
    return (
        dataclasses.replace(config, max_length=length),
        Choice("long texts", "windows", reason, "--set long"),
    )


def check_truncation(task: Task, config: TrainConfig) -> None:
    """Raise ConfigError if `truncation` is given and windows read the texts."""
    default = options_of(TrainConfig)["truncation"].default
    if task.reads_windows and config.truncation != default:
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


def truncated_targets(
    task: Task, preprocessor: Preprocessor, columns: Columns, *, of: str
) -> list[str]:
    """Return a line if targets that are texts are truncated.

    Args:
        task, preprocessor: of the model.
        columns: the rows.
        of: what the line calls the targets.
    """
    if not isinstance(task, Writing):
        return []
    targets, found = task.targets(columns), Truncation()
    for start in range(0, len(targets), _AT_ONCE):
        part = tf.constant(targets[start : start + _AT_ONCE].tolist(), tf.string)
        sizes = task.target_lengths(preprocessor, part)
        found.add(*(each.numpy() for each in sizes))
    return [found.line(of=of, length=task.max_target_length)] * bool(found.cut)


def chosen_length(
    sizes: np.ndarray, default: int, config: BertConfig, *, is_fixed: bool = False
) -> Choice:
    """Choose the maximum length that holds texts of these tokens.

    It is at least the default and at most the number of the encoder's positions, and
    costs at most eight times the computation of the default. If all rows are padded to
    it (`is_fixed`), it need hold only 99% of the texts.
    """
    wanted = float(np.quantile(sizes, _FIXED_SHARE if is_fixed else 1.0))
    most = max(default, _STEP * math.ceil(wanted / _STEP))
    chosen = most = min(most, config.max_position_embeddings)

    def cost(length: int) -> float:
        rows = np.full_like(sizes, length) if is_fixed else np.minimum(sizes, length)
        return computation(rows, config)

    while chosen > default and cost(chosen) > _MOST_COST * cost(default):
        chosen = max(default, chosen - _STEP)
    held = percent(int((sizes <= chosen).sum()), len(sizes))
    line = f"holds {held} of {len(sizes):,} texts"
    if chosen > default:
        before = percent(int((sizes <= default).sum()), len(sizes))
        line += f" ({default:,}: {before})"
        times = cost(chosen) / cost(default)
        if times >= 1.05:
            line += f", for {times:.1f} times the computation of {default:,}"
    if chosen < most:
        line += f"; {most:,} would need more than {_MOST_COST:g} times"
    return Choice("max length", chosen, line, "--max-length")


def computation(sizes: np.ndarray, config: BertConfig) -> float:
    """Return the multiplications of a block for texts of these tokens, up to a factor.

    For T tokens, the dense layers need T (4 H^2 + 2 H I) and attention 2 T^2 H.
    """
    tokens = sizes.astype("float64")
    dense = 2 * config.hidden_size + config.intermediate_size
    return float((tokens * dense + tokens**2).sum())
