"""What the words of a command line must be, and options that are fields of a config."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def positive(text: str) -> int:
    """Return a whole number above 0; argparse turns the error into its one line."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number < 2**31:
        rule = "below 2^31" if number > 1 else "of at least 1"
        raise argparse.ArgumentTypeError(
            f"must be a whole number {rule}; received {text[:60]}"
        )
    return number


def path(text: str) -> str:
    """Return a path that is not empty: Python takes that as the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("must be a path; received ''")
    return text


def field_adder(parser: argparse.ArgumentParser, defaults: Any) -> Callable[..., None]:
    """Return a function that adds a field of a config as an option.

    It takes the field's name, the help, and further arguments of `add_argument`. An
    option that is not given is left out, so the field keeps its default.
    """

    def add(name: str, help: str, **kwargs: Any) -> None:
        default = getattr(defaults, name.replace("-", "_"))
        if "action" not in kwargs and default is not None:
            help += f"; default: {default}"
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, default=argparse.SUPPRESS, help=help, **kwargs)

    return add
