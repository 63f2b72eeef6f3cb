"""Fine-tune a task on an encoder, and score it: `train` and `evaluate`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import check_encoder, read_checkpoint
from bert_keras.divergence import Divergence, divergence
from bert_keras.encoder import BertEncoder
from bert_keras.errors import ConfigError, DataError
from bert_keras.fewer_weights import add_lora, freeze_layers
from bert_keras.finetuning_loop import FineTuningLoop
from bert_keras.finetuning_run import (
    discard_run,
    model_settings,
    open_run,
    remove_run,
    run_path,
    told_settings,
)
from bert_keras.folder import check_replaceable, replaced_folder
from bert_keras.inference import Predictor
from bert_keras.model_folder import (
    assign_scope,
    check_max_length,
    check_vocabulary,
    write_model,
)
from bert_keras.packing import Preprocessor
from bert_keras.progress import say
from bert_keras.report import write_report
from bert_keras.run_facts import environment
from bert_keras.stop_signal import StopSignal
from bert_keras.table import Columns
from bert_keras.task_model import TaskModel, as_tensors
from bert_keras.tasks.base import Task
from bert_keras.tokenizer import WordPieceTokenizer
from bert_keras.train_config import TrainConfig
from bert_keras.updates import new_optimizer

_TAKEN = {"train", "dev", "runs", "diverged"}  # names of scores
RESTART = 1000  # what a restart adds to the seed; `seeds` count in ones


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` made.

    Args:
        folder: the model folder; holds `report.html` and `scores.json`, too.
        model: the model with the weights of its best epoch.
        scores: name of the data set to its scores.
        history: rows of the curves, by step and by epoch.
        report: what the report tells, the arguments of `write_report`.
    """

    folder: Path
    model: TaskModel
    scores: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    report: dict[str, Any]


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
) -> TrainResult:
    """Fine-tune a task on labelled rows and write a model folder.

    The folder is written at the end; what stood there stands until then. Until then,
    too, a hidden folder beside it, `.NAME.run`, keeps checkpoints and, in `best`, the
    model of the best epoch. The same call goes on there where a run was stopped, and
    ends with the same weights.

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

    Raises:
        BertKerasError: something given is wrong; nothing was written.
        ConfigError: an unfinished run of other settings or rows stands there.
        TrainingError: a loss is not finite.
        RunStopped: SIGTERM or SIGINT has come; what was done is saved.
    """
    config = config or TrainConfig()
    _check_process()
    check_replaceable(output)
    check_tensorboard(config.tensorboard, Path(output))
    train, dev = with_dev(train, dev, config)
    if isinstance(task, type):
        task = task.from_columns(train, **(task_settings or {}))
    _check_accumulation(task, config)
    data = {"train": train, "dev": dev, **named_tests(test)}
    for columns in data.values():
        task.targets(columns)  # bad labels are found before anything is trained
    for note in task.notes(train):
        say(note)
    for attempt in range(config.restarts + 1):
        tried = dataclasses.replace(config, seed=config.seed + RESTART * attempt)
        path = _run_path(output, attempt)
        model = new_model(task, encoder, tried)
        _train_fewer(model, tried)
        told = {**told_settings(task, encoder, tried, data), **model_settings(model)}
        with open_run(path, told, resume=resume) as run, StopSignal() as stop:
            loop = FineTuningLoop(model, train, dev, run=run, config=tried, stop=stop)
            say(
                f"training {task.name}: {len(train):,} examples, {len(dev):,} for dev; "
                f"the run is in {path}"
            )
            loop.train()
            failed = divergence(model, train, loop.history)
            if failed:
                say(str(failed))
            if failed and attempt < config.restarts:
                with stop.at_once():
                    say(f"starting again with seed {tried.seed + RESTART}")
                continue
            with stop.at_once():
                result = _finished(loop, data, encoder, Path(output), command, failed)
            remove_run(run)
        break
    for earlier in range(attempt):
        discard_run(_run_path(output, earlier))
    return result


def _run_path(output: str | os.PathLike[str], attempt: int) -> Path:
    """Return the folder of a run, or of one that begins again."""
    return run_path(output, f"run-{attempt}" if attempt else "run")


def _finished(
    loop: FineTuningLoop,
    data: Mapping[str, Columns],
    encoder: str | os.PathLike[str],
    output: Path,
    command: str,
    failed: Divergence | None,
) -> TrainResult:
    """Score the best epoch of a run, and write its model folder and report."""
    config, model = loop.config, loop.best_model()
    model.task = task = model.task.settle(model)
    scores, answers, last = {"dev": loop.best.scores or {}}, loop.best.answers, "dev"
    tuned = task.tune(data["dev"], answers or {})
    predictor = Predictor(model)
    if tuned != task:
        model.task = task = tuned
        answers = predictor.answers(data["dev"])
        scores["dev"] = task.score(data["dev"], answers)
    for last, rows in list(data.items())[2:]:
        answers = predictor.answers(rows)
        scores[last] = task.score(rows, answers)
    of_data = dict(scores)
    if failed:
        loss = failed.loss if math.isfinite(failed.loss) else None
        scores["diverged"] = {**dataclasses.asdict(failed), "loss": loss}
    facts = {name: _facts(model, columns) for name, columns in data.items()}
    facts["train"]["real_token_share"] = loop.progress.real_share
    settings = {
        "task": task.name,
        "encoder": os.fspath(encoder),
        **dataclasses.asdict(config),
        "max_length": model.preprocessor.max_length,
        **{k: v for k, v in task.settings().items() if k != "classes"},
        "best_epoch": loop.best.epoch,
        "training_seconds": round(loop.progress.state()["seconds"], 1),
        **({"skipped_updates": "; ".join(loop.skipped)} if loop.skipped else {}),
        **({"diverged": str(failed)} if failed else {}),
    }
    report = {
        "settings": settings,
        "data": facts,
        "history": loop.history,
        "scores": scores,
        "mistakes": task.mistakes(data[last], answers or {}),
        "best_score": task.best_score,
        "environment": environment(),
        "command": command,
    }
    with replaced_folder(output) as folder:
        write_model(model, folder)
        write_results(folder, f"{task.name}: {output.name}", report)
    model.compile(
        new_optimizer(config, steps=loop.rows.steps),
        loss=task.loss(),
        metrics=task.metrics(),
    )
    return TrainResult(output, model, of_data, loop.history, report)


def write_results(folder: Path, title: str, report: dict[str, Any]) -> None:
    """Write `scores.json` and `report.html` into a model folder that is there."""
    scores = json.dumps(report["scores"], indent=2)
    (folder / "scores.json").write_text(scores + "\n", encoding="utf-8")
    write_report(folder / "report.html", title=title, **report)


def _train_fewer(model: TaskModel, config: TrainConfig) -> None:
    """Freeze the weights that a config wants to stay as they are."""
    freeze_layers(model.backbone, config.freeze_layers)
    if config.lora_rank:
        add_lora(model.backbone, config.lora_rank, seed=config.seed)


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


def new_model(
    task: Task, encoder: str | os.PathLike[str], config: TrainConfig
) -> TaskModel:
    """Return a task's model on a pretrained encoder, its head at random from the seed.

    Of the scopes in `task.pretrained_scopes`, the head is that of the checkpoint.

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
        say(note)
    if task.pooler and "bert/pooler/dense/kernel" not in checkpoint.shapes:
        say("the checkpoint has no pooler: it starts at random, like the head")
    loaded = BertEncoder.from_pretrained(
        os.fspath(encoder),
        pooler=task.pooler,
        outputs=task.encoder_outputs,
        rematerialize=config.rematerialize,
        seed=config.seed,
        dtype=config.precision,
    )
    preprocessor = Preprocessor(
        tokenizer,
        max_length=max_length,
        truncation=config.truncation,
        layout=config.layout,
    )
    model = TaskModel(loaded, task, preprocessor, seed=config.seed)
    for scope in task.pretrained_scopes:
        if not assign_scope(model, checkpoint, scope):
            say(f"the checkpoint has no {scope.rstrip('/')}: it starts at random")
    return model


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


def check_tensorboard(curves: str | None, output: Path) -> None:
    """Raise unless curves can be written, and stay when the model is replaced."""
    if curves is None:
        return
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "`tensorboard` needs a package: pip install 'bert_keras[tensorboard]'"
        )
    if output.resolve() in (Path(curves).resolve(), *Path(curves).resolve().parents):
        raise ConfigError(
            f"`tensorboard` must be a folder outside the model folder; "
            f"received {curves}"
        )


def with_dev(
    train: Columns, dev: Columns | None, config: TrainConfig
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
    say(
        f"no dev rows given: {count:,} of {len(train):,} training rows are set aside "
        f"(seed {config.seed})"
    )
    return train.take(sorted(order[count:])), train.take(sorted(order[:count]))


def _facts(model: TaskModel, columns: Columns) -> dict[str, Any]:
    """Return what the report says of a data set: rows, classes, lengths in tokens."""
    preprocessor, sizes, cut = model.preprocessor, [], 0
    texts = model.task.scored_texts(columns)
    for start in range(0, len(texts[0]), 1024):
        parts = as_tensors([part[start : start + 1024] for part in texts])
        lengths, was_cut = model.task.lengths(preprocessor, parts)
        sizes.append(lengths.numpy())
        cut += int(tf.reduce_sum(tf.cast(was_cut, tf.int32)))
    lengths = np.concatenate(sizes)
    return {
        **model.task.describe(columns),
        "mean_tokens": round(float(lengths.mean()), 1),
        "longest_tokens": int(lengths.max()),
        "truncated": cut,
    }
