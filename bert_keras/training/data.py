"""The rows of a run: train, dev (given, or held out from train) and tests."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.checkpoints.sentence_files import OWN_LENGTHS
from bert_keras.data.collection import (
    JudgedCollection,
    is_collection,
    read_collection,
)
from bert_keras.data.columns import Columns
from bert_keras.data.duplicates import new_rows, shared_rows
from bert_keras.data.holdout import (
    stratified_holdout,
    uncovered_classes,
)
from bert_keras.data.memory import is_data, is_path, rows_in_memory
from bert_keras.data.rows import ColumnNames
from bert_keras.data.table import with_slices, without_slices
from bert_keras.errors import ConfigError, DataError, counted
from bert_keras.models.loading import inherited_settings
from bert_keras.runs.progress import say
from bert_keras.settings import options_of
from bert_keras.tasks import check_settings, named_or_given
from bert_keras.tasks.base import AnyTask, Task, by_role, replaced
from bert_keras.tasks.classifier import PooledTask
from bert_keras.tasks.classifier_settings import POOLER
from bert_keras.tasks.plain_settings import check_effects
from bert_keras.tasks.protocols import (
    Linear,
    groups_of,
    scores_groups,
    strata_of,
    texts_of,
)
from bert_keras.training.config import FEW_ROWS, TrainConfig
from bert_keras.training.methods import (
    OWN_POOLING,
    check_method,
    check_unlabeled,
    head_settings,
)

_AT_ONCE = 1 << 14  # cells
UNLABELED = "unlabeled"
_LEAST_OF_A_CLASS = 5  # dev rows
_NOT_SCORED = ("train", "dev", UNLABELED)
_TAKEN = {*_NOT_SCORED, "runs", "diverged"}  # names of scores


def _with_one_length(
    own: dict[str, Any], config: TrainConfig, *, tell: Callable[[str], object]
) -> dict[str, Any]:
    """Return an encoder's settings without its lengths of queries and documents if a
    maximum length is given, which is then of all texts.
    """
    lengths = {name: own[name] for name in OWN_LENGTHS if own.get(name)}
    if config.max_length is None or not lengths:
        return own
    stated = ", ".join(f"{name} {length}" for name, length in lengths.items())
    tell(f"{stated} of the encoder's folder: not used, since --max-length is given")
    return {name: value for name, value in own.items() if name not in lengths}


def task_and_data(
    task: str | type[Task] | Task,
    *,
    train: Any,
    dev: Any = None,
    test: Any = None,
    unlabeled: Any = None,
    config: TrainConfig,
    columns: ColumnNames | None = None,
    header: str = "auto",
    bad_rows: str = "error",
    task_settings: Mapping[str, Any] | None = None,
    encoder: str | os.PathLike[str] | None = None,
    slices: Sequence[str] = (),
    tell: Callable[[str], object] = say,
) -> tuple[Task, dict[str, Columns]]:
    """Return the task and the rows of a run by name: `train`, `dev` and the tests.

    The arguments are as in `train`; `tell` reports the validation split. Without dev
    rows there is no entry for `dev`, without unlabelled rows none for `unlabeled`.

    Raises:
        ConfigError: the task does not exist, or an argument is not data.
        DataError: data cannot be read, or has invalid rows.
    """
    reader = task = named_or_given(task)
    settings = dict(task_settings or {})
    if settings and isinstance(task, Task):
        raise ConfigError(
            "`task_settings` must be empty for a task instance, which has its own; "
            f"received {', '.join(settings)}"
        )
    check_settings(task, settings)
    check_method(task, config, settings)
    if unlabeled is not None:
        check_unlabeled(task, config)
    if encoder is not None and config.method == "finetune":
        own = inherited_settings(task, encoder, settings)
        own = _with_one_length(own, config, tell=tell)
        settings = {**own, **settings}
        if "pooling" in own and isinstance(task, type) and issubclass(task, PooledTask):
            tell(OWN_POOLING.format(own["pooling"]))

    def read(name: str, data: Any) -> Columns:
        is_scored = name != "train" or dev is None
        return labelled_rows(
            reader,
            data,
            name=name,
            columns=columns,
            header=header,
            bad_rows=bad_rows,
            slices=slices if is_scored else (),
        )

    given = rows = read("train", train)
    if encoder is not None and config.method != "finetune":
        if isinstance(task, type):
            settings |= head_settings(encoder, settings, tell=tell)
        elif getattr(task, "pooling", POOLER) == POOLER:
            task = replaced(task, **head_settings(encoder, {}, tell=tell))
    held_out = 0
    own = settings if isinstance(task, type) else task.get_config()
    few = ""
    if dev is None:
        few = too_few_to_hold_out(task, given, config, own)
    config = config.with_split()
    if few:
        tell(f"{few} (--validation-split holds some out, --dev gives others)")
    elif dev is None and config.validation_split:
        rows, dev = with_dev(task, given, config, own, tell=tell)
        held_out = len(dev)
    elif dev is None and config.method != "finetune":
        tell(
            f"no dev rows given: all {len(rows):,} rows are in the model, and its "
            "scores are from cross-validation"
        )
    elif dev is None:
        tell(
            "no dev rows, by --validation-split 0: the model of the last epoch is kept"
        )
    data = {"train": rows}
    if dev is not None:
        data["dev"] = read("dev", dev)
    data |= {name: read("test", each) for name, each in _named_tests(test).items()}
    if slices and len(data) == 1 and config.method == "finetune":
        raise ConfigError(
            "`slices` has no effect: no rows are scored (give --dev, --test or "
            f"--validation-split); received {', '.join(map(str, slices))}"
        )
    if isinstance(task, type):
        try:
            task = task.from_columns(rows, **settings)
        except DataError as error:
            if held_out:
                note = f"{held_out:,} of {len(given):,} rows are held out for dev"
                error.args = (f"{error}; {note}",)
            raise
        check_effects(task, settings)
    for name, each in data.items():  # find missing texts and labels before training
        texts_of(task, each, use="score")
        task.targets(each)
        if name != "train":
            for note in shared_rows(texts_of(task, rows), texts_of(task, each), each):
                tell(note)
    if unlabeled is not None:
        found = unlabelled_rows(
            task, unlabeled, columns=columns, header=header, bad_rows=bad_rows
        )
        data[UNLABELED] = _new_rows(task, found, list(data.values()), tell=tell)
    return task, data


def labelled_rows(
    task: type[Task] | Task,
    data: Any,
    *,
    name: str = "data",
    columns: ColumnNames | None = None,
    header: str = "auto",
    bad_rows: str = "error",
    slices: Sequence[str] = (),
) -> Columns:
    """Return the rows of data that `as_columns` accepts, as a task reads them.

    `Columns` are returned as they are; `name` is the argument, for errors; `slices` are
    further columns, to slice the scores by.
    """
    if isinstance(data, Columns):
        return with_slices(data, data, slices)
    if is_collection(data):
        raise ConfigError(
            "a folder of documents and queries may be `test` of one run; received it "
            f"as `{name}`, or with several runs"
        )
    source = data if is_path(data) else rows_in_memory(data, name=name)
    rules: dict[str, Any] = {"header": header}
    if bad_rows != "error":  # a user's own `read` need not know it
        rules["bad_rows"] = bad_rows
    found = task.read(source, columns=columns, **rules)
    return with_slices(found, source, slices, **rules)


def unlabelled_rows(
    task: Task,
    data: Any,
    *,
    columns: ColumnNames | None = None,
    header: str = "auto",
    bad_rows: str = "error",
) -> Columns:
    """Return the texts of rows without labels, of any form that `as_columns` takes.

    Raises:
        DataError: a row has a label.
    """
    use, named = "unlabeled rows", by_role(task.columns, columns or {})
    if isinstance(data, Columns):
        data.refuse_labels(use)
        return data
    source = data if is_path(data) else rows_in_memory(data, name=UNLABELED)
    texts = {role: name for role, name in named.items() if role in task.roles}
    rules: dict[str, Any] = {"header": header, "bad_rows": bad_rows}
    flags = str(named.get("label") or task.columns.get("label", "")).split(",")
    labels = {f"label {name}": name.strip() for name in flags if name}
    given: dict[str, Any] = {"columns": texts, "roles": task.roles, "others": labels}
    found = task.read(source, **given, **rules)
    found.refuse_labels(use)
    cells = {role: c for role, c in found.cells.items() if role not in labels}
    return Columns(found.path, cells, found.lines)


def _new_rows(
    task: Task,
    rows: Columns,
    labelled: Sequence[Columns],
    *,
    tell: Callable[[str], object],
) -> Columns:
    """Return the unlabelled rows that differ from all labelled ones and each other."""
    known = [texts_of(task, each) for each in labelled]
    kept = new_rows(known, texts_of(task, rows))
    if not kept:
        raise DataError(
            "unlabeled rows must differ from the labelled ones; received "
            f"{len(rows):,} rows, all of which equal one",
            path=rows.path,
        )
    if len(kept) < len(rows):
        tell(
            f"{rows.path}: {len(kept):,} of {len(rows):,} unlabelled rows are used; "
            "the others are equal to a labelled one, or to each other"
        )
    return rows.take(kept)


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


def tests_and_collections(
    test: Any,
) -> tuple[Any, dict[str, JudgedCollection]]:
    """Return `test` without the collections in it, and these by name."""
    tests = _named_tests(test)
    found = {name: each for name, each in tests.items() if is_collection(each)}
    if not found:
        return test, {}
    rows = {name: each for name, each in tests.items() if name not in found}
    return rows, {
        name: each if isinstance(each, JudgedCollection) else read_collection(each)
        for name, each in found.items()
    }


def tests_of(data: Mapping[str, Any]) -> list[str]:
    """Return the names of the test sets of a run."""
    return [name for name in data if name not in _NOT_SCORED]


def digest_of_rows(columns: Columns) -> str:
    """Return the number of rows and a digest that does not depend on their file."""
    found = hashlib.blake2b(digest_size=8)
    for role in without_slices(columns):
        # Together the parts are one JSON text: `[role, [cell, cell]]`.
        found.update(f"[{json.dumps(role)}, [".encode())
        for start in range(0, len(columns), _AT_ONCE):
            some = list(columns[role][start : start + _AT_ONCE])
            cells = json.dumps(some, ensure_ascii=True, default=str)[1:-1]
            found.update(f"{', ' if start else ''}{cells}".encode())
        found.update(b"]]")
    return f"{len(columns):,} rows, {found.hexdigest()}"


def with_dev(
    task: type[Task] | Task,
    rows: Columns,
    config: TrainConfig,
    settings: Mapping[str, Any],
    *,
    tell: Callable[[str], object] = say,
) -> tuple[Columns, Columns]:
    """Return training rows and dev rows, which are held out from the given rows.

    The arguments are as in `task_and_data`; `settings` are the task's.
    """
    strata = strata_of(task, rows, **settings)
    count = max(1, round(len(rows) * (config.with_split().validation_split or 0)))
    held_out: list[int] = []
    whole = scores_groups(task)
    if count < len(rows):
        groups = groups_of(task, rows)
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
        f"no dev rows given: {len(held_out):,} of {len(rows):,} training rows are held "
        f"out (seed {config.seed}){other}"
    )
    if missing := uncovered_classes(strata, held_out, option="--validation-split"):
        line += f"; dev has {missing}"
    if shared := _shared(groups_of(task, rows), kept, held_out):
        line += f"; {shared:,} first texts are in both"
    tell(line)
    return rows.take(kept), rows.take(held_out)


def too_few_to_hold_out(
    task: type[Task] | Task,
    rows: Columns,
    config: TrainConfig,
    settings: Mapping[str, Any],
) -> str:
    """Return why no dev rows are held out by default; empty if some are.

    With fewer than 1,000 rows, a tenth that has fewer than 5 rows of a class would
    choose the epoch by chance, and training needs it. This concerns tasks with a linear
    head, unless a setting is given that is fitted on dev rows.

    Args:
        task, config: as in `task_and_data`; `settings` are the task's.
        rows: all training rows.
    """
    is_fitted = any(settings.get(name, none) != none for name, none in _FITTED.items())
    is_left_open = config.validation_split is None and config.method == "finetune"
    if not is_left_open or config.patience or is_fitted or len(rows) >= FEW_ROWS:
        return ""
    if not isinstance(task, Linear):
        return ""
    classes = [name for names in strata_of(task, rows, **settings) for name in names]
    sizes = collections.Counter(name for name in classes if isinstance(name, str))
    share = config.with_split().validation_split or 0
    count = round(share * min(sizes.values(), default=len(rows)))
    if count >= _LEAST_OF_A_CLASS:
        return ""
    held = counted(count, "rows") if count else "no row"
    of = " of a class" if sizes else ""
    return (
        f"no dev rows: a tenth of the {len(rows):,} training rows has {held}{of}, "
        "too few to choose an epoch by; all rows are trained on, the model of the last "
        "epoch is kept, and only test rows would give it a score"
    )


def _shared(
    groups: Sequence[str] | None, kept: Iterable[int], held_out: list[int]
) -> int:
    """Return how many groups have rows in both parts of a split."""
    if groups is None:
        return 0
    return len({groups[row] for row in kept} & {groups[row] for row in held_out})


_FITTED = {"calibration": "none", "answered_accuracy": 0.0}  # on dev, unless set so
_FITTED_BY_DEFAULT = {"threshold_tuning": "none", "no_answer": False}
_THRESHOLDS = ("threshold", "thresholds")  # that are fitted, unless they are given


def untuned(task: AnyTask) -> AnyTask:
    """Return the task of a trained model without the thresholds fitted on its dev rows.

    A folder does not tell fitted thresholds from given ones.
    """
    settings = task.get_config()
    fits = _FITTED_BY_DEFAULT.items()
    if all(settings.get(name, none) == none for name, none in fits):
        return task
    declared = options_of(type(task))
    held = [name for name in _THRESHOLDS if name in settings]
    return replaced(task, **{name: declared[name].default for name in held})


def without_dev(
    task: Task,
    given: TrainConfig,
    config: TrainConfig,
    *,
    tell: Callable[[str], object] = say,
) -> TrainConfig:
    """Return the config of a run without dev rows, which cannot end early.

    Args:
        task: the task.
        given: the config as the user gave it.
        config: with numbers in place of `None`.
        tell: gets a line about what is not fitted.

    Raises:
        ConfigError: a given setting needs dev rows.
    """
    if config.method != "finetune":  # cross-validation takes their place
        return config
    settings = task.get_config()
    requested = {name: settings.get(name, none) for name, none in _FITTED.items()}
    requested = {
        name: value for name, value in requested.items() if value != _FITTED[name]
    }
    if given.patience:
        requested["patience"] = given.patience
    for name, value in requested.items():
        raise ConfigError(f"`{name}` needs dev rows; received {value} and no dev rows")
    for name, none in _FITTED_BY_DEFAULT.items():
        is_given = any(settings.get(each) for each in _THRESHOLDS)
        if settings.get(name, none) != none and not is_given:
            tell(f"no dev rows: no threshold is fitted ({name} {settings[name]})")
    return dataclasses.replace(config, patience=0)
