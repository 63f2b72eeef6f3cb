"""The arguments that several verbs share, and what they mean."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.cli.options import (
    FLAGS,
    add_count,
    add_option,
    add_path,
    add_switch,
    add_word,
    flag,
)
from bert_keras.errors import ConfigError
from bert_keras.runs.notes import collected
from bert_keras.settings import ENGINES, HEADER, PRECISION, options_of
from bert_keras.tasks import TASKS, parse_settings, setting_value
from bert_keras.tasks.declaration import single_columns

if TYPE_CHECKING:
    from bert_keras.answering.backend import Backend
    from bert_keras.inference.predictor import Predictor
    from bert_keras.tasks.base import Task
    from bert_keras.tasks.declaration import TaskHelp
    from bert_keras.training.choices import Decided

MODEL = "model folder or hf://owner/name"
ASKED = f"{MODEL}, or what `export` wrote"
QUERY_ENCODER = "a student that has learned the model's vectors, for the queries"
ROWS = "TSV, CSV, JSONL, Parquet or Arrow file"
# Roles with their own option, and its `dest`; `explain --target` is not a column.
_ROLES = {
    **{role: role for role in ("text", "text_pair", "label", "source", "id")},
    "target": "target_column",
}


def add_columns(parser: argparse.ArgumentParser, *, label: bool = True) -> None:
    """Add the options for the columns of the texts and of other roles."""
    add_text_column(parser)
    second = "of the second text; default: text_pair, if there is one"
    add_column(parser, "text_pair", second)
    add_column(parser, "source", "of the text to rewrite")
    if label:
        add_column(parser, "label", "of the class; default: label")
        rewritten = "of the text to be written"
        add_column(parser, "target", rewritten, dest="target_column")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="ROLE=COLUMN",
        help="column of another role of the task; may be repeated",
    )
    add_header(parser)


def add_column(
    parser: argparse.ArgumentParser, name: str, help: str, **more: Any
) -> None:
    """Add an option that names a column; `help` says which."""
    help = f"column (name, or number from 0) {help}"
    parser.add_argument(flag(name), metavar="COLUMN", help=help, **more)


def add_planned_output(
    parser: argparse.ArgumentParser, metavar: str, help: str
) -> None:
    """Add `--output` and `--plan`, which needs none."""
    add_path(parser, "output", metavar, f"{help}; required unless --plan is given")
    add_switch(
        parser,
        "plan",
        "only show the choices with their reasons, and estimate time, memory and disk "
        "space; nothing is trained or written",
    )


def check_planned_output(options: argparse.Namespace) -> None:
    """Raise ConfigError if a command that writes has no output."""
    if options.output is None and not options.plan:
        raise ConfigError(
            "`--output` must be given unless `--plan` is; received neither"
        )


def print_plan(plan: Decided, output: str | None = None) -> None:
    """Print the choices of a run, what the user has to know, and the estimate."""
    from bert_keras.report.terminal import plan_lines
    from bert_keras.runs.run_folder import replacement_note

    for line in [*plan_lines(plan.table()), *plan.notes]:
        print(line)
    if plan.estimate is not None:
        print(plan.estimate.line())
    if output is not None and (line := replacement_note(output)):
        print(line)


def add_slices(parser: argparse.ArgumentParser) -> None:
    add_column(
        parser,
        "slice",
        "of the scored rows: also score each of its values separately; may be repeated",
        action="append",
        default=[],
        dest="slices",
    )


def add_target_file(parser: argparse.ArgumentParser) -> None:
    add_path(
        parser,
        "target_file",
        "FILE",
        "file with one target per line, for a file with one source per line",
    )


def add_text_column(
    parser: argparse.ArgumentParser, *, default: str | None = None
) -> None:
    add_column(parser, "text", "of the text; default: text", default=default)


def add_header(parser: argparse.ArgumentParser) -> None:
    add_word(parser, "header", HEADER, "whether the first row names the columns")


def add_bad_rows(parser: argparse.ArgumentParser) -> None:
    add_word(
        parser,
        "bad_rows",
        ("error", "skip"),
        "a row with a problem, such as an empty text or a span that cuts a word: error "
        "names its line, skip leaves it out and counts it",
    )


def add_inference(parser: argparse.ArgumentParser) -> None:
    add_batches(parser)
    add_count(
        parser,
        "max_batch_tokens",
        None,
        "maximum tokens computed at once, padding included",
        unit="tokens",
        unset="2,048 on a processor, no limit on a GPU",
    )
    add_word(
        parser,
        "engine",
        ENGINES,
        "what computes the model; text handling stays the same",
        unset="tensorflow, or the engine of an exported folder",
    )
    add_classes(parser)
    add_own_task(parser)


def add_classes(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the options of a classifier without training rows."""
    parser.add_argument(
        "--classes",
        metavar="NAMES",
        required=required,
        help="answer with these classes, separated by commas or as a JSON list, "
        "without training; MODEL must be an entailment or an embedding model",
    )
    parser.add_argument(
        "--template",
        action="append",
        metavar="TEXT",
        help="sentence about a class, with {} for its name; default: This "
        "example is {}. for entailment; {} for an embedding model, for which it may be "
        "repeated",
    )
    help = "any number of --classes can apply to a text"
    add_switch(parser, "multi_label", help)


def chosen_classes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Predictor.with_classes`; empty without `--classes`."""
    check_needed(options, "classes", "template", "multi_label")
    if options.classes is None:
        return {}
    return {
        "classes": setting_value(options.classes),
        "template": options.template,
        "multi_label": options.multi_label,
    }


def check_needed(
    options: argparse.Namespace, needed: str, *names: str, default: Any = None
) -> None:
    """Raise ConfigError if one of some options is given without one that it needs.

    Args:
        options: the parsed command line.
        needed: the name of the other option.
        names: of options with this `default`, or of switches.
    """
    for name in names:
        given = getattr(options, name, default)
        is_given = given is not False and given != default
        if is_given and getattr(options, needed) in (None, False):
            value = "" if given is True else f"; received {given}"
            raise ConfigError(f"`{flag(name)}` needs `{flag(needed)}`{value}")


def places_of(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the files and folders that a command reads, by argument."""
    return {name: getattr(options, name) for name in names}


def add_batches(parser: argparse.ArgumentParser) -> None:
    add_count(parser, "batch_size", 32, "texts computed at once", unit="texts")
    add_option(parser, PRECISION)


def add_dimensions(parser: argparse.ArgumentParser) -> None:
    add_count(
        parser,
        "dimensions",
        None,
        "shorten vectors to their first N numbers, for models trained with --set "
        "dimensions=…",
        unset="the model's, or all",
    )


def add_beam(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beam",
        metavar=FLAGS,
        help="run on Apache Beam with its own flags in one argument, such as "
        "'--runner=FlinkRunner --flink_master=host:8081'; files may be in buckets",
    )


def add_own_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task",
        metavar="TASK",
        help="task of the model if its folder names none; may be module:Class",
    )
    add_settings(parser, "a setting that can change after training, such as top_k=10")


def add_settings(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help=f"{what}; may be repeated",
    )


def chosen_columns(options: argparse.Namespace) -> dict[str, str]:
    """Return the columns that the user chose, by role.

    Raises:
        ConfigError: a `--column` is not ROLE=COLUMN.
    """
    chosen = {role: getattr(options, place, None) for role, place in _ROLES.items()}
    found = {role: column for role, column in chosen.items() if column is not None}
    for given in options.column:
        role, equals, column = given.partition("=")
        if not role or not equals or not column:
            raise ConfigError(f"`--column` must be ROLE=COLUMN; received {given!r}")
        if role in found:
            raise ConfigError(
                f"the column of {role} must be given once; received {found[role]} and "
                f"{column}"
            )
        found[role] = column
    return found


def check_named_columns(
    options: argparse.Namespace,
    *files: str | None,
    task: TaskHelp | None = None,
    labelled: bool = True,
    further: Sequence[str] = (),
) -> None:
    """Raise DataError if a table lacks a column, before TensorFlow is imported.

    Args:
        options: the parsed command line.
        files: of rows; `None` for one that is not given.
        task: which columns must be there if the user names no other ones.
        labelled: whether the rows have labels.
        further: columns that the user names in addition to roles.
    """
    header = getattr(options, "header", HEADER[0])
    chosen = chosen_columns(options) if hasattr(options, "column") else {}
    needed = task.needed(chosen, labelled=labelled) if task is not None else []
    forms = needed or [single_columns(chosen)]
    others = {name: name for name in further}
    for file in files:
        if file is not None:
            from bert_keras.data.table import check_columns

            with collected(shown=False):  # said again where the rows are read
                check_columns(file, *forms, header=header)
                check_columns(file, others, header=header, fixed=True)


def declared_task(options: argparse.Namespace) -> TaskHelp | None:
    """Return what is declared of the task of `options.model`, `None` if unknown."""
    import json

    from bert_keras.config import KEY

    name = getattr(options, "task", None)
    if getattr(options, "classes", None) is not None:
        name = "classification"
    if name is None:
        place = os.path.join(options.model, "config.json")
        try:
            with open(place, encoding="utf-8") as file:
                name = json.load(file)[KEY]["task"]
        except (OSError, ValueError, LookupError, TypeError):
            return None  # of an export, from the hub, or broken
    return TASKS[name] if name in TASKS else None


def check_texts(options: argparse.Namespace, file: str, **columns: str) -> None:
    """Raise DataError if a table lacks its column of texts, or further `columns`."""
    from bert_keras.data.table import check_columns

    columns = {"text": options.text or "text", **columns}
    check_columns(file, columns, header=options.header)


def refuse_columns(options: argparse.Namespace, why: str) -> None:
    """Raise ConfigError, with the reason, if columns are named and no table is read."""
    given = [f"{role}={name}" for role, name in chosen_columns(options).items()]
    if options.header != HEADER[0]:
        given.append(f"header={options.header}")
    if given:
        raise ConfigError(f"{why}; received {', '.join(given)}")


def with_settings(
    model: Backend, options: argparse.Namespace, *, uses: Sequence[str]
) -> Task:
    """Apply the user's settings to a trained model; return its task.

    Args:
        model: the trained model.
        options: the parsed command line.
        uses: what the verb computes: `answers`, `scores` or both.

    Raises:
        ConfigError: a setting is unknown, or has no effect on what the verb computes.
    """
    from bert_keras.tasks.base import changed

    settings = parse_settings(model.task, options.settings)
    declared = options_of(type(model.task))
    for name in settings:
        readers = declared[name].read_by if name in declared else ()
        if readers and not set(readers) & set(uses):
            raise ConfigError(
                f"`--set {name}` has no effect on {' and '.join(uses)}: it is for "
                f"{' and '.join(readers)}"
            )
    model.task = changed(model.task, **settings)
    if width := settings.get("truncate_dim"):  # checked and told as `--dimensions` is
        from bert_keras.retrieval.embedder import shortened_task

        model.task = shortened_task(model, width)
    return model.task


def given_classes(options: argparse.Namespace) -> Any:
    """Return the names of `--set classes=…`, which a folder may need to be opened."""
    words = (word.partition("=") for word in options.settings)
    return next((setting_value(v) for name, _, v in words if name == "classes"), None)


def load_backend(*models: str | None, checkpoints: Iterable[str | None] = ()) -> None:
    """Import what computes: TensorFlow, unless each model is an export without it.

    What needs it nevertheless, such as another setting, imports it quietly.

    Args:
        models: model folders or exports; `None` for one that is not given.
        checkpoints: models that may not be exports.

    Raises:
        BertKerasError: there is no model at a path, which is told before the import.
    """
    from bert_keras.inference.session import answers_alone, find_engine
    from bert_keras.runs.environment import load_tensorflow, staying

    needed = [place for place in checkpoints if place is not None]
    check_models(*models, checkpoints=needed)
    given = [place for place in models if place is not None]
    if not given or needed or not all(map(answers_alone, given)):
        try:
            load_tensorflow()
            return
        except ConfigError:
            # Loading an export will say why this one needs TensorFlow.
            if not given or needed or not all(map(find_engine, given)):
                raise
    with staying():
        import bert_keras.inference.predictor  # noqa: F401


def check_models(*models: str | None, checkpoints: Iterable[str] = ()) -> None:
    """Raise a BertKerasError unless there is a model at each path, see `load_backend`.

    What is on a hub is not looked for.
    """
    from bert_keras.inference.session import is_export

    given = [place for place in models if place is not None]
    others = [place for place in given if not is_export(place)]
    for place in (*others, *checkpoints):
        from bert_keras.checkpoints.formats import HUB, read_checkpoint

        if not place.startswith(HUB):
            read_checkpoint(place)


def predictor_of(options: argparse.Namespace, *, use: str = "answers") -> Predictor:
    """Return the predictor of a model, with the user's settings.

    `use` is what the verb computes, `answers` or `scores`.
    """
    from bert_keras.inference.predictor import load_predictor
    from bert_keras.tasks.base import changed

    predictor = load_predictor(
        options.model,
        task=options.task,
        precision=options.precision,
        engine=options.engine,
        classes=given_classes(options),
    )
    classes, settings = chosen_classes(options), options.settings
    if classes:  # `--set classes` names the outputs of the entailment model
        if (names := given_classes(options)) is not None:
            model = predictor.model
            model.task = changed(model.task, classes=names)
        predictor = predictor.with_classes(**classes)
        settings = [word for word in settings if not word.startswith("classes=")]
    with_settings(predictor.model, argparse.Namespace(settings=settings), uses=[use])
    return predictor


def suggest_bfloat16(options: argparse.Namespace, gain: str) -> None:
    """Suggest bfloat16 if this processor computes in it, and there is no GPU.

    `gain` is what the table of speeds has for MiniLM, after its name.
    """
    import tensorflow as tf

    from bert_keras.runs.environment import computes_bfloat16
    from bert_keras.runs.progress import report

    is_float32 = getattr(options, "precision", "float32") == "float32"
    if (
        is_float32
        and computes_bfloat16()
        and not tf.config.list_physical_devices("GPU")
    ):
        report(
            "this processor can compute in bfloat16: with --precision mixed_bfloat16, "
            f"MiniLM {gain} on short texts"
        )
