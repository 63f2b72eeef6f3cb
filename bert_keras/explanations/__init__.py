"""Explain why a model answers as it does: words, attention, a map of texts.

Read the room `explained`, then `items`, `attribution`, `graphs`, `explainer`,
`explanation`, in that order; `attention` and `embedding_map` stand alone. The templates
of the pages are in `report`.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
