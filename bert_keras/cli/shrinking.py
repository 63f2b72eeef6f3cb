"""The verb `shrink`."""

from __future__ import annotations

import argparse

from bert_keras.cli.arguments import (
    MODEL,
    ROWS,
    add_columns,
    check_named_columns,
    check_needed,
    chosen_columns,
    declared_task,
    load_backend,
)
from bert_keras.cli.options import add_option, add_path, add_word, path
from bert_keras.settings import MAX_DROP, SHRINK_INT8, options_of
from bert_keras.training.config import TrainConfig

# What the messages of training say may be chosen.
_CHOSEN = ("epochs", "batch_size", "max_length", "learning_rate")


def add_shrink(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=path, help=MODEL)
    parser.add_argument("output", metavar="OUTPUT", type=path, help="folder to write")
    add_path(
        parser,
        "train",
        "FILE",
        f"{ROWS} of training rows; without it, layers are left out and nothing is "
        "trained",
    )
    add_path(
        parser,
        "dev",
        "FILE",
        "labelled rows, on which epochs and models are chosen",
        required=True,
    )
    add_option(
        parser,
        MAX_DROP,
        help="largest drop of the task's main score, for a score up to 1 (times 100 "
        "for a score up to 100, such as BLEU)",
    )
    add_word(
        parser,
        "int8",
        SHRINK_INT8,
        "engine of the weights in int8; auto: the one that is installed",
    )
    for name in _CHOSEN:
        add_option(parser, options_of(TrainConfig)[name])
    add_columns(parser)


def run_shrink(options: argparse.Namespace) -> None:
    chosen = {name: getattr(options, name) for name in _CHOSEN}
    check_needed(options, "train", *_CHOSEN)
    task = declared_task(options)
    check_named_columns(options, options.train, options.dev, task=task)
    load_backend(checkpoints=[options.model])
    from bert_keras.report.terminal import score_table
    from bert_keras.training.shrinking import shrink

    found = shrink(
        options.model,
        options.output,
        dev=options.dev,
        train=options.train,
        max_drop=options.max_drop,
        int8=options.int8,
        columns=chosen_columns(options),
        header=options.header,
        config=TrainConfig(**chosen),
    )
    whole = [{**row, "milliseconds": round(row["milliseconds"])} for row in found.rows]
    print(score_table({"models": {row.pop("model"): row for row in whole}}))
    print(f"folder: {found.folder}")


VERBS = {"shrink": (add_shrink, run_shrink)}
