"""A task's model on a pretrained encoder: `new_model`, `pretrained_model`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import keras

from bert_keras.checkpoints import Checkpoint, has_pooler, read_checkpoint
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import ConfigError
from bert_keras.inference.model_folder import (
    assign_scope,
    check_max_length,
    check_vocabulary,
    held_task,
    preprocessing_of,
    task_of,
)
from bert_keras.inference.predictor import check_precision
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import head_names
from bert_keras.runs.progress import say
from bert_keras.tasks import find_task
from bert_keras.tasks.base import Task
from bert_keras.tasks.task_model import TaskModel
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

if TYPE_CHECKING:
    from bert_keras.tasks.base import Task


if TYPE_CHECKING:
    from bert_keras.training.config import TrainConfig

_Model = TypeVar("_Model", bound=TaskModel)


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
    tokenizer = _tokenizer(checkpoint, tell)
    preprocessor = Preprocessor(
        tokenizer,
        max_length=_max_length(task, checkpoint, config.max_length),
        truncation=config.truncation,
        layout=config.layout,
    )
    with devices.strategy.scope() if devices else contextlib.nullcontext():
        return _on_encoder(
            TaskModel,
            checkpoint,
            task,
            preprocessor,
            tell,
            rematerialize=config.rematerialize,
            seed=config.seed,
            dtype=config.precision,
        )


def pretrained_model(
    kind: type[_Model],
    path: str | os.PathLike[str],
    task: str | type[Task] | Task | None,
    *,
    settings: Mapping[str, Any],
    preprocessing: Mapping[str, Any],
    **encoder: Any,
) -> _Model:
    """Return what `TaskModel.from_pretrained` does.

    Args:
        kind: `TaskModel`, or a class of the user's own under it.
        path, task: as there.
        settings: of the task.
        preprocessing: settings of the preprocessor that the user gave.
        **encoder: arguments of `BertEncoder`; the seed is the head's, too.
    """

    def tell(line: str) -> None:
        say(f"{path}: {line}")

    if encoder.get("dtype") is not None:
        check_precision(encoder["dtype"])
    checkpoint = read_checkpoint(path)
    held = _held(checkpoint, task)
    found = _settled(task, held, settings)
    is_held = held is not None and held.model_config() == found.model_config()
    tokenizer = _tokenizer(checkpoint, tell)
    given = preprocessing_of(checkpoint) if is_held else {}
    given = {**given, **preprocessing}
    given["max_length"] = _max_length(found, checkpoint, given.get("max_length"))
    preprocessor = Preprocessor(tokenizer, **given)
    model = _on_encoder(kind, checkpoint, found, preprocessor, tell, **encoder)
    for name in head_names(model, model.backbone):
        if f"{name}/" in found.pretrained_scopes:
            continue  # what `_on_encoder` sets
        if is_held and assign_scope(model, checkpoint, f"{name}/"):
            continue
        reason = f"the checkpoint has no {name}"
        if held is not None and not is_held:
            reason = f"the checkpoint's {name} is of other labels"
        tell(f"{reason}: it starts at random")
    model.backbone.source = str(path)
    return model


def _held(checkpoint: Checkpoint, task: str | type[Task] | Task | None) -> Task | None:
    """Return the task whose head a checkpoint holds, if it is the one that is asked."""
    if task is None:
        return task_of(checkpoint)
    kind = find_task(task) if isinstance(task, str) else task
    return held_task(checkpoint, kind if isinstance(kind, type) else type(kind))


def _settled(
    task: str | type[Task] | Task | None,
    held: Task | None,
    settings: Mapping[str, Any],
) -> Task:
    """Return the task with its settings: those given, then those of the folder.

    Raises:
        ConfigError: a setting is missing or unknown.
    """
    if isinstance(task, Task):
        if settings:
            raise ConfigError(
                f"{', '.join(settings)}: settings of a task go into the task that is "
                "given, or with a task by name"
            )
        return task
    kind = find_task(task) if isinstance(task, str) else task
    try:
        if held is not None:
            return dataclasses.replace(held, **settings)  # type: ignore[type-var]
        return kind(**settings)  # type: ignore[misc] # without a task one is held
    except TypeError as error:
        name = held.name if held is not None else task
        raise ConfigError(f"settings of the task {name}: {error}") from None


def _tokenizer(
    checkpoint: Checkpoint, tell: Callable[[str], object]
) -> WordPieceTokenizer:
    """Return the tokenizer of a checkpoint; tell the notes of both."""
    tokenizer = WordPieceTokenizer.from_folder(checkpoint.path, **checkpoint.tokenizer)
    check_vocabulary(tokenizer, checkpoint)
    for note in (*checkpoint.notes, *tokenizer.notes):
        tell(note)
    return tokenizer


def _max_length(task: Task, checkpoint: Checkpoint, given: int | None) -> int:
    """Return the most tokens of a text: those given, or those of the task that fit."""
    if given is None:
        return min(task.max_length, checkpoint.config.max_position_embeddings)
    check_max_length(given, checkpoint.config)
    return given


def _on_encoder(
    kind: type[_Model],
    checkpoint: Checkpoint,
    task: Task,
    preprocessor: Preprocessor,
    tell: Callable[[str], object],
    *,
    seed: int | None,
    **settings: Any,
) -> _Model:
    """Return a task's model on the encoder of a checkpoint.

    Of the scopes in `task.pretrained_scopes`, the head is that of the checkpoint; what
    else starts at random is told, but for the task's own head.
    """
    encoder = BertEncoder.from_checkpoint(
        checkpoint,
        pooler=task.pooler,
        outputs=task.encoder_outputs,
        seed=seed,
        **settings,
    )
    if task.pooler and not has_pooler(checkpoint):
        tell("the checkpoint has no pooler: it starts at random, like the head")
    model = kind(encoder, task, preprocessor, seed=seed)
    for scope in task.pretrained_scopes:
        if not assign_scope(model, checkpoint, scope):
            tell(f"the checkpoint has no {scope.rstrip('/')}: it starts at random")
    for line in task.start(model, checkpoint):
        tell(line)
    return model
