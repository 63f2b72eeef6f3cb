"""Models of KerasHub in memory and ours: `from_keras_hub` and `to_keras_hub`.

Each goes by way of a preset folder that is gone afterwards, so that one way of naming
and reading weights serves folders and models alike.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras_hub

from bert_keras.checkpoints.keras_hub import TASK, write_keras_hub
from bert_keras.errors import CheckpointError
from bert_keras.files.json_file import read_json
from bert_keras.inference.model_folder import config_of, load_model
from bert_keras.model.encoder import BertEncoder
from bert_keras.tasks.task_model import TaskModel

_TASKS = (keras_hub.models.BertMaskedLM, keras_hub.models.BertTextClassifier)


def from_keras_hub(model: Any, *, dtype: Any = None) -> BertEncoder | TaskModel:
    """Return our model with the weights of one of KerasHub.

    Args:
        model: a `BertBackbone`, which becomes a `BertEncoder`, or a `BertMaskedLM` or
            `BertTextClassifier` with its preprocessor, which becomes a `TaskModel`.
            Classes have no names there: here they are LABEL_0, LABEL_1 …
        dtype: dtype policy, as in `BertEncoder`.

    Raises:
        CheckpointError: the model is none of these, or has no preprocessor.

    Example:
        >>> backbone = keras_hub.models.BertBackbone(
        ...     vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=4,
        ...     intermediate_dim=6, max_sequence_length=8)
        >>> from_keras_hub(backbone).config.hidden_act
        'gelu_new'
    """
    if not isinstance(model, (keras_hub.models.BertBackbone, *_TASKS)):
        raise CheckpointError(
            "`model` must be a BertBackbone, BertMaskedLM or BertTextClassifier of "
            f"KerasHub; received {type(model).__name__}"
        )
    if isinstance(model, _TASKS) and model.preprocessor is None:
        raise CheckpointError(
            "`model` must have a preprocessor, whose vocabulary reads the texts; "
            f"received a {type(model).__name__} without"
        )
    with _folder() as folder:
        model.save_to_preset(str(folder))
        if isinstance(model, _TASKS):
            return load_model(folder, dtype=dtype)
        encoder = BertEncoder.from_pretrained(str(folder), dtype=dtype)
        encoder.source = f"KerasHub's {type(model).__name__}"
        return encoder


def to_keras_hub(model: BertEncoder | TaskModel) -> Any:
    """Return KerasHub's model with the weights of ours.

    Args:
        model: an encoder, which becomes a `BertBackbone`; or a model of the tasks
            `classification`, `multi-label`, `regression` or `masked-lm`, which becomes
            a `BertTextClassifier` or a `BertMaskedLM` with its preprocessor.

    Raises:
        CheckpointError: KerasHub has no such head or computation.
    """
    arrays = {weight.path: weight.numpy() for weight in model.weights}
    with _folder() as folder:
        if isinstance(model, TaskModel):
            settings = model.preprocessor.tokenizer.get_config()
            write_keras_hub(folder, arrays, config_of(model), settings)
        else:
            config = {**model.config.to_dict(), "architectures": ["BertModel"]}
            write_keras_hub(folder, arrays, config)
        task = folder / TASK
        kind = read_json(task)["class_name"] if task.is_file() else "BertBackbone"
        return getattr(keras_hub.models, kind).from_preset(str(folder))


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bert-keras-") as folder:
        yield Path(folder)
