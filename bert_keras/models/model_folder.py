"""A trained model as a folder: `save_model`; `loading` reads it.

The layout is Hugging Face's: `config.json` (with our task and preprocessing next to
their entries), `model.safetensors` with their names, `vocab.txt`,
`tokenizer_config.json`. A folder holds data, never code: a custom task is passed by the
user, not imported from the folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bert_keras.checkpoints import write_huggingface
from bert_keras.checkpoints.checkpoint import FORMAT
from bert_keras.checkpoints.sentence_files import write_dense, write_head
from bert_keras.config import DENSE_SCOPE, KEY
from bert_keras.errors import ConfigError, received
from bert_keras.exports.model_card import write_readme
from bert_keras.files.atomic import replaced_folder
from bert_keras.model.lora import plain_weights
from bert_keras.tasks import name_of
from bert_keras.tasks.base import Task


def save_model(
    model: keras.Model, folder: str | os.PathLike[str], *, card: bool = True
) -> Path:
    """Write a model folder; an existing one is replaced once everything is written.

    Args:
        model: a task model with its preprocessor.
        folder: created, or replaced if it is a model folder.
        card: whether to write a model card, see `write_readme`. A README.md that is not
            one of our cards stays.

    Raises:
        CheckpointError: the folder holds something else, or the disk is full.
    """
    task = getattr(model, "task", None)
    if not (isinstance(model, keras.Model) and isinstance(task, Task)):
        raise ConfigError(f"`model` must be a TaskModel; {received(model)}")
    with replaced_folder(folder) as new:
        write_model(model, new)
        write_readme(folder, new, card=card)
    return Path(folder)


def write_model(
    model: keras.Model, folder: Path, arrays: Mapping[str, np.ndarray] | None = None
) -> None:
    """Write the files of a model into an existing folder.

    Args:
        model: a task model with its preprocessor.
        folder: the folder.
        arrays: weights by name, in place of the model's current ones.
    """
    if arrays is None:
        arrays = plain_weights(model, model.backbone)
    rest = {n: arrays[n] for n in arrays if not n.startswith(DENSE_SCOPE)}
    write_huggingface(folder, rest, config_of(model))
    preprocessor = model.preprocessor
    preprocessor.tokenizer.save(
        folder,
        max_length=preprocessor.max_length,
        has_segments=model.backbone.config.type_vocab_size > 0,
    )
    write_sentence_files(model, folder, arrays)


def write_sentence_files(
    model: keras.Model, folder: Path, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write what sentence-transformers reads besides the encoder, if it can.

    Of `arrays`, weights by name, these are the layers on a text's vector, and a head
    that `HeadCodec.modules` describes.
    """
    task, hidden_size = model.task, model.backbone.config.hidden_size
    task.head_codec.write_files(
        task, folder, hidden_size=hidden_size, preprocessor=model.preprocessor
    )
    dense = {name: arrays[name] for name in arrays if name.startswith(DENSE_SCOPE)}
    if dense:
        write_dense(folder, dense)
    if task.head_codec.modules(task):
        write_head(folder, arrays)


def config_of(model: keras.Model) -> dict[str, Any]:
    """Return the complete `config.json` of a model."""
    task, preprocessor = model.task, model.preprocessor
    return {
        **task.head_codec.folder_config(task, model.backbone.config, preprocessor),
        KEY: {
            "format": FORMAT,
            "task": name_of(type(task)),
            "settings": task.get_config(),
            "preprocessing": preprocessor.settings(),
        },
    }
