"""Texts with `[MASK]`: to pieces, and back with words in their place, in graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bert_keras.masking import mask_id_of
from bert_keras.ragged import put, sizes_of, slices
from bert_keras.tokenizer import WordPieceTokenizer

MASK = "[MASK]"


def parted(texts: Any) -> Any:
    """Return what the masks of texts part, ragged string [B, None]."""
    return tf.strings.split(tf.convert_to_tensor(texts, tf.string), MASK)


def pieces_with_masks(tokenizer: WordPieceTokenizer, between: Any) -> Any:
    """Return the ids of texts, ragged int32 [B, None], from what their masks part.

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
