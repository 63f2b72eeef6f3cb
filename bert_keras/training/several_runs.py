"""Several runs: `train_seeds`, `search_settings`, `train_sizes`, `try_methods`.

BERT's scores on small sets depend on the seed: the paper selected among several runs by
dev, and searched a grid of batch sizes, rates and epochs. Finished runs are kept in a
hidden folder next to the model folder, `.NAME.runs`, until all are finished; the same
call continues with the missing ones.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.1 and appendix A.3.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bert_keras.checkpoints import one_revision
from bert_keras.data.columns import Columns
from bert_keras.data.holdout import Strata, stratified_holdout
from bert_keras.distribution.strategy import find_strategy
from bert_keras.errors import CheckpointError, ConfigError, DataError, counted
from bert_keras.files.atomic import replaced_folder
from bert_keras.models.loading import load_model
from bert_keras.report.comparison import RUN
from bert_keras.report.report import DOUBTFUL
from bert_keras.report.tables import interval_of
from bert_keras.report.terminal import score_table
from bert_keras.report.values import words
from bert_keras.runs.notes import collected, notes_so_far, say, show
from bert_keras.runs.progress import followed_by, in_proportion
from bert_keras.runs.run_folder import (
    FINISHED,
    RunFolder,
    open_run,
    remove_run,
    replacement_note,
    run_path,
)
from bert_keras.settings import check_choice, check_whole_number, grid_of
from bert_keras.tasks import named_or_given
from bert_keras.tasks.base import Task
from bert_keras.tasks.hugging_face import unread_elsewhere
from bert_keras.training.best_epoch import rank_of
from bert_keras.training.choices import AUTO, Choice, TrainRequest
from bert_keras.training.config import FEW_ROWS, TrainConfig
from bert_keras.training.data import read_rows
from bert_keras.training.finetune import (
    TRAINERS,
    TrainResult,
    plan_of,
    recorded_settings,
    run_plan,
)
from bert_keras.training.first_score import passes_of
from bert_keras.training.head_fit import folds_of
from bert_keras.training.plan import Plan
from bert_keras.training.results import usage, write_results
from bert_keras.training.tracking import curves_folder

_FOLDS = 3  # on which methods are compared
_FOLD = "held-out"  # what the rows of a fold are called
METHODS = tuple(TRAINERS)
_RESULTS = ("report.html", "scores.json", RUN, "README.md", DOUBTFUL)


@collected()
def train_seeds(
    task: str | type[Task] | Task,
    *,
    seeds: int,
    output: str | os.PathLike[str],
    config: TrainConfig | None = None,
    **given: Any,
) -> TrainResult:
    """Fine-tune with consecutive seeds, from the config's; keep the best run on dev.

    Args:
        task: as in `train`.
        seeds: number of runs, at least two.
        output: the folder of the best model. Its scores and report have the scores of
            all runs, `per_run`, and their `mean` and (sample) `standard_deviation`.
        config: the settings of the training.
        **given: further arguments of `train`, with its errors.

    Example:
        >>> result = train_seeds(Classification, seeds=5, encoder=e, train=t, output=o)
        >>> result.scores["runs"]["mean"]["dev"]["accuracy"]
        0.8613
    """
    check_whole_number("seeds", seeds, least=2)
    config = config or TrainConfig()
    if config.method == "linear":
        raise ConfigError(
            "`seeds` needs `method` finetune or contrastive: linear uses its seed only "
            f"to draw folds; received {config.method}"
        )
    request = TrainRequest(task=task, output=output, config=config, **given)
    seeds_of = range(config.seed, config.seed + seeds)
    with one_revision(), _Runs(request, free=("seed",)) as runs:
        runs.make({f"seed-{seed}": runs.plan.changed(seed=seed) for seed in seeds_of})
        return runs.finish()


@collected()
def search_settings(
    task: str | type[Task] | Task,
    *,
    grid: str = "paper",
    output: str | os.PathLike[str],
    config: TrainConfig | None = None,
    **given: Any,
) -> TrainResult:
    """Fine-tune at each point of a grid of settings; keep the best run on dev.

    Args:
        task, output: as in `train_seeds`.
        grid: `paper`: batches of 16 and 32, rates of 5e-5, 3e-5 and 2e-5, 2 to 4
            epochs, 18 runs; or the values of one of these settings, such as
            `epochs=2,4`; or methods, such as `method=linear,finetune`, which
            `try_methods` compares.
        config: the other settings.
        **given: further arguments of `train`, with its errors.
    """
    config, space = config or TrainConfig(), grid_of(grid)
    if "method" in space:
        methods = space["method"]
        return try_methods(task, methods=methods, output=output, config=config, **given)
    if config.method not in ("finetune", AUTO):
        raise ConfigError(
            f"`search` {grid} needs `method` finetune, whose {', '.join(space)} it "
            f"chooses; received {config.method}"
        )
    points: list[dict[str, Any]] = [
        dict(zip(space, values, strict=True))
        for values in itertools.product(*space.values())
    ]
    config = dataclasses.replace(config, **points[0])
    request = TrainRequest(task=task, output=output, config=config, **given)
    with one_revision(), _Runs(request, free=tuple(space)) as runs:
        plans = {}
        for point in points:
            name = "_".join(f"{key}-{value:g}" for key, value in point.items())
            plans[name] = runs.plan.changed(**point)
        runs.make(plans)
        return runs.finish()


@collected()
def try_methods(
    task: str | type[Task] | Task,
    *,
    output: str | os.PathLike[str],
    methods: Sequence[str] = METHODS,
    config: TrainConfig | None = None,
    **given: Any,
) -> TrainResult:
    """Train by each method on the same rows, and keep the best.

    Without dev rows, each is trained outside of three folds and scored on them, or with
    1,000 rows or more outside of a tenth of the rows; then the best method trains on
    the given rows, as by `train`: finetune may hold out some of them as dev rows.

    Args:
        task: as in `train`.
        output: the folder of the best model. Its scores and report have the score of
            each method, its standard deviation and seconds, `per_method`.
        methods: those that do not go with the task or an option are left out.
        config: the other settings.
        **given: further arguments of `train`, with its errors.

    Raises:
        ConfigError: fewer than two methods are possible.
    """
    config = config or TrainConfig()
    for method in methods:
        check_choice("method", method, METHODS)
    if config.method != AUTO:
        raise ConfigError(
            "`method` must be left out where methods are compared; received "
            f"{config.method}"
        )
    request = TrainRequest(task=task, output=output, config=config, **given)
    with one_revision(), _Runs(request, free=("method",), tries_methods=True) as runs:
        return runs.finish_methods(*runs.make_methods(methods))


SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of the training rows


@collected()
def train_sizes(
    task: str | type[Task] | Task,
    *,
    output: str | os.PathLike[str],
    config: TrainConfig | None = None,
    shares: Sequence[float] = SHARES,
    **given: Any,
) -> TrainResult:
    """Fine-tune on growing shares of the rows; keep the model of all rows.

    The rows of a share are a subset of the rows of each larger share.

    Args:
        task: as in `train`.
        output: the folder of the model of all rows. Its report has the learning curve.
        config: the settings of each run.
        shares: of the training rows, rising, the last one 1.
        **given: further arguments of `train`.

    Raises:
        BertKerasError: as for `train`, or there are too few rows for a share.
    """
    config = config or TrainConfig()
    _check_shares(shares)
    request = TrainRequest(task=task, output=output, config=config, **given)
    with one_revision(), _Runs(request, free=()) as runs:
        whole, rows = runs.plan, runs.plan.rows["train"]
        strata = whole.task.strata(rows, **whole.task.get_config())
        order = _nested_order(strata, config.seed)
        sizes = [math.ceil(share * len(rows)) for share in shares]
        if len({*sizes}) < len(sizes):
            raise DataError(
                f"has too few rows for a learning curve: {len(rows)}", path=rows.path
            )
        names = {f"rows-{size}": size for size in sizes}
        runs.make(
            {name: whole.of_rows(sorted(order[:size])) for name, size in names.items()}
        )
        return runs.finish_sizes(names)


def _check_shares(shares: Sequence[float]) -> None:
    rises = all(0 < one < other for one, other in itertools.pairwise(shares))
    if len(shares) < 2 or not rises or shares[-1] != 1:
        raise ConfigError(
            f"`shares` must rise from above 0 to 1; received {list(shares)}"
        )


def _nested_order(strata: Strata, seed: int) -> list[int]:
    """Return the rows in random order; the first one of each class comes first."""
    order = np.random.default_rng(seed).permutation(len(strata)).tolist()
    seen: set[str | int] = set()
    first = []
    for row in order:
        if not seen.issuperset(strata[row]):
            seen.update(strata[row])
            first.append(row)
    return list(dict.fromkeys([*first, *order]))


def _cost(plan: Plan) -> float:
    """Return how many rows the updates of a run read, or work that equals them."""
    return passes_of(plan) * len(plan.rows["train"])


class _Runs:
    """The runs of one call, in their own folder; they differ in the `free` settings."""

    def __init__(
        self,
        request: TrainRequest,
        *,
        free: tuple[str, ...],
        tries_methods: bool = False,
    ) -> None:
        if not tries_methods:
            _check_scored(request, needs_dev=bool(free))
        # Several strategies in one process interfere with each other: all runs use one.
        devices = request.devices or find_strategy(request.config.strategy)
        if devices.workers > 1:
            raise ConfigError(
                "`strategy` must use one machine for several runs; received "
                f"{devices.name}: call `train` once for each run instead"
            )
        request = dataclasses.replace(
            request, devices=devices, is_compared=not tries_methods
        )
        self.plan, self.devices = plan_of(request)
        devices.announce(request.config.precision)
        self.output = self.plan.output
        self._found: dict[str, dict[str, Any]] = {}
        self._paces: dict[str, float] = {}  # by method, seconds for a `_cost` of 1
        recorded = recorded_settings(self.plan)
        recorded = {name: value for name, value in recorded.items() if name not in free}
        path = run_path(self.output, "runs")
        self._run: RunFolder = open_run(
            path, {**recorded, "runs differ in": list(free)}, resume=request.resume
        )

    def __enter__(self) -> _Runs:
        return self

    def __exit__(self, *error: Any) -> None:
        self._run.__exit__(*error)

    def make(self, plans: Mapping[str, Plan], *, last: Sequence[Plan] = ()) -> None:
        """Train by plans, by the names of the runs; those that are finished are kept.

        The time left that a run shows is of all runs, and of the longest one of `last`,
        of which one is made afterwards.
        """
        then = ", then one of the best method" if last else ""
        show(f"{counted(len(plans), 'runs')}{then}, in {self._run.path}")
        if line := replacement_note(self.output):
            show(line)
        missing = {
            name: plan for name, plan in plans.items() if not self._notes(name).exists()
        }
        for name, plan in plans.items():
            missing.pop(name, None)
            method, cost = plan.config.method, _cost(plan)
            later = functools.partial(
                self._later,
                method=method,
                pace_of=in_proportion(1 / cost),
                others=list(missing.values()),
                last=last,
            )
            with followed_by(later, may_be_less=bool(last)):
                self._make(name, plan)
            seconds = self._found[name]["settings"]["training_seconds"]
            self._paces[method] = seconds / cost

    def _later(
        self,
        left: float,
        *,
        method: str,
        pace_of: Callable[[float], float],
        others: Sequence[Plan],
        last: Sequence[Plan],
    ) -> float:
        """Return the estimated seconds of the runs after a run, see `make`.

        Args:
            left: seconds of this run.
            method: of this run.
            pace_of: returns its seconds for a `_cost` of 1 from the seconds left.
            others, last: plans of the runs after it.
        """
        paces = {**self._paces, method: pace_of(left)}
        # Where it is not known: what takes long besides the updates raises the others.
        pace = min(paces.values())

        def seconds(plan: Plan) -> float:
            return _cost(plan) * paces.get(plan.config.method, pace)

        return sum(map(seconds, others)) + max(map(seconds, last), default=0.0)

    def _notes(self, name: str) -> Path:
        """Return the file that a finished run has."""
        return self._run.path / f"{name}{FINISHED}"

    def _make(self, name: str, plan: Plan) -> None:
        """Train by a plan, unless the run is already finished."""
        notes = self._notes(name)
        if notes.exists():
            show(f"{name}: was trained before")
        else:
            show(f"{name}:")
            curves = curves_folder(plan.config, self.output)
            if curves:  # separate curves
                plan = plan.changed(tensorboard=os.path.join(curves, name))
            request = dataclasses.replace(plan.request, output=self._run.path / name)
            result = run_plan(dataclasses.replace(plan, request=request), self.devices)
            self._run.add_note(notes.name, _plain(result.report))
        try:
            report = json.loads(notes.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise CheckpointError(f"{notes}: broken: delete it") from None
        self._found[name] = report

    def make_methods(
        self, methods: Sequence[str]
    ) -> tuple[dict[str, list[str]], dict[str, Plan]]:
        """Train by each method that is possible.

        Returns, by method, the names of its runs, and the plan of the run that is made
        if it is the best; no plans if one of the compared models is kept.
        """
        request, is_held_out = self.plan.request, self.plan.request.dev is None
        folds, rows = [], cast(Any, None)
        if is_held_out:
            rows = read_rows(request, named_or_given(request.task))[0]["train"]
            folds = _folds_of(self.plan, rows)
            for note in self.plan.notes:  # on all rows; those on folds are not told
                say(note)
        plans: dict[str, Plan] = {}
        names: dict[str, list[str]] = {}
        last: dict[str, Plan] = {}

        def planned(**changes: Any) -> Plan:
            changed = dataclasses.replace(request, tries_methods=True, **changes)
            return plan_of(changed)[0]

        for method in methods:
            config = dataclasses.replace(request.config, method=method)
            parts: list[dict[str, Any]] = [{"config": config}]
            if is_held_out:  # these are not the models that are kept
                # On a fold, no epoch may be chosen: finetune holds out its own rows.
                # The fold is its test set, by the name that the progress shows.
                is_test = method == "finetune"
                parts = [
                    {
                        "config": dataclasses.replace(config, explain_mistakes=0),
                        "train": rows.take(sorted(set(range(len(rows))) - set(fold))),
                        "dev": None if is_test else rows.take(fold),
                        "test": {_FOLD: rows.take(fold)} if is_test else None,
                        "fold": _FOLD if is_test else "dev",
                    }
                    for fold in folds
                ]
            try:
                made = [planned(is_compared=True, **part) for part in parts]
                if is_held_out:
                    made = [dataclasses.replace(plan, notes=()) for plan in made]
                    last[method] = planned(config=config)
            except ConfigError as error:
                say(f"{method} is left out: {error}")
                continue
            names[method] = [method]
            if len(parts) > 1:
                names[method] = [f"{method}-fold-{n + 1}" for n in range(len(parts))]
            plans |= dict(zip(names[method], made, strict=True))
        if len(names) < 2:
            raise ConfigError(
                f"two methods or more must be possible for {self.plan.task.name} to "
                f"compare them; received {', '.join(names) or 'none'}"
            )
        # The time left is known best after the longest runs.
        longest = sorted(plans, key=lambda name: _cost(plans[name]), reverse=True)
        self.make({name: plans[name] for name in longest}, last=list(last.values()))
        return names, last

    def finish_methods(
        self, names: Mapping[str, Sequence[str]], last: Mapping[str, Plan]
    ) -> TrainResult:
        """Keep the best model, with the scores of all methods.

        Where they were compared on held-out rows, it is trained first. The arguments
        are what `make_methods` returns.
        """
        score, found = self.plan.task.best_score, {}
        for method, runs in names.items():
            reports = [self._found[name] for name in runs]
            is_fold = bool(last) and method == "finetune"
            name = _FOLD if is_fold else "dev"
            values = [each["scores"][name][score] for each in reports]
            seconds = [each["settings"]["training_seconds"] for each in reports]
            found[method] = {score: float(np.mean(values))}
            if len(values) > 1:
                found[method]["standard_deviation"] = float(np.std(values, ddof=1))
            elif bounds := interval_of(reports[0]["slices"].get(name, {}), values[0]):
                found[method] |= dict(zip(("low", "high"), bounds, strict=True))
            found[method]["seconds"] = round(sum(seconds), 1)
        best = max(found, key=lambda method: found[method][score])
        kept = "final" if last else best
        if last:
            show(score_table({"per_method": found}))
            reason = (
                f"{words(score).lower()} {found[best][score]:.4f}, the best of "
                f"{', '.join(found)}"
            )
            choice = Choice("method", best, reason, "--method")
            self._make(kept, last[best].with_choice(choice))
        self._found[kept]["scores"]["runs"] = {
            "per_method": found,
            "kept": best,
            "by_default": self.plan.config.method,
        }
        return self._keep(kept)

    def finish(self) -> TrainResult:
        """Move the best model to the output, with the scores of all runs."""
        best = max(self._found, key=self._rank)
        report = self._found[best]
        report["settings"]["best_run"] = best
        report["scores"]["runs"] = summary(
            {name: found["scores"] for name, found in self._found.items()},
            report["best_score"],
        )
        return self._keep(best)

    def finish_sizes(self, sizes: Mapping[str, int]) -> TrainResult:
        """Move the last model to the output, with the scores of all sizes, by run."""
        *_, last = sizes
        report = self._found[last]
        report["learning_curve"] = curve = [
            {
                "rows": size,
                **{
                    split: found[report["best_score"]]
                    for split, found in self._found[name]["scores"].items()
                    if split != "diverged"
                },
            }
            for name, size in sizes.items()
        ]
        scores = {f"{row.pop('rows'):,} rows": row for row in map(dict, curve)}
        show(score_table({"learning_curve": scores}))
        return self._keep(last)

    def _keep(self, best: str) -> TrainResult:
        """Move the model of a run to the output, with its results; remove the rest."""
        report = self._found[best]
        report["runs"] = {name: each["history"] for name, each in self._found.items()}
        report["usage"] = usage(self.plan.task, self.output)
        source = self._run.path / best
        with replaced_folder(self.output) as folder:
            ignored = shutil.ignore_patterns(*_RESULTS)
            shutil.copytree(source, folder, ignore=ignored, dirs_exist_ok=True)
            write_results(folder, self.output, report)
        remove_run(self._run)
        model = load_model(self.output, task=type(self.plan.task))
        if line := unread_elsewhere(model.task):
            say(line)
        return TrainResult(
            self.output,
            model,
            report["scores"],
            report["history"],
            report,
            notes_so_far(),
        )

    def _rank(self, name: str) -> tuple[float, float]:
        """Return the key that compares runs: score, then loss on dev; see `rank_of`."""
        report = self._found[name]
        value = float(report["scores"]["dev"][report["best_score"]])
        loss = report["settings"].get("best_epoch_dev_loss", math.nan)  # of epochs
        return rank_of(value, loss)


def _folds_of(plan: Plan, rows: Columns) -> list[list[int]]:
    """Return the folds on which methods are compared, or one part of many rows.

    Raises:
        DataError: there are too few rows.
    """
    task, seed = plan.task, plan.config.seed
    strata = task.strata(rows, **task.get_config())
    if len(rows) >= FEW_ROWS:
        groups = task.groups(rows)
        folds = [stratified_holdout(strata, len(rows) // 10, seed=seed, groups=groups)]
    else:
        folds = folds_of(task, rows, strata, seed=seed, most=_FOLDS)
    if not all(folds) or not folds:
        raise DataError(
            "has too few rows to compare methods on: give dev rows", path=rows.path
        )
    return folds


def _check_scored(request: TrainRequest, *, needs_dev: bool) -> None:
    """Raise ConfigError unless there are rows on which runs, or sizes, are compared."""
    config, tests = request.config, request.test
    no_tests = tests is None or isinstance(tests, Mapping) and not tests
    is_held_out = bool(config.with_split().validation_split)
    if request.dev is None and not is_held_out and (needs_dev or no_tests):
        what = "runs are compared" if needs_dev else "sizes are compared, or test rows"
        split = config.validation_split
        raise ConfigError(
            "`dev` rows, or a `validation_split` above 0, must be given, on which "
            f"{what}; received {'neither' if split is None else split}"
        )


def summary(
    scores: Mapping[str, Mapping[str, Mapping[str, Any]]], best_score: str
) -> dict[str, Any]:
    """Return the scores of several runs, for JSON and for tables.

    Args:
        scores: name of the run to the scores of its data sets, by name.
        best_score: the score of each set that `per_run` shows.

    Returns:
        `per_run`, and `mean` and `standard_deviation` of each number of each set that
        all runs have; the latter of a sample, with n - 1.
    """
    splits = [name for name in next(iter(scores.values())) if name != "diverged"]
    per_run = {}
    for run, of_run in scores.items():
        per_run[run] = {name: of_run[name][best_score] for name in splits}
        if any("diverged" in each for each in scores.values()):
            per_run[run]["diverged"] = int("diverged" in of_run)
    mean: dict[str, dict[str, float]] = {split: {} for split in splits}
    deviation: dict[str, dict[str, float]] = {split: {} for split in splits}
    for split in splits:
        first, *others = (each[split] for each in scores.values())
        for key, value in first.items():
            values = [value, *(other.get(key) for other in others)]
            if all(isinstance(each, float) for each in values):
                mean[split][key] = float(np.mean(values))
                spread = float(np.std(values, ddof=1)) if others else 0.0
                deviation[split][key] = spread
    return {"per_run": per_run, "mean": mean, "standard_deviation": deviation}


def _plain(values: Any) -> Any:
    """Return values as they are after writing and reading JSON."""

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else str(value)

    return json.loads(json.dumps(values, default=plain))
