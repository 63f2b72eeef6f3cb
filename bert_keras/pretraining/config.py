"""How a model is pretrained: `PretrainConfig`; imports nothing heavy.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.2; You et al. 2019
(arXiv:1904.00962) for LAMB.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from bert_keras.errors import ConfigError
from bert_keras.settings import (
    LAYOUTS,
    OBJECTIVES,
    ON_NONFINITE,
    PRECISIONS,
    STRATEGIES,
    UNITS,
    check_choice,
    check_mask_shares,
    check_share,
    check_whole_number,
)

OPTIMIZERS = ("adamw", "lamb")
# Of two data sets, rows of 128 and then of 512 tokens, as in the paper.
PHASE_SHARES: dict[int, tuple[float, ...]] = {1: (1.0,), 2: (0.9, 0.1)}


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    """How a model is pretrained; the defaults are the paper's recipe.

    Args:
        steps: updates of the weights, of all phases together.
        phase_shares: share of the steps that each data set gets, in their order; `None`
            is 1 for one data set and 0.9 and 0.1 for two.
        batch_size: examples of an update.
        accumulation: so many parts an update's examples come in, one after the other,
            to save memory; the result is that of one large batch.
        optimizer: `adamw` or `lamb` (for batches of many thousand examples).
        learning_rate: highest rate.
        warmup_share: share of the steps during which the rate rises from 0.
        weight_decay: decoupled weight decay; not on LayerNorm and biases.
        global_clipnorm: largest norm of all gradients together.
        objective: `masked`, or `causal`: left to right, each token predicts the next.
        next_sentence: `auto` trains the next-sentence head where the data has pairs and
            the objective is `masked`, `none` leaves it out.
        mask_rate, mask_share, random_share, mask_unit: how tokens are hidden, see
            `masking.Masking`; `None` is what the data was made for. Others than that
            need data without masks (`dynamic`).
        layout: `packed` puts several examples in a row, `padded` one.
        seed: of weights, order, masks and dropout; same seed, same weights.
        precision: `float32`, `mixed_bfloat16` or `mixed_float16`.
        strategy: the devices: `single`, `mirrored` (all GPUs of this machine),
            `multi-worker` (the machines of `TF_CONFIG` or of a Slurm step), `tpu`, or
            `auto`: what is there. The result does not follow from it.
        rematerialize: recompute blocks in the backward pass to save memory.
        save_every: steps between checkpoints; one is written at the end in any case.
        keep: newest checkpoints that are kept.
        evaluate_every: steps between scores on held-out data.
        held_out_examples: most examples of the held-out data that are scored, rounded
            up to a multiple of 32. They are masked as that data was made for.
        on_nonfinite: `stop` ends a run whose loss or gradients are not finite and says
            which records it was at; `skip` passes over that update.

    Raises:
        ConfigError: a value is out of its range.

    Example:
        >>> PretrainConfig(steps=1000).steps_of(2)
        (900, 100)
    """

    steps: int = 1_000_000
    phase_shares: tuple[float, ...] | None = None
    batch_size: int = 256
    accumulation: int = 1
    optimizer: str = "adamw"
    learning_rate: float = 1e-4
    warmup_share: float = 0.01
    weight_decay: float = 0.01
    global_clipnorm: float = 1.0
    objective: str = "masked"
    next_sentence: str = "auto"
    mask_rate: float | None = None
    mask_share: float | None = None
    random_share: float | None = None
    mask_unit: str | None = None
    layout: str = "packed"
    seed: int = 42
    precision: str = "float32"
    strategy: str = "auto"
    rematerialize: bool = False
    save_every: int = 1_000
    keep: int = 2
    evaluate_every: int = 1_000
    held_out_examples: int = 2_000
    on_nonfinite: str = "stop"

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "batch_size",
            "accumulation",
            "save_every",
            "keep",
            "evaluate_every",
            "held_out_examples",
        ):
            check_whole_number(name, getattr(self, name), least=1)
        check_whole_number("seed", self.seed, least=0)
        for name in ("learning_rate", "global_clipnorm"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigError(f"`{name}` must be above 0; received {value!r}")
        for name in ("warmup_share", "weight_decay"):
            check_share(name, getattr(self, name))
        for name, value in self.masking_changes().items():
            if name != "mask_unit":
                check_share(name, value, above_zero=name == "mask_rate")
        if self.mask_share is not None and self.random_share is not None:
            check_mask_shares(self.mask_share, self.random_share)
        if self.batch_size % self.accumulation:
            raise ConfigError(
                "`accumulation` must divide `batch_size`; received "
                f"{self.accumulation} and {self.batch_size}"
            )
        choices = {
            "optimizer": OPTIMIZERS,
            "objective": OBJECTIVES,
            "next_sentence": ("auto", "none"),
            "mask_unit": (None, *UNITS),
            "layout": LAYOUTS,
            "precision": PRECISIONS,
            "strategy": STRATEGIES,
            "on_nonfinite": ON_NONFINITE,
        }
        for name, allowed in choices.items():
            check_choice(name, getattr(self, name), allowed)
        if self.phase_shares is not None:
            if not isinstance(self.phase_shares, tuple):
                raise ConfigError(
                    f"`phase_shares` must be a tuple; received {self.phase_shares!r}"
                )
            for share in self.phase_shares:
                check_share("phase_shares", share, above_zero=True)
            if not math.isclose(sum(self.phase_shares), 1.0, abs_tol=1e-6):
                raise ConfigError(
                    f"`phase_shares` must be 1 together; received {self.phase_shares}"
                )

    def masking_changes(self) -> dict[str, Any]:
        """Return what differs from the masking that the data was made for."""
        names = ("mask_rate", "mask_share", "random_share", "mask_unit")
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def steps_of(self, phases: int) -> tuple[int, ...]:
        """Return the number of steps of each phase; their sum is `steps`.

        Raises:
            ConfigError: `phase_shares` are of another number of data sets, or leave one
                without a step.
        """
        shares = self.phase_shares or PHASE_SHARES.get(phases, ())
        if len(shares) != phases:
            raise ConfigError(
                f"`phase_shares` must hold a share for each data set; received "
                f"{len(shares)} for {phases}"
            )
        ends = [round(self.steps * sum(shares[:n])) for n in range(1, phases)]
        edges = [0, *ends, self.steps]
        found = tuple(b - a for a, b in zip(edges, edges[1:], strict=False))
        if min(found) < 1:
            raise ConfigError(
                f"`steps` must leave one for each data set; received {self.steps} "
                f"for {phases}"
            )
        return found
