"""The arguments of `train`, and the settings that they give."""

from __future__ import annotations

import argparse
import dataclasses
import os

from bert_keras.cli.argument_types import field_adder, path, positive
from bert_keras.cli.row_arguments import ROWS, add_columns, add_settings
from bert_keras.errors import ConfigError
from bert_keras.settings import (
    GRIDS,
    LAYOUTS,
    ON_NONFINITE,
    OPTIMIZERS,
    PRECISIONS,
    RESUME,
    STRATEGIES,
    TRUNCATIONS,
)
from bert_keras.training.config import TrainConfig

_DEFAULTS = TrainConfig()


def add_train(train: argparse.ArgumentParser) -> None:
    """Add them to the parser of the verb."""
    add = train.add_argument
    add("task", metavar="TASK", help="see `bert-keras tasks`; or module:Class")
    add(
        "--encoder",
        required=True,
        metavar="PATH_OR_NAME",
        type=path,
        help="pretrained model: folder, Google checkpoint or hf://owner/name",
    )
    add(
        "--train",
        required=True,
        metavar="FILE",
        type=path,
        help=f"{ROWS} of training rows",
    )
    add("--dev", metavar="FILE", type=path, help="rows that choose the best epoch")
    add(
        "--test",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        type=path,
        help="rows that are scored once at the end; may be repeated",
    )
    add(
        "--output",
        required=True,
        metavar="DIR",
        type=path,
        help="the model folder to write",
    )
    add_columns(train)
    add_settings(train, "a setting of the task, such as class_weights=balanced")

    setting = field_adder(train, _DEFAULTS)

    setting(
        "epochs",
        "passes over the training rows; default: auto, by their number: 300 updates, 3 "
        "to 20 epochs, fewer where dev no longer improves",
        type=_epochs,
        metavar="N",
    )
    setting(
        "patience",
        "epochs without an improvement on dev after which training ends, but not in "
        "its first half; 0: never; default: 3, with --epochs N 0",
        type=int,
        metavar="N",
    )
    setting(
        "batch-size",
        "rows an update; default: 32, with fewer than 1,000 training rows 16",
        type=int,
        metavar="N",
    )
    setting(
        "accumulation", "parts that they come in, to save memory", type=int, metavar="N"
    )
    setting("optimizer", "lamb is for very large batches", choices=OPTIMIZERS)
    setting(
        "learning-rate",
        "highest rate; default: 5e-05, for feature-tagging 0.001",
        type=float,
        metavar="RATE",
    )
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
    setting("strategy", "devices to compute on", choices=STRATEGIES)
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
    setting("tensorboard", "write TensorBoard's curves there", metavar="DIR", type=path)
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


def _epochs(text: str) -> int | None:
    """Return a number of epochs, or `None` for `auto`."""
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a whole number or auto; received {text}"
        ) from None


def train_config(options: argparse.Namespace) -> TrainConfig:
    """Return the settings that a command line gives."""
    given = vars(options)
    fields = [field.name for field in dataclasses.fields(TrainConfig)]
    return TrainConfig(**{name: given[name] for name in fields if name in given})


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
