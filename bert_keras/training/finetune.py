"""Fine-tune a task on an encoder, and score it: `train` and `evaluate`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import check_encoder, read_checkpoint
from bert_keras.data.table import Columns
from bert_keras.distribution.replicas import check_batch_size
from bert_keras.distribution.strategy import Devices, find_strategy
from bert_keras.distribution.worker_watch import WorkerWatch
from bert_keras.errors import ConfigError, DataError
from bert_keras.files.atomic import check_replaceable
from bert_keras.inference.model_folder import (
    assign_scope,
    check_max_length,
    check_vocabulary,
)
from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.lora import add_lora, freeze_layers
from bert_keras.runs.progress import say
from bert_keras.runs.run_folder import RunFolder, SilentRun
from bert_keras.runs.stop_signal import StopSignal
from bert_keras.tasks.base import Task
from bert_keras.tasks.task_model import TaskModel
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.config import TrainConfig
from bert_keras.training.divergence import divergence
from bert_keras.training.loop import FineTuningLoop
from bert_keras.training.progress import check_tensorboard
from bert_keras.training.result import TrainResult, finish_run
from bert_keras.training.run import (
    discard_run,
    model_settings,
    open_run,
    remove_run,
    run_path,
    told_settings,
)


def new_model(
    task: Task,
    encoder: str | os.PathLike[str],
    config: TrainConfig,
    *,
    devices: Devices | None = None,
    tell: Callable[[str], object] = say,
) -> TaskModel:
    """Return a task's model on a pretrained encoder, its head at random from the seed.

    Of the scopes in `task.pretrained_scopes`, the head is that of the checkpoint. The
    weights, and nothing else, are made in the scope of the devices' strategy.

    Raises:
        CheckpointError: the encoder is missing, broken or does not fit.
        ConfigError: `max_length` is above what the encoder takes.
    """
    keras.utils.set_random_seed(config.seed)
    checkpoint = read_checkpoint(encoder)
    tokenizer = WordPieceTokenizer.from_folder(checkpoint.path, **checkpoint.tokenizer)
    check_vocabulary(tokenizer, checkpoint)
    check_encoder(checkpoint)
    max_length = config.max_length
    if max_length is None:
        max_length = min(task.max_length, checkpoint.config.max_position_embeddings)
    check_max_length(max_length, checkpoint.config)
    for note in (*checkpoint.notes, *tokenizer.notes):
        tell(note)
    if task.pooler and "bert/pooler/dense/kernel" not in checkpoint.shapes:
        tell("the checkpoint has no pooler: it starts at random, like the head")
    preprocessor = Preprocessor(
        tokenizer,
        max_length=max_length,
        truncation=config.truncation,
        layout=config.layout,
    )
    with devices.strategy.scope() if devices else contextlib.nullcontext():
        loaded = BertEncoder.from_pretrained(
            os.fspath(encoder),
            pooler=task.pooler,
            outputs=task.encoder_outputs,
            rematerialize=config.rematerialize,
            seed=config.seed,
            dtype=config.precision,
        )
        model = TaskModel(loaded, task, preprocessor, seed=config.seed)
    for scope in task.pretrained_scopes:
        if not assign_scope(model, checkpoint, scope):
            tell(f"the checkpoint has no {scope.rstrip('/')}: it starts at random")
    return model


_TAKEN = {"train", "dev", "runs", "diverged"}  # names of scores


def named_tests(test: Columns | Mapping[str, Columns] | None) -> dict[str, Columns]:
    """Return the test sets by name; a single one is called `test`."""
    if test is None:
        return {}
    tests = {"test": test} if isinstance(test, Columns) else dict(test)
    taken = sorted(_TAKEN & set(tests))
    if taken:
        raise ConfigError(
            f"`test` must have other names than {', '.join(sorted(_TAKEN))}; "
            f"received {taken[0]}"
        )
    return tests


def with_dev(
    train: Columns,
    dev: Columns | None,
    config: TrainConfig,
    *,
    tell: Callable[[str], object] = say,
) -> tuple[Columns, Columns]:
    """Return training and dev rows; sets rows aside where there is no dev."""
    if dev is not None:
        return train, dev
    count = max(1, round(len(train) * config.dev_share))
    if count >= len(train):
        raise DataError(
            f"has too few rows to set some aside for dev ({len(train)}): give dev rows",
            path=train.path,
        )
    order = np.random.default_rng(config.seed).permutation(len(train))
    tell(
        f"no dev rows given: {count:,} of {len(train):,} training rows are set aside "
        f"(seed {config.seed})"
    )
    return train.take(sorted(order[count:])), train.take(sorted(order[:count]))


RESTART = 1000  # what a restart adds to the seed; `seeds` count in ones


def train(
    task: type[Task] | Task,
    *,
    encoder: str | os.PathLike[str],
    train: Columns,
    output: str | os.PathLike[str],
    dev: Columns | None = None,
    test: Columns | Mapping[str, Columns] | None = None,
    config: TrainConfig | None = None,
    task_settings: Mapping[str, Any] | None = None,
    command: str = "",
    resume: str = "auto",
    devices: Devices | None = None,
) -> TrainResult:
    """Fine-tune a task on labelled rows and write a model folder.

    The folder is written at the end; what stood there stands until then. Until then,
    too, a hidden folder beside it, `.NAME.run`, keeps checkpoints and, in `best`, the
    model of the best epoch. The same call goes on there where a run was stopped, and
    ends with the same weights.

    On several replicas (`config.strategy`) the result is that of one device, but for
    rounding and for which units drop. Of several processes each makes this call, with
    the same rows; the first one writes, and all return. They end together: see
    `WorkerWatch`.

    Args:
        task: the class of the task, which learns its classes from the rows, or a task.
        encoder: folder, checkpoint or hub name of the pretrained encoder.
        train: the training rows, from `task.read` or `as_columns`.
        output: the model folder; a model that stood there is replaced.
        dev: rows that choose the best epoch; else some training rows are set aside.
        test: rows that are scored once at the end; or several sets by name, such as
            `matched` and `mismatched`.
        config: how to train.
        task_settings: settings of the task that the data does not tell.
        command: the command line, for the report.
        resume: `auto` goes on with an unfinished run; `never` throws it away.
        devices: what `find_strategy` gave, for several calls in one process; `None`
            finds those of the config.

    Raises:
        BertKerasError: something given is wrong; nothing was written.
        ConfigError: an unfinished run of other settings or rows stands there; the
            strategy's devices are not there.
        TrainingError: a loss is not finite.
        RunStopped: SIGTERM or SIGINT has come; what was done is saved.
    """
    config = config or TrainConfig()
    _check_process()
    # Before TensorFlow computes anything.
    devices = devices or find_strategy(config.strategy)
    tell = say if devices.is_chief else _silent
    check_replaceable(output)
    check_tensorboard(config.tensorboard, Path(output))
    train, dev = with_dev(train, dev, config, tell=tell)
    if isinstance(task, type):
        task = task.from_columns(train, **(task_settings or {}))
    given, config = config, config.settled(task, len(train))
    check_batch_size(
        cast(int, config.batch_size),
        config.accumulation,
        devices.replicas,
        devices.has_static_shapes,
    )
    _check_accumulation(task, config)
    data = {"train": train, "dev": dev, **named_tests(test)}
    for columns in data.values():
        task.targets(columns)  # bad labels are found before anything is trained
    training = _Training(
        task, encoder, data, Path(output), config, command, resume, devices, tell
    )
    if given.epochs is None:
        tell(_chosen(config, len(train)))
    for note in task.notes(train):
        tell(note)
    with WorkerWatch(devices) as watch:
        attempt = 0
        while (result := training.run(attempt, watch)) is None:
            attempt += 1
        if devices.is_chief:
            _discard_runs(output, told_settings(task, encoder, config, data))
        devices.agree(0)  # all are done
    return result


@dataclasses.dataclass(frozen=True)
class _Training:
    """What all runs of a call have in common, those that begin again included."""

    task: Task
    encoder: str | os.PathLike[str]
    data: dict[str, Columns]
    output: Path
    config: TrainConfig
    command: str
    resume: str
    devices: Devices
    tell: Callable[[str], object]

    def run(self, attempt: int, watch: WorkerWatch) -> TrainResult | None:
        """Train a model and write its folder; `None` if it is to be begun again.

        Args:
            attempt: number of the run, from 0; each has another seed.
            watch: lets the run finish what it writes if a worker dies.
        """
        seed = self.config.seed + RESTART * attempt
        config = dataclasses.replace(self.config, seed=seed)
        devices, data = self.devices, self.data
        path = _run_path(self.output, attempt)
        model = new_model(
            self.task, self.encoder, config, devices=devices, tell=self.tell
        )
        with devices.strategy.scope():
            freeze_layers(model.backbone, config.freeze_layers)
            if config.lora_rank:
                add_lora(model.backbone, config.lora_rank, seed=config.seed)
        told = told_settings(self.task, self.encoder, config, data)
        told |= model_settings(model)
        with (
            _run_folder(devices, path, told, self.resume) as run,
            StopSignal(devices.vote) as stop,
        ):
            watch.finish = run.finish
            loop = FineTuningLoop(
                model,
                data["train"],
                data["dev"],
                run=run,
                config=config,
                devices=devices,
                stop=stop,
                final_rows=sum(len(rows) for rows in list(data.values())[2:]),
            )
            if attempt == 0:
                say(devices.line())
            self.tell(
                f"training {self.task.name}: {len(data['train']):,} examples, "
                f"{len(data['dev']):,} for dev; the run is in {path}"
            )
            loop.train()
            failed = divergence(model, data["train"], loop.history)
            if failed:
                self.tell(str(failed))
            # Only the chief knows all losses of a run that went on.
            is_failed = failed is not None and failed.is_certain
            if devices.agree(int(is_failed and attempt < config.restarts)):
                stop.is_due()
                stop.leave()
                self.tell(f"starting again with seed {seed + RESTART}")
                return None
            with stop.at_once():
                result = finish_run(
                    loop, data, self.encoder, self.output, self.command, failed
                )
            if isinstance(run, RunFolder):
                remove_run(run)
        return result


def _chosen(config: TrainConfig, rows: int) -> str:
    """Return what is told of the epochs that were chosen."""
    steps = math.ceil(rows / cast(int, config.batch_size))
    until = f", fewer if dev does not improve for {config.patience}"
    return (
        f"epochs: {config.epochs}{until if config.patience else ''} (updates of "
        f"{config.batch_size} rows, {steps:,} an epoch, for {rows:,} training rows; "
        "--epochs and --batch-size choose others)"
    )


def _run_folder(
    devices: Devices, path: Path, settings: Mapping[str, Any], resume: str
) -> RunFolder | SilentRun:
    if devices.is_chief:
        return open_run(path, settings, resume=resume)
    return SilentRun(path)


def _silent(line: str) -> None:
    """Say nothing: another worker says it."""


def _run_path(output: str | os.PathLike[str], attempt: int) -> Path:
    """Return the folder of a run, or of one that begins again."""
    return run_path(output, f"run-{attempt}" if attempt else "run")


def _discard_runs(output: str | os.PathLike[str], told: Mapping[str, Any]) -> None:
    """Take away the runs of this call that began again, or that it began again after.

    Those, too, that the same call with more restarts has left.

    Args:
        output: the model folder.
        told: `told_settings` of the first run.
    """
    first = run_path(output)
    for path in first.parent.glob(f"{glob.escape(first.name)}*"):
        number = path.name.removeprefix(first.name).removeprefix("-") or "0"
        if number.isdecimal():
            discard_run(path, {**told, "seed": told["seed"] + RESTART * int(number)})


def _check_process() -> None:
    """Raise unless Keras runs on TensorFlow, where text handling and `TrainStep` do."""
    if keras.config.backend() != "tensorflow":
        raise ConfigError(
            "`train` needs KERAS_BACKEND=tensorflow; received "
            f"{keras.config.backend()}: there, `fit` a model on batches of your own"
        )
    if tf.distribute.has_strategy():
        raise ConfigError(
            "`train` must be called outside the scope of a tf.distribute strategy; "
            "received a call in one: there, `fit` a TaskModel"
        )


def _check_accumulation(task: Task, config: TrainConfig) -> None:
    """Raise unless the parts of a batch have the loss of the whole."""
    if config.accumulation > 1 and task.compares:
        raise ConfigError(
            f"`accumulation` must be 1 for {task.name}, whose loss compares the rows "
            f"of a batch; received {config.accumulation}"
        )


def evaluate(
    predictor: Predictor, columns: Columns, *, batch_size: int = 32
) -> dict[str, Any]:
    """Return the scores of a model on labelled rows.

    Raises:
        DataError: a label is unknown to the model; all bad lines are counted.
    """
    task = predictor.model.task
    task.targets(columns)  # before the model runs
    answers = predictor.answers(columns, batch_size=batch_size)
    more = task.further_scores(predictor.model, columns, batch_size)
    return {**task.score(columns, answers), **more}
