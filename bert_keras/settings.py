"""What settings must be: each check raises the one line that names the setting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bert_keras.errors import ConfigError


def check_whole_number(
    name: str, value: Any, *, least: int, most: int | None = None
) -> None:
    """Raise ConfigError unless a setting is an integer from `least` to `most`."""
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not fits or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigError(
            f"`{name}` must be a whole number {limits}; received {shown(value)}"
        )


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
        raise ConfigError(f"`{name}` must be a number{limits}; received {shown(value)}")


def shown(value: Any) -> str:
    """Return a value for an error message, a long one cut."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return f"a whole number of {value.bit_length()} bits"
    return text if len(text) <= 80 else f"{text[:80]}…"


def check_share(name: str, value: Any, *, above_zero: bool = False) -> None:
    """Raise ConfigError unless a setting is a number from 0, or above it, to 1."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0 <= value <= 1 or (above_zero and not value):
        lowest = "above 0" if above_zero else "from 0"
        raise ConfigError(f"`{name}` must be {lowest} to 1; received {shown(value)}")


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise ConfigError unless a setting is one of those that are allowed."""
    choices = tuple(allowed)
    if value not in choices:
        words = ", ".join(str(choice) for choice in choices if choice is not None)
        raise ConfigError(f"`{name}` must be one of {words}; received {shown(value)}")


def check_mask_shares(mask_share: Any, random_share: Any) -> None:
    """Raise ConfigError unless both are shares and at most 1 together."""
    check_share("mask_share", mask_share)
    check_share("random_share", random_share)
    if mask_share + random_share > 1 + 1e-9:
        raise ConfigError(
            "`mask_share` and `random_share` must be 1 at most together; "
            f"received {mask_share} and {random_share}"
        )
