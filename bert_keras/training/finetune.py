"""A run of `train`, by any method, from its first line to the model folder.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import keras
import tensorflow as tf

from bert_keras.data.columns import Columns
from bert_keras.data.rows import ColumnNames
from bert_keras.distribution.strategy import Devices, find_strategy
from bert_keras.errors import ConfigError, counted
from bert_keras.files.atomic import replaced_folder
from bert_keras.inference.predictor import Predictor
from bert_keras.models.folder import Folder
from bert_keras.models.loading import encoder_to_train
from bert_keras.models.model_folder import write_model
from bert_keras.models.task_model import TaskModel
from bert_keras.report.terminal import plan_lines
from bert_keras.retrieval.evaluation import evaluate_collection
from bert_keras.runs.environment import environment
from bert_keras.runs.notes import collected, notes_so_far, say, show
from bert_keras.runs.progress import followed_by
from bert_keras.runs.run_folder import (
    CHOICES,
    DEFAULTS,
    RunFolder,
    digest_of,
    discard_run,
    open_run,
    remove_run,
    replacement_note,
    run_path,
)
from bert_keras.runs.stop_signal import RunStopped, StopSignal
from bert_keras.tasks.base import Task, overrides
from bert_keras.tasks.hugging_face import unread_elsewhere
from bert_keras.text.tokenizer_files import vocabulary_hash
from bert_keras.training.choices import Choice, TrainRequest
from bert_keras.training.config import TrainConfig, unused_options
from bert_keras.training.contrastive_fit import ContrastiveFit, NoGain
from bert_keras.training.data import UNLABELED, digest_of_rows, tests_of
from bert_keras.training.distillation import Distillation, some_training_rows
from bert_keras.training.divergence import Divergence, divergence
from bert_keras.training.estimate import estimate_of
from bert_keras.training.findings import (
    ExplanationCosts,
    explained_mistakes,
    explanation_seconds,
    findings_of,
)
from bert_keras.training.first_score import FirstScore, first_score, may_be_linear
from bert_keras.training.head_fit import HeadFit, probe
from bert_keras.training.loop import FineTuningLoop, RunContext
from bert_keras.training.plan import Plan, make_plan, model_of
from bert_keras.training.results import (
    facts_of,
    shown_settings,
    shown_students,
    usage,
    write_results,
)
from bert_keras.training.tracking import tracked
from bert_keras.training.trainer import Fitted, Trainer
from bert_keras.training.updates import new_optimizer

# Settings that may differ when a run resumes: the weights do not depend on them.
_FREE = (
    "checkpoint_every",
    "keep",
    "on_nonfinite",
    "restarts",
    "strategy",
    "tensorboard",
    "track",
    "card",
    "explain_mistakes",
    "opens_in",  # which sets the method and the task's settings
)
TRAINERS: dict[str, Callable[..., Trainer]] = {
    "finetune": FineTuningLoop,
    "linear": HeadFit,
    "contrastive": ContrastiveFit,
}
RESTART = 1000  # a restart adds this to the seed; `seeds` adds 1


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """The result of `train`.

    Args:
        folder: the model folder, with `report.html` and `scores.json`.
        model: the model with the weights of its best epoch.
        scores: name of the data set to its scores.
        history: rows of the curves, by step and by epoch.
        report: the content of the report, the arguments of `write_report`.
        notes: the lines on what the run guessed, truncated or did not use.
    """

    folder: Path
    model: TaskModel
    scores: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    report: dict[str, Any]
    notes: tuple[str, ...] = ()


def train(
    task: str | type[Task] | Task,
    *,
    encoder: str | os.PathLike[str] | None = None,
    train: Any,
    output: str | os.PathLike[str],
    dev: Any = None,
    test: Any = None,
    unlabeled: Any = None,
    columns: ColumnNames | None = None,
    header: str = "auto",
    bad_rows: str = "error",
    config: TrainConfig | None = None,
    task_settings: Mapping[str, Any] | None = None,
    slices: Sequence[str] = (),
    command: str = "",
    resume: str = "auto",
    devices: Devices | None = None,
) -> TrainResult:
    """Fine-tune a task on labelled rows and write a model folder.

    The folder is written at the end; an old model stays there until then. During the
    run, a hidden folder next to it, `.NAME.run`, holds the checkpoints and, in `best`,
    the model of the best epoch so far. They are written at the interval of
    `config.checkpoint_every`, and when the run is stopped or fails. The same call
    resumes an interrupted run and ends with the same weights.

    On several replicas (`config.strategy`) the result is the same as on one device,
    except for rounding and the dropout masks. With several processes, each makes this
    call with the same rows, and only the first one writes. If one ends early, so do the
    others, see `Devices.together`.

    Args:
        task: the name or the class of a task, whose settings then follow from the rows,
            or a task.
        encoder: folder, checkpoint or hub name of the pretrained encoder; may be left
            out for a student that starts from its teacher, see `TrainConfig`.
        train: the training rows, of any form that `as_columns` takes.
        output: the model folder; an existing model is replaced.
        dev: rows that select the best epoch; by default, some training rows are held
            out, see `stratified_holdout`. With a `validation_split` of 0 there are
            none, and the model of the last epoch is kept.
        test: rows that are scored once at the end, or several sets by name, such as
            `matched` and `mismatched`. For models that search or rerank, also folders
            in the form of BEIR, see `evaluate_collection`.
        unlabeled: texts without labels, of any form that `as_columns` takes, which the
            methods `linear` and `contrastive` label by themselves, see `self_training`;
            with a teacher, whose answers to them are learned.
        columns: role, such as `text` or `label`, to the name of its column if that is
            not the default; for a file without a header, its number from 0.
        header: for files: `auto`, `yes` or `no`, see `read_columns`.
        bad_rows: `error`, or `skip` to leave out rows with a problem, such as an empty
            text or a span that cuts a word; a note counts them.
        config: the settings of the training.
        task_settings: settings of the task that do not follow from the data.
        slices: columns of the scored rows; the report has the score of each value.
        command: the command line, for the report.
        resume: `auto` resumes an unfinished run; `never` deletes it.
        devices: the result of `find_strategy`, for several calls in one process; `None`
            finds the devices that the config names.

    Raises:
        BertKerasError: an argument is wrong; nothing was written.
        ConfigError: there is an unfinished run with other settings or rows, or the
            devices of the strategy are not available.
        TrainingError: a loss is not finite.
        RunStopped: SIGTERM or SIGINT was received; the run is saved.
        WorkerLostError: another worker has ended.
    """
    request = TrainRequest(
        task=task,
        encoder=encoder,
        train=train,
        output=output,
        dev=dev,
        test=test,
        unlabeled=unlabeled,
        columns=columns,
        header=header,
        bad_rows=bad_rows,
        config=config or TrainConfig(),
        task_settings=task_settings,
        slices=slices,
        command=command,
        resume=resume,
        devices=devices,
    )
    return run_plan(*plan_of(request))


def plan(task: str | type[Task] | Task, **given: Any) -> Plan:
    """Return what `train` would decide with the same arguments, and its estimated cost.

    Nothing is trained, and nothing is written. `Plan.choices` is the table that `train`
    shows before it trains, `Plan.estimate` are seconds, memory and bytes on disk,
    measured by one update on real rows.

    Args:
        task: as in `train`.
        **given: further arguments of `train`, with its errors. `output` may be left
            out, and is not checked.

    Example:
        >>> for choice in bert_keras.plan("classification", train=t).choices:
        ...     print(choice.name, choice.value, choice.reason)
    """
    given = {"output": "model", **given, "config": given.get("config") or TrainConfig()}
    planned, devices = plan_of(TrainRequest(task=task, writes=False, **given))
    return dataclasses.replace(planned, estimate=estimate_of(planned, devices))


def plan_of(request: TrainRequest) -> tuple[Plan, Devices]:
    """Return the plan of a request, and where it runs."""
    _check_process()
    # Before TensorFlow computes anything.
    devices = request.devices or find_strategy(request.config.strategy)
    begun = time.perf_counter()
    with collected(shown=False) as notes:
        plan = make_plan(request, devices=devices)
    all_notes, seconds = (*notes, *plan.notes), time.perf_counter() - begun
    return dataclasses.replace(plan, notes=all_notes, seconds=seconds), devices


def run_plan(plan: Plan, devices: Devices) -> TrainResult:
    """Show the table of a plan, train, and write the model folder; as `train` does.

    Where methods are compared, in several runs each, the table is left out.
    """
    with collected(shown=devices.is_chief):
        try:
            return _run(plan, devices)
        except NoGain as found:
            show(f"linear is better: {found}")
            return _run(_plan_by_linear(plan, devices, str(found)), devices)


def _plan_by_linear(plan: Plan, devices: Devices, reason: str) -> Plan:
    """Return the plan of the same request by method linear, which has a reason."""
    config = dataclasses.replace(plan.request.config, method="linear")
    request = dataclasses.replace(plan.request, config=config, devices=devices)
    made, _ = plan_of(request)
    return made.with_choice(Choice("method", "linear", reason, "--method"))


def _run(plan: Plan, devices: Devices) -> TrainResult:
    """Implement `run_plan`, whose notes are collected."""
    compares_methods = plan.request.is_compared and plan.request.tries_methods
    for line in [] if compares_methods else plan_lines(plan.table()):
        show(line)
    for note in plan.notes:
        say(note)
    folder = Folder.open(plan.encoder)
    with devices.strategy.scope():
        distillation = Distillation.of(
            plan.task,
            plan.config,
            plan.rows["train"],
            plan.rows.get(UNLABELED),
            hidden_size=encoder_to_train(folder, plan.config)[1].hidden_size,
        )
    if distillation is not None:
        rows = distillation.taught(plan.rows)
        plan = dataclasses.replace(plan, task=distillation.task, rows=rows)
    with devices.together():
        attempt = 0
        while (result := _attempt(plan, devices, distillation, attempt)) is None:
            attempt += 1
        if devices.is_chief:
            _discard_runs(plan.output, recorded_settings(plan))
        devices.agree(0)  # every row is scored
    return result


def _check_process() -> None:
    """Raise unless Keras runs on TensorFlow, as text handling and `TrainStep` need."""
    if keras.config.backend() != "tensorflow":
        raise ConfigError(
            "`train` needs KERAS_BACKEND=tensorflow; received "
            f"{keras.config.backend()}, on which `BertEncoder`, `TaskModel.fit` and "
            "model folders work"
        )
    if tf.distribute.has_strategy():
        raise ConfigError(
            "`train` must be called outside the scope of a tf.distribute strategy; "
            "received a call in one: there, `fit` a TaskModel"
        )


def _attempt(
    plan: Plan, devices: Devices, distillation: Distillation | None, attempt: int
) -> TrainResult | None:
    """Train a model and write its folder; return `None` if it must be restarted.

    `attempt` is the number of the run, from 0; each has a different seed.
    """
    seed = plan.config.seed + RESTART * attempt
    config = dataclasses.replace(plan.config, seed=seed)
    plan = dataclasses.replace(plan, config=config)
    path = run_path(plan.output, f"run-{attempt}" if attempt else "run")
    model = model_of(plan, devices)
    recorded = recorded_settings(plan) | model_settings(model)
    if distillation is not None:
        distillation.check_student(model)
        recorded["weights of the teacher"] = distillation.digest()
    opened: contextlib.AbstractContextManager[RunFolder | None]
    opened = contextlib.nullcontext()
    if devices.is_chief:
        opened = open_run(path, recorded, resume=plan.request.resume)
    has_mistakes = "dev" in plan.rows or bool(tests_of(plan.rows))
    begun = time.perf_counter()

    def explaining(left: float) -> float:
        if not has_mistakes:
            return 0.0
        seconds = plan.seconds + time.perf_counter() - begun + left
        return explanation_seconds(config, seconds)

    with (
        opened as run,
        StopSignal(devices.vote) as stop,
        tracked(config, plan.output, is_chief=devices.is_chief) as trackers,
        followed_by(explaining),
    ):
        context = RunContext(
            folder=run,
            config=config,
            devices=devices,
            stop=stop,
            trackers=trackers,
            distillation=distillation,
            tries_layers=plan.tries_layers,
            vectors=plan.vectors,
            fold=plan.request.fold,
        )
        trainer: Trainer = TRAINERS[config.method](model, plan.rows, context)
        if attempt == 0 and not plan.request.is_one_of_several:
            devices.announce(config.precision)
        show(f"training {plan.task.name}: {sizes_of(plan)}; the run is in {path}")
        if line := replacement_note(plan.output):
            show(line)
        first = _probe_and_score(plan, model, trainer, context, begun)
        try:
            trainer.train()
        except RunStopped as stopped:
            raise first.kept(plan.output, stopped) if first else stopped from None
        except NoGain:
            if run is not None:
                remove_run(run)
            raise
        failed = None
        if config.method == "finetune" and distillation is None:
            failed = divergence(model, plan.rows["train"], trainer.history)
        if failed:
            say(str(failed))
        # Only the chief knows all losses of a resumed run.
        is_failed = failed is not None and failed.is_certain
        if devices.agree(int(is_failed and attempt < config.restarts)):
            stop.is_due()
            stop.leave()
            say(f"restarting with seed {seed + RESTART}")
            return None
        with trainer.saved_on_failure(), stop.at_once():
            result = finish_run(plan, trainer, context, failed=failed, first=first)
        if run is not None:
            remove_run(run)
    return result


def _probe_and_score(
    plan: Plan, model: TaskModel, trainer: Trainer, context: RunContext, begun: float
) -> FirstScore | None:
    """Fit the head before the other weights, where the plan asks for it, and score it.

    `begun` is when the run began. A contrastive run learns what it has to reach.
    """
    head, run = None, context.folder
    if plan.config.linear_probe and not (run and run.steps):
        then = cast(FineTuningLoop, trainer).progress.rows_left
        head = probe(model, plan.rows, context, then=then)
    first = first_score(
        plan, model, context, fitted=head, finish=finish_run, begun=begun
    )
    if first is not None and may_be_linear(plan):
        cast(ContrastiveFit, trainer).least = first.rank
    return first


def sizes_of(plan: Plan) -> str:
    """Return the numbers of rows, such as `240 rows, 26 dev rows, 134 held-out rows`.

    The rows of a fold are always called held-out.
    """
    names = {"train": "rows", "dev": "dev rows", plan.request.fold: "held-out rows"}
    return ", ".join(
        counted(len(plan.rows[name]), shown)
        for name, shown in names.items()
        if name in plan.rows
    )


def _discard_runs(output: str | os.PathLike[str], recorded: Mapping[str, Any]) -> None:
    """Remove the runs of this call, with the `recorded` settings, and its restarts.

    Also removes runs that the same call with more restarts has left.
    """
    first = run_path(output)
    for path in first.parent.glob(f"{glob.escape(first.name)}*"):
        number = path.name.removeprefix(first.name).removeprefix("-") or "0"
        if number.isdecimal():
            discard_run(
                path, {**recorded, "seed": recorded["seed"] + RESTART * int(number)}
            )


def recorded_settings(plan: Plan) -> dict[str, Any]:
    """Return the settings of a plan that determine the weights, as JSON values."""
    free = {*_FREE, *unused_options(plan.config)}
    config = dataclasses.asdict(plan.config)
    return {
        CHOICES: DEFAULTS,
        "task": plan.task.name,
        "encoder": os.fspath(plan.encoder),
        **{f"{name} rows": digest_of_rows(rows) for name, rows in plan.rows.items()},
        **{name: value for name, value in config.items() if name not in free},
        "task settings": json.loads(json.dumps(plan.task.get_config(), default=str)),
    }


def model_settings(model: TaskModel) -> dict[str, Any]:
    """Return the other settings that determine the final weights."""
    weights = model.backbone.weights
    return {
        "preprocessing": model.preprocessor.settings(),
        "vocabulary": vocabulary_hash(model.preprocessor.tokenizer.vocabulary),
        "weights of the encoder": digest_of(
            (weight.path, keras.ops.convert_to_numpy(weight)) for weight in weights
        ),
    }


def finish_run(
    plan: Plan,
    trainer: Trainer,
    context: RunContext,
    *,
    failed: Divergence | None,
    first: FirstScore | None = None,
    into: Path | None = None,
) -> TrainResult:
    """Score what was fitted, and write the model folder and the report.

    All workers score, so that all return the same; the chief writes. With a teacher,
    the report shows the student beside it.

    Args:
        plan, trainer, context: of the run.
        failed: the divergence of the run, certain or possible, if any.
        first: the score before training, if there is one.
        into: the folder that is written, if it is not yet the output.

    Raises:
        CheckpointError: writing fails.
    """
    fitted = trainer.fitted()
    config, model, output = plan.config, fitted.model, plan.output
    model.task = model.task.finalize(model)
    predictor = Predictor(model)
    scored = _score(plan, trainer, fitted, predictor)
    report = _report(plan, fitted, scored, context, failed=failed)
    if first is not None:
        line = first.compared_with(scored.scores)
        report["settings"]["first_score"] = line
        show(f"first score: {line}")
    if context.distillation is not None and scored.last in plan.rows:
        report["students"] = _beside_teacher(plan, predictor, scored.last, context)
    if context.devices.is_chief:
        # Of cross-validation, mistakes are not of the final model.
        own = scored.last in plan.rows
        report["explanations"] = explained_mistakes(
            predictor,
            scored.rows[scored.last][0] if scored.rows else plan.rows["train"],
            report["mistakes"] if own else [],
            most=config.explain_mistakes,
            seconds=explanation_seconds(config, plan.seconds + fitted.seconds),
            costs=ExplanationCosts(*fitted.update_seconds),
        )
        is_kept = into is None and not plan.request.is_one_of_several
        if is_kept and (line := unread_elsewhere(model.task)):
            say(line)
        report["notes"] = notes_so_far()
        with replaced_folder(into or output) as folder:
            write_model(model, folder)
            write_results(folder, output, report)
        context.trackers.finish(report, output / "report.html")
    model.compile(
        new_optimizer(config, steps=fitted.steps, model=model),
        loss=model.task.loss(),
        metrics=model.task.metrics(),
    )
    return TrainResult(
        output, model, scored.scores, fitted.history, report, notes_so_far()
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Scored:
    """What the rows of a run were scored with.

    Args:
        scores: by the name of the rows.
        rows: columns, answers and lengths of those whose answers are known, by name.
        facts: on all rows, by name.
    """

    scores: dict[str, dict[str, Any]]
    rows: dict[str, tuple[Columns, Any, Any]]
    facts: dict[str, Any]

    @property
    def last(self) -> str:
        """The rows whose mistakes are shown."""
        return next(reversed(self.rows), "train")


def _score(
    plan: Plan, trainer: Trainer, fitted: Fitted, predictor: Predictor
) -> _Scored:
    """Score all rows; the model's task gets what is tuned on dev or the folds."""
    data, lengths, model = plan.rows, plan.lengths, fitted.model
    task = model.task
    scores: dict[str, dict[str, Any]] = {}
    rows: dict[str, tuple[Columns, Any, Any]] = {}
    facts: dict[str, Any] = {
        name: facts_of(model, each, lengths[name], labelled=name != UNLABELED)
        for name, each in data.items()
    }
    facts["train"] |= fitted.batches
    if "dev" in data:
        dev, answers = data["dev"], fitted.answers
        scores["dev"] = fitted.scores
        tuned = task.tune(dev, answers)
        if tuned != task:
            model.task = task = tuned
            answers = trainer.answers(predictor, "dev", dev)
            scores["dev"] = task.score(dev, answers)
        rows["dev"] = (dev, answers, lengths["dev"])
    elif fitted.validated is not None:
        name, chosen, answers, tuned, trained_on = fitted.validated
        columns, sizes = data["train"].take(chosen), lengths["train"].take(chosen)
        if overrides(task, "tune"):  # others are as `finalize` returned them
            model.task = task = tuned
        scores[name] = {**tuned.score(columns, answers), "trained_on": trained_on}
        rows[name] = (columns, answers, sizes)
        facts[name] = facts_of(model, columns, sizes)
    for note in task.unreached(next(iter(rows), "dev")):
        say(note)
    for name in tests_of(data):
        answers = trainer.answers(predictor, name, data[name])
        scores[name] = task.score(data[name], answers)
        rows[name] = (data[name], answers, lengths[name])
    for name, collection in plan.collections.items():
        scores[name] = evaluate_collection(predictor, collection)
        facts[name] = str(collection)
    return _Scored(scores, rows, facts)


def _report(
    plan: Plan,
    fitted: Fitted,
    scored: _Scored,
    context: RunContext,
    *,
    failed: Divergence | None,
) -> dict[str, Any]:
    """Return the arguments of `write_report` that the rows and scores tell."""
    task, scores = fitted.model.task, dict(scored.scores)
    if failed and failed.is_certain:
        loss = failed.loss if math.isfinite(failed.loss) else None
        scores["diverged"] = {**dataclasses.asdict(failed), "loss": loss}
    mistakes: list[dict[str, Any]] = []
    if scored.rows:
        mistakes = task.mistakes(*scored.rows[scored.last][:2])
    return {
        "settings": shown_settings(plan, fitted, failed),
        "data": scored.facts,
        "history": fitted.history,
        "scores": scores,
        "mistakes": mistakes,
        "best_score": task.best_score,
        "environment": {**environment(), "devices": context.devices.line()},
        "command": plan.request.command,
        "choices": plan.table(),
        **findings_of(task, scored.rows, plan.request.slices),
        "usage": usage(task, plan.output),
    }


def _beside_teacher(
    plan: Plan, predictor: Predictor, name: str, context: RunContext
) -> list[dict[str, Any]]:
    """Return, and show, the scores of student and teacher on rows of the plan."""
    rows = compared = plan.rows[name]
    share = ""
    if name == "train":
        compared = some_training_rows(plan.task, rows)
    if len(compared) < len(rows):
        share = f"{len(compared):,} of "
    distillation = cast(Distillation, context.distillation)
    who = (
        "student answers" if distillation.scores_pairs else "teacher and student answer"
    )
    show(f"{who} {share}{counted(len(rows), 'rows')} of {name}")
    found = distillation.compared_with(predictor, compared)
    for line in shown_students(found, name):
        show(line)
    return found
