"""The verb `bench`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from bert_keras.cli.arguments import (
    ASKED,
    ROWS,
    add_columns,
    check_models,
    check_named_columns,
    chosen_columns,
    declared_task,
    places_of,
    refuse_columns,
)
from bert_keras.cli.options import add_count, add_option, add_path, add_switch, path
from bert_keras.settings import MAX_DROP

_HEADS = {
    "form": "form",
    "milliseconds": "ms, one text",
    "texts_per_second": "texts/s",
    "served_texts_per_second": "texts/s served",
    "memory_mb": "MB of memory",
    "disk_mb": "MB on disk",
}


def add_bench(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", type=path, help=ASKED)
    add(
        "exports",
        nargs="*",
        metavar="EXPORT",
        type=path,
        help="what `export` wrote, or another model folder; default: each form of the "
        "model folder that this machine can run",
    )
    add_count(
        parser,
        "clients",
        32,
        "clients of `serve`; each waits for an answer before it sends the next text",
        unit="clients",
    )
    add_path(
        parser,
        "data",
        "FILE",
        f"{ROWS} with the texts to measure with; labelled rows are scored, too",
    )
    add_path(
        parser,
        "calibrate",
        "FILE",
        f"{ROWS} of texts that calibrate int8 for openvino, such as training rows; "
        "default: the file of --data",
    )
    add_columns(parser)
    add_option(
        parser,
        MAX_DROP,
        help="largest drop of the main score from the model folder to the recommended "
        "form",
    )
    add_path(
        parser,
        "output",
        "FILE",
        "file for the rows of the table: .jsonl, .csv or .parquet",
    )
    add_switch(parser, "json", "print JSON")


def run_bench(options: argparse.Namespace) -> None:
    from bert_keras.files.answer_file import answers_to, check_answer_file
    from bert_keras.files.json_file import json_text
    from bert_keras.files.streams import head_of
    from bert_keras.serving.forms import bench

    check_answer_file(options.output, places_of(options, "model", "data", "calibrate"))
    check_models(options.model, *options.exports)
    files = options.data, options.calibrate
    for place in files:
        if place is not None:
            head_of(place)  # which raises unless it can be read
    if files == (None, None):
        refuse_columns(
            options, "columns need `--data` or `--calibrate`; neither is given"
        )
    check_named_columns(options, *files, task=declared_task(options), labelled=False)
    found = bench(
        options.model,
        options.exports,
        clients=options.clients,
        data=options.data,
        calibrate=options.calibrate,
        columns=chosen_columns(options),
        header=options.header,
        max_drop=options.max_drop,
    )
    if options.output is not None:
        with answers_to(options.output) as write:
            for row in found.rows:
                write(row)
    if options.json:
        print(json_text(found._asdict()))
        return
    for line in [*_table(found.rows), *found.advice]:
        print(line)


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the rows as aligned text, and below why numbers are missing."""
    scores = {key: key for row in rows for key in row if key not in _HEADS}
    heads = {**_HEADS, **scores}
    for name in ("path", "reason"):
        heads.pop(name, None)
    cells = [[*heads.values()]]
    cells += [[_cell(row.get(key)) for key in heads] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        first, *rest = (x.rjust(n) for x, n in zip(row, widths, strict=True))
        lines.append("  ".join([first.strip().ljust(widths[0]), *rest]).rstrip())
    failed = [row for row in rows if "reason" in row]
    return [*lines, *(f"{row['form']}: {row['reason']}" for row in failed)]


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "-"
    return f"{value:.4f}" if abs(value) < 1 else f"{value:,.1f}"


VERBS = {"bench": (add_bench, run_bench)}
