"""The arguments of each verb of the command line; imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import NoReturn

from bert_keras import __version__
from bert_keras.argument_types import field_adder, positive
from bert_keras.corpus_arguments import add_pretraining_data, add_vocab
from bert_keras.errors import ConfigError
from bert_keras.layer_choice import COMBINATIONS, NAMED_LAYERS, POOLINGS
from bert_keras.pretrain_arguments import add_pretrain
from bert_keras.train_config import (
    GRIDS,
    LAYOUTS,
    ON_NONFINITE,
    ONE_DEVICE,
    OPTIMIZERS,
    PRECISIONS,
    RESUME,
    TRUNCATIONS,
    TrainConfig,
)

_DEFAULTS = TrainConfig()
_MODEL = "model folder or hf://owner/name"
_ROWS = "TSV, CSV or JSONL"
_WHERE = "name, or number from 0, of the column"


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print in several lines."""

    def error(self, message: str) -> NoReturn:
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

    _train(verb("train", "fine-tune a task and write a model folder"))

    evaluate = verb("evaluate", "score a model on labelled rows")
    evaluate.add_argument("model", metavar="MODEL", help=_MODEL)
    evaluate.add_argument("file", metavar="FILE", help=_ROWS)
    evaluate.add_argument("--json", action="store_true", help="print JSON")
    _columns(evaluate)
    _inference(evaluate)

    predict = verb("predict", "answer texts, one JSON object a line")
    predict.add_argument("model", metavar="MODEL", help=_MODEL)
    predict.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="default: a text a line of standard input (a pair: a tab between)",
    )
    predict.add_argument("--input", metavar="FILE", help=f"{_ROWS} with the texts")
    _columns(predict, label=False)
    _inference(predict)

    _features(verb("features", "write vectors of texts or of their tokens to a file"))
    _search(verb("search", "find the texts nearest in meaning, one JSON object a line"))

    export = verb("export", "write the next version of a SavedModel for serving")
    export.add_argument("model", metavar="MODEL", help=_MODEL)
    export.add_argument("output", metavar="OUTPUT", help="folder of versions 1, 2 …")
    _own_task(export)

    convert = verb("convert", "turn a checkpoint into one of another format")
    convert.add_argument("source", metavar="FROM", help=f"checkpoint, {_MODEL}")
    convert.add_argument("target", metavar="TO", help="folder to write")
    convert.add_argument(
        "--to",
        metavar="FORMAT",
        default="huggingface",
        help="google, huggingface, keras-hub, model-garden or tf-hub (default "
        "huggingface)",
    )

    info = verb("info", "say what a folder, checkpoint or SavedModel holds")
    info.add_argument("path", metavar="PATH")
    info.add_argument("--json", action="store_true", help="print JSON")

    verb("tasks", "list the tasks")

    add_vocab(verb("vocab", "learn a WordPiece vocabulary from a corpus"))
    add_pretraining_data(
        verb("pretraining-data", "write the examples that a new BERT learns from")
    )
    add_pretrain(verb("pretrain", "train a new BERT, or go on with one, on such data"))
    return root


def _train(train: argparse.ArgumentParser) -> None:
    add = train.add_argument
    add("task", metavar="TASK", help="see `bert-keras tasks`; or module:Class")
    add(
        "--encoder",
        required=True,
        metavar="PATH_OR_NAME",
        help="pretrained model: folder, Google checkpoint or hf://owner/name",
    )
    add("--train", required=True, metavar="FILE", help=f"{_ROWS} of training rows")
    add("--dev", metavar="FILE", help="rows that choose the best epoch")
    add(
        "--test",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="rows that are scored once at the end; may be repeated",
    )
    add("--output", required=True, metavar="DIR", help="the model folder to write")
    _columns(train)
    _settings(train, "a setting of the task, such as class_weights=balanced")

    setting = field_adder(train, _DEFAULTS)

    setting("epochs", "passes over the training rows", type=int, metavar="N")
    setting("batch-size", "rows an update", type=int, metavar="N")
    setting(
        "accumulation", "parts that they come in, to save memory", type=int, metavar="N"
    )
    setting("optimizer", "lamb is for very large batches", choices=OPTIMIZERS)
    setting("learning-rate", "highest rate", type=float, metavar="RATE")
    setting(
        "warmup-share",
        "share of the updates with a rising rate",
        type=float,
        metavar="SHARE",
    )
    setting("weight-decay", "decoupled weight decay", type=float, metavar="RATE")
    setting(
        "max-length",
        "longer texts are cut, or read in windows, in tokens; default: 128, for "
        "question-answering 384, for summarization 512",
        type=int,
        metavar="TOKENS",
    )
    setting("truncation", "how a pair is cut", choices=TRUNCATIONS)
    setting("layout", "several texts a row, or one", choices=LAYOUTS)
    setting(
        "dev-share",
        "share of training rows set aside where there is no --dev",
        type=float,
        metavar="SHARE",
    )
    setting("seed", "same seed, same weights", type=int, metavar="N")
    setting("precision", "dtype policy", choices=PRECISIONS)
    setting("strategy", "devices; both mean one device now", choices=ONE_DEVICE)
    setting("rematerialize", "compute blocks twice to save memory", action="store_true")
    setting(
        "freeze-layers",
        "lower blocks that stay as they are, with the embeddings, to save memory",
        type=int,
        metavar="N",
    )
    setting(
        "lora-rank",
        "above 0: blocks learn by matrices of this rank alone",
        type=int,
        metavar="RANK",
    )
    setting("tensorboard", "write TensorBoard's curves there", metavar="DIR")
    setting("save-every", "updates between checkpoints", type=int, metavar="N")
    setting("keep", "newest checkpoints that are kept", type=int, metavar="N")
    setting(
        "on-nonfinite",
        "what is done where a loss or gradient is not finite",
        choices=ON_NONFINITE,
    )
    setting(
        "restarts",
        "times that a run that learns nothing is begun again, with another seed",
        type=int,
        metavar="N",
    )
    add(
        "--resume",
        choices=RESUME,
        default="auto",
        help="go on with an unfinished run of the same settings and rows, or never: "
        "throw it away; default: auto",
    )
    several = train.add_mutually_exclusive_group()
    several.add_argument(
        "--seeds",
        type=positive,
        default=1,
        metavar="N",
        help="train with so many seeds, keep the best on dev, tell mean and deviation",
    )
    several.add_argument(
        "--search",
        choices=tuple(GRIDS),
        help="train at each point of a grid (paper: 18 of batch size, rate, epochs)",
    )


def _features(features: argparse.ArgumentParser) -> None:
    _encoder_and_texts(features)
    add = features.add_argument
    add("--output", required=True, metavar="FILE", help="file to write: .npz, .parquet")
    add(
        "--level",
        choices=("text", "token"),
        default="text",
        help="a vector for each text or for each token; default: text",
    )
    add(
        "--layers",
        metavar="LAYERS",
        help=f"{', '.join(NAMED_LAYERS)}, all, or numbers such as 0,12 (0: embeddings; "
        "--layers=-1: from the end); default: as the model, or last",
    )
    add(
        "--combine",
        choices=COMBINATIONS,
        help="how several layers become one; default: as the model, or sum",
    )
    add(
        "--pooling",
        choices=POOLINGS,
        help="how tokens become a text's vector; default: as the model, or mean",
    )
    add(
        "--normalize",
        choices=("yes", "no"),
        help="vectors of length 1; default: as the model, or no; of tokens no",
    )


def _search(search: argparse.ArgumentParser) -> None:
    _encoder_and_texts(search)
    add = search.add_argument
    add(
        "texts",
        nargs="*",
        metavar="QUERY",
        help="what is looked for; default: a query a line of standard input",
    )
    add("--top", type=positive, default=5, metavar="N", help="texts; default: 5")
    add("--index", metavar="FILE", help="keep the vectors there for the next time")
    add(
        "--engine",
        choices=("exact", "faiss"),
        default="exact",
        help="exact, or faiss: an approximate graph for many texts; default: exact",
    )


def _encoder_and_texts(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", help=f"encoder, checkpoint, {_MODEL}")
    add("file", metavar="FILE", help=f"{_ROWS} with the texts")
    _text_column(parser, default="text")
    _header(parser)
    add(
        "--max-length",
        type=positive,
        metavar="TOKENS",
        help="longer texts are cut; default: as the model, or what it takes",
    )
    _batches(parser)


def _columns(parser: argparse.ArgumentParser, *, label: bool = True) -> None:
    add = parser.add_argument
    _text_column(parser)
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
    _header(parser)


def _text_column(
    parser: argparse.ArgumentParser, *, default: str | None = None
) -> None:
    parser.add_argument(
        "--text",
        metavar="COLUMN",
        default=default,
        help=f"{_WHERE} of the text; default: text",
    )


def _header(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the first row names the columns; default: auto",
    )


def _inference(parser: argparse.ArgumentParser) -> None:
    _batches(parser)
    _own_task(parser)


def _batches(parser: argparse.ArgumentParser) -> None:
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


def _settings(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help=f"{what}; may be repeated",
    )


def _own_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task", metavar="TASK", help="where the folder names none, or your own"
    )
    _settings(parser, "a setting that a trained model may change, such as top_k=10")
