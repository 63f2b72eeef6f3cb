"""The verb `select`: which rows to label next."""

from __future__ import annotations

import argparse
import os
from typing import Any

from bert_keras.cli.arguments import (
    ASKED,
    ROWS,
    add_batches,
    add_header,
    add_text_column,
    check_texts,
    load_backend,
    places_of,
)
from bert_keras.cli.options import add_count, add_option, add_path, add_word, path
from bert_keras.cli.prediction import add_lengths
from bert_keras.errors import ConfigError, DataError, counted
from bert_keras.settings import SEED, SELECTIONS


def add_select(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", type=path, help=f"classifier or encoder: {ASKED}")
    add(
        "file", metavar="UNLABELED", type=path, help=f"{ROWS} with texts to choose from"
    )
    add_count(parser, "count", 50, "rows to select")
    add_path(
        parser,
        "output",
        "FILE",
        "file to write: .jsonl, .csv or .parquet, the best rows first, the column "
        "label empty",
        required=True,
    )
    add_word(
        parser,
        "strategy",
        SELECTIONS,
        "margin or entropy: texts with the least certain probabilities of a "
        "classifier; coverage: typical texts of groups (by their vectors) without a "
        "labelled text; mixture: coverage among the texts with the smallest margin",
        unset="mixture for a classifier, else coverage",
    )
    add_path(
        parser,
        "labelled",
        "FILE",
        f"{ROWS} with the texts that have a label; rows with an empty column label "
        "count as unlabeled",
    )
    add_option(parser, SEED, help="seed of the groups", name="seed", kind=int)
    add_text_column(parser, default="text")
    add_header(parser)
    add_lengths(parser)
    add_batches(parser)


def run_select(options: argparse.Namespace) -> None:
    from bert_keras.files.answer_file import answers_to, check_answer_file

    check_answer_file(options.output, places_of(options, "model", "file", "labelled"))
    _check_no_labels(options.output)
    for file in filter(None, (options.file, options.labelled)):
        check_texts(options, file)
    load_backend(options.model)
    from bert_keras.data.table import read_columns
    from bert_keras.retrieval.selection import select_rows

    columns = read_columns(
        options.file,
        {"text": options.text, "id": "id", "label": "label"},
        optional=["id", "label"],
        empty=["text", "id", "label"],
        unread=["text_pair"] if options.text == "text" else [],
        header=options.header,
    )
    columns.refuse_labels("rows to select from")
    known: list[str] = []
    if options.labelled is not None:
        known = _labelled_texts(options)
    found = select_rows(
        options.model,
        columns["text"],
        count=options.count,
        strategy=options.strategy,
        labelled=known,
        seed=options.seed,
        batch_size=options.batch_size,
        max_length=options.max_length,
        long=options.long,
        precision=options.precision,
    )
    # As in the file, so that the same options read both; a number names no column.
    text = "text" if options.text.isdigit() else options.text
    with answers_to(options.output) as write:
        for row in found:
            name = {"id": columns["id"][row]} if "id" in columns else {}
            write({**name, text: columns["text"][row], "label": ""})


def _check_no_labels(output: str) -> None:
    """Raise ConfigError if a file that would be replaced holds labels.

    People fill them in by hand.
    """
    from bert_keras.data.table import read_columns

    if not os.path.isfile(output):
        return
    rules: dict[str, Any] = dict.fromkeys(("empty", "lists", "nulls"), ["label"])
    try:
        found = read_columns(output, {"label": "label"}, **rules)
    except DataError:
        return  # not what `select` writes
    if count := sum(bool(cell.strip()) for cell in found["label"]):
        raise ConfigError(
            f"`output` must not replace labels; {output} has {counted(count, 'labels')}"
        )


def _labelled_texts(options: argparse.Namespace) -> list[str]:
    """Return the texts of `--labelled`, without the rows whose label is empty."""
    from bert_keras.data.table import read_columns
    from bert_keras.runs.notes import say

    rows = read_columns(
        options.labelled,
        {"text": options.text, "label": "label"},
        optional=["label"],
        empty=["label"],
        lists=["label"],
        nulls=["label"],
        header=options.header,
    )
    texts = list(rows["text"])
    if "label" not in rows:
        return texts
    cells = zip(texts, rows["label"], strict=True)
    known = [text for text, label in cells if label.strip()]
    if len(known) < len(texts):
        say(
            f"{rows.path}: {len(texts) - len(known):,} of {len(texts):,} rows have an "
            "empty label: they count as unlabeled"
        )
    return known


VERBS = {"select": (add_select, run_select)}
