"""A trained model in use: its folder, predictions, export, embeddings, search.

Read `model_folder`, `predictor`, `export`, in that order. `convert` writes checkpoints
of other formats; it is not in `checkpoints` because it needs models and tokenizers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.inference.convert import convert as convert
    from bert_keras.inference.convert import from_keras_hub as from_keras_hub
    from bert_keras.inference.convert import to_keras_hub as to_keras_hub
    from bert_keras.inference.embedder import embed as embed
    from bert_keras.inference.embedder import load_embedder as load_embedder
    from bert_keras.inference.export import export_model as export_model
    from bert_keras.inference.features import write_features as write_features
    from bert_keras.inference.model_folder import load_model as load_model
    from bert_keras.inference.model_folder import save_model as save_model
    from bert_keras.inference.predictor import Predictor as Predictor
    from bert_keras.inference.predictor import load as load
    from bert_keras.inference.search import Search as Search

_PLACES = {
    "Predictor": "predictor",
    "Search": "search",
    "convert": "convert",
    "embed": "embedder",
    "export_model": "export",
    "from_keras_hub": "convert",
    "load": "predictor",
    "load_embedder": "embedder",
    "load_model": "model_folder",
    "save_model": "model_folder",
    "to_keras_hub": "convert",
    "write_features": "features",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # else type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
