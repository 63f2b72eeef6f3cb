"""A task's model on a pretrained encoder, before it has learned: `new_model`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import keras

from bert_keras.checkpoints import check_encoder, read_checkpoint
from bert_keras.encoder import BertEncoder
from bert_keras.model_folder import (
    assign_scope,
    check_max_length,
    check_vocabulary,
)
from bert_keras.preprocessor import Preprocessor
from bert_keras.progress import say
from bert_keras.strategy import Devices
from bert_keras.task_model import TaskModel
from bert_keras.tasks.base import Task
from bert_keras.tokenizer import WordPieceTokenizer
from bert_keras.train_config import TrainConfig


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
