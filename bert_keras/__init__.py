"""BERT for Keras 3 and TensorFlow, from raw text to a served model.

Names are imported when they are asked for, so that `import bert_keras` and the command
line's help do not wait for TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "AdamW": "optimizers",
    "BertConfig": "config",
    "BertEncoder": "encoder",
    "BertKerasError": "errors",
    "Classification": "tasks.classification",
    "MultiLabel": "tasks.multi_label",
    "NextSentence": "tasks.next_sentence",
    "Predictor": "inference",
    "Preprocessor": "packing",
    "Regression": "tasks.regression",
    "TaskModel": "task_model",
    "TrainConfig": "train_config",
    "WarmupLinearDecay": "optimizers",
    "WordPieceTokenizer": "tokenizer",
    "as_columns": "tasks.base",
    "evaluate": "training",
    "export_model": "export",
    "find_task": "tasks",
    "load": "inference",
    "load_model": "model_folder",
    "save_model": "model_folder",
    "train": "training",
}
__all__ = ["__version__", *sorted(_PLACES)]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'bert_keras' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"bert_keras.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
