"""Documents to rows of the batch, with a `[CLS]` before each sentence.

Source: Liu 2019 (arXiv:1903.10318), section 2.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bert_keras.packing import locate
from bert_keras.preprocessor import Preprocessor
from bert_keras.ragged import (
    laid_like,
    never_empty,
    segment_ids,
    sizes_of,
    starts_of,
    with_sizes,
)
from bert_keras.sentences import Sentences, split_sentences


def some_sentences(texts: Any) -> Sentences:
    """Return the sentences of documents; an empty document has one, an empty one."""
    found = split_sentences(texts)
    return Sentences(
        never_empty(found.texts, ""),
        never_empty(found.starts, 0),
        never_empty(found.ends, 0),
    )


def sentence_windows(preprocessor: Preprocessor, sentences: Any) -> dict[str, Any]:
    """Return documents as windows of whole sentences, `max_length` tokens at most.

    Args:
        preprocessor: lays the windows; a sentence too long for one is cut.
        sentences: ragged string [B, None], one at least in each document.

    Returns:
        The batch dict, with `sentence_positions` int32 [R, P], the columns of the
        [CLS]s of each row, -1 where it has fewer; and `numbers` int32 [R, P], of each
        its sentence among all of the batch, else -1.
    """
    ids, _ = preprocessor.join(sentences.flat_values)
    sizes = sizes_of(ids)
    windows = _window_of_each(sentences.with_values(sizes), preprocessor.max_length)
    numbers = tf.range(tf.shape(sizes)[0])
    ranks = numbers - tf.gather(tf.math.segment_min(numbers, windows), windows)
    sentence = segment_ids(ids.row_splits)
    joined = with_sizes(ids.values, tf.math.segment_sum(sizes, windows))
    segments = joined.with_values(tf.gather(ranks % 2, sentence))
    batch = preprocessor.lay(joined, segments)
    first = starts_of(ids) - tf.gather(starts_of(joined), windows)
    first = with_sizes(first, tf.math.segment_sum(tf.ones_like(windows), windows))
    multiple = preprocessor.length_multiple
    positions, slots = locate(first, batch, multiple=multiple)
    found = laid_like(positions, slots.flat_values, numbers)
    return {**batch, "sentence_positions": positions, "numbers": found}


def _window_of_each(sizes: Any, most: int) -> Any:
    """Return the window of each sentence, int32 [N], counted through the batch.

    Args:
        sizes: ragged int32 [B, None], tokens of each sentence.
        most: tokens of a window.
    """

    def add(state: tuple[Any, Any], size: Any) -> tuple[Any, Any]:
        used, window = state
        is_full = used + size > most
        used = tf.where(is_full, size, used + size)
        return used, window + tf.cast(is_full, tf.int32)

    by_place = tf.transpose(sizes.to_tensor(0))  # [S, B]: all documents in one step
    by_place = tf.pad(by_place, [[0, 1], [0, 0]])  # there may be no document at all
    none = tf.zeros([tf.shape(by_place)[1]], tf.int32)
    _, windows = tf.scan(add, by_place, (none, none))
    counts = tf.reduce_max(windows, axis=0) + 1
    windows = tf.transpose(windows) + tf.cumsum(counts, exclusive=True)[:, tf.newaxis]
    return tf.RaggedTensor.from_tensor(windows, sizes.row_lengths()).flat_values
