"""The verbs, and what the words of a command line mean.

The module of a verb is imported only for that verb, and holds its arguments and its
function in `VERBS`; none imports TensorFlow before it runs.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from bert_keras.cli.options import Parser
from bert_keras.errors import nearest
from bert_keras.version import __version__

# name: module of `bert_keras.cli`, summary.
VERBS = {
    "train": ("training", "fine-tune a model on a task and write a model folder"),
    "evaluate": ("training", "score a model on labelled rows"),
    "shrink": ("shrinking", "write the smallest model that answers almost as well"),
    "compare": (
        "training",
        "compare the scores, curves and settings of runs on a page",
    ),
    "predict": ("prediction", "print predictions for texts, one JSON object per line"),
    "explain": (
        "explanation",
        "write a page with the words that led to a model's answers",
    ),
    "features": ("prediction", "write vectors of texts or of their tokens to a file"),
    "search": (
        "prediction",
        "find the texts nearest in meaning, one JSON object per line",
    ),
    "mine": ("mining", "find hard negatives, to train an embedding on"),
    "select": ("selection", "choose the rows to label next"),
    "export": (
        "exporting",
        "write a SavedModel for serving, or a model for another engine",
    ),
    "bench": ("bench", "measure the forms of a model, and recommend one to serve"),
    "serve": ("serving", "answer requests over HTTP and gRPC"),
    "convert": ("exporting", "convert a checkpoint to another format"),
    "classes": (
        "exporting",
        "write a classifier of your classes without training rows",
    ),
    "info": ("exporting", "describe a folder, checkpoint or SavedModel"),
    "tasks": ("tasks", "list the tasks, or describe one"),
    "vocab": ("pretraining", "learn a WordPiece vocabulary from a corpus"),
    "pretraining-data": (
        "pretraining",
        "write the examples that BERT is pretrained on",
    ),
    "pretrain": ("pretraining", "pretrain a new BERT, or continue from a checkpoint"),
    "completion": ("completion", "print the completion of a shell"),
}
_HELP = {"-h", "--help"}
_REPEATED = ("--column", "--set")  # an option for each NAME=VALUE


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed command line, see `parser`; without words, show the help.

    argparse alone would accept the texts of a verb only if no option precedes them.

    Raises:
        ConfigError: an argument is wrong.
    """
    verb = next((word for word in arguments if word[:1] != "-"), None)
    # The parsers of the other verbs are only for a help that is asked for before it.
    is_first = verb in VERBS and arguments[0] == verb
    root, verbs = parsers([] if verb is None else [verb], is_alone=is_first)
    if verb is not None and verb not in VERBS:
        names = ", ".join(VERBS)
        root.error(
            f"VERB must be one of {names}; received {verb}{nearest(verb, VERBS)}"
        )
    if verb is not None:
        start = arguments.index(verb) + 1
        words = verbs[verb].join_flags(arguments[start:])
        arguments = [*arguments[:start], *words]
        if verb == "train" and _HELP & {*words}:
            _describe_task(verbs[verb], words)
        verbs[verb].check_options(words)
    options, rest = root.parse_known_args(arguments or ["--help"])
    if rest and hasattr(options, "texts") and not any(w[:1] == "-" for w in rest):
        options.texts += rest
    elif rest:
        flag = arguments[max(arguments.index(rest[0]) - 2, 0)]
        again = flag in _REPEATED and "=" in rest[0]
        hint = f"; repeat the option: {flag} {rest[0]}" if again else ""
        root.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    return options


def parser(verbs: Iterable[str] = tuple(VERBS)) -> argparse.ArgumentParser:
    """Return the parser; its result holds `verb`, the name of the command.

    It raises a ConfigError if the arguments are wrong.

    Args:
        verbs: verbs whose arguments are added; the others have only `--help`.
    """
    return parsers(verbs)[0]


def function_of(verb: str) -> Callable[[argparse.Namespace], None]:
    """Return the function that runs a verb."""
    return _module(verb).VERBS[verb][1]


def _module(verb: str) -> Any:
    return importlib.import_module(f"bert_keras.cli.{VERBS[verb][0]}")


def parsers(
    chosen: Iterable[str], *, is_alone: bool = False
) -> tuple[Parser, dict[str, Parser]]:
    """Return the main parser and the parser of each verb.

    Args:
        chosen: as in `parser`.
        is_alone: whether the other verbs are left out.
    """
    root = Parser(
        prog="bert-keras",
        description="BERT for Keras 3: from raw text to a served model.",
    )
    _add_version(root)
    verbs = root.add_subparsers(required=True, metavar="VERB", dest="verb")
    found = {}
    names = {*chosen} & {*VERBS}
    for name in [*names] if is_alone else VERBS:
        summary = VERBS[name][1]
        description = f"{summary[:1].upper()}{summary[1:]}."
        found[name] = verbs.add_parser(name, help=summary, description=description)
    for name in names:
        _module(name).VERBS[name][0](found[name])
        _add_version(found[name])
        loudness = found[name].add_mutually_exclusive_group()
        loudness.add_argument(
            "--quiet",
            action="store_true",
            help="print no progress, only notes and results",
        )
        loudness.add_argument(
            "--verbose",
            action="store_true",
            help="also print TensorFlow's messages, and where in the code an error is",
        )
    return root, found


def _add_version(parser: Parser) -> None:
    parser.add_argument(
        "--version",
        action="version",
        version=f"bert-keras {__version__}",
        help="print the version and exit",
    )


def _describe_task(parser: Parser, words: list[str]) -> None:
    """Add the settings and an example of the task among the words to the help."""
    if words[0][:1] == "-":
        return
    from bert_keras.cli.tasks import task_help

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = task_help(words[0])
