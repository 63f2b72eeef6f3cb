"""BERT for Keras 3 and TensorFlow, from raw text to a served model.

Names are imported when they are asked for, so that `import bert_keras` and the command
line's help do not wait for TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "AdamW": "training.optimizers",
    "BertConfig": "config",
    "BertEncoder": "model.encoder",
    "BertKerasError": "errors",
    "BertPretrainer": "pretraining.pretrainer",
    "Classification": "tasks.classification",
    "CorpusReport": "corpus.documents",
    "Embedding": "tasks.embedding",
    "FeatureTagging": "tasks.tagging.feature_tagging",
    "Lamb": "training.optimizers",
    "MaskedLM": "tasks.masked_lm.task",
    "MultiLabel": "tasks.multi_label",
    "MultipleChoice": "tasks.multiple_choice",
    "NextSentence": "tasks.next_sentence",
    "Predictor": "inference.predictor",
    "Preprocessor": "text.preprocessor",
    "PretrainConfig": "pretraining.config",
    "PretrainingDataConfig": "pretraining.data_config",
    "QuestionAnswering": "tasks.question_answering.task",
    "RawDocument": "corpus.documents",
    "Regression": "tasks.regression",
    "Search": "inference.search",
    "Summarization": "tasks.summarization",
    "TaskModel": "tasks.task_model",
    "TokenClassification": "tasks.tagging.task",
    "TrainConfig": "training.config",
    "WarmupLinearDecay": "training.optimizers",
    "WordPieceTokenizer": "text.tokenizer",
    "as_columns": "data.table",
    "embed": "inference.embedder",
    "evaluate": "training.finetune",
    "export_model": "inference.export",
    "find_strategy": "distribution.strategy",
    "find_task": "tasks",
    "from_keras_hub": "inference.keras_hub_models",
    "learn_vocabulary": "corpus.vocabulary_learning",
    "load": "inference.predictor",
    "load_embedder": "inference.embedder",
    "load_model": "inference.model_folder",
    "pretrain": "pretraining.pretrain",
    "pretraining_dataset": "pretraining.input",
    "pretraining_loss": "pretraining.pretrainer",
    "pretraining_metrics": "pretraining.pretrainer",
    "pseudo_perplexity": "tasks.masked_lm.pseudo_likelihood",
    "raw_documents": "corpus.documents",
    "run_beam_pretraining_data": "pretraining.beam",
    "save_model": "inference.model_folder",
    "search": "inference.search",
    "search_settings": "training.several_runs",
    "sentences_of": "corpus.documents",
    "to_keras_hub": "inference.keras_hub_models",
    "train": "training.finetune",
    "train_seeds": "training.several_runs",
    "write_features": "inference.features",
    "write_pretraining_data": "pretraining.data",
    "write_vocabulary": "corpus.vocabulary_learning",
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
