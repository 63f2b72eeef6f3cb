"""A trained model as a folder: `save_model` and `load_model`.

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

import numpy as np

from bert_keras.checkpoints import (
    Checkpoint,
    assign,
    check_encoder,
    check_head,
    write_huggingface,
)
from bert_keras.checkpoints.checkpoint import FORMAT, KEY, as_checkpoint_error
from bert_keras.checkpoints.names import TIED
from bert_keras.checkpoints.sentence_files import DENSE_SCOPE, write_dense
from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.files.atomic import replaced_folder
from bert_keras.inference.folder import Folder, check_max_length
from bert_keras.inference.model_card import write_readme
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.layers import undrawn
from bert_keras.model.lora import plain_weights
from bert_keras.settings import LAYOUT, check_type
from bert_keras.tasks import name_of
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import WritingFiles
from bert_keras.tasks.task_model import TaskModel
from bert_keras.text.preprocessor import Preprocessor


def save_model(
    model: TaskModel, folder: str | os.PathLike[str], *, card: bool = True
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
    check_type("model", model, TaskModel)
    with replaced_folder(folder) as new:
        write_model(model, new)
        write_readme(folder, new, card=card)
    return Path(folder)


def write_model(
    model: TaskModel, folder: Path, arrays: Mapping[str, np.ndarray] | None = None
) -> None:
    """Write the files of a model into an existing folder.

    Args:
        model: a task model with its preprocessor.
        folder: the folder.
        arrays: weights by name, in place of the model's current ones.
    """
    task, preprocessor = model.task, model.preprocessor
    if arrays is None:
        arrays = plain_weights(model, model.backbone)
    dense = {name: arrays[name] for name in arrays if name.startswith(DENSE_SCOPE)}
    rest = {name: arrays[name] for name in arrays if name not in dense}
    write_huggingface(folder, rest, config_of(model))
    preprocessor.tokenizer.save(folder, max_length=preprocessor.max_length)
    hidden_size = model.backbone.config.hidden_size
    if isinstance(task, WritingFiles):
        task.write_files(folder, hidden_size=hidden_size, preprocessor=preprocessor)
    if dense:
        write_dense(folder, dense)


def config_of(model: TaskModel) -> dict[str, Any]:
    """Return the complete `config.json` of a model."""
    task, preprocessor = model.task, model.preprocessor
    return {
        **task.folder_config(model.backbone.config, preprocessor),
        KEY: {
            "format": FORMAT,
            "task": name_of(type(task)),
            "settings": task.settings(),
            "preprocessing": preprocessor.settings(),
        },
    }


def load_model(
    folder: str | os.PathLike[str] | Checkpoint | Folder,
    *,
    task: str | type[Task] | Task | None = None,
    dtype: Any = None,
) -> TaskModel:
    """Load a model from a folder, ours or one of Hugging Face with a task's head.

    Args:
        folder: a model folder, `hf://owner/name` or an opened checkpoint.
        task: name or class of the task; needed for a custom task, since no code is
            imported because a folder names it. A task instance is put on the folder's
            encoder, whatever settings the folder holds.
        dtype: dtype policy, as in `BertEncoder`.

    Raises:
        CheckpointError: the folder holds no such model, or is broken.
    """
    opened = folder if isinstance(folder, Folder) else Folder.open(folder)
    found = opened.task(task)
    checkpoint = opened.weights_for(found)
    place = f"{checkpoint.path}: config.json"
    with as_checkpoint_error(place, TypeError, ConfigError):
        settings = {"layout": LAYOUT.default, **opened.preprocessing}
        preprocessor = Preprocessor(opened.tokenizer, **settings)
        check_max_length(preprocessor.max_length, checkpoint.config)
    check_encoder(checkpoint)
    _check_widths(found, checkpoint)
    with undrawn():
        encoder = BertEncoder(
            checkpoint.config,
            pooler=found.pooler,
            outputs=found.encoder_outputs,
            dtype=dtype,
        )
        model = TaskModel(encoder, found, preprocessor)
    check_head([weight.path for weight in model.weights], checkpoint, found.name)
    check_tied(model, checkpoint)
    passed = _passed_scopes(found) + (() if found.pooler else ("bert/pooler/",))
    scopes = {weight.path.split("/")[0] for weight in model.weights}
    if all(scope.startswith(("bert", DENSE_SCOPE)) for scope in scopes):
        # A task without a head ignores the heads.
        heads = {name.split("/")[0] for name in checkpoint.shapes} - scopes
        passed += tuple(f"{scope}/" for scope in sorted(heads))
    else:
        opened.check_head()
    assign(model, checkpoint, optional=passed)
    encoder.source = str(checkpoint.path)
    opened.tell()
    return model


def _passed_scopes(task: Task) -> tuple[str, ...]:
    """Return the scopes of pretraining heads that a task's model does not use."""
    heads = ("cls/predictions/", "cls/seq_relationship/")
    taken = task.pretrained_scopes
    return tuple(head for head in heads if taken and head not in taken)


def assign_scope(model: TaskModel, checkpoint: Checkpoint, scope: str) -> bool:
    """Assign a model's weights in a scope from a checkpoint; return if it has any.

    Raises:
        MismatchError: the checkpoint has only some of the weights, or others.
    """
    if not any(name.startswith(scope) for name in checkpoint.shapes):
        return False
    check_tied(model, checkpoint)
    assign(model, checkpoint, scope=scope)
    return True


def _check_widths(task: Task, checkpoint: Checkpoint) -> None:
    """Raise if a task requires a wider head than the checkpoint has.

    Checked before the head is built, so that a wrong config allocates no memory.
    """
    head = [v for k, v in checkpoint.shapes.items() if not k.startswith("bert/")]
    widest = max((size for shape in head for size in shape), default=0)
    classes = getattr(task, "classes", ())
    for name, asked in (
        ("classes", len(classes) if isinstance(classes, tuple) else 0),
        ("units", getattr(task, "units", None)),
    ):
        # A custom task may have one output more or less than it has classes.
        if widest and isinstance(asked, int) and asked > widest + 1:
            raise CheckpointError(
                f"{checkpoint.path}: `{name}` must fit the weights of the head, whose "
                f"widest has {widest:,} values; received {asked:,}"
            )


def check_tied(model: TaskModel, checkpoint: Checkpoint) -> None:
    """Raise if a model would use a tied weight that the checkpoint does not tie."""
    untied = set(TIED) & set(checkpoint.unrecognized)
    if untied and any(w.path.startswith("cls/predictions/") for w in model.weights):
        raise CheckpointError(
            f"{checkpoint.path}: {', '.join(sorted(untied))} must equal the weight it "
            "is tied to; the two differ"
        )
