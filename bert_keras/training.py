"""Fine-tune a task on an encoder, and score it: `train` and `evaluate`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.3.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import resolve
from bert_keras.encoder import BertEncoder
from bert_keras.errors import ConfigError, DataError
from bert_keras.folder import check_replaceable, replaced_folder
from bert_keras.inference import Predictor
from bert_keras.model_folder import write_model
from bert_keras.optimizers import AdamW, WarmupLinearDecay
from bert_keras.packing import Preprocessor
from bert_keras.progress import BestEpoch, Progress, say
from bert_keras.report import write_report
from bert_keras.run_facts import environment
from bert_keras.table import Columns
from bert_keras.tasks.base import Task, TaskModel
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
    test: Columns | None = None,
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
        test: rows that are scored once at the end.
        config: how to train.
        task_settings: settings of the task that the data does not tell.
        command: the command line, for the report.

    Raises:
        BertKerasError: something given is wrong; nothing was written.
    """
    config = config or TrainConfig()
    check_replaceable(Path(output))
    keras.utils.set_random_seed(config.seed)
    train, dev = _with_dev(train, dev, config)
    if isinstance(task, type):
        task = task.from_columns(train, **(task_settings or {}))
    data = {"train": train, "dev": dev} | ({"test": test} if test else {})
    for columns in data.values():
        task.targets(columns)  # bad labels are found before anything is trained
    model = _model(task, encoder, config)
    facts = {name: _facts(model, columns) for name, columns in data.items()}
    dataset, steps = training_dataset(model, train, config)
    schedule = WarmupLinearDecay(
        config.learning_rate,
        total_steps=steps * config.epochs,
        warmup_steps=int(steps * config.epochs * config.warmup_share),
    )
    model.compile(
        optimizer=AdamW(
            schedule,
            weight_decay=config.weight_decay,
            global_clipnorm=config.global_clipnorm,
        ),
        loss=task.loss(),
        metrics=task.metrics(),
        auto_scale_loss=config.precision == "mixed_float16",
    )
    model.count_tokens()
    progress = Progress(examples=len(train), batch_size=config.batch_size, steps=steps)
    best = BestEpoch(dev, Path(output), _save)
    callbacks: list[Any] = [best, progress]
    if config.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(config.tensorboard))
    say(f"training {task.name}: {len(train):,} examples, {len(dev):,} for dev")
    started = time.perf_counter()
    # Already batches, so that the order is that of the seed; `fit` takes them as such.
    model.fit(dataset, epochs=config.epochs, callbacks=callbacks, verbose=0)
    seconds = time.perf_counter() - started
    best.restore()
    scores = {"dev": best.scores}
    answers = {"dev": best.answers}
    if test is not None:
        answers["test"] = Predictor(model).answers(test)
        scores["test"] = task.score(test, answers["test"])
    facts["train"]["real_token_share"] = progress.real_share
    settings = {
        "task": task.name,
        "encoder": os.fspath(encoder),
        **dataclasses.asdict(config),
        **{k: v for k, v in task.settings().items() if k != "classes"},
        "best_epoch": best.epoch,
        "training_seconds": round(seconds, 1),
    }
    last = "test" if test is not None else "dev"
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
            mistakes=task.mistakes(data[last], answers[last]),
            environment=environment(),
            command=command,
        )
    return TrainResult(Path(output), model, scores, progress.history)


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
    return task.score(columns, answers)


def training_dataset(
    model: TaskModel, columns: Columns, config: TrainConfig
) -> tuple[tf.data.Dataset, int]:
    """Return the batches of one epoch, in another order each time, and their number."""
    task = model.task
    texts = task.texts(columns)
    parts = [texts if len(texts) > 1 else texts[0], task.targets(columns)]
    weights = task.example_weights(columns)
    if weights is not None:
        parts.append(weights)
    dataset = tf.data.Dataset.from_tensor_slices(tuple(parts))
    dataset = dataset.shuffle(len(columns), seed=config.seed)
    dataset = dataset.batch(config.batch_size)
    return dataset, math.ceil(len(columns) / config.batch_size)


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


def _model(
    task: Task, encoder: str | os.PathLike[str], config: TrainConfig
) -> TaskModel:
    tokenizer = WordPieceTokenizer.from_folder(resolve(encoder))
    for note in tokenizer.notes:
        say(note)
    loaded = BertEncoder.from_pretrained(
        os.fspath(encoder),
        pooler=True,
        rematerialize=config.rematerialize,
        seed=config.seed,
        dtype=config.precision,
    )
    longest = loaded.config.max_position_embeddings
    if config.max_length > longest:
        raise ConfigError(
            f"`max_length` must be at most the encoder's {longest}; "
            f"received {config.max_length}"
        )
    preprocessor = Preprocessor(
        tokenizer,
        max_length=config.max_length,
        truncation=config.truncation,
        layout=config.layout,
    )
    return TaskModel(loaded, task, preprocessor, seed=config.seed)


def _facts(model: TaskModel, columns: Columns) -> dict[str, Any]:
    """Return what the report says of a data set: rows, classes, lengths in tokens."""
    preprocessor, sizes, cut = model.preprocessor, [], 0
    texts = model.task.texts(columns)
    for start in range(0, len(columns), 1024):
        parts = tuple(tf.constant(part[start : start + 1024]) for part in texts)
        lengths, was_cut = preprocessor.lengths(parts if len(parts) > 1 else parts[0])
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
