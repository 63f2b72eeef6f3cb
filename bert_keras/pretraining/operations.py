"""What a pretraining update computes: its tokens, and the operations for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_keras.config import BertConfig


def forward_operations(
    config: BertConfig,
    *,
    tokens: float,
    token_pairs: float,
    predictions: float = 0.0,
    pooled: float = 0.0,
) -> float:
    """Return the operations of the matrix products of a forward pass.

    Each token counts in each block, as is usual; `BertEncoder.read_at` needs fewer in
    the last block.

    Args:
        config: the sizes of the model.
        tokens: real tokens, padding not counted.
        token_pairs: sum over the texts of their squared numbers of tokens.
        predictions: tokens that the masked-LM head predicts.
        pooled: texts that the pooler and a head of 2 classes read.

    Example:
        >>> forward_operations(BertConfig(), tokens=1, token_pairs=0) / 2 == 84_934_656
        True
    """
    hidden, layers = config.hidden_size, config.num_hidden_layers
    block = 4 * hidden**2 + 2 * hidden * config.intermediate_size
    head = hidden**2 + hidden * config.vocab_size
    products = layers * (tokens * block + 2 * token_pairs * hidden)
    products += predictions * head + pooled * (hidden**2 + 2 * hidden)
    return 2.0 * products


def token_counts(inputs: Mapping[str, Any]) -> Any:
    """Return a batch's real tokens, positions and squared text lengths, float32 [3]."""
    mask = tf.cast(inputs["padding_mask"], tf.float32)
    positions = inputs.get("position_ids")
    if positions is None:
        positions = tf.cumsum(tf.ones_like(mask), axis=1) - 1
    # The sum of 2 i + 1 over the positions i of a text is its squared length.
    squared = tf.reduce_sum(mask * (2 * tf.cast(positions, tf.float32) + 1))
    places = tf.cast(tf.size(mask), tf.float32)
    return tf.stack([tf.reduce_sum(mask), places, squared])
