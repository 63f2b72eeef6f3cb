"""The rows of a run: train, dev (given, or held out from train) and tests."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.data.collection import JudgedCollection, is_collection, read_collection
from bert_keras.data.columns import Columns
from bert_keras.data.duplicates import new_rows, shared_rows
from bert_keras.data.holdout import class_sizes, stratified_holdout, uncovered_classes
from bert_keras.data.memory import is_data, is_path, rows_in_memory
from bert_keras.data.row_source import RowSource
from bert_keras.data.table import without_slices
from bert_keras.errors import ConfigError, DataError, counted
from bert_keras.settings import options_of
from bert_keras.tasks import class_of
from bert_keras.tasks.base import AnyTask, Task, by_role, overrides, replaced
from bert_keras.tasks.plain_settings import check_effects
from bert_keras.tasks.protocols import TAUGHT, Redacting, texts_of
from bert_keras.training.choices import AUTO, GIVEN, Choice, Facts, TrainRequest
from bert_keras.training.config import FEW_ROWS, TrainConfig

_AT_ONCE = 1 << 14  # cells
UNLABELED = "unlabeled"
_LEAST_OF_A_CLASS = 5  # dev rows
_NOT_TESTS = ("train", "dev", UNLABELED)
_TAKEN = {*_NOT_TESTS, "runs", "diverged"}  # names of scores


def read_rows(
    request: TrainRequest, task: type[Task] | Task
) -> tuple[dict[str, Columns], dict[str, JudgedCollection]]:
    """Return the rows of a run by name, and its tests of search.

    The rows are `train`, `dev` if it is given, and the tests.

    Raises:
        ConfigError: an argument is not data.
        DataError: data cannot be read.
    """
    collections, tests = {}, {}
    for name, each in _named_tests(request.test).items():
        if isinstance(each, JudgedCollection):
            collections[name] = each
        elif is_collection(each):
            collections[name] = read_collection(each)
        else:
            tests[name] = each

    def read(name: str, data: Any) -> Columns:
        is_scored = name != "train" or request.dev is None
        slices = request.slices if is_scored else ()
        return labelled_rows(task, request.rows_of(data), name=name, slices=slices)

    rows = {"train": read("train", request.train)}
    if request.dev is not None:
        rows["dev"] = read("dev", request.dev)
    return rows | {
        name: read("test", each) for name, each in tests.items()
    }, collections


def fitted_task(
    task: type[Task] | Task,
    rows: Mapping[str, Columns],
    settings: Mapping[str, Any],
    *,
    held_out: int = 0,
) -> Task:
    """Return the task of a run, whose settings follow from the training rows.

    Args:
        task: a class, or a task, which is kept.
        rows: by name; their texts and labels are checked.
        settings: of the task, given and chosen.
        held_out: how many of the training rows are now `dev`.

    Raises:
        DataError: a text or a label is missing or wrong.
    """
    if isinstance(task, Task):
        made = replaced(task, **settings) if settings else task
    else:
        try:
            made = task.from_columns(rows["train"], **settings)
        except DataError as error:
            if held_out:
                total = len(rows["train"]) + held_out
                note = f"held out for dev: {held_out:,} of {total:,} rows"
                error.args = (f"{error}; {note}",)
            raise
        check_effects(made, settings)
    for each in rows.values():
        texts_of(made, each, use="score")
        made.targets(each)
    return made


def row_notes(
    task: Task, rows: Mapping[str, Columns], *, held_out: Collection[str]
) -> list[str]:
    """Return what the user has to know of the rows: doubts, and rows in two sets.

    `held_out` are the names of the sets that are a part of the given training rows.
    """
    notes = list(task.notes(rows["train"]))
    trained = texts_of(task, rows["train"])
    for name, each in rows.items():
        if name not in ("train", UNLABELED):
            others = texts_of(task, each)
            notes += shared_rows(trained, others, each, held_out=name in held_out)
    return notes


def labelled_rows(
    task: type[Task] | Task,
    source: RowSource,
    *,
    name: str = "data",
    slices: Sequence[str] = (),
) -> Columns:
    """Return the rows of data that `as_columns` accepts, as a task reads them.

    `Columns` are returned as they are; `name` is the argument, for errors; `slices` are
    further columns, to slice the scores by.
    """
    data = source.data
    if isinstance(data, Columns):
        return source.with_slices(data, slices)
    if is_collection(data):
        raise ConfigError(
            "a folder of documents and queries may be `test` of one run; received it "
            f"as `{name}`, or with several runs"
        )
    if not is_path(data):
        source = dataclasses.replace(source, data=rows_in_memory(data, name=name))
    found = task.read(source.data, columns=source.columns, **source.rules)
    return source.with_slices(found, slices)


def new_unlabeled_rows(
    request: TrainRequest, task: Task, labelled: Iterable[Columns]
) -> tuple[Columns, list[str]]:
    """Return the unlabeled rows that differ from all labelled ones and each other.

    Also returns a note on the others, if there are any. The rows have any form that
    `as_columns` takes.

    Raises:
        DataError: a row has a label, or all equal a labelled one.
    """
    found = unlabeled_rows(request, task)
    kept = new_rows([texts_of(task, each) for each in labelled], texts_of(task, found))
    if not kept:
        raise DataError(
            "unlabeled rows must differ from the labelled ones; received "
            f"{len(found):,} rows, all of which equal one",
            path=found.path,
        )
    notes = []
    if len(kept) < len(found):
        notes.append(
            f"{found.path}: {len(kept):,} of {len(found):,} unlabeled rows are used; "
            "the others are equal to a labelled one, or to each other"
        )
    return found.take(kept), notes


def unlabeled_rows(request: TrainRequest, task: Task) -> Columns:
    """Return the texts of the unlabeled rows, none of which may have a label.

    Raises:
        DataError: a row has a label.
    """
    data, use = request.unlabeled, "unlabeled rows"
    named = by_role(task.columns, request.columns or {})
    if isinstance(data, Columns):
        data.refuse_labels(use)
        return data
    if not is_path(data):
        data = rows_in_memory(data, name=UNLABELED)
    texts = {role: name for role, name in named.items() if role in task.roles}
    flags = str(named.get("label") or task.columns.get("label", "")).split(",")
    labels = {f"label {name}": name.strip() for name in flags if name}
    given: dict[str, Any] = {"columns": texts, "roles": task.roles, "others": labels}
    found = task.read(data, **given, **request.rows_of(data).rules)
    found.refuse_labels(use)
    cells = {role: c for role, c in found.cells.items() if role not in labels}
    return Columns(found.path, cells, found.lines)


def _named_tests(test: Any) -> dict[str, Any]:
    """Return the test sets by name; a single one is named `test`."""
    if test is None:
        return {}
    several = isinstance(test, Mapping) and all(
        isinstance(each, Columns | JudgedCollection) or is_data(each)
        for each in test.values()
    )
    tests = dict(test) if several else {"test": test}
    taken = sorted(_TAKEN & set(tests))
    if taken:
        raise ConfigError(
            f"`test` must have other names than {', '.join(sorted(_TAKEN))}; "
            f"received {taken[0]}"
        )
    return tests


def tests_of(data: Mapping[str, Any]) -> list[str]:
    """Return the names of the test sets of a run."""
    return [name for name in data if name not in _NOT_TESTS]


def count_tests(data: Mapping[str, Columns]) -> int:
    """Return the number of rows of all test sets of a run."""
    return sum(len(data[name]) for name in tests_of(data))


def digest_of_rows(columns: Columns) -> str:
    """Return the number of rows and a digest that does not depend on their file."""
    found = hashlib.blake2b(digest_size=8)
    for role in without_slices(columns):
        if role == TAUGHT:  # which follows from the teacher
            continue
        # Together the parts are one JSON text: `[role, [cell, cell]]`.
        found.update(f"[{json.dumps(role)}, [".encode())
        for start in range(0, len(columns), _AT_ONCE):
            some = list(columns[role][start : start + _AT_ONCE])
            cells = json.dumps(some, ensure_ascii=True, default=str)[1:-1]
            found.update(f"{', ' if start else ''}{cells}".encode())
        found.update(b"]]")
    return f"{len(columns):,} rows, {found.hexdigest()}"


def with_compared_rows(facts: Facts) -> Facts:
    """Return the facts of a run that has dev rows if it is compared with others.

    So it has also where a method is chosen that needs none.
    """
    config = facts.config
    if not facts.is_compared or config.method != AUTO or facts.has_dev:
        return facts
    split = config.with_split().validation_split
    config = dataclasses.replace(config, validation_split=split)
    return dataclasses.replace(facts, config=config)


def choose_split(
    facts: Facts, method: str, settings: Mapping[str, Any]
) -> tuple[Columns, Columns | None, Choice]:
    """Choose which of the training rows are held out as dev rows.

    Args:
        facts: of the run.
        method: of the run; only finetune needs dev rows, to choose the epoch.
        settings: of the task, given and chosen.

    Returns:
        The rows to train on, the dev rows or `None`, and the choice.

    Raises:
        DataError: there are too few rows to hold some out.
    """
    rows = facts.rows
    config = dataclasses.replace(facts.config, method=method)
    share = config.with_split().validation_split or 0.0
    reason = GIVEN if config.validation_split is not None else ""

    def chosen(share: float, reason: str) -> Choice:
        value = f"{share:g}" if share else "none"
        return Choice("validation split", value, reason, "--validation-split")

    if facts.has_dev:
        return rows, None, chosen(0, "dev rows are given")
    if few := _too_few_to_hold_out(facts, config, share, settings):
        return rows, None, chosen(0, few)
    if not share:
        if method != "finetune":
            reason = (
                f"all {len(rows):,} rows are in the model, and its scores are from "
                "cross-validation"
            )
        elif facts.config.validation_split == 0:
            reason = f"{GIVEN}: the model of the last epoch is kept"
        return rows, None, chosen(0, reason)
    task = facts.task
    strata, groups = task.strata(rows, **settings), task.groups(rows)
    count = max(1, round(len(rows) * share))
    held_out: list[int] = []
    whole = task.scores_groups
    if count < len(rows):
        held_out = stratified_holdout(
            strata, count, seed=config.seed, groups=groups, whole=whole
        )
    if not held_out:
        raise DataError(
            f"has too few rows to hold some out for dev ({len(rows)}; each class "
            "needs one in training): give dev rows, or --validation-split 0 to have "
            "none",
            path=rows.path,
        )
    kept = np.delete(np.arange(len(rows)), held_out)
    why = "queries stay whole" if whole else "each class is in training"
    other = f", not {count:,}: {why}" if len(held_out) != count else ""
    line = (
        f"{len(held_out):,} of {len(rows):,} training rows are held out for dev (seed "
        f"{config.seed}){other}"
    )
    if missing := uncovered_classes(strata, held_out, option="--validation-split"):
        line += f"; dev has {missing}"
    shared = {groups[n] for n in kept} & {groups[n] for n in held_out} if groups else ()
    if shared:
        line += f"; {len(shared):,} first texts are in both"
    return rows.take(kept), rows.take(held_out), chosen(share, line)


def _too_few_to_hold_out(
    facts: Facts, config: TrainConfig, share: float, settings: Mapping[str, Any]
) -> str:
    """Return why no dev rows are held out by default; empty if some are.

    With fewer than 1,000 rows, a tenth that has fewer than 5 rows of a class, or with
    an entity, would choose the epoch by chance, and training needs it. This concerns
    tasks with a linear head and tags, unless a setting is given that is fitted on dev
    rows, or dev scores are compared with other runs'.
    """
    task, rows = facts.task, facts.rows
    is_left_open = config.validation_split is None and config.method == "finetune"
    compares_dev = facts.is_compared and not facts.tries_methods
    needs_dev = config.patience or compares_dev or fits_on_dev(task, settings)
    if not is_left_open or needs_dev or len(rows) >= FEW_ROWS:
        return ""
    strata = task.strata(rows, **settings)
    sizes = class_sizes(strata)
    if overrides(task, "linear_targets"):
        least = min(sizes.values(), default=len(rows))
        of = " of a class" if sizes else ""
    elif isinstance(task, Redacting) and sizes:  # of the types of its entities
        least = sum(bool(class_sizes([names])) for names in strata)
        of = " with an entity"
    else:
        return ""
    count = round(share * least)
    if count >= _LEAST_OF_A_CLASS:
        return ""
    held = counted(count, "rows") if count else "no row"
    return (
        f"a tenth of the {len(rows):,} training rows has {held}{of}, too few to choose "
        "an epoch; all rows are trained on, and the last epoch is kept. For a score, "
        "give `--test` rows"
    )


def fits_on_dev(task: type[Task] | Task, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a task that ask for a fit on dev rows, by name.

    Only those which have no effect without dev rows.
    """
    options = options_of(class_of(task)).values()
    asked = dict(
        each.fitted_by for each in options if each.fitted_by and not each.unset
    )
    given = {name: settings.get(name, off) for name, off in asked.items()}
    return {name: value for name, value in given.items() if value != asked[name]}


def _thresholds(task: Task) -> dict[str, str]:
    """Return the thresholds that a task fits on dev, and what asks for each."""
    settings = task.get_config()
    return {
        name: each.fitted_by[0]
        for name, each in options_of(type(task)).items()
        if each.fitted_by and each.unset
        if settings[each.fitted_by[0]] != each.fitted_by[1]
    }


def untuned(task: AnyTask) -> AnyTask:
    """Return the task of a trained model without the thresholds fitted on its dev rows.

    A folder does not tell fitted thresholds from given ones.
    """
    options = options_of(type(task))
    fitted = {name: options[name].default for name in _thresholds(task)}
    return replaced(task, **fitted) if fitted else task


def check_without_dev(task: Task, config: TrainConfig) -> list[str]:
    """Return notes on what is not fitted in a run of finetune without dev rows.

    Args:
        task: the task.
        config: as given.

    Raises:
        ConfigError: a given setting needs dev rows.
    """
    settings = task.get_config()
    requested = fits_on_dev(task, settings)
    if config.patience:
        requested["patience"] = config.patience
    for name, value in requested.items():
        raise ConfigError(f"`{name}` needs dev rows; received {value} and no dev rows")
    return [
        f"no dev rows: no threshold is fitted ({asks} {settings[asks]})"
        for name, asks in _thresholds(task).items()
        if not settings[name]
    ]
