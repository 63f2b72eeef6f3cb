"""The arguments of each verb of the command line; imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import NoReturn

from bert_keras import __version__
from bert_keras.cli.argument_types import path
from bert_keras.cli.corpus_arguments import add_pretraining_data, add_vocab
from bert_keras.cli.feature_arguments import add_features, add_search
from bert_keras.cli.pretrain_arguments import add_pretrain
from bert_keras.cli.row_arguments import (
    ASKED,
    MODEL,
    ROWS,
    add_columns,
    add_inference,
    add_own_task,
)
from bert_keras.cli.train_arguments import add_train
from bert_keras.errors import ConfigError

_MOST_SHOWN = 300  # characters of what argparse says


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print in several lines."""

    def error(self, message: str) -> NoReturn:
        if len(message) > _MOST_SHOWN:  # of thousands of digits
            message = f"{message[:_MOST_SHOWN]}…"
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return what the words of a command line mean, see `parser`.

    argparse would take a verb's texts only where no option stands before them.
    """
    root = parser()
    options, rest = root.parse_known_args(arguments)
    if rest and hasattr(options, "texts") and not any(w[:1] == "-" for w in rest):
        options.texts += rest
    elif rest:
        root.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def parser() -> argparse.ArgumentParser:
    """Return the parser; what it parses holds `verb`, the name of the command.

    It raises a ConfigError where the arguments are wrong.
    """
    root = _Parser(
        prog="bert-keras",
        description="BERT for Keras 3: from raw text to a served model.",
    )
    root.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = root.add_subparsers(required=True, metavar="VERB", dest="verb")

    def verb(name: str, summary: str) -> argparse.ArgumentParser:
        return verbs.add_parser(
            name, help=summary, description=f"{summary.capitalize()}."
        )

    add_train(verb("train", "fine-tune a task and write a model folder"))

    evaluate = verb("evaluate", "score a model on labelled rows")
    evaluate.add_argument("model", metavar="MODEL", type=path, help=ASKED)
    evaluate.add_argument("file", metavar="FILE", type=path, help=ROWS)
    evaluate.add_argument("--json", action="store_true", help="print JSON")
    add_columns(evaluate)
    add_inference(evaluate)

    predict = verb("predict", "answer texts, one JSON object a line")
    predict.add_argument("model", metavar="MODEL", type=path, help=ASKED)
    predict.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="default: a text a line of standard input, answered as it comes (a pair: "
        "a tab between, or two TEXTs; a context and its choices: tabs between, or one "
        "row of TEXTs)",
    )
    predict.add_argument(
        "--input", metavar="FILE", type=path, help=f"{ROWS} with the texts"
    )
    add_columns(predict, label=False)
    add_inference(predict)

    add_features(
        verb("features", "write vectors of texts or of their tokens to a file")
    )
    add_search(
        verb("search", "find the texts nearest in meaning, one JSON object a line")
    )

    export = verb("export", "write the next version of a SavedModel for serving")
    export.add_argument("model", metavar="MODEL", type=path, help=MODEL)
    export.add_argument(
        "output", metavar="OUTPUT", type=path, help="folder of versions 1, 2 …"
    )
    add_own_task(export)

    convert = verb("convert", "turn a checkpoint into one of another format")
    convert.add_argument(
        "source", metavar="FROM", type=path, help=f"checkpoint, {MODEL}"
    )
    convert.add_argument("target", metavar="TO", type=path, help="folder to write")
    convert.add_argument(
        "--to",
        metavar="FORMAT",
        default="huggingface",
        help="google, huggingface, keras-hub, model-garden or tf-hub (default "
        "huggingface)",
    )

    info = verb("info", "say what a folder, checkpoint or SavedModel holds")
    info.add_argument("path", metavar="PATH", type=path)
    info.add_argument("--json", action="store_true", help="print JSON")

    verb("tasks", "list the tasks")

    add_vocab(verb("vocab", "learn a WordPiece vocabulary from a corpus"))
    add_pretraining_data(
        verb("pretraining-data", "write the examples that a new BERT learns from")
    )
    add_pretrain(verb("pretrain", "train a new BERT, or go on with one, on such data"))
    return root
