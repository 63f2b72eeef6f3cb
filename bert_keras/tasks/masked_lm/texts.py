"""Texts with `[MASK]`: tokenizing them and filling the masks in, in graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.text.masking import Masking, mask_id_of
from bert_keras.text.packing import locate
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.ragged import laid_like, put, sizes_of, slices
from bert_keras.text.tokenizer import WordPieceTokenizer

MASK = "[MASK]"


def parted(texts: Any) -> Any:
    """Split texts at their masks, ragged string [B, None]."""
    return tf.strings.split(tf.convert_to_tensor(texts, tf.string), MASK)


def pieces_with_masks(tokenizer: WordPieceTokenizer, between: Any) -> Any:
    """Return the ids of texts split at their masks, ragged int32 [B, None].

    A mask ends a word on either side, as in the `tokenizers` library.
    """
    pieces = tokenizer(between.values)
    sizes = sizes_of(pieces) + 1  # each with a mask behind it
    starts = tf.cumsum(sizes, exclusive=True)
    flat = tf.fill([tf.reduce_sum(sizes)], mask_id_of(tokenizer))
    places = tf.ragged.range(starts, starts + sizes - 1).values
    flat = put(flat, places, pieces.values)
    splits = tf.gather(tf.pad(tf.cumsum(sizes), [[1, 0]]), between.row_splits)
    # After the last part of a text stands none.
    return slices(flat, splits[:-1], splits[1:] - splits[:-1] - 1)


def filled(between: Any, words: Any) -> Any:
    """Return texts with their masks filled in, string [B, k].

    Args:
        between: RaggedTensor string [B, None], one part more than a text has masks.
        words: RaggedTensor string [B, None, k]; a mask that was cut off stays.
    """
    count = words.flat_values.shape[-1]
    text = between.value_rowids()
    part = tf.ragged.range(between.row_lengths()).flat_values  # from 0 in each text
    known = part < tf.gather(words.row_lengths(), text)
    last = part + 1 == tf.gather(between.row_lengths(), text)
    # One row more, so that there is one to read where a part has no word.
    table = tf.concat([words.flat_values, tf.fill([1, count], "")], axis=0)
    place = tf.where(known, tf.gather(words.row_splits, text) + part, 0)
    fallback = tf.where(last, "", MASK)[:, tf.newaxis]
    word = tf.where(known[:, tf.newaxis], tf.gather(table, place), fallback)
    parts = tf.repeat(between.flat_values[:, tf.newaxis], count, axis=1)
    # A piece from inside a word goes to the word before it.
    inside = tf.strings.regex_full_match(word, "##.+")
    parts = tf.where(inside, tf.strings.regex_replace(parts, r"\s+$", ""), parts)
    word = tf.where(inside, tf.strings.regex_replace(word, "^##", ""), word)
    columns = [
        tf.strings.reduce_join(
            between.with_flat_values(parts[:, i] + word[:, i]), axis=1
        )
        for i in range(count)
    ]
    return tf.stack(columns, axis=1)


def hidden_batch(
    preprocessor: Preprocessor, texts: Any, draws: Any, masking: Masking
) -> dict[str, Any]:
    """Return the batch of texts with some tokens masked, in graph.

    Args:
        preprocessor: lays the texts.
        texts: string [B].
        draws: int64 [B], the masking seed of each text.
        masking: how tokens are masked.

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
    """Return loss, number of masked tokens and correct predictions of each text.

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
