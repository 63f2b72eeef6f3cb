"""Fine-tune a task on an encoder, and score it: `train` and `evaluate`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import check_encoder, read_checkpoint
from bert_keras.encoder import BertEncoder
from bert_keras.errors import ConfigError, DataError
from bert_keras.folder import check_replaceable, replaced_folder
from bert_keras.inference import Predictor
from bert_keras.model_folder import (
    assign_scope,
    check_max_length,
    check_vocabulary,
    write_model,
)
from bert_keras.optimizers import AdamW, WarmupLinearDecay
from bert_keras.packing import Preprocessor
from bert_keras.progress import BestEpoch, Progress, say
from bert_keras.report import write_report
from bert_keras.run_facts import environment
from bert_keras.table import Columns
from bert_keras.task_model import TaskModel, as_tensors
from bert_keras.tasks.base import Task
from bert_keras.tokenizer import WordPieceTokenizer
from bert_keras.train_config import TrainConfig


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` made.

    Args:
        folder: the model folder; holds `report.html` and `scores.json`, too.
        model: the model with the weights of its best epoch.
        scores: name of the data set to its scores.
        history: rows of the curves, by step and by epoch.
    """

    folder: Path
    model: TaskModel
    scores: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]


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
) -> TrainResult:
    """Fine-tune a task on labelled rows and write a model folder.

    The folder is written after each epoch that is the best so far on dev, so that a run
    that is stopped leaves its best model; the report comes at the end.

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

    Raises:
        BertKerasError: something given is wrong; nothing was written.
    """
    config = config or TrainConfig()
    check_replaceable(output)
    _check_tensorboard(config.tensorboard, Path(output))
    train, dev = _with_dev(train, dev, config)
    if isinstance(task, type):
        task = task.from_columns(train, **(task_settings or {}))
    tests = _named_tests(test)
    data = {"train": train, "dev": dev, **tests}
    for columns in data.values():
        task.targets(columns)  # bad labels are found before anything is trained
    for note in task.notes(train):
        say(note)
    model = new_model(task, encoder, config)
    facts = {name: _facts(model, columns) for name, columns in data.items()}
    progress = Progress(examples=len(train), batch_size=config.batch_size)
    best = BestEpoch(dev, Path(output), _save)
    say(f"training {task.name}: {len(train):,} examples, {len(dev):,} for dev")
    started = time.perf_counter()
    fit(model, train, config, callbacks=[best, progress])
    seconds = time.perf_counter() - started
    best.restore()
    model.task = task = task.settle(model)
    scores, answers, last = {"dev": best.scores}, best.answers, "dev"
    tuned = task.tune(dev, answers)
    if tuned != task:
        model.task = task = tuned
        answers = Predictor(model).answers(dev)
        scores["dev"] = task.score(dev, answers)
    predictor = Predictor(model)
    for last, rows in tests.items():
        answers = predictor.answers(rows)
        scores[last] = task.score(rows, answers)
    facts["train"]["real_token_share"] = progress.real_share
    settings = {
        "task": task.name,
        "encoder": os.fspath(encoder),
        **dataclasses.asdict(config),
        "max_length": model.preprocessor.max_length,
        **{k: v for k, v in task.settings().items() if k != "classes"},
        "best_epoch": best.epoch,
        "training_seconds": round(seconds, 1),
    }
    with replaced_folder(output) as folder:
        write_model(model, folder)
        _write_json(folder / "scores.json", scores)
        write_report(
            folder / "report.html",
            title=f"{task.name}: {Path(output).name}",
            settings=settings,
            data=facts,
            history=progress.history,
            scores=scores,
            mistakes=task.mistakes(data[last], answers),
            best_score=task.best_score,
            environment=environment(),
            command=command,
        )
    return TrainResult(Path(output), model, scores, progress.history)


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


def fit(
    model: TaskModel,
    train: Columns,
    config: TrainConfig,
    *,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> None:
    """Train a model on all rows as the config says; its last weights stay in it."""
    steps = math.ceil(len(train) / config.batch_size) * config.epochs
    schedule = WarmupLinearDecay(
        config.learning_rate,
        total_steps=steps,
        warmup_steps=int(steps * config.warmup_share),
    )
    model.compile(
        optimizer=AdamW(
            schedule,
            weight_decay=config.weight_decay,
            global_clipnorm=config.global_clipnorm,
        ),
        loss=model.task.loss(),
        metrics=model.task.metrics(),
        auto_scale_loss=config.precision == "mixed_float16",
    )
    model.count_tokens()
    callbacks = list(callbacks)
    if config.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(config.tensorboard))
    # Batches in an order of the seed's, another one each epoch.
    dataset = _dataset(model.task, train).shuffle(len(train), seed=config.seed)
    dataset = model.task.redrawn(dataset, config.seed).batch(config.batch_size)
    model.fit(dataset, epochs=config.epochs, callbacks=callbacks, verbose=0)


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


def _named_tests(test: Columns | Mapping[str, Columns] | None) -> dict[str, Columns]:
    """Return the test sets by name; a single one is called `test`."""
    if test is None:
        return {}
    tests = {"test": test} if isinstance(test, Columns) else dict(test)
    taken = sorted({"train", "dev"} & set(tests))
    if taken:
        raise ConfigError(
            f"`test` must have other names than train and dev; received {taken[0]}"
        )
    return tests


def _check_tensorboard(curves: str | None, output: Path) -> None:
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


def _dataset(task: Task, columns: Columns) -> tf.data.Dataset:
    """Return one element a row: texts, target and, if it has one, weight."""
    parts = [as_tensors(task.training_texts(columns)), task.targets(columns)]
    weights = task.example_weights(columns)
    if weights is not None:
        parts.append(weights)
    return tf.data.Dataset.from_tensor_slices(tuple(parts))


def _with_dev(
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


def _save(model: TaskModel, output: Path) -> None:
    with replaced_folder(output) as folder:
        write_model(model, folder)


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
