"""Floating-point operations of a model, by hand: `forward_operations`.

Source: Kaplan et al. 2020 (arXiv:2001.08361), section 2.1, for counting products alone,
two operations each, and three times the forward pass for training.
"""

from __future__ import annotations

from bert_keras.config import BertConfig

TRAINING = 3  # a backward pass takes twice the products of the forward pass


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
    the last one.

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
