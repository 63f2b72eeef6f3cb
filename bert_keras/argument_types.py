"""What the words of a command line must be: argparse calls these."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Return a whole number above 0; argparse turns the error into its one line."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least 1; received {text}"
        )
    return number
