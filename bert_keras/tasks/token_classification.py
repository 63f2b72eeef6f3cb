"""A tag for each word of a sentence, such as the names in it (NER).

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3: a linear layer on the final
vector of the first piece of each word, no CRF.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from bert_keras.encoder import BertEncoder
from bert_keras.heads import PooledHead
from bert_keras.tasks.tagging import TaggingTask


@keras.saving.register_keras_serializable(package="bert_keras")
@dataclasses.dataclass(frozen=True)
class TokenClassification(TaggingTask):
    """Tags of words, the encoder fine-tuned; answers are the entities of a text.

    Args:
        classes: the tags in the order of the outputs, such as `O`, `B-person`,
            `I-person`.

    Raises:
        ConfigError: there are fewer than two classes, or one twice.

    Example:
        >>> rows = as_columns(text=["Ann met Bo"], label=["B-person O B-person"])
        >>> TokenClassification.from_columns(rows).classes
        ('O', 'B-person', 'I-person')
    """

    name = "token-classification"
    summary = "a tag for each word: names of persons, places, products … in a text"
    architecture = "BertForTokenClassification"

    classes: tuple[str, ...]

    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> Any:
        """Return the logits of each token, float32 [R, T, C]."""
        head = PooledHead.on(encoder, len(self.classes), seed=seed)
        return head(encoder(inputs)["sequence_output"])
