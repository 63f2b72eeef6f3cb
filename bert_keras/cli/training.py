"""The verbs `train`, `evaluate` and `compare`."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.cli.arguments import (
    ASKED,
    QUERY_ENCODER,
    ROWS,
    add_bad_rows,
    add_columns,
    add_inference,
    add_planned_output,
    add_settings,
    add_slices,
    add_target_file,
    check_named_columns,
    check_planned_output,
    chosen_columns,
    declared_task,
    load_backend,
    predictor_of,
    print_plan,
    refuse_columns,
    suggest_bfloat16,
)
from bert_keras.cli.options import (
    add_count,
    add_option,
    add_options,
    add_path,
    add_switch,
    add_word,
    config_of,
    flag,
    offer,
    path,
)
from bert_keras.errors import ConfigError
from bert_keras.settings import (
    HYBRID_WEIGHT,
    RERANK_WEIGHT,
    RESUME,
    SEARCHES,
    Option,
    grid_of,
)
from bert_keras.tasks import TASKS, check_task_name, find_task, parse_settings
from bert_keras.training.config import TrainConfig

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task


def add_train(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    task = add("task", metavar="TASK", help="see `bert-keras tasks`; or module:Class")
    offer(task, TASKS)
    add_path(
        parser,
        "encoder",
        "PATH_OR_NAME",
        "pretrained model: folder, Google checkpoint or hf://owner/name; needed unless "
        "a student starts from its --teacher",
    )
    _add_rows(parser)
    add_settings(parser, "a setting of the task, such as class_weights=balanced")
    add(
        "--decoder",
        metavar="DECODER",
        help="for tasks that generate text: encoder (a copy of its weights), shared "
        "(the same weights), a new one of layers/hidden/heads such as 3/384/6, or a "
        "pretrained model; default: encoder",
    )
    add_path(
        parser,
        "target_vocab",
        "DIR",
        "folder with vocab.txt for the generated texts; default: the encoder's",
    )
    add_word(
        parser,
        "resume",
        RESUME,
        "auto: resume an interrupted run with the same settings and rows; never: "
        "delete it",
    )
    _add_several_runs(parser)
    add_options(parser.add_argument_group("settings of the training"), TrainConfig)


def _add_rows(parser: argparse.ArgumentParser) -> None:
    """Add what a run reads, and where it writes."""
    add_path(parser, "train", "FILE", f"{ROWS} of training rows", required=True)
    add_path(parser, "dev", "FILE", "rows on which the best epoch is chosen")
    parser.add_argument(
        "--test",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        type=path,
        help="rows to score once at the end; may be repeated",
    )
    add_path(
        parser,
        "unlabeled",
        "FILE",
        f"{ROWS} of texts without labels. Methods linear and contrastive: the head is "
        "also trained on its confident predictions for them, if this improves the "
        "cross-validated score; with a teacher: the student learns its answers to them",
    )
    add_planned_output(parser, "DIR", "the model folder to write")
    add_columns(parser)
    add_bad_rows(parser)
    add_slices(parser)
    add_target_file(parser)
    add_path(parser, "dev_target_file", "FILE", "the same for --dev")
    parser.add_argument(
        "--test-target-file",
        action="append",
        default=[],
        metavar="FILE",
        type=path,
        help="the same for --test; one for each --test, in the same order",
    )


def _add_several_runs(parser: argparse.ArgumentParser) -> None:
    """Add the options of which each makes several runs."""
    several = parser.add_mutually_exclusive_group()
    add_count(
        several,
        "seeds",
        1,
        "train with N seeds, keep the best model on dev, report mean and standard "
        "deviation",
    )
    declared = Option(
        None,
        "train with each combination of settings: paper, for 18 combinations of batch "
        "size, learning rate and epochs; or the values of one setting (batch_size, "
        "learning_rate, epochs or method), such as epochs=2,4,8",
        name="search",
        unit="grid",
        pattern="paper|[a-z_]+=.+",
        form=SEARCHES,
    )
    add_option(several, declared)
    several.add_argument(
        "--try",
        dest="tries_methods",
        action="store_true",
        help="compare the methods that the task allows on the same folds or dev rows, "
        "and keep the best one; without --dev, it is then trained on the rows of "
        "--train, of which finetune may hold out some as dev rows",
    )
    add_switch(
        several,
        "learning_curve",
        "also train on 1/8, 1/4 and 1/2 of the rows; the report shows the scores by "
        "the number of rows",
    )


def run_train(options: argparse.Namespace) -> None:
    check_task_name(options.task)
    check_planned_output(options)
    if options.plan:
        _check_single(options)
    tests = _tests(options)
    files = [
        (options.train, options.target_file),
        (options.dev, options.dev_target_file),
        *tests.values(),
    ]
    _check_columns(options, files)
    _check_tables(options, files)
    config = config_of(options, TrainConfig)
    if options.dev is not None and "validation_split" in vars(options):
        raise ConfigError(
            "`--validation-split` and `--dev` cannot both be given; "
            f"received {options.validation_split} and {options.dev}"
        )
    load_backend(config.teacher, checkpoints=[options.encoder])
    from bert_keras.exports.model_card import VALIDATION
    from bert_keras.report.terminal import interval_line, score_table
    from bert_keras.training import finetune as training
    from bert_keras.training import several_runs

    task = find_task(options.task)
    task_settings = {
        **parse_settings(task, options.settings),
        **_decoder_settings(task, options),
    }
    train: Any = training.train
    if options.plan:
        train = training.plan
    elif options.seeds > 1:
        train = functools.partial(several_runs.train_seeds, seeds=options.seeds)
    elif options.tries_methods:
        train = several_runs.try_methods
    elif options.search:
        check_free(options)
        train = functools.partial(several_runs.search_settings, grid=options.search)
    elif options.learning_curve:
        train = several_runs.train_sizes
    if not options.plan:
        train = functools.partial(train, output=options.output)
    result = train(
        task,
        encoder=options.encoder,
        train=_pairs(options.train, options.target_file),
        dev=_pairs(options.dev, options.dev_target_file),
        test={name: _pairs(*files) for name, files in tests.items()},
        unlabeled=options.unlabeled,
        columns=chosen_columns(options),
        header=options.header,
        bad_rows=options.bad_rows,
        config=config,
        slices=options.slices,
        task_settings=task_settings,
        command=options.command_line,
        resume=options.resume,
    )
    if options.plan:
        print_plan(result, options.output)
        return
    for name, scores in result.scores.items():
        print(f"{name}:")
        print(score_table(scores))
        if name.startswith(VALIDATION):
            print(interval_line(result.report["slices"].get(name, {})))
    print(f"model folder: {result.folder}")
    print(f"report:       {result.folder / 'report.html'}")
    if result.report["settings"].get("method") != "linear":  # which makes no updates
        suggest_bfloat16(options, "trained 1.4 times as fast")


def _check_single(options: argparse.Namespace) -> None:
    """Raise ConfigError if a plan is asked for of several runs."""
    several = {
        "--seeds": options.seeds > 1 and options.seeds,
        "--search": options.search,
        "--try": options.tries_methods,
        "--learning-curve": options.learning_curve,
    }
    for name, value in several.items():
        if value:
            received = "both" if value is True else value
            many = ", which makes about ten" if name == "--try" else ""
            raise ConfigError(
                f"`--plan` shows one run: leave out `{name}`{many}; received {received}"
            )


def _check_columns(
    options: argparse.Namespace, files: Sequence[tuple[str | None, str | None]]
) -> None:
    """Raise ConfigError if columns are named, and all files are files of lines."""
    if any(source is not None and target is None for source, target in files):
        return
    refuse_columns(
        options, "a file used with `--target-file` has one text per line and no columns"
    )


def _check_tables(
    options: argparse.Namespace, files: Sequence[tuple[str | None, str | None]]
) -> None:
    """Raise DataError if a table of rows lacks a column that it must have.

    `files` are those of training rows, of dev and of tests, with their targets.
    """
    task = TASKS[options.task] if options.task in TASKS else None
    train, dev, *tests = (
        source if target is None else None for source, target in files
    )
    is_taught = getattr(options, "teacher", None) is not None
    labelled = not is_taught or task is None or task.student_needs_labels
    check_named_columns(options, train, dev, *tests, task=task, labelled=labelled)
    check_named_columns(options, options.unlabeled, task=task, labelled=False)
    # Of the rows that are scored; without dev rows, some are held out.
    scored = [train if options.dev is None else dev, *tests]
    check_named_columns(options, *scored, further=options.slices)


def _pairs(source: str | None, target: str | None) -> Any:
    """Return a file of rows, or the pairs of lines if a file of targets is given."""
    if target is None:
        return source
    if source is None:
        raise ConfigError("`--dev-target-file` needs `--dev`; received none")
    from bert_keras.data.parallel import read_parallel

    return read_parallel(source, target)


def _tests(options: argparse.Namespace) -> dict[str, tuple[str, str | None]]:
    """Return the file of each test set and of its targets, if any, by name."""
    files = named_tests(options.test)
    targets = options.test_target_file or [None] * len(files)
    if len(targets) != len(files):
        raise ConfigError(
            "`--test-target-file` must be given once for each `--test`; received "
            f"{len(targets)} for {len(files)}"
        )
    return {
        name: (file, target)
        for (name, file), target in zip(files, targets, strict=True)
    }


def _decoder_settings(task: type[Task], options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a task with a decoder that have their own options.

    Raises:
        ConfigError: an option needs a decoder, and the task has none.
    """
    given = {"decoder": options.decoder, "target_vocab": options.target_vocab}
    found = {name: value for name, value in given.items() if value is not None}
    for name, value in {**found, "target_file": options.target_file}.items():
        if value is not None and not hasattr(task, "decoder"):
            raise ConfigError(
                f"`{flag(name)}` is for tasks that generate text; "
                f"received {value} for {task.name}"
            )
    return found


def check_free(options: argparse.Namespace) -> None:
    """Raise ConfigError if an option is given that the search chooses."""
    given = vars(options)
    for name in grid_of(options.search):
        if name in given:
            raise ConfigError(
                f"`--search {options.search}` chooses {name}: leave out "
                f"{flag(name)} {given[name]}"
            )


def named_tests(given: list[str]) -> list[tuple[str, str]]:
    """Return the name and path of each test file; a single file is named `test`.

    A file is given as NAME=FILE, or as FILE and named after the file.
    """
    found: dict[str, str] = {}
    for item in given:
        name, equals, path = item.partition("=")
        if not equals or os.path.exists(item):
            stem = os.path.basename(item).split(".")[0]
            name, path = ("test" if len(given) == 1 else stem), item
        if not name or not path or name in found:
            raise ConfigError(
                f"`--test` must be FILE, or NAME=FILE with a unique name; "
                f"received {item!r}"
            )
        found[name] = path
    return list(found.items())


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=path, help=ASKED)
    parser.add_argument(
        "file",
        metavar="FILE",
        type=path,
        help=f"{ROWS}; or a folder in the form of BEIR, with corpus.jsonl, "
        "queries.jsonl and qrels/, for models that search or rerank",
    )
    add_switch(parser, "json", "print JSON")
    _add_collection(parser)
    add_columns(parser)
    add_bad_rows(parser)
    add_slices(parser)
    add_target_file(parser)
    add_inference(parser)


def _add_collection(parser: argparse.ArgumentParser) -> None:
    """Add the options for a folder in the form of BEIR."""
    add_path(
        parser,
        "qrels",
        "FILE",
        "BEIR folder: judgements, in BEIR's or TREC's format; default: qrels/test.tsv",
    )
    add_path(
        parser,
        "run",
        "FILE",
        "BEIR folder: a run in TREC's format. It is scored, too, and a reranking model "
        "sorts its documents; default: the run of BM25",
    )
    add_path(parser, "save_run", "FILE", "BEIR folder: write the model's run")
    add_count(
        parser,
        "top",
        None,
        "BEIR folder: number of documents that are ranked for each query; a reranking "
        "model leaves the other documents of --run in their order",
        unset="100",
    )
    add_path(
        parser,
        "index",
        "FILE",
        "BEIR folder: vectors of its documents by this model, from `search` or "
        "`features`, which are then not computed again",
    )
    add_path(parser, "query_encoder", "MODEL", f"BEIR folder: {QUERY_ENCODER}")
    add_option(
        parser,
        HYBRID_WEIGHT,
        help="BEIR folder: weight of BM25 in the hybrid ranking; vectors have 1",
    )
    add_option(
        parser,
        RERANK_WEIGHT,
        help="BEIR folder: weight of a reranking model's score, which is added to the "
        "score in --run; the documents are sorted by the sum",
    )
    add_switch(
        parser,
        "tune",
        "BEIR folder: choose the weight of BM25 on every second judged query, and "
        "print the scores of each weight on these and on the other queries",
    )


def _evaluate_folder(options: argparse.Namespace) -> dict[str, Any]:
    """Return the scores of a model on a folder in the form of BEIR."""
    from bert_keras.data.collection import read_collection
    from bert_keras.retrieval.evaluation import TOP, evaluate_collection

    why = "a folder of documents and queries has no columns"
    refuse_columns(options, why)
    for name, default in (("slices", []), ("target_file", None), ("bad_rows", "error")):
        if (given := getattr(options, name)) != default:
            raise ConfigError(f"{why}; received {name}={given}")
    predictor = predictor_of(options, use="scores")
    collection = read_collection(options.file, qrels=options.qrels, run=options.run)
    return evaluate_collection(
        predictor,
        collection,
        top=options.top or TOP,
        batch_size=options.batch_size,
        max_batch_tokens=options.max_batch_tokens,
        save_run=options.save_run,
        index=options.index,
        hybrid_weight=options.hybrid_weight,
        tune=options.tune,
        query_encoder=options.query_encoder,
        rerank_weight=options.rerank_weight,
    )


def _check_no_folder(options: argparse.Namespace) -> None:
    """Raise ConfigError if an option of collections is given."""
    of_folder: dict[str, Any] = dict.fromkeys(
        ("qrels", "run", "save_run", "top", "index", "query_encoder", "rerank_weight")
    )
    of_folder |= {"hybrid_weight": HYBRID_WEIGHT.default, "tune": False}
    for name, default in of_folder.items():
        if (given := getattr(options, name)) != default:
            raise ConfigError(
                f"`{flag(name)}` is for a folder with corpus.jsonl; "
                f"received {given} and {options.file}"
            )


def _evaluate_rows(options: argparse.Namespace) -> dict[str, Any]:
    """Return the scores of a model on labelled rows."""
    from bert_keras.training.evaluation import evaluate

    return evaluate(
        predictor_of(options, use="scores"),
        _pairs(options.file, options.target_file),
        columns=chosen_columns(options),
        header=options.header,
        bad_rows=options.bad_rows,
        slices=options.slices,
        batch_size=options.batch_size,
        max_batch_tokens=options.max_batch_tokens,
    )


def run_evaluate(options: argparse.Namespace) -> None:
    from bert_keras.data.collection import is_collection
    from bert_keras.retrieval.vector_file import check_index

    is_judged = is_collection(options.file)
    if not is_judged:
        _check_no_folder(options)
    if not os.path.isdir(options.file):
        _check_columns(options, [(options.file, options.target_file)])
        if options.target_file is None:
            task, further = declared_task(options), options.slices
            check_named_columns(options, options.file, task=task, further=further)
    if is_judged and options.index is not None:
        check_index(options.index)
    load_backend(options.model, options.query_encoder)
    from bert_keras.files.json_file import json_text
    from bert_keras.report.terminal import score_table

    evaluate = _evaluate_folder if is_judged else _evaluate_rows
    scores = evaluate(options)
    print(json_text(scores) if options.json else score_table(scores))


def add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        type=path,
        help="two or more folders that train or pretrain wrote",
    )
    add_path(
        parser, "output", "FILE", "HTML page to write; it opens offline", required=True
    )


def run_compare(options: argparse.Namespace) -> None:
    from bert_keras.report.comparison import compare_runs

    print(f"page: {compare_runs(options.runs, output=options.output)}")


VERBS = {
    "train": (add_train, run_train),
    "evaluate": (add_evaluate, run_evaluate),
    "compare": (add_compare, run_compare),
}
