"""The words that options may take, and the checks of their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bert_keras.errors import ConfigError

# The words that options may take.
TRUNCATIONS = ("longest_first", "round_robin", "only_first", "only_second")
LAYOUTS = ("packed", "padded")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
STRATEGIES = ("auto", "single", "mirrored", "multi-worker", "tpu")
OPTIMIZERS = ("adamw", "lamb")
ON_NONFINITE = ("stop", "skip")
RESUME = ("auto", "never")
# What a search tries: that of the paper's appendix A.3.
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "paper": {
        "batch_size": (16, 32),
        "learning_rate": (5e-5, 3e-5, 2e-5),
        "epochs": (2, 3, 4),
    }
}
UNITS = ("piece", "word", "ngram")
NEXT_SENTENCE = ("next", "order", "none")
MASKING = ("static", "dynamic")
OBJECTIVES = ("masked", "causal")


def check_whole_number(name: str, value: Any, *, least: int) -> None:
    """Raise ConfigError unless a setting is an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(
            f"`{name}` must be a whole number of at least {least}; received {value!r}"
        )


def check_number(name: str, value: Any) -> None:
    """Raise ConfigError unless a setting is a number, as JSON has them."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"`{name}` must be a number; received {value!r}")


def check_share(name: str, value: Any, *, above_zero: bool = False) -> None:
    """Raise ConfigError unless a setting is a number from 0, or above it, to 1."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0 <= value <= 1 or (above_zero and not value):
        lowest = "above 0" if above_zero else "from 0"
        raise ConfigError(f"`{name}` must be {lowest} to 1; received {value!r}")


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise ConfigError unless a setting is one of those that are allowed."""
    choices = tuple(allowed)
    if value not in choices:
        shown = ", ".join(str(choice) for choice in choices if choice is not None)
        raise ConfigError(f"`{name}` must be one of {shown}; received {value!r}")


def check_mask_shares(mask_share: Any, random_share: Any) -> None:
    """Raise ConfigError unless both are shares and at most 1 together."""
    check_share("mask_share", mask_share)
    check_share("random_share", random_share)
    if mask_share + random_share > 1 + 1e-9:
        raise ConfigError(
            "`mask_share` and `random_share` must be 1 at most together; "
            f"received {mask_share} and {random_share}"
        )
