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
    head_config,
    read_checkpoint,
    write_huggingface,
)
from bert_keras.checkpoints.checkpoint import FORMAT, KEY, as_checkpoint_error
from bert_keras.checkpoints.names import TIED
from bert_keras.checkpoints.sentence_files import read_sentence_files
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError, ConfigError, one_line, shown
from bert_keras.files.atomic import replaced_folder
from bert_keras.inference.model_card import write_readme
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.layers import undrawn
from bert_keras.model.lora import plain_weights
from bert_keras.settings import check_type, check_whole_number
from bert_keras.tasks import TASKS, find_task, name_of, named_or_given
from bert_keras.tasks.base import Task
from bert_keras.tasks.task_model import TaskModel
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer


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
    write_huggingface(folder, arrays, config_of(model))
    preprocessor.tokenizer.save(folder, max_length=preprocessor.max_length)
    hidden_size = model.backbone.config.hidden_size
    task.write_files(folder, hidden_size=hidden_size, preprocessor=preprocessor)


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
    folder: str | os.PathLike[str] | Checkpoint,
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
    checkpoint = read_checkpoint(folder)
    found = task_of(checkpoint, task)
    place = f"{checkpoint.path}: config.json"
    with as_checkpoint_error(place, TypeError, ConfigError):
        tokenizer = tokenizer_of(checkpoint)
        preprocessor = Preprocessor(tokenizer, **preprocessing_of(checkpoint))
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
    if scopes == {"bert"}:  # a task without a head ignores other heads
        heads = {name.split("/")[0] for name in checkpoint.shapes} - scopes
        passed += tuple(f"{scope}/" for scope in sorted(heads))
    assign(model, checkpoint, optional=passed)
    encoder.source = str(checkpoint.path)
    return model


def _passed_scopes(task: Task) -> tuple[str, ...]:
    """Return the scopes of pretraining heads that a task's model does not use."""
    heads = ("cls/predictions/", "cls/seq_relationship/")
    taken = task.pretrained_scopes
    return tuple(head for head in heads if taken and head not in taken)


def task_of(
    checkpoint: Checkpoint, task: str | type[Task] | Task | None = None
) -> Task:
    """Return the task of a folder with its settings; `task` as in `load_model`.

    Raises:
        CheckpointError: the folder holds no such task.
    """
    if isinstance(task, Task):
        return task
    ours = checkpoint.own_entry
    task_class: Any = None if task is None else named_or_given(task)
    place = f"{checkpoint.path}: config.json"
    with as_checkpoint_error(place, TypeError, ConfigError):
        config = _whole_config(checkpoint)
        if task_class is None:
            task_class = _class_of(checkpoint, config)
        if "settings" in ours:
            check_same_task(checkpoint.path, str(ours.get("task")), task_class)
            found = task_class.from_config(ours["settings"])
        else:
            found = task_class.from_model_config(config)
    return found


def held_task(checkpoint: Checkpoint, task_class: type[Task]) -> Task | None:
    """Return the task of a folder if it is of a class; `None` if it is of another.

    Raises:
        CheckpointError: the folder's task or its settings are broken.
    """
    ours = checkpoint.own_entry
    if "settings" in ours:
        stored, given = str(ours.get("task")), name_of(task_class)
        is_same = stored == given or not {stored, given} & set(TASKS)  # or has moved
    else:
        with as_checkpoint_error(f"{checkpoint.path}: config.json", ConfigError):
            is_same = task_class.reads(_whole_config(checkpoint))
    return task_of(checkpoint, task_class) if is_same else None


def check_same_task(place: Path, held: str, task_class: type[Task]) -> None:
    """Raise unless a model's task is of a class; a custom task may have moved."""
    given = name_of(task_class)
    if held != given and (held in TASKS or given in TASKS):
        raise CheckpointError(
            f"{place}: holds a model of the task {one_line(held)}; "
            f"received `task` {given}"
        )


def named_task(place: Path, name: str) -> type[Task]:
    """Return the class of a task of ours that a file names; no other is imported."""
    if name not in TASKS:
        raise CheckpointError(
            f"{place}: made by the task {shown(name)}, which is not one of ours: pass "
            "it as `task`, if you trust that code"
        )
    return find_task(name)


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


def tokenizer_of(checkpoint: Checkpoint) -> WordPieceTokenizer:
    """Return the tokenizer of a checkpoint.

    Raises:
        CheckpointError: the vocabulary is larger than the embedding table. A smaller
            one is accepted, since tables are often padded for speed.
    """
    tokenizer = WordPieceTokenizer.from_folder(checkpoint.path, **checkpoint.tokenizer)
    rows = checkpoint.config.vocab_size
    if tokenizer.vocab_size > rows:
        raise CheckpointError(
            f"{checkpoint.path}: the vocabulary must have at most `vocab_size` tokens; "
            f"received {tokenizer.vocab_size:,} and {rows:,}"
        )
    return tokenizer


def check_max_length(max_length: int, config: BertConfig) -> None:
    """Raise unless the encoder has a position for each token of the longest text."""
    check_whole_number("max_length", max_length, least=3)
    longest = config.max_position_embeddings
    if max_length > longest:
        raise ConfigError(
            f"`max_length` must be at most the encoder's {longest}; "
            f"received {max_length}"
        )


def _whole_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return config.json, completed with head sizes from the weights and sentence
    embedding settings from the files next to it.
    """
    stored = read_sentence_files(checkpoint.path)
    return {
        **checkpoint.raw_config,
        **head_config(checkpoint.raw_config, checkpoint.shapes),
        **({"sentence_transformers": stored} if stored else {}),
    }


def preprocessing_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the preprocessor's settings: ours, or the maximum length that fits."""
    stored = checkpoint.own_entry.get("preprocessing")
    if stored:
        return stored
    longest = checkpoint.config.max_position_embeddings
    length = read_sentence_files(checkpoint.path).get("max_length", longest)
    return {"max_length": min(length, longest)}


def _class_of(checkpoint: Checkpoint, config: Mapping[str, Any]) -> type[Task]:
    """Return the task that a folder names, or that its architecture implies."""
    name = checkpoint.own_entry.get("task")
    if name is not None:
        return named_task(checkpoint.path, name)
    for name in TASKS:
        task_class = find_task(name)
        if task_class.reads(config):
            return task_class
    raise CheckpointError(
        f"{checkpoint.path}: holds no task head (architecture "
        f"{one_line(config['architectures'][0])}): train one on it first"
    )
