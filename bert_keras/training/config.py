"""The settings of fine-tuning: `TrainConfig`; imports nothing heavy.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bert_keras import settings
from bert_keras.errors import ConfigError, received
from bert_keras.settings import check_options, option, with_options_documented

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task

# Of a report's explanations, at most: seconds, and the share of the run so far.
EXPLAIN_SECONDS, EXPLAIN_SHARE = 10.0, 1 / 6
# Why an option has no effect with a method, see `Option.unused_by`.
_OF_UPDATES = {"linear": "which makes no updates"}
_OF_EPOCHS = {
    **_OF_UPDATES,
    "contrastive": "which trains on batches of pairs and then fits the head",
}
# Options without effect where there is no teacher.
DISTILLATION = (
    *("teacher", "student", "distill", "temperature", "distill_weight"),
    "augment",
)
FEW_ROWS = 1000
_SMALL_BATCH, _BATCH = 16, 32
_VALIDATION_SPLIT = 0.1
_TIMES_FOR_LORA = 20
_LEAST_UPDATES, _MOST_EPOCHS, _LEAST_PATIENCE = 500, 20, 3


@with_options_documented
@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The settings of fine-tuning, with the paper's defaults.

    The paper's 3 epochs are too few for small training sets, see `chosen_epochs`.

    Raises:
        ConfigError: a value is not allowed.
    """

    method: str = option(
        "auto",
        "auto chooses, by task, rows and encoder, and says why; finetune trains all "
        "weights; linear fits the head on vectors that the encoder computes once: in "
        "seconds, for classification, multi-label and regression with few rows; "
        "contrastive first trains the encoder on pairs of rows within and across "
        "classes: in a minute, for classification and multi-label with few rows",
        words=settings.METHODS,
    )
    opens_in: str | None = option(
        None,
        "transformers: train a head on BERT's pooler, by the method finetune, so that "
        "`AutoModelForSequenceClassification` opens the model of classification, "
        "multi-label, regression or reranking",
        words=("transformers",),
        unset="the method chooses what the head reads; sentence-transformers opens a "
        "head on pooled tokens of the last layer",
    )
    linear_probe: bool = option(
        False,
        "first fit the head on the vectors of the encoder before training, then "
        "finetune, for tasks with a linear head; needs fewer epochs and a lower "
        "learning rate. `train` does so by itself for long texts that it reads in "
        "windows",
        unused_by=_OF_EPOCHS,
    )
    epochs: int | None = option(
        None,
        "passes over the training rows",
        unit="n",
        least=1,
        unset="enough for 500 updates (4 to 20 epochs), fewer if dev stops improving",
        unused_by=_OF_EPOCHS,
    )
    patience: int | None = option(
        None,
        "stop after this many epochs without an improvement on dev, but not in the "
        "first half of training; 0: never stop early",
        unit="epochs",
        least=0,
        unset="half of the epochs, at least 3; 0 if the number of epochs is given",
        unused_by=_OF_EPOCHS,
    )
    batch_size: int | None = option(
        None,
        "training rows per update",
        unit="rows",
        least=1,
        unset="32, or 16 with fewer than 1,000 training rows (not for a loss that "
        "compares the rows of a batch)",
        unused_by=_OF_EPOCHS,
    )
    accumulation: int = settings.ACCUMULATION.field(unused_by=_OF_EPOCHS)
    optimizer: str = settings.OPTIMIZER.field(unused_by=_OF_UPDATES)
    learning_rate: float | None = option(
        None,
        "peak learning rate",
        unit="rate",
        above=0,
        unset="5e-05 * 768 / hidden size, at most 3e-04; for feature-tagging 1e-03; "
        "ten times as much for a student of vectors, three tenths for vectors of "
        "tokens",
        unused_by=_OF_UPDATES,
    )
    new_learning_rate: float | None = option(
        None,
        "peak learning rate of the weights that are initialized randomly: the head, or "
        "a decoder and its cross-attention",
        unit="rate",
        above=0,
        unset="the rate of the other weights",
        unused_by=_OF_EPOCHS,
    )
    dropout: float | None = settings.DROPOUT.field(
        unset="the encoder's own; for a student of vectors, 0", unused_by=_OF_UPDATES
    )
    warmup_ratio: float = option(
        0.1,
        "share of the updates during which the learning rate rises from 0",
        unit="share",
        least=0,
        below=1,
        unused_by=_OF_UPDATES,
    )
    weight_decay: float = settings.WEIGHT_DECAY.field(unused_by=_OF_UPDATES)
    global_clipnorm: float = settings.GLOBAL_CLIPNORM.field(unused_by=_OF_UPDATES)
    max_length: int | None = option(
        None,
        "longest input in tokens, special tokens included; longer ones are truncated, "
        "or read in windows",
        unit="tokens",
        least=3,
        unset="the longest training text, from 128 (for abstractive-summarization 512) "
        "up to the encoder's limit and 8 times the computation; windows: 128, for "
        "question-answering 384, for summarization 512",
    )
    add_tokens: tuple[str, ...] | None = settings.ADD_TOKENS.field()
    truncation: str = option(
        "longest_first",
        "how pairs that are too long are truncated",
        words=settings.TRUNCATIONS,
    )
    layout: str = settings.LAYOUT.field()
    validation_split: float | None = option(
        None,
        "share of the training rows held out for validation, each class in proportion, "
        "if no dev data is given; 0: none, and the model of the last epoch is kept",
        unit="share",
        least=0,
        below=1,
        unset="0.1; 0 with the methods linear and contrastive, which are scored by "
        "cross-validation, and for fewer than 1,000 rows of texts if that would give "
        "dev fewer than 5 rows of a class",
    )
    seed: int = settings.SEED.field(most=settings.INT32)
    precision: str = settings.PRECISION.field()
    strategy: str = settings.STRATEGY.field()
    rematerialize: bool = settings.REMATERIALIZE.field(unused_by=_OF_UPDATES)
    freeze_layers: int = option(
        0,
        "number of lower blocks to freeze, together with the embeddings, to save "
        "memory; 0: none",
        unit="blocks",
        least=0,
        unused_by=_OF_UPDATES,
    )
    lora_rank: int = option(
        0,
        "above 0: train low-rank matrices of this rank instead of the encoder's "
        "weights (LoRA), by default at 20 times the learning rate; the model folder "
        "holds merged weights",
        unit="rank",
        least=0,
        unused_by=_OF_UPDATES,
    )
    checkpoint_every: str | int = settings.CHECKPOINT_EVERY.field()
    keep: int = settings.KEEP.field()
    on_nonfinite: str = settings.ON_NONFINITE.field()
    restarts: int = option(
        0,
        "maximum number of times that a diverged run is restarted with another seed",
        unit="times",
        least=0,
        unused_by=_OF_EPOCHS,
    )
    keep_layers: str | tuple[int, ...] | None = settings.KEEP_LAYERS.field()
    teacher: str | None = option(
        None,
        "a trained model of the same task, or for embedding one that scores pairs, "
        "whose answers are learned together with the labels: a model folder, with any "
        "vocabulary, or an export. Without --encoder, the student starts with the "
        "teacher's layers --keep-layers, and its head",
        unit="path_or_name",
        unset="none",
        unused_by=_OF_EPOCHS,
    )
    student: str | None = option(
        None,
        "with a teacher and without an encoder: a new encoder of layers/hidden/heads "
        "such as 3/192/3, with random weights and the teacher's vocabulary",
        unit="sizes",
        pattern=r"[0-9]+/[0-9]+/[0-9]+",
        form="layers/hidden/heads such as 3/192/3",
        unset="none",
        unused_by=_OF_EPOCHS,
    )
    distill: str = settings.DISTILL.field(unused_by=_OF_EPOCHS)
    temperature: float = settings.DISTILL_TEMPERATURE.field(unused_by=_OF_EPOCHS)
    distill_weight: float = settings.DISTILL_WEIGHT.field(unused_by=_OF_EPOCHS)
    augment: int = option(
        0,
        "with a teacher, for tasks of whole texts: number of variants of each training "
        "row, with words left out or replaced, that the teacher also answers; 0: none",
        unit="n",
        least=0,
        unused_by=_OF_EPOCHS,
    )
    explain_mistakes: int = option(
        5,
        "number of the most confident mistakes whose words the report explains, within "
        "10 seconds and a sixth of the time of training; 0: none",
        unit="n",
        least=0,
    )
    card: bool = settings.CARD.field()
    track: str | None = option(
        None,
        "send curves, settings, scores and the report to a tracker: tensorboard "
        "(a folder), mlflow (MLFLOW_TRACKING_URI) or wandb (WANDB_PROJECT)",
        words=settings.TRACKERS,
        unset="none",
    )
    tensorboard: str | None = option(
        None,
        "folder for TensorBoard",
        unit="dir",
        unset="none; with --track tensorboard, NAME.tensorboard next to the model NAME",
    )

    def __post_init__(self) -> None:
        check_options_of_run(self)
        self._check_distillation()
        if self.batch_size is not None:
            settings.check_accumulation(self.batch_size, self.accumulation)

    def _check_distillation(self) -> None:
        """Raise ConfigError for options of a student that have no effect."""
        if self.student is not None and self.keep_layers is not None:
            raise ConfigError(
                "`student` is a new encoder, which keeps no layers; received "
                f"{self.student} and `keep_layers` {self.keep_layers}"
            )
        if self.teacher is not None and self.restarts:
            raise ConfigError(
                "`restarts` must be 0 with `teacher`: with its answers in the loss, a "
                f"diverged run is not recognized; received {self.restarts}"
            )

    def with_split(self) -> TrainConfig:
        """Return the config with a number for `validation_split`."""
        if self.validation_split is not None:
            return self
        is_validated = self.method in ("linear", "contrastive")  # by cross-validation
        split = 0.0 if is_validated else _VALIDATION_SPLIT
        return dataclasses.replace(self, validation_split=split)

    def finalized(
        self, task: Task, rows: int, hidden_size: int | None = None
    ) -> TrainConfig:
        """Return the config with numbers in place of `None` where one can be derived.

        Without the encoder's `hidden_size` the learning rate may stay `None`.
        """
        batch_size, epochs, patience = self.batch_size, self.epochs, self.patience
        if batch_size is None:
            is_small = rows < FEW_ROWS and not task.compares
            batch_size = _SMALL_BATCH if is_small else _BATCH
        if epochs is None:
            epochs = chosen_epochs(rows, batch_size, task.needs.least_epochs)
        if patience is None:
            half = max(math.ceil(epochs / 2), _LEAST_PATIENCE)
            patience = half if self.epochs is None else 0
        config = dataclasses.replace(
            self, batch_size=batch_size, epochs=epochs, patience=patience
        )
        if hidden_size is None:
            return config
        updates = epochs * math.ceil(rows / batch_size)
        few = updates < _LEAST_UPDATES and not self.lora_rank
        config = config.with_rate(task, hidden_size, few_updates=few)
        if config.dropout is None:
            return dataclasses.replace(config, dropout=task.needs.dropout)
        return config

    def with_rate(
        self,
        task: Task,
        hidden_size: int,
        *,
        few_updates: bool = False,
        share: float = 1.0,
    ) -> TrainConfig:
        """Return the config with a learning rate, if it has none.

        With LoRA, the encoder's weights that are trained, the matrices and the pooler,
        get a higher rate than new weights: at the rate of a whole encoder the matrices
        learn little (docs/reference/training.md). A task with a pretrained decoder has
        one rate.

        Args:
            task, hidden_size, few_updates: as in `default_learning_rate`.
            share: of the rate by default.
        """
        from bert_keras.tasks.base import default_learning_rate
        from bert_keras.tasks.protocols import Writing

        if self.learning_rate is not None:
            return self
        rate = share * default_learning_rate(task, hidden_size, few_updates=few_updates)
        if not self.lora_rank or isinstance(task, Writing):
            return dataclasses.replace(self, learning_rate=rate)
        rate /= task.needs.rate_times
        return dataclasses.replace(
            self,
            learning_rate=_TIMES_FOR_LORA * rate,
            new_learning_rate=self.new_learning_rate or rate,
        )


def unused_by(method: str) -> dict[str, str]:
    """Return the options without effect with a method, each with the reason."""
    declared = settings.options_of(TrainConfig)
    return {
        name: each.unused_by[method]
        for name, each in declared.items()
        if method in each.unused_by
    }


def given_options(config: TrainConfig, names: Iterable[str]) -> list[str]:
    """Return which of some options do not have their default."""
    declared = settings.options_of(TrainConfig)
    return [name for name in names if getattr(config, name) != declared[name].default]


def check_options_of_run(config: Any) -> None:
    """Check the options of a `TrainConfig` or `PretrainConfig` by their declarations.

    A teacher's path and the numbers of kept layers become strings.

    Raises:
        ConfigError: an option is wrong, or one of a student lacks a teacher.
    """
    if isinstance(config.teacher, os.PathLike):
        object.__setattr__(config, "teacher", os.fspath(config.teacher))
    check_options(config)
    if config.keep_layers is not None:
        kept = ",".join(map(str, settings.layer_numbers(config.keep_layers)))
        object.__setattr__(config, "keep_layers", kept)
    declared = settings.options_of(type(config))
    for name in [name for name in DISTILLATION if name in declared]:
        value = getattr(config, name)
        if config.teacher is None and value != declared[name].default:
            raise ConfigError(f"`{name}` needs `teacher`; {received(value)}")


def unused_options(config: Any) -> tuple[str, ...]:
    """Return the options of students that a run leaves at their defaults."""
    # The settings of a run lack these at their defaults.
    new = {"distill": "soft", "augment": 0}
    known = tuple(
        name for name, default in new.items() if getattr(config, name, 0) == default
    )
    unused = known if config.teacher is not None else DISTILLATION
    return unused if config.keep_layers is not None else (*unused, "keep_layers")


def chosen_epochs(rows: int, batch_size: int, least: int) -> int:
    """Return the default number of epochs for a number of training rows.

    Enough for 500 updates; at least the task's own number; at most 20, which
    Mosbach et al. 2021 (arXiv:2006.04884) recommend for small sets.
    """
    steps = math.ceil(rows / batch_size)
    return min(max(math.ceil(_LEAST_UPDATES / steps), least), _MOST_EPOCHS)
