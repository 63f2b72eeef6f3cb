"""Arguments that several verbs share: columns, batches, settings of a task."""

from __future__ import annotations

import argparse

from bert_keras.cli.argument_types import positive
from bert_keras.data.column_names import HEADER
from bert_keras.errors import ConfigError
from bert_keras.settings import PRECISIONS

MODEL = "model folder or hf://owner/name"
ASKED = f"{MODEL}, or a SavedModel of export"
ROWS = "TSV, CSV or JSONL"
_ROLES = ("text", "text_pair", "label")  # those with an option of their own
_WHERE = "name, or number from 0, of the column"


def add_columns(parser: argparse.ArgumentParser, *, label: bool = True) -> None:
    """Add the columns of the texts and of other roles."""
    add = parser.add_argument
    add_text_column(parser)
    add(
        "--text-pair",
        metavar="COLUMN",
        help=f"{_WHERE} of the second text; default: text_pair, if there is one",
    )
    if label:
        add("--label", metavar="COLUMN", help=f"{_WHERE} of the class; default: label")
    add(
        "--column",
        action="append",
        default=[],
        metavar="ROLE=COLUMN",
        help="the column of another role of the task; may be repeated",
    )
    add_header(parser)


def chosen_columns(options: argparse.Namespace) -> dict[str, str]:
    """Return the columns that the user chose, by role.

    Raises:
        ConfigError: a `--column` is not ROLE=COLUMN.
    """
    chosen = {role: getattr(options, role, None) for role in _ROLES}
    found = {role: column for role, column in chosen.items() if column is not None}
    for given in options.column:
        role, equals, column = given.partition("=")
        if not role or not equals or not column:
            raise ConfigError(f"`--column` must be ROLE=COLUMN; received {given!r}")
        found[role] = column
    return found


def add_text_column(
    parser: argparse.ArgumentParser, *, default: str | None = None
) -> None:
    """Add the column of the text."""
    parser.add_argument(
        "--text",
        metavar="COLUMN",
        default=default,
        help=f"{_WHERE} of the text; default: text",
    )


def add_header(parser: argparse.ArgumentParser) -> None:
    """Add whether the first row names the columns."""
    parser.add_argument(
        "--header",
        choices=HEADER,
        default="auto",
        help="whether the first row names the columns; default: auto",
    )


def add_inference(parser: argparse.ArgumentParser) -> None:
    """Add what every verb takes that answers texts."""
    add_batches(parser)
    add_own_task(parser)


def add_batches(parser: argparse.ArgumentParser) -> None:
    """Add how many texts are computed at once, and how."""
    parser.add_argument(
        "--batch-size",
        type=positive,
        default=32,
        metavar="N",
        help="texts computed at once; default: 32",
    )
    parser.add_argument(
        "--precision", default="float32", choices=PRECISIONS, help="default: float32"
    )


def add_settings(parser: argparse.ArgumentParser, what: str) -> None:
    """Add settings, `name=value` each, as `settings`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help=f"{what}; may be repeated",
    )


def add_own_task(parser: argparse.ArgumentParser) -> None:
    """Add a task where the folder names none, and its settings."""
    parser.add_argument(
        "--task", metavar="TASK", help="where the folder names none, or your own"
    )
    add_settings(parser, "a setting that a trained model may change, such as top_k=10")
