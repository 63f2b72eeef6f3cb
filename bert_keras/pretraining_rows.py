"""Columns of pretraining examples to rows: what is hidden, packed or cut, in graph.

Each function returns the batch dict, int32, and the targets, int32 [B, P] or, packed,
[R, P], with -1 where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_keras.masking import Masking
from bert_keras.packing import locate, pack_rows
from bert_keras.ragged import laid_like
from bert_keras.tokenizer import WordPieceTokenizer

Features = Mapping[str, Any]
_NONE = -1  # stands where a row has fewer masked tokens


def static_rows(columns: Features) -> tuple[dict[str, Any], Any]:
    """Return the batch and the targets of data whose masks are written out."""
    chosen = columns["masked_lm_weights"] > 0
    positions = tf.where(chosen, columns["masked_lm_positions"], _NONE)
    targets = tf.where(chosen, columns["masked_lm_ids"], _NONE)
    return _batch(columns, columns["input_ids"], positions), targets


def causal_rows(columns: Features) -> tuple[dict[str, Any], Any]:
    """Return the tokens as they are; each but the last has the next one to predict."""
    ids = columns["input_ids"]
    has_next = columns["input_mask"][:, 1:] > 0
    places = tf.broadcast_to(tf.range(ids.shape[1] - 1), tf.shape(has_next))
    positions = tf.where(has_next, places, _NONE)
    return _batch(columns, ids, positions), tf.where(has_next, ids[:, 1:], _NONE)


def dynamic_rows(
    columns: Features, masking: Masking, draws: Any, tokenizer: WordPieceTokenizer
) -> tuple[dict[str, Any], Any]:
    """Return the batch, masked by these draws, int64 [B], and the targets."""
    sizes = tf.reduce_sum(columns["input_mask"], axis=1)
    ids = tf.RaggedTensor.from_tensor(columns["input_ids"], lengths=sizes)
    masked = masking(ids, draws, tokenizer)
    length = columns["input_ids"].shape[1]
    most = min(masking.max_predictions, length)
    shape = tf.stack([tf.shape(sizes)[0], most])
    positions = masked.offsets.to_tensor(_NONE, shape=shape)
    targets = masked.labels.to_tensor(_NONE, shape=shape)
    token_ids = masked.ids.to_tensor(tokenizer.pad_id, shape=[None, length])
    static = [None, most]
    return (
        _batch(columns, token_ids, tf.ensure_shape(positions, static)),
        tf.ensure_shape(targets, static),
    )


def _batch(columns: Features, token_ids: Any, positions: Any) -> dict[str, Any]:
    return {
        "token_ids": token_ids,
        "segment_ids": columns["segment_ids"],
        "padding_mask": columns["input_mask"],
        "masked_positions": positions,
    }


def packed_rows(
    batch: Features, targets: Any, pad_id: int
) -> tuple[dict[str, Any], Any]:
    """Return the examples several a row, with the places and tokens to predict."""
    given = batch["masked_positions"]
    sizes = tf.reduce_sum(batch["padding_mask"], axis=1)
    counts = tf.reduce_sum(tf.cast(given >= 0, tf.int32), axis=1)
    ragged = tf.RaggedTensor.from_tensor
    rows = pack_rows(
        ragged(batch["token_ids"], lengths=sizes),
        ragged(batch["segment_ids"], lengths=sizes),
        pad_id=pad_id,
        row_tokens=None,
    )
    positions, slots = locate(ragged(given, lengths=counts), rows)
    labels = ragged(targets, lengths=counts)
    laid = laid_like(positions, slots.flat_values, labels.flat_values)
    return {**rows, "masked_positions": positions}, laid


def cut_rows(batch: Features, targets: Any) -> tuple[dict[str, Any], Any]:
    """Return the batch with columns that some row has a token in; one at least."""
    positions = batch["masked_positions"]
    sizes = tf.reduce_sum(batch["padding_mask"], axis=1)
    tokens = tf.maximum(tf.reduce_max(sizes), 1)
    masked = tf.reduce_sum(tf.cast(positions >= 0, tf.int32), axis=1)
    most = tf.maximum(tf.reduce_max(masked), 1)
    cut = {key: value[:, :tokens] for key, value in batch.items()}
    return {**cut, "masked_positions": positions[:, :most]}, targets[:, :most]
