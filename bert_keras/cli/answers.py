"""Where the answers of a command go: standard output, or a JSONL or CSV file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bert_keras.errors import ConfigError, DataError, reason_of
from bert_keras.files.atomic import check_output_place, check_path, new_folder
from bert_keras.files.json_file import json_text

Write = Callable[[dict[str, Any]], None]
_JSON, _CSV = (".jsonl", ".ndjson", ".json"), (".csv",)


def check_answer_file(path: str | None, inputs: dict[str, Any]) -> None:
    """Raise ConfigError unless answers can be written to a file.

    Args:
        path: its name ends in `.jsonl` or `.csv`; `None` is standard output.
        inputs: argument to the file or folder that must not be overwritten.
    """
    if path is None:
        return
    check_path("output", path)
    if Path(path).suffix.lower() not in (*_JSON, *_CSV):
        raise ConfigError(f"`--output` must end in .jsonl or .csv; received {path}")
    if not Path(os.path.realpath(path)).parent.is_dir():
        raise ConfigError(
            f"`--output` must be in a folder that exists; received {path}"
        )
    check_output_place("output", path, inputs, around=True)


@contextlib.contextmanager
def answers_to(path: str | None) -> Iterator[Write]:
    """Yield a function that writes one answer.

    Answers to standard output are written at once. A file appears when all are written.

    Args:
        path: see `check_answer_file`.

    Raises:
        DataError: the file cannot be written.
    """
    if path is None:
        _print_utf8()
        yield lambda row: print(json_text(row), flush=True)
        return
    target = Path(os.path.realpath(path))  # the target of a link, not the link
    try:
        # In a folder, since the next command removes the folder of a killed one.
        with new_folder(target.parent, f".{target.name}-") as folder:
            whole = folder / target.name
            with whole.open("x", encoding="utf-8", newline="") as file:
                if target.suffix.lower() in _JSON:
                    yield lambda row: print(json_text(row), file=file)
                else:
                    yield _table(file)
            whole.replace(target)
    except OSError as error:
        raise DataError(f"cannot be written: {reason_of(error)}", path=path) from None
    print(f"{path}: written", file=sys.stderr)


def _table(file: Any) -> Write:
    """Return a function that writes answers as rows of CSV, the first after a header.

    Lists and objects are cells of JSON.
    """
    import csv

    writer: csv.DictWriter[str] | None = None

    def write(row: dict[str, Any]) -> None:
        nonlocal writer
        if writer is None:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(
            {
                key: value if isinstance(value, str) else json_text(value)
                for key, value in row.items()
            }
        )

    return write


def _print_utf8() -> None:
    """Set standard output to UTF-8, as JSON requires, whatever the terminal."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")
