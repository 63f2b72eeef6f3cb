"""Answer texts with a trained model.

Read `predictor` first. `served_model` and `engine` run what `export` wrote.
"""

import importlib
import warnings
from typing import Any

from bert_keras.lazy_names import attach_names

_find, __dir__, __all__ = attach_names(__name__, __file__)
# Where version 1.0 had them.
_MOVED = {
    *("SearchIndex", "embed", "evaluate_collection", "export_search", "load_embedder"),
    *("mine_negatives", "reranked", "select_rows", "write_features"),
}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        return _find(name)
    warnings.warn(
        f"bert_keras.inference.{name} is now bert_keras.retrieval.{name}",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(importlib.import_module("bert_keras.retrieval"), name)
