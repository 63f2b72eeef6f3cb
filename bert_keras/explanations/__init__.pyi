from .attention import Attention as Attention
from .attention import explain_attention as explain_attention
from .embedding_map import EmbeddingMap as EmbeddingMap
from .embedding_map import map_texts as map_texts
from .explainer import explain as explain
from .explanation import Explanation as Explanation
from .explanation import Explanations as Explanations
