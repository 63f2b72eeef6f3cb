"""What a run is asked for, and what is decided for it, as values.

`TrainRequest` are the arguments of `train`, `Facts` is what decisions are made from, a
`Choice` is one of them with its reason, and `Decided` is a table of them. The plans of
`train` and of `pretrain` have all that is decided.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.data.row_source import RowSource
from bert_keras.data.rows import ColumnNames
from bert_keras.runs.progress import duration
from bert_keras.tasks.base import Task
from bert_keras.training.config import TrainConfig

if TYPE_CHECKING:
    from bert_keras.distribution.strategy import Devices
    from bert_keras.models.folder import Folder

GIVEN = "as given"  # the reason of a choice that the user made
AUTO = "auto"  # the method, before it is chosen


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The arguments of `train`, which describes them."""

    task: str | type[Task] | Task
    train: Any
    output: str | os.PathLike[str]
    encoder: str | os.PathLike[str] | None = None
    dev: Any = None
    test: Any = None
    unlabeled: Any = None
    columns: ColumnNames | None = None
    header: str = "auto"
    bad_rows: str = "error"
    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    task_settings: Mapping[str, Any] | None = None
    slices: Sequence[str] = ()
    command: str = ""
    resume: str = "auto"
    devices: Devices | None = None
    writes: bool = True  # whether a model is written; otherwise only planned
    is_compared: bool = False  # whether its dev score is compared with other runs'
    tries_methods: bool = False  # whether `train` chooses the method by such scores
    fold: str = ""  # the name of the rows, dev or a test, that are a training fold

    def rows_of(self, data: Any) -> RowSource:
        """Return where the rows of an argument are read from."""
        return RowSource(data, self.columns or {}, self.header, self.bad_rows)

    @property
    def is_one_of_several(self) -> bool:
        """Whether the run is one of several of the same call."""
        return self.is_compared or self.tries_methods


@dataclasses.dataclass(frozen=True)
class Choice:
    """A decision of a run.

    Args:
        name: what was decided, such as `epochs`.
        value: the result, as the table shows it.
        reason: why, in a few words.
        option: what sets another value, such as `--epochs`; empty if nothing does.
    """

    name: str
    value: Any
    reason: str
    option: str = ""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """About what a run takes on this machine.

    Args:
        seconds: of training, and of scoring dev in each epoch.
        memory_bytes: of the process.
        written_bytes: at most at one time: the model folder, and the checkpoints until
            the run ends.
    """

    seconds: float
    memory_bytes: int
    written_bytes: int

    def line(self) -> str:
        """Return the estimate as a line of text."""
        time = duration(max(self.seconds, 1))
        return (
            f"about {time} of training, {size(self.memory_bytes)} of memory, up to "
            f"{size(self.written_bytes)} on disk"
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Decided:
    """What was decided for a run before it trains.

    Args:
        choices: in the order of the table.
        notes: what the user has to know besides.
        estimate: about what the run takes, if it was asked for.
    """

    choices: tuple[Choice, ...]
    notes: tuple[str, ...] = ()
    estimate: Estimate | None = None

    def table(self) -> list[dict[str, str]]:
        """Return the choices as rows of a table, for terminal, report and card."""
        return [
            {name: str(value) for name, value in dataclasses.asdict(each).items()}
            for each in self.choices
        ]


def size(count: int) -> str:
    """Return bytes as rounded text: `90 MB`, `1.4 GB`."""
    megabytes = count / 1e6
    return f"{megabytes:,.0f} MB" if megabytes < 1000 else f"{megabytes / 1000:,.1f} GB"


class ComparedLayers(NamedTuple):
    """Whether lower layers tell a linear head much more than the last one alone.

    Attributes:
        lower_help: whether they do.
        vectors: of all layers of the training rows, float32 [N, D]; `None`: there were
            too few rows to compare heads.
        max_length: of the texts, in tokens.
    """

    lower_help: bool
    vectors: np.ndarray | None
    max_length: int


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the decisions of a run are made from.

    Args:
        task: as named or given, before the rows are known to it.
        settings: of the task, from the user; `None`: a given task is kept as it is.
        rows: all training rows, before some are held out.
        config: as given.
        encoder: where the encoder is.
        folder: what is there.
        has_dev: whether dev rows are given.
        has_unlabeled: whether rows without labels are given.
        is_compared, tries_methods: as in `TrainRequest`.
        one_replica: whether the strategy has a single one, and not on a TPU.
        is_fixed: whether all batches have one shape, as on a TPU.
    """

    task: type[Task] | Task
    settings: Mapping[str, Any] | None
    rows: Columns
    config: TrainConfig
    encoder: str | os.PathLike[str]
    folder: Folder
    has_dev: bool = False
    has_unlabeled: bool = False
    is_compared: bool = False
    tries_methods: bool = False
    one_replica: bool = True
    is_fixed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the method is not the user's choice."""
        return self.config.method == AUTO or self.tries_methods

    @property
    def given(self) -> Mapping[str, Any]:
        """The settings of the task that the user chose."""
        return self.settings or {}
