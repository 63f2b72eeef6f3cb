"""A fine-tuning run from its first line to the model folder: `train`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import keras
import tensorflow as tf

from bert_keras.data.collection import JudgedCollection
from bert_keras.data.columns import Columns
from bert_keras.data.rows import ColumnNames
from bert_keras.distribution.strategy import Devices, find_strategy
from bert_keras.errors import ConfigError, counted
from bert_keras.files.atomic import (
    check_output_place,
    check_path,
    check_replaceable,
    replaced_folder,
)
from bert_keras.inference.predictor import Predictor
from bert_keras.inference.retrieval import check_ranks, evaluate_collection
from bert_keras.model.lora import add_lora, freeze_layers
from bert_keras.models.loading import check_student, new_model
from bert_keras.models.model_folder import write_model
from bert_keras.models.new_tokens import TABLE
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.environment import environment
from bert_keras.runs.progress import followed_by
from bert_keras.runs.run_folder import (
    CHOICES,
    DEFAULTS,
    RunFolder,
    digest_of,
    discard_run,
    open_run,
    remove_run,
    run_path,
)
from bert_keras.runs.stop_signal import StopSignal
from bert_keras.tasks import named_or_given
from bert_keras.tasks.base import Task, replaced
from bert_keras.tasks.classifier import Confidence
from bert_keras.tasks.classifier_settings import ALL
from bert_keras.tasks.hugging_face import unread_elsewhere
from bert_keras.tasks.protocols import (
    Finalizing,
    Noting,
    Reportable,
    Tunable,
    compares_rows,
    frozen_layers,
    training_examples,
)
from bert_keras.text.tokenizer_files import vocabulary_hash
from bert_keras.training.config import TrainConfig, unused_options
from bert_keras.training.contrastive_fit import ContrastiveFit
from bert_keras.training.data import (
    UNLABELED,
    digest_of_rows,
    labelled_rows,
    task_and_data,
    tests_and_collections,
    tests_of,
    too_few_to_hold_out,
    without_dev,
)
from bert_keras.training.distillation import (
    Distillation,
    some_training_rows,
    student_encoder,
)
from bert_keras.training.divergence import Divergence, divergence
from bert_keras.training.findings import (
    ExplanationCosts,
    explained_mistakes,
    explanation_seconds,
    findings_of,
)
from bert_keras.training.head_fit import HeadFit, lower_layers_help, probe
from bert_keras.training.lengths import (
    TextLengths,
    check_truncation,
    keeps_windows,
    measure_lengths,
    reads_long_texts,
)
from bert_keras.training.loop import FineTuningLoop, RunContext
from bert_keras.training.methods import (
    AUTO,
    OWN_POOLING,
    UNUSED,
    pooling_note,
    pooling_of,
    tries_layers,
    with_method,
    with_pooling_of,
)
from bert_keras.training.opens_in import with_open_head
from bert_keras.training.results import (
    facts_of,
    shown_settings,
    shown_students,
    usage,
    write_results,
)
from bert_keras.training.tracking import check_tracking, tracked
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
_HEAD_FITS = {"linear": HeadFit, "contrastive": ContrastiveFit}
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
    """

    folder: Path
    model: TaskModel
    scores: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    report: dict[str, Any]


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
    chosen: Mapping[str, Any] | None = None,
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
        chosen: for a task, the `task_settings` that it was made with; others, such as
            how long texts are read, then follow from rows and encoder as for a task by
            name. `None`: its settings are kept as they are.

    Raises:
        BertKerasError: an argument is wrong; nothing was written.
        ConfigError: there is an unfinished run with other settings or rows, or the
            devices of the strategy are not available.
        TrainingError: a loss is not finite.
        RunStopped: SIGTERM or SIGINT was received; the run is saved.
        WorkerLostError: another worker has ended.
    """
    config = config or TrainConfig()
    _check_process()
    # Before TensorFlow computes anything.
    devices = devices or find_strategy(config.strategy)
    encoder = student_encoder(encoder, config)
    check_path("encoder", encoder)
    places = {"encoder": encoder, "teacher": config.teacher}
    places = {name: place for name, place in places.items() if place is not None}
    check_output_place("output", output, places)
    check_replaceable(output)
    check_tracking(config, Path(output))
    test, collections = tests_and_collections(test)
    is_alone = devices.replicas == 1 and not devices.has_static_shapes
    user_settings = chosen if isinstance(task, Task) else task_settings or {}
    if config.opens_in is not None:
        task, config, user_settings = with_open_head(
            task, config, user_settings, encoder=encoder, tell=devices.say
        )
        task_settings = None if isinstance(task, Task) else user_settings
    if config.method == AUTO:
        reader = named_or_given(task)
        train = labelled_rows(
            reader,
            train,
            name="train",
            columns=columns,
            header=header,
            bad_rows=bad_rows,
            slices=slices if dev is None else (),
        )
        config = with_method(
            reader,
            train,
            config,
            encoder=encoder,
            settings=user_settings or {},
            one_replica=is_alone,
            unlabeled=unlabeled is not None,
            help_of=functools.partial(lower_layers_help, devices=devices),
            tell=devices.say,
        )
        if config.method == "finetune" and user_settings is not None:
            own = pooling_of(encoder, reader, train, user_settings)
            if isinstance(task, Task):
                task = replaced(task, **own)
            else:
                task_settings = {**user_settings, **own}
            if own:
                devices.say(OWN_POOLING.format(own["pooling"]))
    task, data = task_and_data(
        task,
        train=train,
        dev=dev,
        test=test,
        unlabeled=unlabeled,
        config=config,
        columns=columns,
        header=header,
        bad_rows=bad_rows,
        task_settings=task_settings,
        encoder=encoder,
        slices=slices,
        tell=devices.say,
    )
    if collections:
        check_ranks(task)
    rows = training_examples(task, data["train"])
    if config.teacher is not None:
        rows += len(data.get(UNLABELED, ())) + config.augment * len(data["train"])
    few = ""
    if "dev" not in data:
        few = too_few_to_hold_out(task, data["train"], config, task.get_config())
    config = config.with_split()
    if few:
        config = dataclasses.replace(config, validation_split=0.0)
    given = config
    if user_settings is not None:
        if not devices.has_static_shapes:
            task, config = reads_long_texts(
                task,
                config,
                data["train"],
                encoder,
                settings=user_settings,
                one_replica=is_alone,
                tell=devices.say,
            )
        config = keeps_windows(
            task, config, encoder, settings=user_settings, tell=devices.say
        )
    check_truncation(task, config)
    config = config.finalized(task, rows)
    if "dev" not in data:
        config = without_dev(task, given, config, tell=devices.say)
    if user_settings is not None and config.method == "finetune":
        task = with_pooling_of(
            encoder, task, data["train"], user_settings, tell=devices.say
        )
        note = pooling_note(encoder, task, data["train"], user_settings)
        if note:
            devices.say(note)
    devices.check_batch_size(cast(int, config.batch_size), config.accumulation)
    if devices.replicas > 1:
        _check_accumulation(task, config)
    if config.linear_probe and not is_alone:
        raise ConfigError(
            "`linear_probe` needs a strategy of one replica, not a TPU's; received "
            f"{devices.name}, {devices.replicas} replicas"
        )
    distillation = None
    if config.teacher is not None:
        check_student(encoder, config)  # before the teacher answers all rows
    with devices.strategy.scope():
        distillation = Distillation.of(
            task, config, data["train"], data.get(UNLABELED), tell=devices.say
        )
    tries = False
    if user_settings is not None:
        labelled = len(data["train"]) + len(data.get(UNLABELED, ()))
        tries = tries_layers(task, config, labelled, user_settings)
        task = replaced(task, layers=ALL) if tries else task
    training = _Training(
        task=task,
        encoder=encoder,
        data=data,
        collections=collections,
        output=Path(output),
        config=config,
        command=command,
        resume=resume,
        devices=devices,
        slices=tuple(slices),
        distillation=distillation,
        no_dev=few,
        tries_layers=tries,
    )
    if given.epochs is None and config.method == "finetune":
        devices.say(_chosen(config, rows))
    for note in task.notes(data["train"]) if isinstance(task, Noting) else ():
        devices.say(note)
    with devices.together():
        attempt = 0
        while (result := training.run(attempt)) is None:
            attempt += 1
        if devices.is_chief:
            _discard_runs(output, training.recorded(config))
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


def _check_accumulation(task: Task, config: TrainConfig) -> None:
    """Raise if the loss of a batch is not the sum of the losses of its parts."""
    if config.accumulation > 1 and compares_rows(task):
        raise ConfigError(
            f"`accumulation` must be 1 for {task.name} on several replicas, since its "
            f"loss compares the rows of a batch; received {config.accumulation}"
        )


def _chosen(config: TrainConfig, rows: int) -> str:
    """Return the message about the chosen number of epochs."""
    steps = math.ceil(rows / cast(int, config.batch_size))
    until = f", fewer if dev does not improve for {config.patience}"
    return (
        f"epochs: {config.epochs}{until if config.patience else ''} (updates of "
        f"{config.batch_size} rows, {steps:,} an epoch, for {rows:,} training rows; "
        "--epochs and --batch-size choose others)"
    )


@dataclasses.dataclass(frozen=True)
class _Training:
    """The state that all runs of a call share, including restarts."""

    task: Task
    encoder: str | os.PathLike[str]
    data: dict[str, Columns]
    collections: dict[str, JudgedCollection]
    output: Path
    config: TrainConfig
    command: str
    resume: str
    devices: Devices
    slices: tuple[str, ...]
    distillation: Distillation | None = None
    no_dev: str = ""  # why no dev rows were held out by default
    tries_layers: bool = False  # whether a head may read the last layer alone, too

    def recorded(self, config: TrainConfig) -> dict[str, Any]:
        return recorded_settings(self.task, self.encoder, config, self.data)

    def run(self, attempt: int) -> TrainResult | None:
        """Train a model and write its folder; return `None` if it must be restarted.

        `attempt` is the number of the run, from 0; each has a different seed.
        """
        seed = self.config.seed + RESTART * attempt
        config = dataclasses.replace(self.config, seed=seed)
        devices, data = self.devices, self.data
        path = run_path(self.output, f"run-{attempt}" if attempt else "run")
        model = self._new_model(config)
        lengths = measure_lengths(
            model,
            data,
            follows=config.max_length is None,
            is_fixed=devices.has_static_shapes,
            method=config.method,
            tell=devices.say if attempt == 0 else str,
        )
        recorded = self.recorded(config) | model_settings(model)
        if self.distillation is not None:
            self.distillation.check_student(model)
            recorded["weights of the teacher"] = self.distillation.digest()
        width = model.backbone.config.hidden_size
        examples = training_examples(self.task, data["train"])
        config = config.finalized(self.task, examples, width)
        unused = UNUSED[config.method]
        is_told = "learning_rate" not in unused
        if attempt == 0 and self.config.learning_rate is None and is_told:
            new = config.new_learning_rate
            is_chosen = new != self.config.new_learning_rate
            rates = f"{config.learning_rate:.2g}"
            options = "--learning-rate sets another"
            if is_chosen and "new_learning_rate" not in unused:
                rates += f" in the encoder (LoRA), {new:.2g} elsewhere"
                options = "--learning-rate and --new-learning-rate set others"
            devices.say(
                f"learning rate: {rates}, for a hidden size of {width} ({options})"
            )
        opened: contextlib.AbstractContextManager[RunFolder | None]
        opened = contextlib.nullcontext()
        if devices.is_chief:
            opened = open_run(path, recorded, resume=self.resume)
        has_mistakes = "dev" in data or bool(tests_of(data))

        def explaining(left: float) -> float:
            seconds = loop.seconds + left if has_mistakes else 0.0
            return explanation_seconds(config, seconds)

        with (
            opened as run,
            StopSignal(devices.vote) as stop,
            tracked(config, self.output, is_chief=devices.is_chief) as trackers,
            followed_by(explaining),
        ):
            method: type[FineTuningLoop] | type[HeadFit]
            method = _HEAD_FITS.get(config.method, FineTuningLoop)
            context = RunContext(
                folder=run,
                config=config,
                devices=devices,
                stop=stop,
                trackers=trackers,
                distillation=self.distillation,
                tries_layers=self.tries_layers,
            )
            loop = method(model, data, context)
            if attempt == 0:
                devices.announce(config.precision)
            devices.say(
                f"training {self.task.name}: {len(data['train']):,} examples, "
                f"{len(data.get('dev', ())):,} for dev; the run is in {path}"
            )
            if config.linear_probe and isinstance(loop, FineTuningLoop):
                if loop.step == 0:
                    probe(model, data, context, then=loop.progress.rows_left)
            loop.train()
            failed = None
            if config.method == "finetune" and self.distillation is None:
                failed = divergence(model, data["train"], loop.history)
            if failed:
                devices.say(str(failed))
            # Only the chief knows all losses of a resumed run.
            is_failed = failed is not None and failed.is_certain
            if devices.agree(int(is_failed and attempt < config.restarts)):
                stop.is_due()
                stop.leave()
                devices.say(f"restarting with seed {seed + RESTART}")
                return None
            with loop.saved_on_failure(), stop.at_once():
                result = finish_run(
                    loop,
                    data,
                    encoder=self.encoder,
                    output=self.output,
                    command=self.command,
                    failed=failed,
                    lengths=lengths,
                    slices=self.slices,
                    collections=self.collections,
                    distillation=self.distillation,
                    no_dev=self.no_dev,
                )
            if run is not None:
                remove_run(run)
        return result

    def _new_model(self, config: TrainConfig) -> TaskModel:
        """Return the model to train, with its frozen layers and LoRA matrices."""
        devices = self.devices
        model = new_model(
            self.task, self.encoder, config, devices=devices, tell=devices.say
        )
        with devices.strategy.scope():
            freeze_layers(model.backbone, config.freeze_layers)
            if config.lora_rank:
                add_lora(
                    model.backbone,
                    config.lora_rank,
                    seed=config.seed,
                    frozen=frozen_layers(model.task, model.backbone),
                )
        trained = {weight.path for weight in model.trainable_weights}
        if config.add_tokens and TABLE not in trained:
            devices.say(
                "the embeddings are not trained: the embeddings of the added tokens "
                "stay the mean of their pieces"
            )
        return model


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


def recorded_settings(
    task: Task,
    encoder: str | os.PathLike[str],
    config: TrainConfig,
    data: Mapping[str, Columns],
) -> dict[str, Any]:
    """Return the settings of a run from the user, with the data, as JSON values."""
    free = {*_FREE, *unused_options(config)}
    recorded = {k: v for k, v in dataclasses.asdict(config).items() if k not in free}
    # A run's settings lack these at their defaults.
    for name, usual in (("method", "finetune"), ("linear_probe", False)):
        if recorded[name] == usual:
            del recorded[name]
    return {
        CHOICES: DEFAULTS,
        "task": task.name,
        "encoder": os.fspath(encoder),
        **{f"{name} rows": digest_of_rows(columns) for name, columns in data.items()},
        **recorded,
        "task settings": json.loads(json.dumps(task.get_config(), default=str)),
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
    loop: FineTuningLoop | HeadFit,
    data: Mapping[str, Columns],
    *,
    encoder: str | os.PathLike[str],
    output: Path,
    command: str,
    failed: Divergence | None,
    lengths: Mapping[str, TextLengths],
    slices: Sequence[str] = (),
    collections: Mapping[str, JudgedCollection] | None = None,
    distillation: Distillation | None = None,
    no_dev: str = "",
) -> TrainResult:
    """Score the best epoch of a run, and write its model folder and report.

    All workers score, so that all return the same; the chief writes. `data` are the
    rows by name: `train`, `dev` and the tests; `lengths` are the lengths of their
    texts; `failed` is the divergence of the run, certain or possible, if any;
    `collections` are tests of search; with `distillation`, the report shows the student
    beside its teacher; `no_dev` is why no dev rows were held out by default.

    Raises:
        CheckpointError: the folder of the best epoch is broken, or writing fails.
    """
    config, model = loop.config, loop.best_model()
    validated = loop.cross_validated() if "dev" not in data else None
    if isinstance(model.task, Finalizing):
        model.task = model.task.finalize(model)
    task = model.task
    predictor = Predictor(model)
    scores: dict[str, dict[str, Any]] = {}
    scored: dict[str, tuple[Columns, Any, Any]] = {}
    answers: Any = {}
    facts: dict[str, Any]
    facts = {
        name: facts_of(model, rows, lengths[name], labelled=name != UNLABELED)
        for name, rows in data.items()
    }
    facts["train"] |= loop.batch_facts
    if "dev" in data:
        scores["dev"], answers = loop.best.scores or {}, loop.best.answers or {}
        dev = data["dev"]
        tuned = task.tune(dev, answers) if isinstance(task, Tunable) else task
        if tuned != task:
            model.task = task = tuned
            answers = loop.answers(predictor, "dev", data["dev"])
            scores["dev"] = task.score(data["dev"], answers)
        scored["dev"] = (data["dev"], answers, lengths["dev"])
    elif validated is not None:
        name, chosen, answers, tuned, trained_on = validated
        columns, sizes = data["train"].take(chosen), lengths["train"].take(chosen)
        if isinstance(task, Tunable):
            model.task = task = tuned
        scores[name] = {**tuned.score(columns, answers), "trained_on": trained_on}
        scored[name] = (columns, answers, sizes)
        facts[name] = facts_of(model, columns, sizes)
    else:
        facts["dev"] = (
            no_dev or "no dev rows: the model is the one after the last epoch"
        )
    if isinstance(task, Confidence):
        for note in task.unreached(next(iter(scored), "dev")):
            loop.devices.say(note)
    for name in tests_of(data):
        answers = loop.answers(predictor, name, data[name])
        scores[name] = task.score(data[name], answers)
        scored[name] = (data[name], answers, lengths[name])
    for name, collection in (collections or {}).items():
        scores[name] = evaluate_collection(predictor, collection)
        facts[name] = str(collection)
    of_data = dict(scores)
    if failed and failed.is_certain:
        loss = failed.loss if math.isfinite(failed.loss) else None
        scores["diverged"] = {**dataclasses.asdict(failed), "loss": loss}
    last = next(reversed(scored), "train")  # the set whose mistakes are shown
    mistakes: list[dict[str, Any]] = []
    if scored and isinstance(task, Reportable):
        mistakes = task.mistakes(scored[last][0], answers)
    report: dict[str, Any] = {
        "settings": shown_settings(loop, model, encoder, failed),
        "data": facts,
        "history": loop.history,
        "scores": scores,
        "mistakes": mistakes,
        "best_score": task.best_score,
        "environment": {**environment(), "devices": loop.devices.line()},
        "command": command,
        **findings_of(task, scored, slices),
        "usage": usage(task, output),
    }
    if distillation is not None and last in data:
        compared, share = data[last], ""
        if last == "train":
            compared = some_training_rows(task, compared)
        if len(compared) < len(data[last]):
            share = f"{len(compared):,} of "
        rows = f"{share}{counted(len(data[last]), 'rows')} of {last}"
        loop.devices.say(f"teacher and student answer {rows}")
        report["students"] = distillation.beside(predictor, compared)
        for line in shown_students(report["students"], last):
            loop.devices.say(line)
    if loop.devices.is_chief:
        report["explanations"] = explained_mistakes(
            predictor,
            scored[last][0] if scored else data[last],
            # Of cross-validation, they are not mistakes of the final model.
            mistakes if last in data else [],
            most=config.explain_mistakes,
            seconds=explanation_seconds(config, loop.seconds),
            costs=ExplanationCosts(*loop.update_seconds),
        )
        with replaced_folder(output) as folder:
            write_model(model, folder)
            write_results(folder, output, report)
        if line := unread_elsewhere(task):
            loop.devices.say(line)
        loop.trackers.finish(report, output / "report.html")
    model.compile(
        new_optimizer(config, steps=loop.steps, model=model),
        loss=task.loss(),
        metrics=task.metrics(),
    )
    return TrainResult(output, model, of_data, loop.history, report)
