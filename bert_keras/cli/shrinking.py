"""The verb `shrink`."""

from __future__ import annotations

import argparse

from bert_keras.cli.arguments import MODEL, ROWS, add_columns, chosen_columns
from bert_keras.cli.options import add_count, add_option, add_path, add_word, path
from bert_keras.runs.environment import load_tensorflow
from bert_keras.settings import MAX_DROP, SHRINK_INT8
from bert_keras.training.config import TrainConfig


def add_shrink(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=path, help=MODEL)
    parser.add_argument("output", metavar="OUTPUT", type=path, help="folder to write")
    add_path(parser, "train", "FILE", f"{ROWS} of training rows", required=True)
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
        help="how much lower the task's main score may be than the model's",
    )
    add_word(
        parser,
        "int8",
        SHRINK_INT8,
        "engine of the weights in int8; auto: the one that is installed",
    )
    add_count(parser, "epochs", None, "passes of a student", unset="as for train")
    add_columns(parser)


def run_shrink(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.training.shrinking import shrink

    found = shrink(
        options.model,
        options.output,
        train=options.train,
        dev=options.dev,
        max_drop=options.max_drop,
        int8=options.int8,
        columns=chosen_columns(options),
        header=options.header,
        config=TrainConfig(epochs=options.epochs),
    )
    for each in found.candidates:
        print(each)
    print(f"folder: {found.folder}")


VERBS = {"shrink": (add_shrink, run_shrink)}
