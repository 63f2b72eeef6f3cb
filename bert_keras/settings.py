"""The words that options may take, and the checks of their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bert_keras.errors import ConfigError, received

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

LARGEST = 2**63 - 1  # of an int64, in which counts and seeds end up


def is_whole_number(value: Any, least: int, most: int = LARGEST) -> bool:
    """Say whether a value is an integer of a range, and no boolean."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and least <= value <= most


def check_whole_number(
    name: str, value: Any, *, least: int, most: int = LARGEST
) -> None:
    """Raise ConfigError unless a setting is an integer from `least` to `most`."""
    if is_whole_number(value, least, most):
        return
    limits = f"from {least} to {most}"
    if most == LARGEST:
        too_large = isinstance(value, int) and value > most
        limits = f"of at most {most}" if too_large else f"of at least {least}"
    raise ConfigError(f"`{name}` must be a whole number {limits}; {received(value)}")


def check_number(
    name: str, value: Any, *, least: float | None = None, most: float | None = None
) -> None:
    """Raise ConfigError unless a setting is a number, as JSON has them.

    Args:
        name: the setting.
        value: its value.
        least, most: both or none; where they are given it is finite, too.
    """
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if fits and least is not None and most is not None:
        fits = least <= value <= most  # NaN is not
    if not fits:
        limits = "" if least is None else f" from {least:g} to {most:g}"
        raise ConfigError(f"`{name}` must be a number{limits}; {received(value)}")


def check_share(name: str, value: Any, *, above_zero: bool = False) -> None:
    """Raise ConfigError unless a setting is a number from 0, or above it, to 1."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0 <= value <= 1 or (above_zero and not value):
        lowest = "above 0" if above_zero else "from 0"
        raise ConfigError(f"`{name}` must be {lowest} to 1; {received(value)}")


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise ConfigError unless a setting is one of those that are allowed."""
    choices = tuple(allowed)
    if value not in choices:
        words = ", ".join(str(choice) for choice in choices if choice is not None)
        raise ConfigError(f"`{name}` must be one of {words}; {received(value)}")


def check_mask_shares(mask_share: Any, random_share: Any) -> None:
    """Raise ConfigError unless both are shares and at most 1 together."""
    check_share("mask_share", mask_share)
    check_share("random_share", random_share)
    if mask_share + random_share > 1 + 1e-9:
        raise ConfigError(
            "`mask_share` and `random_share` must be 1 at most together; "
            f"received {mask_share} and {random_share}"
        )
