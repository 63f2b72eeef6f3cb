"""Feature-based tagging: a tag for each word from a frozen encoder.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3 and table 7: hidden layers
without fine-tuning, a BiLSTM of two layers, a linear layer on the first piece.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.recurrent_head import FEATURES, RecurrentHead
from bert_keras.settings import check_whole_number
from bert_keras.tasks.tagging.task import TaggingTask


@keras.saving.register_keras_serializable(package="bert_keras")
@dataclasses.dataclass(frozen=True)
class FeatureTagging(TaggingTask):
    """Tags of words by a small BiLSTM on a frozen encoder.

    Only the head is trained, from scratch, at a much higher learning rate than in
    fine-tuning.

    Args:
        classes: the tags in the order of the outputs, such as `O`, `B-person`,
            `I-person`.
        layers: which hidden layers the BiLSTM reads, see `recurrent_head.FEATURES`.
        units: width of each direction of each of its two layers, 4096 at most; `None`:
            that of the encoder, as the 768 of the paper are that of BERT-base.

    Raises:
        ConfigError: a setting is out of its range.
    """

    name = "feature-tagging"
    summary = "a tag for each word, by a BiLSTM on features of the frozen encoder"
    architecture = "BertModel"  # Hugging Face has the encoder, but no such head
    encoder_outputs = ("hidden_states",)
    learning_rate = 1e-3

    classes: tuple[str, ...]
    layers: str = "concat_last_four"
    units: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers not in FEATURES:
            raise ConfigError(
                f"`layers` must be one of {', '.join(FEATURES)}; "
                f"received {self.layers!r}"
            )
        if self.units is not None:
            check_whole_number("units", self.units, least=1, most=4096)

    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> Any:
        """Return the logits of each token, float32 [B, T, C]."""
        head = RecurrentHead(
            len(self.classes),
            features=self.layers,
            units=self.units or encoder.config.hidden_size,
            dropout_rate=encoder.config.hidden_dropout_prob,
            initializer_range=encoder.config.initializer_range,
            seed=seed,
            dtype=encoder.dtype_policy,
        )
        states = encoder(inputs, training=False)["hidden_states"]
        return head(states, inputs["padding_mask"], inputs["sequence_ids"])

    def frozen(self, encoder: BertEncoder) -> list[keras.layers.Layer]:
        return encoder.layers

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        return False  # Hugging Face has no such models

    @classmethod
    def from_model_config(cls, config: Mapping[str, Any]) -> FeatureTagging:
        raise CheckpointError("config.json: holds no model of feature-tagging")
