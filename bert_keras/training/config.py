"""How a model is fine-tuned: `TrainConfig`; imports nothing heavy.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from bert_keras.errors import ConfigError
from bert_keras.settings import (
    LAYOUTS,
    ON_NONFINITE,
    OPTIMIZERS,
    PRECISIONS,
    STRATEGIES,
    TRUNCATIONS,
    check_whole_number,
)

_MOST = 2**31 - 1  # of an int32, in which steps and lengths are counted
_FEW_ROWS, _SMALL_BATCH, _BATCH = 1000, 16, 32
_LEAST_UPDATES, _LEAST_EPOCHS, _MOST_EPOCHS, _PATIENCE = 300, 3, 20, 3


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How a model is fine-tuned; the defaults are those of the paper.

    Of few rows the paper's 3 epochs are too few: see `chosen_epochs`.

    Args:
        epochs: passes over the training data. `None` chooses by the number of rows, see
            `chosen_epochs`, and ends sooner where dev no longer improves.
        patience: training ends after so many epochs without an improvement on dev, in
            the score of the task or in the loss, but not in the first half of them; 0:
            never. `None` is 3 where `epochs` is `None`, else 0.
        batch_size: texts (or pairs) of an update. `None` is 16 for fewer than 1,000
            training rows, so that few rows make enough updates, and else 32; 32, too,
            where the loss compares the rows of a batch.
        accumulation: so many parts an update's rows come in, one after the other, to
            save memory; the result is that of one large batch.
        optimizer: `adamw` or `lamb` (for batches of many thousand rows).
        learning_rate: highest rate; `None`: that of the task, 5e-5 for most.
        warmup_share: share of the updates during which the rate rises from 0.
        weight_decay: decoupled weight decay; not on LayerNorm and biases.
        global_clipnorm: largest norm of all gradients together.
        max_length: most tokens of a text or pair, specials included; longer ones are
            truncated. `None` is what the task needs, mostly 128.
        truncation: how a pair is cut, see `packing.truncate_pair`.
        layout: `packed` puts several texts in a row, `padded` one.
        dev_share: share of the training rows that is set aside where no dev data is
            given.
        seed: of the order, the dropout and the head; same seed, same weights.
        precision: `float32`, `mixed_bfloat16` or `mixed_float16`.
        strategy: the devices: `single`, `mirrored` (all GPUs of this machine),
            `multi-worker` (the machines of `TF_CONFIG` or of a Slurm step), `tpu`, or
            `auto`: what is there. The result does not follow from it, but for `tpu`:
            there rows have the length `max_length`, and rows that do not fill a batch
            are left out of an epoch, others in each.
        rematerialize: recompute blocks in the backward pass to save memory.
        freeze_layers: so many lower blocks, with the embeddings, stay as they are, to
            save memory; 0 is none.
        lora_rank: above 0 the encoder's blocks learn by matrices of this rank alone
            (LoRA); the model folder holds plain weights.
        save_every: updates between checkpoints; each epoch ends with one, too.
        keep: newest checkpoints that are kept until the run is over.
        on_nonfinite: `stop` ends a run whose loss or gradients are not finite and says
            which rows it was at; `skip` passes over that update.
        restarts: so many times a run that has learned nothing (see `divergence`) is
            begun again with another seed.
        tensorboard: folder for TensorBoard's curves, or `None`.

    Raises:
        ConfigError: a value is out of its range.
    """

    epochs: int | None = None
    patience: int | None = None
    batch_size: int | None = None
    accumulation: int = 1
    optimizer: str = "adamw"
    learning_rate: float | None = None
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    global_clipnorm: float = 1.0
    max_length: int | None = None
    truncation: str = "longest_first"
    layout: str = "packed"
    dev_share: float = 0.1
    seed: int = 42
    precision: str = "float32"
    strategy: str = "auto"
    rematerialize: bool = False
    freeze_layers: int = 0
    lora_rank: int = 0
    save_every: int = 500
    keep: int = 2
    on_nonfinite: str = "stop"
    restarts: int = 0
    tensorboard: str | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_type(field.name, field.type, getattr(self, field.name))
        least = {"freeze_layers": 0, "lora_rank": 0, "restarts": 0, "patience": 0}
        counts = ("epochs", "batch_size", "accumulation", "save_every", "keep")
        for name in (*counts, *least):
            value = getattr(self, name)
            if value is not None:
                check_whole_number(name, value, least=least.get(name, 1), most=_MOST)
        if self.max_length is not None:
            check_whole_number("max_length", self.max_length, least=3, most=_MOST)
        if self.batch_size is not None and self.batch_size % self.accumulation:
            raise ConfigError(
                "`accumulation` must divide `batch_size`; received "
                f"{self.accumulation} and {self.batch_size}"
            )
        for name in ("learning_rate", "global_clipnorm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"`{name}` must be above 0; received {value}")
        for name in ("warmup_share", "dev_share", "weight_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"`{name}` must be in [0, 1); received {getattr(self, name)}"
                )
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"`seed` must be from 0 to 2^31; received {self.seed}")
        choices = {
            "truncation": TRUNCATIONS,
            "layout": LAYOUTS,
            "precision": PRECISIONS,
            "strategy": STRATEGIES,
            "optimizer": OPTIMIZERS,
            "on_nonfinite": ON_NONFINITE,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"`{name}` must be one of {', '.join(allowed)}; "
                    f"received {getattr(self, name)!r}"
                )

    def settled(self, task: Any, rows: int) -> TrainConfig:
        """Return the config with a number for what is `None` and can be chosen.

        Args:
            task: has `learning_rate` and `compares`.
            rows: number of training rows.
        """
        batch_size, epochs = self.batch_size, self.epochs
        learning_rate, patience = self.learning_rate, self.patience
        if batch_size is None:
            is_small = rows < _FEW_ROWS and not task.compares
            batch_size = _SMALL_BATCH if is_small else _BATCH
        if patience is None:
            patience = _PATIENCE if epochs is None else 0
        return dataclasses.replace(
            self,
            batch_size=batch_size,
            epochs=chosen_epochs(rows, batch_size) if epochs is None else epochs,
            learning_rate=(
                task.learning_rate if learning_rate is None else learning_rate
            ),
            patience=patience,
        )


def chosen_epochs(rows: int, batch_size: int) -> int:
    """Return how many epochs a set of training rows needs, by default.

    As many as make 300 updates, at least the paper's 3 and at most 20, which Mosbach et
    al. 2021 (arXiv:2006.04884) recommend for small sets.
    """
    steps = math.ceil(rows / batch_size)
    return min(max(math.ceil(_LEAST_UPDATES / steps), _LEAST_EPOCHS), _MOST_EPOCHS)


def _check_type(name: str, kind: object, value: object) -> None:
    """Raise unless `value` has the field's type."""
    words = {
        "int": ("a whole number", int),
        "float": ("a number", int | float),
        "bool": ("true or false", bool),
        "str": ("a string", str),
        "str | None": ("a string", str | None),
        "int | None": ("a whole number", int | None),
        "float | None": ("a number", int | float | None),
    }
    word, type_ = words[str(kind)]
    if not isinstance(value, type_) or isinstance(value, bool) != (kind == "bool"):
        raise ConfigError(f"`{name}` must be {word}; received {value!r}")
