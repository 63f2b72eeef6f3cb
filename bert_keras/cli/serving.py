"""The verb `serve`."""

from __future__ import annotations

import argparse

from bert_keras.cli.arguments import MODEL, load_backend
from bert_keras.cli.options import add_options, config_of, path
from bert_keras.serving.config import ServeConfig


def add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="[NAME=]PATH",
        type=path,
        help=f"{MODEL}, SavedModel, folder of SavedModel versions, or export for "
        "OpenVINO or ONNX Runtime; the default name is the folder's",
    )
    add_options(parser.add_argument_group("settings of the server"), ServeConfig)


def run_serve(options: argparse.Namespace) -> None:
    config = config_of(options, ServeConfig)
    from bert_keras.serving.models import named_paths, value_by_name
    from bert_keras.serving.server import serve

    paths = named_paths(options.paths)
    for index in value_by_name("index", config.index, list(paths)).values():
        from bert_keras.retrieval.vector_file import check_index

        check_index(index)
    load_backend(*paths.values(), config.rerank)

    serve(options.paths, config=config, is_quiet=options.quiet)


VERBS = {"serve": (add_serve, run_serve)}
