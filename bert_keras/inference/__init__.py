"""Answer texts with a trained model.

Read `predictor` first. `served_model` and `engine` run what `export` wrote.
"""

from bert_keras.lazy_names import attach_names

# Where version 1.0 had them.
_MOVED = (
    *("SearchIndex", "embed", "evaluate_collection", "export_search", "load_embedder"),
    *("mine_negatives", "reranked", "select_rows", "write_features"),
)
__getattr__, __dir__, __all__ = attach_names(
    __name__, __file__, dict.fromkeys(_MOVED, "bert_keras.retrieval")
)
