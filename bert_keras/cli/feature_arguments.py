"""The arguments of `features` and `search`."""

from __future__ import annotations

import argparse

from bert_keras.cli.argument_types import path, positive
from bert_keras.cli.row_arguments import (
    MODEL,
    ROWS,
    add_batches,
    add_header,
    add_text_column,
)
from bert_keras.model.layer_choice import COMBINATIONS, NAMED_LAYERS, POOLINGS


def add_features(features: argparse.ArgumentParser) -> None:
    """Add those of `features`."""
    _encoder_and_texts(features)
    add = features.add_argument
    add(
        "--output",
        required=True,
        metavar="FILE",
        type=path,
        help="file to write: .npz, .parquet",
    )
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


def add_search(search: argparse.ArgumentParser) -> None:
    """Add those of `search`."""
    _encoder_and_texts(search)
    add = search.add_argument
    add(
        "texts",
        nargs="*",
        metavar="QUERY",
        help="what is looked for; default: a query a line of standard input",
    )
    add("--top", type=positive, default=5, metavar="N", help="texts; default: 5")
    add(
        "--index",
        metavar="FILE",
        type=path,
        help="keep the vectors there for the next time",
    )
    add(
        "--engine",
        choices=("exact", "faiss"),
        default="exact",
        help="exact, or faiss: an approximate graph for many texts; default: exact",
    )


def _encoder_and_texts(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", type=path, help=f"encoder, checkpoint, {MODEL}")
    add("file", metavar="FILE", type=path, help=f"{ROWS} with the texts")
    add_text_column(parser, default="text")
    add_header(parser)
    add(
        "--max-length",
        type=positive,
        metavar="TOKENS",
        help="longer texts are cut; default: as the model, or what it takes",
    )
    add_batches(parser)
