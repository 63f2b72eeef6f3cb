"""The arguments of each verb of the command line; imports nothing heavy.

Here stands what a verb reads and writes; the settings of a run are the fields of a
config, see `options`.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from bert_keras import __version__
from bert_keras.cli.options import (
    Parser,
    add_count,
    add_option,
    add_options,
    add_path,
    add_word,
    nearest,
    path,
)
from bert_keras.config import PRESETS, BertConfig
from bert_keras.corpus.documents import FORMS
from bert_keras.data.rows import HEADER
from bert_keras.errors import ConfigError
from bert_keras.pretraining.config import PretrainConfig, PretrainingDataConfig
from bert_keras.serving.config import ServeConfig
from bert_keras.settings import (
    COMBINATIONS,
    GRIDS,
    NAMED_LAYERS,
    POOLINGS,
    PRECISION,
    RESUME,
    SERVER_IMAGE,
    SERVER_STORAGE,
)
from bert_keras.training.config import TrainConfig

_MODEL = "model folder or hf://owner/name"
_ASKED = f"{_MODEL}, or an exported SavedModel"
_EXPORT_PRECISION = "a mixed one holds the weights in 16 bits: half the size"
_ROWS = "TSV, CSV or JSONL file"
_ROLES = ("text", "text_pair", "label", "source", "target")  # with an own option
_WHERE = "name, or number from 0, of the column"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return what the words of a command line mean, see `parser`.

    argparse would take a verb's texts only where no option stands before them.

    Raises:
        ConfigError: an argument is wrong.
    """
    root, verbs = _parsers()
    verb = next((word for word in arguments if word[:1] != "-"), None)
    if verb is not None and verb not in verbs:
        names = ", ".join(verbs)
        root.error(
            f"VERB must be one of {names}; received {verb}{nearest(verb, verbs)}"
        )
    if verb is not None:
        verbs[verb].check_options(arguments[arguments.index(verb) + 1 :])
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
    return _parsers()[0]


def _parsers() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser and those of the verbs."""
    root = Parser(
        prog="bert-keras",
        description="BERT for Keras 3: from raw text to a served model.",
    )
    root.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = root.add_subparsers(required=True, metavar="VERB", dest="verb")
    found = {}
    for name, (summary, add_arguments) in _VERBS.items():
        description = f"{summary[:1].upper()}{summary[1:]}."
        verb = verbs.add_parser(name, help=summary, description=description)
        add_arguments(verb)
        verb.add_argument(
            "--quiet", action="store_true", help="print no progress, only results"
        )
        found[name] = verb
    return root, found


def _train(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("task", metavar="TASK", help="see `bert-keras tasks`; or module:Class")
    add_path(
        parser,
        "encoder",
        "PATH_OR_NAME",
        "pretrained model: folder, Google checkpoint or hf://owner/name",
        required=True,
    )
    add_path(parser, "train", "FILE", f"{_ROWS} of training rows", required=True)
    add_path(parser, "dev", "FILE", "rows by which the best epoch is chosen")
    add(
        "--test",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        type=path,
        help="rows that are scored once at the end; may be repeated",
    )
    add_path(parser, "output", "DIR", "the model folder to write", required=True)
    _add_columns(parser)
    _add_target_file(parser)
    add_path(parser, "dev_target_file", "FILE", "the same for --dev")
    _add_settings(parser, "a setting of the task, such as class_weights=balanced")
    parser.add_argument(
        "--decoder",
        metavar="DECODER",
        help="of tasks that write: encoder (a copy of its weights), shared, a new one "
        "of layers/hidden/heads such as 3/384/6, or a pretrained model; default: "
        "encoder",
    )
    add_path(
        parser,
        "target_vocab",
        "DIR",
        "folder with vocab.txt for the texts to write; default: that of the encoder",
    )
    add_word(
        parser,
        "resume",
        "auto",
        "auto resumes an interrupted run of the same settings and rows, never discards "
        "it",
        RESUME,
    )
    several = parser.add_mutually_exclusive_group()
    add_count(
        several,
        "seeds",
        1,
        "train with N seeds, keep the best model on dev, report mean and standard "
        "deviation",
    )
    add_word(
        several,
        "search",
        None,
        "train at each point of a grid; paper: 18 combinations of batch size, learning "
        "rate and epochs",
        GRIDS,
    )
    add_options(parser.add_argument_group("settings of the training"), TrainConfig)


def _evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=path, help=_ASKED)
    parser.add_argument("file", metavar="FILE", type=path, help=_ROWS)
    _add_json(parser)
    _add_columns(parser)
    _add_target_file(parser)
    _add_inference(parser)


def _predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=path, help=_ASKED)
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="default: each line of standard input, answered as it arrives (a pair: "
        "separated by a tab, or two TEXTs; a context and its choices: separated by "
        "tabs, or one row of TEXTs)",
    )
    add_path(parser, "input", "FILE", f"{_ROWS} with the texts")
    _add_columns(parser, label=False)
    _add_inference(parser)


def _features(parser: argparse.ArgumentParser) -> None:
    _add_encoder_and_texts(parser)
    add_path(
        parser,
        "output",
        "FILE",
        "file to write: .npz, or .parquet of any size",
        required=True,
    )
    levels = ("text", "token")
    add_word(
        parser, "level", "text", "a vector for each text, or for each token", levels
    )
    parser.add_argument(
        "--layers",
        metavar="LAYERS",
        help=f"{', '.join(NAMED_LAYERS)}, all, or numbers such as 0,12 (0: embeddings; "
        "--layers=-1: from the end); default: those of the model, or last",
    )
    add_word(
        parser,
        "combine",
        None,
        "how several layers are combined",
        COMBINATIONS,
        unset="that of the model, or sum",
    )
    add_word(
        parser,
        "pooling",
        None,
        "how the vectors of the tokens become that of the text",
        POOLINGS,
        unset="that of the model, or mean",
    )
    add_word(
        parser,
        "normalize",
        None,
        "scale vectors to length 1",
        ("yes", "no"),
        unset="that of the model, or no; for tokens no",
    )


def _search(parser: argparse.ArgumentParser) -> None:
    _add_encoder_and_texts(parser)
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="QUERY",
        help="what to look for; default: each line of standard input",
    )
    add_count(parser, "top", 5, "texts found for a query")
    add_path(parser, "index", "FILE", "file in which the vectors are kept for reuse")
    add_word(
        parser,
        "engine",
        "exact",
        "exact compares all texts; faiss uses an approximate graph, for many texts",
        ("exact", "faiss"),
    )


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=path, help=_MODEL)
    parser.add_argument(
        "output", metavar="OUTPUT", type=path, help="folder of versions 1, 2 …"
    )
    add_option(parser, PRECISION, help=_EXPORT_PRECISION)
    add_path(
        parser, "dev", "FILE", f"{_ROWS} to score in float32 and in another precision"
    )
    _add_own_task(parser)


def _serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="[NAME=]PATH",
        type=path,
        help=f"{_MODEL}, SavedModel, or folder of SavedModel versions; its name is "
        "that of the folder if none is given",
    )
    add_options(parser.add_argument_group("settings of the server"), ServeConfig)


def _deploy(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "folder",
        metavar="DIR",
        type=path,
        help="folder to write; an old one is replaced only if `deploy` wrote all of it",
    )
    add(
        "models",
        nargs="+",
        metavar="MODEL",
        type=path,
        help="export NAME/VERSION, or NAME for its newest version; or a model folder, "
        "which is exported first",
    )
    add(
        "--image",
        metavar="IMAGE",
        default=SERVER_IMAGE,
        help=f"image of the server with its tag; default: {SERVER_IMAGE}",
    )
    add(
        "--storage",
        metavar="URI",
        default=SERVER_STORAGE,
        help="where KServe finds the models, such as gs://bucket/models; default: "
        f"{SERVER_STORAGE}",
    )


def _convert(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="FROM", type=path, help=f"checkpoint, {_MODEL}")
    add("target", metavar="TO", type=path, help="folder to write")
    add(
        "--to",
        metavar="FORMAT",
        default="huggingface",
        help="google, huggingface, keras-hub, model-garden or tf-hub; default: "
        "huggingface",
    )


def _info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", type=path, nargs="?")
    parser.add_argument(
        "--machine",
        action="store_true",
        help="describe this machine instead: versions, cores, what the processor has",
    )
    _add_json(parser)


def _tasks(parser: argparse.ArgumentParser) -> None:
    """`tasks` has no arguments."""


def _vocab(parser: argparse.ArgumentParser) -> None:
    _add_corpus(parser)
    add_path(parser, "output", "DIR", "folder for vocab.txt", required=True)
    add_count(parser, "size", 30_522, "tokens of the vocabulary", unit="tokens")
    parser.add_argument("--cased", action="store_true", help="keep case and accents")
    add_count(
        parser,
        "min_count",
        None,
        "least occurrences in the corpus of a character, or of a pair of pieces",
        unset="2, or one for each ten million characters",
    )
    parser.add_argument(
        "--reserved",
        action="append",
        default=[],
        metavar="TOKEN",
        help="a further token to include; may be repeated",
    )
    add_count(
        parser,
        "max_words",
        2_000_000,
        "distinct words kept in memory",
        unit="words",
    )
    add_word(
        parser,
        "learner",
        "merges",
        "merges takes seconds and gives exactly --size tokens; tf-text is the trainer "
        "of TensorFlow Text: takes minutes and mostly gives a few percent fewer",
        ("merges", "tf-text"),
    )


def _pretraining_data(parser: argparse.ArgumentParser) -> None:
    _add_corpus(parser)
    add_path(
        parser,
        "vocab",
        "DIR",
        "folder with vocab.txt, from `bert-keras vocab` or of any BERT",
        required=True,
    )
    add_path(
        parser,
        "output",
        "DIR",
        "folder for the shards; an interrupted run resumes there",
        required=True,
    )
    add_count(parser, "workers", 1, "number of processes")
    parser.add_argument(
        "--beam",
        metavar="FLAGS",
        help="run on Apache Beam with its own flags in one argument, such as "
        "'--runner=FlinkRunner --flink_master=host:8081'; files may be in buckets",
    )
    group = parser.add_argument_group("settings of the data")
    add_options(group, PretrainingDataConfig)


def _pretrain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        action="append",
        required=True,
        metavar="DIR",
        type=path,
        help="folder written by `pretraining-data`; repeated, each is a phase, such as "
        "rows of 512 tokens after those of 128",
    )
    add_path(
        parser,
        "output",
        "RUN",
        "folder of the run; an interrupted run resumes there",
        required=True,
    )
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument(
        "--size",
        metavar="SIZE",
        help=f"a new model: {', '.join(PRESETS)}, or L/H/A such as 4/256/4",
    )
    add_path(
        start,
        "encoder",
        "PATH_OR_NAME",
        "continue from this checkpoint, its heads included",
    )
    add_path(parser, "vocab", "DIR", "folder with vocab.txt, for a new model")
    _add_settings(
        parser,
        "a key of bert_config.json for a new model, such as hidden_dropout_prob=0",
    )
    add_path(parser, "held_out", "DIR", "data that is scored during training")
    add_options(parser.add_argument_group("settings of the training"), PretrainConfig)


def _add_columns(parser: argparse.ArgumentParser, *, label: bool = True) -> None:
    """Add the columns of the texts and of other roles."""
    add = parser.add_argument
    _add_text_column(parser)
    add(
        "--text-pair",
        metavar="COLUMN",
        help=f"{_WHERE} of the second text; default: text_pair, if there is one",
    )
    add("--source", metavar="COLUMN", help=f"{_WHERE} of the text to rewrite")
    if label:
        add("--label", metavar="COLUMN", help=f"{_WHERE} of the class; default: label")
        add("--target", metavar="COLUMN", help=f"{_WHERE} of the text to be written")
    add(
        "--column",
        action="append",
        default=[],
        metavar="ROLE=COLUMN",
        help="the column of another role of the task; may be repeated",
    )
    _add_header(parser)


def _add_target_file(parser: argparse.ArgumentParser) -> None:
    add_path(
        parser,
        "target_file",
        "FILE",
        "the targets, one a line, of a file that holds one source a line",
    )


def _add_text_column(
    parser: argparse.ArgumentParser, *, default: str | None = None
) -> None:
    parser.add_argument(
        "--text",
        metavar="COLUMN",
        default=default,
        help=f"{_WHERE} of the text; default: text",
    )


def _add_header(parser: argparse.ArgumentParser) -> None:
    add_word(
        parser, "header", "auto", "whether the first row names the columns", HEADER
    )


def _add_inference(parser: argparse.ArgumentParser) -> None:
    _add_batches(parser)
    add_count(
        parser,
        "max_batch_tokens",
        None,
        "most tokens computed at once, with padding",
        unit="tokens",
        unset="no limit but --batch-size",
    )
    _add_own_task(parser)


def _add_batches(parser: argparse.ArgumentParser) -> None:
    add_count(parser, "batch_size", 32, "texts computed at once", unit="texts")
    add_option(parser, PRECISION)


def _add_own_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task",
        metavar="TASK",
        help="task of the model if its folder names none, or your own",
    )
    _add_settings(parser, "a setting that a trained model may change, such as top_k=10")


def _add_settings(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help=f"{what}; may be repeated",
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_encoder_and_texts(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", type=path, help=f"encoder, checkpoint, {_MODEL}")
    add("file", metavar="FILE", type=path, help=f"{_ROWS} with the texts")
    _add_text_column(parser, default="text")
    _add_header(parser)
    add_count(
        parser,
        "max_length",
        None,
        "longest text in tokens; longer ones are truncated",
        unit="tokens",
        unset="that of the model, or the most that it takes",
    )
    _add_batches(parser)


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "corpus",
        nargs="+",
        metavar="CORPUS",
        type=path,
        help="files, folders or globs, compressed or not, local or such as s3://…",
    )
    add_word(
        parser,
        "form",
        "auto",
        "format of the files; auto recognizes it from their first lines",
        ("auto", *FORMS),
    )
    parser.add_argument(
        "--text-field",
        default="text",
        metavar="NAME",
        help="field of jsonl that holds the text; default: text",
    )
    add_word(
        parser,
        "errors",
        "strict",
        "reject bytes that are not UTF-8, or replace them",
        ("strict", "replace"),
    )
    parser.add_argument(
        "--language",
        default="en",
        metavar="CODE",
        help="language of the sentence rules, such as en or zh; default: en",
    )


_VERBS = {
    "train": ("fine-tune a model on a task and write a model folder", _train),
    "evaluate": ("score a model on labelled rows", _evaluate),
    "predict": ("answer texts, one JSON object a line", _predict),
    "features": ("write vectors of texts or of their tokens to a file", _features),
    "search": ("find the texts nearest in meaning, one JSON object a line", _search),
    "export": ("write the next version of a SavedModel for serving", _export),
    "serve": ("answer requests over HTTP and gRPC", _serve),
    "deploy": ("write a folder that runs TF Serving with exported models", _deploy),
    "convert": ("turn a checkpoint into one of another format", _convert),
    "info": ("describe a folder, checkpoint or SavedModel", _info),
    "tasks": ("list the tasks", _tasks),
    "vocab": ("learn a WordPiece vocabulary from a corpus", _vocab),
    "pretraining-data": (
        "write the examples that BERT is pretrained on",
        _pretraining_data,
    ),
    "pretrain": ("pretrain a new BERT, or continue with one, on such data", _pretrain),
}


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


def check_free(options: argparse.Namespace) -> None:
    """Raise ConfigError where an option is given that the search is to choose."""
    given = vars(options)
    for name in GRIDS[options.search]:
        if name in given:
            raise ConfigError(
                f"`--search {options.search}` chooses {name}: leave out "
                f"--{name.replace('_', '-')} {given[name]}"
            )


def named_tests(given: list[str]) -> list[tuple[str, str]]:
    """Return name and path of each test file; the name of one alone is `test`.

    A file is given as NAME=FILE or as FILE, whose name is that of the file.
    """
    found: dict[str, str] = {}
    for item in given:
        name, equals, path = item.partition("=")
        if not equals or os.path.exists(item):
            stem = os.path.basename(item).split(".")[0]
            name, path = ("test" if len(given) == 1 else stem), item
        if not name or not path or name in found:
            raise ConfigError(
                f"`--test` must be FILE, or NAME=FILE with a name of its own; "
                f"received {item!r}"
            )
        found[name] = path
    return list(found.items())


def model_sizes(options: argparse.Namespace, vocab_size: int) -> BertConfig:
    """Return the config of the new model that a command line asks for.

    Raises:
        ConfigError: there is no such size or key.
    """
    settings: dict[str, Any] = {}
    for given in options.settings:
        name, equals, value = given.partition("=")
        if not equals:
            raise ConfigError(f"`--set` must be NAME=VALUE; received {given!r}")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value  # a word
    sizes = BertConfig.from_preset(options.size, vocab_size=vocab_size)
    return BertConfig.from_dict({**sizes.to_dict(), **settings}, ignore=())
