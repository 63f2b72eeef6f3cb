"""A weight of each token of the vocabulary for a text: `TermVector`.

Source: Formal et al. 2021 (arXiv:2109.10086), SPLADE.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bert_keras.lazy_names import deferred
from bert_keras.reading.text_vector import TextVector
from bert_keras.reading.windows import Batch

if TYPE_CHECKING:
    from bert_keras.model import heads, pooling
    from bert_keras.model.encoder import BertEncoder
else:
    heads, pooling = deferred("bert_keras.model.heads", "bert_keras.model.pooling")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TermVector(TextVector):
    """A sparse vector of a text: the largest weights that its tokens give to terms."""

    def row_vectors(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the weight of each token of the vocabulary, float32 [B, V]."""
        head = heads.MaskedLMHead.on(encoder, seed=seed)
        states = self.token_vectors(encoder, inputs)
        logits = head(states, encoder.token_table(inputs))
        pool = pooling.TextPooling("max", normalize=False, dtype="float32")
        places = (inputs[name] for name in ("position_ids", "cls_positions"))
        return pooling.TermWeights()(pool(logits, inputs["padding_mask"], *places))
