"""The verbs `export`, `convert`, `classes` and `info`: models as files."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from bert_keras.cli.arguments import (
    MODEL,
    ROWS,
    add_classes,
    add_columns,
    add_dimensions,
    add_own_task,
    check_named_columns,
    check_needed,
    chosen_classes,
    chosen_columns,
    declared_task,
    given_classes,
    load_backend,
    places_of,
    refuse_columns,
    with_settings,
)
from bert_keras.cli.options import (
    add_count,
    add_option,
    add_path,
    add_switch,
    add_word,
    path,
)
from bert_keras.cli.prediction import add_positive_class, set_positive_class
from bert_keras.errors import ConfigError, DataError
from bert_keras.runs.notes import collected, say
from bert_keras.settings import (
    CARD,
    EXPORT_FORMATS,
    HYBRID,
    HYBRID_WEIGHT,
    KEEP_LAYERS,
    MAX_DROP,
    PRECISION,
)

if TYPE_CHECKING:
    from pathlib import Path

    from bert_keras.models.task_model import TaskModel

_EXPORTED = ("answers", "scores")  # of `predict` and `evaluate` on the export


def add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=path, help=MODEL)
    parser.add_argument(
        "output",
        metavar="OUTPUT",
        type=path,
        help="folder for versions 1, 2 …; for an engine the folder of the model itself",
    )
    add_word(
        parser,
        "format",
        EXPORT_FORMATS,
        "saved_model takes texts, for TensorFlow Serving; openvino, onnx and litert "
        "take ids, for the engine of that name",
    )
    help = "a mixed policy stores the weights in 16 bits: half the size"
    add_option(parser, PRECISION, help=help)
    add_switch(parser, "int8", "compute in int8, for openvino and onnx")
    help = "with --int8: leave the float32 file out of the folder"
    add_switch(parser, "int8_only", help)
    add_path(
        parser,
        "calibrate",
        "FILE",
        f"{ROWS} of texts that calibrate int8 for openvino; 300 of them are used",
    )
    add_path(
        parser,
        "dev",
        "FILE",
        f"{ROWS} of labelled rows to score in float32 and in --precision or int8",
    )
    add_columns(parser)
    add_option(parser, MAX_DROP)
    add_dimensions(parser)
    add_path(
        parser,
        "index",
        "FILE",
        "index that `search --index` wrote: the SavedModel takes queries and returns "
        "ids, texts and scores of the nearest texts",
    )
    add_count(
        parser, "top", None, "with --index: number of texts in an answer", unset="5"
    )
    add_path(
        parser,
        "rerank",
        "MODEL",
        "with --index: model of the task reranking, which becomes part of the "
        "SavedModel and sorts the texts by its scores",
    )
    add_count(
        parser,
        "candidates",
        None,
        "with --rerank: number of texts per query that it sorts",
        unset="100",
    )
    add_positive_class(parser)
    add_option(parser, HYBRID, help=f"with --index: {HYBRID.help}")
    add_option(parser, HYBRID_WEIGHT)
    add_own_task(parser)


def run_export(options: argparse.Namespace) -> None:
    from bert_keras.retrieval.vector_file import check_index

    _check_export(options)
    if options.dev is None and options.calibrate is None:
        refuse_columns(
            options, "columns need `--dev` or `--calibrate`; neither is given"
        )
    task = declared_task(options)
    check_named_columns(options, options.dev, task=task)
    check_named_columns(options, options.calibrate, task=task, labelled=False)
    if options.index is not None:
        check_index(options.index)
    load_backend(checkpoints=[options.model, options.rerank])
    from bert_keras.exports.saved_model import export_model
    from bert_keras.files.atomic import check_output_place
    from bert_keras.models.loading import load_model

    is_served = options.format == "saved_model"
    places = places_of(options, "model", "calibrate", "dev", "index", "rerank")
    check_output_place("output", options.output, places, around=is_served)
    model = load_model(
        options.model,
        task=options.task,
        dtype=options.precision,
        classes=given_classes(options),
    )
    with_settings(model, options, uses=_EXPORTED)
    if options.dimensions is not None:
        from bert_keras.retrieval.embedder import shortened_task

        model.task = shortened_task(model, options.dimensions)
    if options.index is not None:
        _export_search(model, options)
        return
    if not is_served:
        _export_to_engine(model, options)
        return
    folder = export_model(model, options.output)
    if options.precision != "float32":
        _compare_to_float32(folder, model, options)
    print(folder)


def _export_search(model: TaskModel, options: argparse.Namespace) -> None:
    from bert_keras.models.loading import load_model
    from bert_keras.retrieval.export import export_search
    from bert_keras.retrieval.index import CANDIDATES

    ranker = None
    if options.rerank is not None:
        ranker = load_model(options.rerank, dtype=options.precision)
        set_positive_class(ranker, options.positive_class)
    folder = export_search(
        model,
        options.output,
        index=options.index,
        top=options.top or 5,
        rerank=ranker,
        candidates=options.candidates or max(CANDIDATES, options.top or 5),
        hybrid=options.hybrid,
        hybrid_weight=options.hybrid_weight,
    )
    print(folder)


def _check_export(options: argparse.Namespace) -> None:
    """Raise a ConfigError for options that do not fit the format."""
    if options.index is not None and (options.format != "saved_model" or options.dev):
        raise ConfigError("`--index` needs --format saved_model, without --dev")
    check_needed(options, "index", "top", "rerank", "hybrid")
    check_needed(options, "rerank", "candidates", "positive_class")
    check_needed(options, "hybrid", "hybrid_weight", default=HYBRID_WEIGHT.default)
    if options.format != "saved_model" and options.precision != "float32":
        raise ConfigError(
            f"`--precision` must be float32 for --format {options.format}: an engine "
            f"is given its precision when it runs; received {options.precision}"
        )
    if options.int8 and options.format not in ("openvino", "onnx"):
        raise ConfigError(
            f"`--int8` needs --format openvino or onnx; received {options.format}"
        )
    if options.int8 and options.format == "openvino" and options.calibrate is None:
        raise ConfigError("`--int8` needs `--calibrate FILE` for --format openvino")
    check_needed(options, "int8", "int8_only", "calibrate")
    check_needed(options, "int8", "max_drop", default=MAX_DROP.default)
    if options.dev is not None and not options.int8 and options.precision == "float32":
        raise ConfigError(
            f"`--dev` needs `--int8` or a `--precision` of 16 bits, whose scores it "
            f"compares with the scores of float32; received {options.dev}"
        )


def _export_to_engine(model: TaskModel, options: argparse.Namespace) -> None:
    from bert_keras.inference.engine_export import export_to_engine
    from bert_keras.report.terminal import score_table

    task = model.task
    given: dict[str, Any] = {"columns": chosen_columns(options)}
    given["header"] = options.header
    dev = None if options.dev is None else task.read(options.dev, **given)
    calibration, reason = None, ""
    if options.calibrate and dev is not None and options.format == "onnx":
        say(f"{options.calibrate} is not used: int8 for onnx is not calibrated")
    elif options.calibrate is not None:
        try:
            calibration = task.read(options.calibrate, **given)
            if dev is None:
                dev = calibration
                say(f"int8 is scored on {options.calibrate}; --dev scores other rows")
        except DataError as error:  # without labels, or with wrong ones
            reason = f" ({error})"
            given["roles"] = task.roles
            calibration = task.read(options.calibrate, **given)
            if options.format == "onnx":
                say(f"{options.calibrate} is not used: int8 for onnx is not calibrated")
    if options.int8 and dev is None:
        say(f"int8 is not scored: give a labelled file as --dev{reason}")

    def show(precision: str, scores: dict[str, Any]) -> None:
        say(f"{precision}, {options.dev or options.calibrate}:")
        say(score_table(scores))

    found = export_to_engine(
        model,
        options.output,
        format=options.format,
        int8=options.int8,
        int8_only=options.int8_only,
        calibration=calibration,
        dev=dev if options.int8 else None,
        max_drop=options.max_drop,
        seen=show,
    )
    if options.int8 and not options.int8_only:
        say("the folder also holds the float32 model; --int8-only leaves it out")
    print(found.folder)


def _compare_to_float32(
    folder: Path, model: TaskModel, options: argparse.Namespace
) -> None:
    """Report the size of a 16-bit export and, with --dev, its scores."""
    from bert_keras.inference.predictor import Predictor, load_predictor
    from bert_keras.report.terminal import score_table
    from bert_keras.training.evaluation import evaluate

    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    weights = 4 * model.count_params()
    say(
        f"{options.precision}: {size / 1e6:,.1f} MB; the weights alone take "
        f"{weights / 1e6:,.1f} MB in float32"
    )
    if options.dev is None:
        return
    exact = load_predictor(
        options.model, task=options.task, classes=given_classes(options)
    )
    with_settings(exact.model, options, uses=_EXPORTED)
    for name, predictor in ((options.precision, Predictor(model)), ("float32", exact)):
        say(f"{name}, {options.dev}:")
        with collected(shown=name != "float32"):  # notes on the same rows
            scores = evaluate(
                predictor,
                options.dev,
                columns=chosen_columns(options),
                header=options.header,
            )
        say(score_table(scores))


def add_convert(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="FROM", type=path, help=f"checkpoint, {MODEL}")
    add("target", metavar="TO", type=path, help="folder to write")
    add(
        "--to",
        metavar="FORMAT",
        default="huggingface",
        help="google, huggingface, keras-hub or model-garden; default: huggingface",
    )
    add_option(parser, KEEP_LAYERS)
    add(
        "--part",
        metavar="PART",
        help="model of a Google checkpoint of ELECTRA: discriminator or generator; "
        "default: discriminator, unless there is only a generator",
    )
    add_option(parser, CARD, help=f"{CARD.help}; only --to huggingface has one")


def run_convert(options: argparse.Namespace) -> None:
    load_backend(checkpoints=[options.source])
    from bert_keras.models.convert import convert

    notes = convert(
        options.source,
        options.target,
        to=options.to,
        keep_layers=options.keep_layers,
        part=options.part,
        card=options.card,
    )
    for note in notes:
        print(note, file=sys.stderr)
    print(options.target)


def add_own_classes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=path, help=MODEL)
    parser.add_argument("output", metavar="OUTPUT", type=path, help="folder to write")
    add_classes(parser, required=True)
    add_path(
        parser,
        "dev",
        "FILE",
        f"{ROWS} of labelled rows that calibrate the classifier: its temperature, with "
        "--multi-label also the thresholds",
    )
    add_columns(parser)
    add_option(parser, CARD)


def run_own_classes(options: argparse.Namespace) -> None:
    if options.dev is None:
        refuse_columns(options, "columns need `--dev`, which is not given")
    check_named_columns(options, options.dev, task=declared_task(options))
    load_backend(checkpoints=[options.model])
    from bert_keras.inference.zero_shot import save_classes

    folder = save_classes(
        options.model,
        options.output,
        dev=options.dev,
        columns=chosen_columns(options),
        header=options.header,
        card=options.card,
        **chosen_classes(options),
    )
    print(folder)


def add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="PATH",
        type=path,
        nargs="?",
        help=f"{MODEL}, checkpoint or SavedModel",
    )
    help = "describe this machine instead: versions, cores, processor features"
    add_switch(parser, "machine", help)
    add_switch(parser, "json", "print JSON")


def run_info(options: argparse.Namespace) -> None:
    from bert_keras.files.json_file import json_text
    from bert_keras.runs.environment import environment, processor_features

    if options.machine == (options.path is not None):
        raise ConfigError("`info` takes either a PATH or --machine")
    if options.machine:
        features = {
            name: "yes" if there else "no"
            for name, there in processor_features().items()
        }
        facts: dict[str, Any] = {**environment(), **features}
    else:
        from bert_keras.cli.info import describe

        facts = describe(options.path)
    if options.json:
        print(json_text(facts, ensure_ascii=True))
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        print(f"{key:<{width}}  {value}")


VERBS = {
    "export": (add_export, run_export),
    "convert": (add_convert, run_convert),
    "classes": (add_own_classes, run_own_classes),
    "info": (add_info, run_info),
}
