"""BERT for Keras 3 and TensorFlow, from raw text to a served model.

Names are imported on first access, so that `import bert_keras` and the help of the
command line do not wait for TensorFlow. More names are public in `bert_keras.training`,
`.pretraining`, `.corpus`, `.inference`, `.explanations`, `.checkpoints`,
`.distribution`, `.scoring` and `.serving`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_keras.checkpoints import read_checkpoint as read_checkpoint
    from bert_keras.config import BertConfig as BertConfig
    from bert_keras.data.table import as_columns as as_columns
    from bert_keras.errors import BertKerasError as BertKerasError
    from bert_keras.explanations.explainer import explain as explain
    from bert_keras.inference.convert import convert as convert
    from bert_keras.inference.embedder import embed as embed
    from bert_keras.inference.export import export_model as export_model
    from bert_keras.inference.model_folder import load_model as load_model
    from bert_keras.inference.model_folder import save_model as save_model
    from bert_keras.inference.predictor import Predictor as Predictor
    from bert_keras.inference.predictor import load as load
    from bert_keras.inference.search import Search as Search
    from bert_keras.inference.search import search as search
    from bert_keras.model.encoder import BertEncoder as BertEncoder
    from bert_keras.model.optimizers import AdamW as AdamW
    from bert_keras.pretraining.pretrain import pretrain as pretrain
    from bert_keras.pretraining.pretrainer import BertPretrainer as BertPretrainer
    from bert_keras.serving.client import AsyncClient as AsyncClient
    from bert_keras.serving.client import Client as Client
    from bert_keras.tasks import find_task as find_task
    from bert_keras.tasks.base import Task as Task
    from bert_keras.tasks.classification import Classification as Classification
    from bert_keras.tasks.embedding import Embedding as Embedding
    from bert_keras.tasks.masked_lm import MaskedLM as MaskedLM
    from bert_keras.tasks.multi_label import MultiLabel as MultiLabel
    from bert_keras.tasks.multiple_choice import MultipleChoice as MultipleChoice
    from bert_keras.tasks.next_sentence import NextSentence as NextSentence
    from bert_keras.tasks.question_answering.task import (
        QuestionAnswering as QuestionAnswering,
    )
    from bert_keras.tasks.regression import Regression as Regression
    from bert_keras.tasks.summarization import Summarization as Summarization
    from bert_keras.tasks.tagging.task import (
        FeatureTagging as FeatureTagging,
    )
    from bert_keras.tasks.tagging.task import TokenClassification as TokenClassification
    from bert_keras.tasks.task_model import TaskModel as TaskModel
    from bert_keras.text.preprocessor import Preprocessor as Preprocessor
    from bert_keras.text.tokenizer import WordPieceTokenizer as WordPieceTokenizer
    from bert_keras.training.config import TrainConfig as TrainConfig
    from bert_keras.training.finetune import evaluate as evaluate
    from bert_keras.training.finetune import train as train

__version__ = "0.1.0"


def lazy_names(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names are imported lazily.

    Args:
        package: name of the package.
        places: public names, each with the module of the package that defines it.
    """
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{places[name]}"), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *places})


_PLACES = {
    "AdamW": "model.optimizers",
    "AsyncClient": "serving.client",
    "BertConfig": "config",
    "BertEncoder": "model.encoder",
    "BertKerasError": "errors",
    "BertPretrainer": "pretraining.pretrainer",
    "Classification": "tasks.classification",
    "Client": "serving.client",
    "Embedding": "tasks.embedding",
    "FeatureTagging": "tasks.tagging.task",
    "MaskedLM": "tasks.masked_lm",
    "MultiLabel": "tasks.multi_label",
    "MultipleChoice": "tasks.multiple_choice",
    "NextSentence": "tasks.next_sentence",
    "Predictor": "inference.predictor",
    "Preprocessor": "text.preprocessor",
    "QuestionAnswering": "tasks.question_answering.task",
    "Regression": "tasks.regression",
    "Search": "inference.search",
    "Summarization": "tasks.summarization",
    "Task": "tasks.base",
    "TaskModel": "tasks.task_model",
    "TokenClassification": "tasks.tagging.task",
    "TrainConfig": "training.config",
    "WordPieceTokenizer": "text.tokenizer",
    "as_columns": "data.table",
    "convert": "inference.convert",
    "embed": "inference.embedder",
    "evaluate": "training.finetune",
    "explain": "explanations.explainer",
    "export_model": "inference.export",
    "find_task": "tasks",
    "load": "inference.predictor",
    "load_model": "inference.model_folder",
    "pretrain": "pretraining.pretrain",
    "read_checkpoint": "checkpoints",
    "save_model": "inference.model_folder",
    "search": "inference.search",
    "train": "training.finetune",
}
__all__ = ["__version__", *sorted(_PLACES)]
if not TYPE_CHECKING:  # otherwise type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
