"""Texts with some tokens hidden: their batch, and how well a model finds the tokens.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.masking import Masking
from bert_keras.packing import locate
from bert_keras.preprocessor import Preprocessor
from bert_keras.ragged import laid_like, sizes_of


def hidden_batch(
    preprocessor: Preprocessor, texts: Any, draws: Any, masking: Masking
) -> dict[str, Any]:
    """Return texts with some of their tokens hidden, in graph.

    Args:
        preprocessor: lays the texts.
        texts: string [B].
        draws: int64 [B], the number that the masks of each text follow from.
        masking: how tokens are hidden.

    Returns:
        The batch dict, with `masked_positions` int32 [R, P], the columns to predict, -1
        where a row has fewer; `labels` int32 [R, P], the tokens that stood there, else
        -1; `slots`, ragged int32 [B, None], where in the R*P each hidden token is.
    """
    ids, segments = preprocessor.join(texts)
    masked = masking(ids, draws, preprocessor.tokenizer)
    batch = preprocessor.lay(masked.ids, segments)
    multiple = preprocessor.length_multiple
    positions, slots = locate(masked.offsets, batch, multiple=multiple)
    return {
        **batch,
        "masked_positions": positions,
        "slots": slots,
        "labels": laid_like(positions, slots.flat_values, masked.labels.flat_values),
    }


def logits_at(outputs: Any, slots: Any) -> Any:
    """Return the logits of hidden tokens, float32 [N, V], text by text.

    Args:
        outputs: float [R, P, V], the logits of all positions.
        slots: RaggedTensor int32 [B, None], where in the R*P each hidden token is.
    """
    flat = tf.reshape(outputs, [-1, tf.shape(outputs)[-1]])
    return tf.cast(tf.gather(flat, slots.flat_values), tf.float32)


def measured(outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Return of each text its `loss`, and how many hidden tokens there are and right.

    Args:
        outputs: float [R, P, V], the logits of the positions of a `hidden_batch`.
        batch: that batch.

    Returns:
        `loss` float32 [B], the sum of a text's losses (nats); `predictions` and
        `correct` int32 [B].
    """
    slots = batch["slots"]
    logits = logits_at(outputs, slots)
    labels = tf.gather(tf.reshape(batch["labels"], [-1]), slots.flat_values)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    found = tf.argmax(logits, axis=-1, output_type=tf.int32) == labels
    correct = slots.with_flat_values(tf.cast(found, tf.int32))
    return {
        "loss": tf.reduce_sum(slots.with_flat_values(losses), axis=1),
        "predictions": sizes_of(slots),
        "correct": tf.reduce_sum(correct, axis=1),
    }


def hidden_scores(found: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return loss (nats a token), perplexity and accuracy of what was `measured`."""
    count = int(found["predictions"].sum())
    mean = float(found["loss"].astype("float64").sum()) / max(count, 1)
    return {
        "loss": mean,
        "log_likelihood": -mean,
        "perplexity": float(np.exp(mean)),
        "accuracy": int(found["correct"].sum()) / max(count, 1),
        "num_predictions": count,
    }
