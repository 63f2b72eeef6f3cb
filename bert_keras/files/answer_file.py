"""Where rows of answers go: standard output, or a JSONL, CSV or Parquet file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_keras.errors import ConfigError
from bert_keras.files.atomic import check_output_place, check_path, new_folder, writing
from bert_keras.files.filesystems import is_remote, put
from bert_keras.files.json_file import json_text
from bert_keras.files.parquet import check_arrow, is_parquet, write_rows

Write = Callable[[dict[str, Any]], None]
_JSON, _CSV, _PARQUET = (".jsonl", ".ndjson", ".json"), (".csv",), (".parquet",)


def check_answer_file(path: str | None, inputs: dict[str, Any]) -> None:
    """Raise ConfigError unless answers can be written to a file.

    Args:
        path: its name ends in `.jsonl`, `.csv` or `.parquet`, and may be of a file
            system of fsspec; `None` is standard output.
        inputs: argument to the file or folder that must not be overwritten.
    """
    if path is None:
        return
    check_path("output", path)
    if Path(path).suffix.lower() not in (*_JSON, *_CSV, *_PARQUET):
        raise ConfigError(
            f"`--output` must end in .jsonl, .csv or .parquet; received {path}"
        )
    if not is_remote(path) and not Path(os.path.realpath(path)).parent.is_dir():
        raise ConfigError(
            f"`--output` must be in a folder that exists; received {path}"
        )
    if is_parquet(path):
        check_arrow()
    check_output_place("output", path, inputs, around=True)


@contextlib.contextmanager
def answers_to(path: str | None) -> Iterator[Write]:
    """Yield a function that writes one answer.

    Answers to standard output are written at once, to a terminal with four digits of
    each number that is not whole. A file appears when all are written.

    Args:
        path: see `check_answer_file`.

    Raises:
        DataError: the file cannot be written.
    """
    if path is None:
        if hasattr(sys.stdout, "reconfigure"):  # JSON is UTF-8, whatever the terminal
            sys.stdout.reconfigure(encoding="utf-8")
        shown = rounded if sys.stdout.isatty() else dict
        yield lambda row: print(json_text(shown(row)), flush=True)
        return
    with writing(path), _new_file(path) as whole:
        is_json = path.lower().endswith(_JSON)
        lines = whole if is_json else whole.with_suffix(".jsonl")
        with lines.open("x", encoding="utf-8", newline="") as file:
            yield lambda row: print(json_text(row), file=file)
        if is_parquet(path):
            with whole.open("xb") as table:
                write_rows(table, lambda: _rows_of(lines), path=path)
        elif not is_json:
            _write_csv(whole, lambda: _rows_of(lines))
    print(f"{path}: written", file=sys.stderr)


def rounded(value: Any) -> Any:
    """Return a value of JSON with four digits of each number that is not whole."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


@contextlib.contextmanager
def _new_file(path: str) -> Iterator[Path]:
    """Yield the name of a file to write, which is then moved to its place."""
    if is_remote(path):
        import tempfile

        with tempfile.TemporaryDirectory(prefix="bert_keras-") as place:
            whole = Path(place, path.rpartition("/")[2])
            yield whole
            with whole.open("rb") as file:
                put(file, path)
        return
    target = Path(os.path.realpath(path))  # the target of a link, not the link
    # In a folder, since the next command removes the folder of a killed one.
    with new_folder(target.parent, f".{target.name}-") as folder:
        yield folder / target.name
        (folder / target.name).replace(target)


def _rows_of(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _write_csv(path: Path, read: Callable[[], Iterable[dict[str, Any]]]) -> None:
    """Write rows as CSV with the columns of all of them; what one lacks is empty.

    Lists and objects are cells of JSON. `read` is called for the columns, and again.
    """
    import csv

    names = list(dict.fromkeys(name for row in read() for name in row))
    with path.open("x", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        if names:
            writer.writeheader()
        for row in read():
            cells = {
                k: v if isinstance(v, str) else json_text(v) for k, v in row.items()
            }
            writer.writerow(cells)
