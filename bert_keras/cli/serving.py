"""The verbs `serve` and `deploy`."""

from __future__ import annotations

import argparse

from bert_keras.cli.arguments import MODEL
from bert_keras.cli.options import add_options, config_of, path
from bert_keras.runs.environment import load_tensorflow
from bert_keras.serving.config import ServeConfig
from bert_keras.settings import SERVER_IMAGE, SERVER_STORAGE


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
    load_tensorflow()
    from bert_keras.serving.server import serve

    serve(options.paths, config=config, is_quiet=options.quiet)


def add_deploy(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "folder",
        metavar="DIR",
        type=path,
        help="folder to write; an existing one is replaced only if `deploy` wrote "
        "all of it",
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
        help=f"server image with its tag; default: {SERVER_IMAGE}",
    )
    add(
        "--storage",
        metavar="URI",
        default=SERVER_STORAGE,
        help="where KServe finds the models, such as gs://bucket/models; default: "
        f"{SERVER_STORAGE}",
    )


def run_deploy(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.serving.deployment import write_deployment

    print(
        write_deployment(
            options.folder,
            options.models,
            image=options.image,
            storage=options.storage,
        )
    )


VERBS = {
    "serve": (add_serve, run_serve),
    "deploy": (add_deploy, run_deploy),
}
