"""Fine-tune a task on an encoder and score it: `train` and `evaluate`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import dataclasses
import glob
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import keras
import tensorflow as tf

from bert_keras.data.duplicates import shared_rows
from bert_keras.data.memory import is_data, is_path, rows_in_memory
from bert_keras.data.rows import ColumnNames
from bert_keras.data.table import Columns, with_slices
from bert_keras.distribution.strategy import Devices, find_strategy
from bert_keras.errors import ConfigError, DataError, received
from bert_keras.files.atomic import check_output_place, check_path, check_replaceable
from bert_keras.inference.predictor import Predictor
from bert_keras.model.lora import add_lora, freeze_layers
from bert_keras.models.loading import inherited_settings, new_model
from bert_keras.models.new_tokens import TABLE
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.progress import say
from bert_keras.runs.run_folder import RunFolder, SilentRun
from bert_keras.runs.stop_signal import StopSignal
from bert_keras.tasks import check_settings, named_or_given
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import (
    Noting,
    Refusing,
    ScoredFurther,
    compares_rows,
    frozen_layers,
)
from bert_keras.text.truncation import Truncation
from bert_keras.training.config import TrainConfig
from bert_keras.training.divergence import divergence
from bert_keras.training.epochs import FineTuningLoop
from bert_keras.training.findings import ALL, slices_of
from bert_keras.training.lengths import measure_lengths, tell_truncated_targets
from bert_keras.training.run import (
    TrainResult,
    discard_run,
    finish_run,
    has_earlier_run,
    model_settings,
    open_run,
    recorded_settings,
    remove_run,
    run_path,
    tests_of,
)
from bert_keras.training.tracking import check_tracking, tracked
from bert_keras.training.validation import with_dev, without_dev

_TAKEN = {"train", "dev", "runs", "diverged"}  # names of scores


def task_and_data(
    task: str | type[Task] | Task,
    *,
    train: Any,
    dev: Any = None,
    test: Any = None,
    config: TrainConfig,
    columns: ColumnNames | None = None,
    header: str = "auto",
    bad_rows: str = "error",
    task_settings: Mapping[str, Any] | None = None,
    encoder: str | os.PathLike[str] | None = None,
    slices: Sequence[str] = (),
    is_earlier: bool = False,
    tell: Callable[[str], object] = say,
) -> tuple[Task, dict[str, Columns]]:
    """Return the task and the rows of a run by name: `train`, `dev` and the tests.

    The arguments are those of `train`; `is_earlier` is whether the run was begun by an
    earlier version, and `tell` reports the validation split. Without dev rows there is
    no entry for `dev`.

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
    if encoder is not None:
        settings = {**inherited_settings(task, encoder), **settings}

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
    held_out = 0
    if dev is None and config.dev_share:
        own = settings if isinstance(task, type) else task.settings()
        rows, dev = with_dev(task, given, config, own, is_earlier=is_earlier, tell=tell)
        held_out = len(dev)
    elif dev is None:
        tell("no dev rows, by --dev-share 0: the model of the last epoch is kept")
    data = {"train": rows}
    if dev is not None:
        data["dev"] = read("dev", dev)
    data |= {name: read("test", each) for name, each in _named_tests(test).items()}
    if isinstance(task, type):
        try:
            task = task.from_columns(rows, **settings)
        except DataError as error:
            if held_out:
                note = f"{held_out:,} of {len(given):,} rows are held out for dev"
                error.args = (f"{error}; {note}",)
            raise
    for name, each in data.items():  # find missing texts and labels before training
        task.texts(each, use="score")
        task.targets(each)
        if name != "train":
            for note in shared_rows(task.texts(rows), task.texts(each), each):
                tell(note)
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
    source = data if is_path(data) else rows_in_memory(data, name=name)
    rules: dict[str, Any] = {"header": header}
    if bad_rows != "error":  # a user's own `read` need not know it
        rules["bad_rows"] = bad_rows
    found = task.read(source, columns=columns, **rules)
    return with_slices(found, source, slices, **rules)


def _named_tests(test: Any) -> dict[str, Any]:
    """Return the test sets by name; a single one is named `test`."""
    if test is None:
        return {}
    several = isinstance(test, Mapping) and all(
        isinstance(each, Columns) or is_data(each) for each in test.values()
    )
    tests = dict(test) if several else {"test": test}
    taken = sorted(_TAKEN & set(tests))
    if taken:
        raise ConfigError(
            f"`test` must have other names than {', '.join(sorted(_TAKEN))}; "
            f"received {taken[0]}"
        )
    return tests


RESTART = 1000  # a restart adds this to the seed; `seeds` adds 1


def train(
    task: str | type[Task] | Task,
    *,
    encoder: str | os.PathLike[str],
    train: Any,
    output: str | os.PathLike[str],
    dev: Any = None,
    test: Any = None,
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

    On several replicas (`config.strategy`) the result is that of one device, except for
    rounding and the dropout masks. With several processes, each makes this call with
    the same rows, and only the first one writes. If one ends early, so do the others,
    see `Devices.together`.

    Args:
        task: the name or the class of a task, whose settings then follow from the rows,
            or a task.
        encoder: folder, checkpoint or hub name of the pretrained encoder.
        train: the training rows, of any form that `as_columns` takes.
        output: the model folder; an existing model is replaced.
        dev: rows that select the best epoch; by default, some training rows are held
            out, see `stratified_holdout`. With a `dev_share` of 0 there are none, and
            the model of the last epoch is kept.
        test: rows that are scored once at the end, or several sets by name, such as
            `matched` and `mismatched`.
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
            finds those of the config.

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
    check_path("encoder", encoder)
    check_output_place("output", output, {"encoder": encoder})
    check_replaceable(output)
    check_tracking(config, Path(output))
    is_earlier = resume == "auto" and has_earlier_run(run_path(output))
    is_earlier = bool(devices.agree(int(is_earlier)))
    task, data = task_and_data(
        task,
        train=train,
        dev=dev,
        test=test,
        config=config,
        columns=columns,
        header=header,
        bad_rows=bad_rows,
        task_settings=task_settings,
        encoder=encoder,
        slices=slices,
        is_earlier=is_earlier,
        tell=devices.say,
    )
    rows = len(data["train"])
    given, config = config, config.settled(task, rows)
    if "dev" not in data:
        config = without_dev(task, given, config, tell=devices.say)
    devices.check_batch_size(cast(int, config.batch_size), config.accumulation)
    _check_accumulation(task, config)
    training = _Training(
        *(task, encoder, data, Path(output), config, command, resume, devices),
        slices=tuple(slices),
        is_earlier=is_earlier,
    )
    if given.epochs is None:
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


@dataclasses.dataclass(frozen=True)
class _Training:
    """The state that all runs of a call share, including restarts."""

    task: Task
    encoder: str | os.PathLike[str]
    data: dict[str, Columns]
    output: Path
    config: TrainConfig
    command: str
    resume: str
    devices: Devices
    slices: tuple[str, ...]
    is_earlier: bool  # whether an earlier version began the run

    def recorded(self, config: TrainConfig) -> dict[str, Any]:
        return recorded_settings(
            self.task, self.encoder, config, self.data, is_earlier=self.is_earlier
        )

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
            follows=config.max_length is None and not self.is_earlier,
            is_fixed=devices.has_static_shapes,
            tell=devices.say if attempt == 0 else str,
        )
        recorded = self.recorded(config) | model_settings(model)
        width = model.backbone.config.hidden_size
        config = config.settled(self.task, len(data["train"]), width)
        if attempt == 0 and self.config.learning_rate is None:
            devices.say(
                f"learning rate: {config.learning_rate:.2g}, for a hidden size of "
                f"{width} (--learning-rate sets another)"
            )
        opened: RunFolder | SilentRun = SilentRun(path)
        if devices.is_chief:
            opened = open_run(path, recorded, resume=self.resume)
        with (
            opened as run,
            StopSignal(devices.vote) as stop,
            tracked(config, self.output, is_chief=devices.is_chief) as trackers,
        ):
            loop = FineTuningLoop(
                model,
                data["train"],
                data.get("dev"),
                run=run,
                config=config,
                devices=devices,
                stop=stop,
                final_rows=sum(len(data[name]) for name in tests_of(data)),
                trackers=trackers,
            )
            if attempt == 0:
                say(devices.line())
            devices.say(
                f"training {self.task.name}: {len(data['train']):,} examples, "
                f"{len(data.get('dev', ())):,} for dev; the run is in {path}"
            )
            loop.train()
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
                    *(loop, data, self.encoder, self.output, self.command, failed),
                    lengths=lengths,
                    slices=self.slices,
                )
            if isinstance(run, RunFolder):
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
                "the embeddings are not trained: those of the added tokens stay the "
                "mean of their pieces"
            )
        return model


def _chosen(config: TrainConfig, rows: int) -> str:
    """Return the message about the chosen number of epochs."""
    steps = math.ceil(rows / cast(int, config.batch_size))
    until = f", fewer if dev does not improve for {config.patience}"
    return (
        f"epochs: {config.epochs}{until if config.patience else ''} (updates of "
        f"{config.batch_size} rows, {steps:,} an epoch, for {rows:,} training rows; "
        "--epochs and --batch-size choose others)"
    )


def _discard_runs(output: str | os.PathLike[str], recorded: Mapping[str, Any]) -> None:
    """Remove the runs of this call, with the `recorded` settings, and its restarts.

    Also removes those that the same call with more restarts has left.
    """
    first = run_path(output)
    for path in first.parent.glob(f"{glob.escape(first.name)}*"):
        number = path.name.removeprefix(first.name).removeprefix("-") or "0"
        if number.isdecimal():
            discard_run(
                path, {**recorded, "seed": recorded["seed"] + RESTART * int(number)}
            )


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
            f"`accumulation` must be 1 for {task.name}, whose loss compares the rows "
            f"of a batch; received {config.accumulation}"
        )


def evaluate(
    predictor: Predictor,
    data: Any,
    *,
    columns: ColumnNames | None = None,
    header: str = "auto",
    bad_rows: str = "error",
    slices: Sequence[str] = (),
    batch_size: int = 32,
    max_batch_tokens: int | None = None,
) -> dict[str, Any]:
    """Return the scores of a model on labelled rows.

    Args:
        predictor: the predictor of the model.
        data, columns, header, bad_rows: as in `train`.
        slices: columns of the rows. For each, `by COLUMN` has the best score of the
            rows with each of its values: `rows`, the score, and its 95% interval from
            `low` to `high`.
        batch_size, max_batch_tokens: as in `Predictor.predict`.

    Raises:
        ConfigError: `data` is not data.
        DataError: a label is unknown to the model; all invalid lines are counted.
    """
    if not isinstance(predictor, Predictor):
        raise ConfigError(
            f"`predictor` must be what `load` returns; {received(predictor)}"
        )
    task = predictor.model.task
    rows = labelled_rows(
        task, data, columns=columns, header=header, bad_rows=bad_rows, slices=slices
    )
    if isinstance(task, Refusing):
        task.refuse_unread(rows)
    task.targets(rows)  # before the model runs
    truncation = Truncation()
    answers = predictor.answers(
        rows,
        batch_size=batch_size,
        max_batch_tokens=max_batch_tokens,
        truncation=truncation,
    )
    if truncation.cut:
        say(predictor.truncated(truncation))
    tell_truncated_targets(predictor.model, rows, of="targets", tell=say)
    more = {}
    if isinstance(task, ScoredFurther):
        more = task.further_scores(predictor.model, rows, batch_size)
    parts = slices_of(task, rows, answers, names=slices) if slices else {}
    return {**task.score(rows, answers), **more, **_by_slice(parts)}


def _by_slice(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the scores of slices by column and value, without unknown ones."""
    return {
        f"by {name}": {
            row["slice"]: {
                key: value
                for key, value in row.items()
                if key != "slice" and value is not None
            }
            for row in rows
        }
        for name, rows in parts.items()
        if name != ALL
    }
