"""The arguments of the verb `pretrain`; imports nothing heavy."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from bert_keras.cli.argument_types import field_adder, path, positive
from bert_keras.config import PRESETS, BertConfig
from bert_keras.errors import ConfigError
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.settings import (
    LAYOUTS,
    OBJECTIVES,
    ON_NONFINITE,
    OPTIMIZERS,
    PRECISIONS,
    STRATEGIES,
    UNITS,
)

_DEFAULTS = PretrainConfig()


def add_pretrain(parser: argparse.ArgumentParser) -> None:
    """Add the arguments; the settings have the names of `PretrainConfig`'s fields.

    A setting that is not given keeps the default there.
    """
    add = parser.add_argument
    add(
        "--data",
        action="append",
        required=True,
        metavar="DIR",
        type=path,
        help="folder of `pretraining-data`; given again, a next phase, such as rows of "
        "512 tokens after those of 128",
    )
    add(
        "--output",
        required=True,
        metavar="RUN",
        type=path,
        help="folder of the run; a run that was stopped goes on there",
    )
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument(
        "--size",
        metavar="SIZE",
        help=f"a new model: {', '.join(PRESETS)}, or L/H/A such as 4/256/4",
    )
    start.add_argument(
        "--encoder",
        metavar="PATH_OR_NAME",
        type=path,
        help="go on with this checkpoint, its heads included",
    )
    add(
        "--vocab",
        metavar="DIR",
        type=path,
        help="folder with vocab.txt, of a new model",
    )
    add(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a key of bert_config.json of a new model, such as hidden_dropout_prob=0",
    )
    add(
        "--held-out",
        metavar="DIR",
        type=path,
        help="data that is scored while training",
    )

    setting = field_adder(parser, _DEFAULTS)

    count: dict[str, Any] = {"type": positive, "metavar": "N"}
    share: dict[str, Any] = {"type": float, "metavar": "SHARE"}
    setting("steps", "updates, of all phases together", **count)
    setting(
        "phase_shares",
        "share of the steps of each phase; default: 0.9 and 0.1 of two",
        type=float,
        nargs="+",
        metavar="SHARE",
    )
    setting("batch_size", "examples of an update", **count)
    setting("accumulation", "parts that they come in, to save memory", **count)
    setting("optimizer", "lamb is for very large batches", choices=OPTIMIZERS)
    setting("learning_rate", "highest rate", type=float, metavar="RATE")
    setting("warmup_share", "share of the steps with a rising rate", **share)
    setting("weight_decay", "decoupled weight decay", type=float, metavar="RATE")
    setting(
        "global_clipnorm", "largest norm of the gradients", type=float, metavar="NORM"
    )
    setting("objective", "masked tokens, or left to right", choices=OBJECTIVES)
    setting(
        "next_sentence",
        "train that head where there are pairs",
        choices=["auto", "none"],
    )
    setting("mask_rate", "share of the tokens to predict; default: the data's", **share)
    setting("mask_share", "share of those that become [MASK]", **share)
    setting("random_share", "share of those that become a random token", **share)
    setting("mask_unit", "pieces, whole words or runs of words", choices=UNITS)
    setting("layout", "several examples a row, or one", choices=LAYOUTS)
    setting("seed", "same seed, same weights", type=int, metavar="N")
    setting("precision", "dtype policy", choices=PRECISIONS)
    setting("strategy", "devices to compute on", choices=STRATEGIES)
    setting("rematerialize", "compute blocks twice to save memory", action="store_true")
    setting("save_every", "steps between checkpoints", **count)
    setting("keep", "newest checkpoints that are kept", **count)
    setting("evaluate_every", "steps between scores on --held-out", **count)
    setting("held_out_examples", "most examples of it that are scored", **count)
    setting(
        "on_nonfinite",
        "what is done where a loss or gradient is not finite",
        choices=ON_NONFINITE,
    )


def pretrain_config(options: argparse.Namespace) -> PretrainConfig:
    """Return the settings that a command line gives."""
    given = dict(vars(options))
    if "phase_shares" in given:
        given["phase_shares"] = tuple(given["phase_shares"])
    fields = [field.name for field in dataclasses.fields(PretrainConfig)]
    return PretrainConfig(**{k: given[k] for k in fields if k in given})


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
