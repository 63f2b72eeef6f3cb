"""Why a model answers as it does: attributions, attention, and a map of texts.

Read `words`, `items`, `targets`, `attribution`, `graphs`, `explainer`, in that order;
`attention` and `embedding_map` stand alone. The templates of the pages are in `report`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.explanations.attention import Attention as Attention
    from bert_keras.explanations.attention import explain_attention as explain_attention
    from bert_keras.explanations.embedding_map import EmbeddingMap as EmbeddingMap
    from bert_keras.explanations.embedding_map import map_texts as map_texts
    from bert_keras.explanations.explainer import Explanation as Explanation
    from bert_keras.explanations.explainer import Explanations as Explanations
    from bert_keras.explanations.explainer import explain as explain

_PLACES = {
    "Attention": "attention",
    "EmbeddingMap": "embedding_map",
    "Explanation": "explainer",
    "Explanations": "explainer",
    "explain": "explainer",
    "explain_attention": "attention",
    "map_texts": "embedding_map",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # else type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
