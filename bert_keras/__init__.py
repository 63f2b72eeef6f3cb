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
    "BertPretrainer": "pretrainer",
    "Classification": "tasks.classification",
    "CorpusReport": "corpus",
    "Embedding": "tasks.embedding",
    "FeatureTagging": "tasks.feature_tagging",
    "Lamb": "optimizers",
    "MaskedLM": "tasks.masked_lm",
    "MultiLabel": "tasks.multi_label",
    "MultipleChoice": "tasks.multiple_choice",
    "NextSentence": "tasks.next_sentence",
    "Predictor": "inference",
    "Preprocessor": "preprocessor",
    "PretrainConfig": "pretrain_config",
    "PretrainingDataConfig": "pretraining_data_config",
    "QuestionAnswering": "tasks.question_answering",
    "RawDocument": "corpus",
    "Regression": "tasks.regression",
    "Search": "text_search",
    "Summarization": "tasks.summarization",
    "TaskModel": "task_model",
    "TokenClassification": "tasks.token_classification",
    "TrainConfig": "train_config",
    "WarmupLinearDecay": "optimizers",
    "WordPieceTokenizer": "tokenizer",
    "as_columns": "table",
    "embed": "embedder",
    "evaluate": "training",
    "export_model": "export",
    "find_strategy": "strategy",
    "find_task": "tasks",
    "from_keras_hub": "keras_hub_models",
    "learn_vocabulary": "vocabulary_learning",
    "load": "inference",
    "load_embedder": "embedder",
    "load_model": "model_folder",
    "pretrain": "pretraining",
    "pretraining_dataset": "pretraining_input",
    "pretraining_loss": "pretrainer",
    "pretraining_metrics": "pretrainer",
    "pseudo_perplexity": "pseudo_likelihood",
    "raw_documents": "corpus",
    "run_beam_pretraining_data": "beam_pretraining",
    "save_model": "model_folder",
    "search": "text_search",
    "search_settings": "several_runs",
    "sentences_of": "corpus",
    "to_keras_hub": "keras_hub_models",
    "train": "training",
    "train_seeds": "several_runs",
    "write_features": "features",
    "write_pretraining_data": "pretraining_data",
    "write_vocabulary": "vocabulary_learning",
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
