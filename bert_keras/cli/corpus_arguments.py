"""The arguments of the verbs that read a corpus: `vocab` and `pretraining-data`."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from bert_keras.cli.argument_types import field_adder, path, positive
from bert_keras.corpus.documents import FORMS
from bert_keras.pretraining.data_config import PretrainingDataConfig
from bert_keras.settings import MASKING, NEXT_SENTENCE, UNITS

_DEFAULTS = PretrainingDataConfig()


def add_vocab(vocab: argparse.ArgumentParser) -> None:
    _corpus(vocab)
    add = vocab.add_argument
    add(
        "--output", required=True, metavar="DIR", type=path, help="folder for vocab.txt"
    )
    add("--size", type=positive, default=30_522, metavar="N", help="default: 30522")
    add("--cased", action="store_true", help="keep case and accents")
    add(
        "--min-count",
        type=positive,
        metavar="N",
        help="least occurrences of a character or of a pair of pieces; "
        "default: 2, or one for each ten million characters",
    )
    add(
        "--reserved",
        action="append",
        default=[],
        metavar="TOKEN",
        help="a further token to include; may be repeated",
    )
    add(
        "--max-words",
        type=positive,
        default=2_000_000,
        metavar="N",
        help="distinct words kept in memory; default: 2000000",
    )
    add(
        "--learner",
        choices=("merges", "tf-text"),
        default="merges",
        help="merges: exactly --size tokens, in seconds (default); tf-text: "
        "usually a few percent fewer, in minutes",
    )


def add_pretraining_data(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `pretraining-data`; the settings have the names of fields.

    A setting that is not given keeps the default of `PretrainingDataConfig`.
    """
    _corpus(parser)
    add = parser.add_argument
    add(
        "--vocab",
        required=True,
        metavar="DIR",
        type=path,
        help="folder with vocab.txt, of `bert-keras vocab` or of any BERT",
    )
    add(
        "--output",
        required=True,
        metavar="DIR",
        type=path,
        help="folder for the shards; an interrupted run resumes there",
    )
    add(
        "--workers", type=positive, default=1, metavar="N", help="processes; default: 1"
    )
    add(
        "--beam",
        metavar="FLAGS",
        help="run on Apache Beam with its own flags in one argument, such as "
        "'--runner=FlinkRunner --flink_master=host:8081'; files may be in buckets",
    )

    setting = field_adder(parser, _DEFAULTS)

    count: dict[str, Any] = {"type": positive, "metavar": "N"}
    share: dict[str, Any] = {"type": float, "metavar": "SHARE"}
    setting("max_length", "tokens of a row", **count)
    setting(
        "max_predictions",
        "most masked tokens of a row; default: 20 at length 128, 76 at 512",
        **count,
    )
    setting("mask_rate", "share of the tokens to predict", **share)
    setting("mask_share", "share of those that become [MASK]", **share)
    setting("random_share", "share of those that become a random token", **share)
    setting("mask_unit", "pieces, whole words or runs of words", choices=UNITS)
    setting("short_sequence_probability", "share of documents with short rows", **share)
    setting(
        "dupe_factor",
        "passes over the text; default: 10 for static masks, 1 for dynamic",
        **count,
    )
    setting("next_sentence", "what the second text of a row is", choices=NEXT_SENTENCE)
    setting(
        "masking",
        "write masks to the shards, or draw them in training",
        choices=MASKING,
    )
    setting("seed", "same seed, same bytes", type=int, metavar="N")
    setting("block_characters", "text of a shard", **count)


def pretraining_data_config(options: argparse.Namespace) -> PretrainingDataConfig:
    """Return the settings that a command line gives."""
    given = vars(options)
    fields = [field.name for field in dataclasses.fields(PretrainingDataConfig)]
    return PretrainingDataConfig(**{k: given[k] for k in fields if k in given})


def _corpus(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "corpus",
        nargs="+",
        metavar="CORPUS",
        type=path,
        help="files, folders or globs, compressed or not, local or such as s3://…",
    )
    add(
        "--form",
        choices=("auto", *FORMS),
        default="auto",
        help="form of the files; default: auto, recognized by their start",
    )
    add(
        "--text-field",
        default="text",
        metavar="NAME",
        help="field of jsonl that holds the text; default: text",
    )
    add(
        "--errors",
        choices=("strict", "replace"),
        default="strict",
        help="reject bytes that are not UTF-8, or replace them; default: strict",
    )
    add(
        "--language",
        default="en",
        metavar="CODE",
        help="language of the sentence rules, such as en or zh; default: en",
    )
