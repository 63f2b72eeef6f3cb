"""A weight of each token of the vocabulary for a text: `TermVector`.

Source: Formal et al. 2021 (arXiv:2109.10086), SPLADE.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import MaskedLMHead
from bert_keras.model.pooling import TermWeights, TextPooling
from bert_keras.reading.text_vector import TextVector
from bert_keras.reading.windows import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class TermVector(TextVector):
    """A sparse vector of a text: the largest weights that its tokens give to terms."""

    def row_vectors(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the weight of each token of the vocabulary, float32 [B, V]."""
        head = MaskedLMHead.on(encoder, seed=seed)
        states = self.token_vectors(encoder, inputs)
        logits = head(states, encoder.token_table(inputs))
        pool = TextPooling("max", normalize=False, dtype="float32")
        places = (inputs[name] for name in ("position_ids", "cls_positions"))
        return TermWeights()(pool(logits, inputs["padding_mask"], *places))
