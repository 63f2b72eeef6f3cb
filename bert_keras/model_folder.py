"""A trained model as a folder: `save_model` and `load_model`.

The layout is Hugging Face's: `config.json` (with our task and preprocessing beside
their entries), `model.safetensors` under their names, `vocab.txt`,
`tokenizer_config.json`. A folder holds data, never code: a task of the user's own is
named by the user, not by the folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bert_keras.checkpoints import (
    Checkpoint,
    match,
    read_checkpoint,
    write_huggingface,
)
from bert_keras.config import BertConfig
from bert_keras.encoder import BertEncoder, assign, check_size
from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.folder import replaced_folder
from bert_keras.packing import Preprocessor
from bert_keras.task_model import TaskModel
from bert_keras.tasks import TASKS, find_task
from bert_keras.tasks.base import Task
from bert_keras.tokenizer import WordPieceTokenizer

_OURS = "bert_keras"  # our entry in config.json
_FORMAT = 1


def save_model(model: TaskModel, folder: str | os.PathLike[str]) -> Path:
    """Write a model folder; what stood there is replaced when all is written.

    Args:
        model: a task model with its preprocessor.
        folder: created, or replaced if it is a model folder.

    Raises:
        CheckpointError: the folder holds something else, or the disk is full.
    """
    with replaced_folder(folder) as new:
        write_model(model, new)
    return Path(folder)


def write_model(model: TaskModel, folder: Path) -> None:
    """Write the files of a model into a folder that is there."""
    encoder, task, preprocessor = model.backbone, model.task, model.preprocessor
    task_class = type(task)
    name = task_class.name
    if name not in TASKS:
        name = f"{task_class.__module__}:{task_class.__qualname__}"
    config = {
        "model_type": "bert",
        "architectures": [task.architecture],
        **encoder.config.to_dict(),
        **task.model_config(),
        "pad_token_id": preprocessor.tokenizer.pad_id,
        _OURS: {
            "format": _FORMAT,
            "task": name,
            "settings": task.settings(),
            "preprocessing": preprocessor.settings(),
        },
    }
    arrays = {weight.path: weight.numpy() for weight in model.weights}
    write_huggingface(folder, arrays, config)
    preprocessor.tokenizer.save(folder)


def load_model(
    folder: str | os.PathLike[str],
    *,
    task: str | type[Task] | Task | None = None,
    dtype: Any = None,
) -> TaskModel:
    """Return the model of a folder, ours or one of Hugging Face with a task's head.

    Args:
        folder: a model folder or `hf://owner/name`.
        task: name or class of the task; needed for a task of the user's own, since no
            code is imported because a folder says so. A task itself, such as one of
            pairs, which a folder of Hugging Face does not tell, is taken as it is.
        dtype: dtype policy, as in `BertEncoder`.

    Raises:
        CheckpointError: the folder holds no such model, or is broken.
    """
    checkpoint = read_checkpoint(folder)
    ours = _our_entry(checkpoint)
    task = find_task(task) if isinstance(task, str) else task
    if task is None:
        task = find_task(_task_name(checkpoint, ours))
    try:
        if isinstance(task, Task):
            found = task
        elif "settings" in ours:
            found = task(**ours["settings"])
        else:
            found = task.from_model_config(checkpoint.raw_config)
        tokenizer = WordPieceTokenizer.from_folder(checkpoint.path)
        settings = ours.get("preprocessing") or {
            "max_length": checkpoint.config.max_position_embeddings
        }
        preprocessor = Preprocessor(tokenizer, **settings)
        check_max_length(preprocessor.max_length, checkpoint.config)
    except (TypeError, ConfigError) as error:
        raise CheckpointError(f"{checkpoint.path}: config.json: {error}") from None
    check_vocabulary(tokenizer, checkpoint)
    check_size(checkpoint)
    encoder = BertEncoder(
        checkpoint.config,
        pooler=found.pooler,
        outputs=found.encoder_outputs,
        dtype=dtype,
    )
    model = TaskModel(encoder, found, preprocessor)
    passed = found.passed_scopes + (() if found.pooler else ("bert/pooler/",))
    assign(model, checkpoint, optional=passed)
    return model


def assign_scope(model: TaskModel, checkpoint: Checkpoint, scope: str) -> bool:
    """Set a model's weights below a scope from a checkpoint; say if it has any.

    Raises:
        MismatchError: the checkpoint has some of the weights, or others.
    """
    weights = {w.path: w for w in model.weights if w.path.startswith(scope)}
    found = {k: v for k, v in checkpoint.shapes.items() if k.startswith(scope)}
    if not found:
        return False
    for name in match({k: tuple(w.shape) for k, w in weights.items()}, found):
        weights[name].assign(checkpoint.arrays[name])
    return True


def check_vocabulary(tokenizer: WordPieceTokenizer, checkpoint: Checkpoint) -> None:
    """Raise unless every token has a row in the embedding table.

    Raises:
        CheckpointError: the vocabulary is larger than the table. A smaller one is fine:
            tables are padded for speed.
    """
    rows = checkpoint.config.vocab_size
    if tokenizer.vocab_size > rows:
        raise CheckpointError(
            f"{checkpoint.path}: the vocabulary must have at most `vocab_size` tokens; "
            f"received {tokenizer.vocab_size:,} and {rows:,}"
        )


def check_max_length(max_length: int, config: BertConfig) -> None:
    """Raise unless the encoder has a position for each token of the longest text.

    Raises:
        ConfigError: `max_length` is above `max_position_embeddings`.
    """
    longest = config.max_position_embeddings
    if max_length > longest:
        raise ConfigError(
            f"`max_length` must be at most the encoder's {longest}; "
            f"received {max_length}"
        )


def _our_entry(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return our entry in config.json, empty where there is none."""
    ours = checkpoint.raw_config.get(_OURS)
    if ours is None:
        return {}
    if not isinstance(ours, dict) or ours.get("format") != _FORMAT:
        raise CheckpointError(
            f"{checkpoint.path}: config.json: `{_OURS}` must be of format {_FORMAT}; "
            f"received {str(ours)[:80]}"
        )
    for key in ("settings", "preprocessing"):
        if not isinstance(ours.get(key, {}), dict):
            raise CheckpointError(
                f"{checkpoint.path}: config.json: `{key}` of `{_OURS}` must be an "
                f"object; received {str(ours[key])[:80]}"
            )
    return ours


def _task_name(checkpoint: Checkpoint, ours: dict[str, Any]) -> str:
    """Return the name of our task that a folder says or its architecture means."""
    name = ours.get("task")
    if name in TASKS:
        return name
    if name is not None:
        raise CheckpointError(
            f"{checkpoint.path}: made by the task {name!r}, which is none of ours: "
            "pass it as `task`, if you trust that code"
        )
    architectures = checkpoint.raw_config.get("architectures") or ["none"]
    for ours_name in TASKS:
        if find_task(ours_name).reads(checkpoint.raw_config):
            return ours_name
    raise CheckpointError(
        f"{checkpoint.path}: holds no task's head (architecture {architectures[0]}): "
        "train one on it first"
    )
