"""The records of pretraining data in the order that a run takes them.

The order follows from a seed and the epoch, so that a run goes on at any place, and a
place tells which record of which file it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.errors import DataError
from bert_keras.pretraining_files import PretrainingFiles, find_files
from bert_keras.record_file import compression_of
from bert_keras.tokenizer import WordPieceTokenizer

_FILES_AT_ONCE = 8
_GRAPH_SEED = 87_654_321  # TensorFlow's own where no global seed is set


def read_batches(dataset: tf.data.Dataset, data: Any) -> Iterator[Any]:
    """Yield the elements of a dataset.

    Raises:
        DataError: a file is broken; names the data.
    """
    batches = iter(dataset)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except tf.errors.OpError as error:
            reason = str(error.message).split("\n")[0][:200]
            raise DataError(f"cannot be read: {reason}", path=str(data)) from None
        yield batch


def record_places(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tokenizer: WordPieceTokenizer,
    *,
    first: int,
    count: int,
    seed: int,
    shuffle: int = 16_384,
) -> list[tuple[str, int]]:
    """Return where examples stand: the file, and the number of the record in it.

    What lies before them in their epoch is read, not decoded.

    Args:
        files, tokenizer, seed, shuffle: as of `pretraining_dataset`, `epochs` `None`.
        first: examples before them, from the start of the data set on.
        count: how many.
    """
    found = find_files(files, tokenizer)

    def numbered(file: Any, records: tf.data.Dataset) -> tf.data.Dataset:
        return records.enumerate().map(lambda number, _: tf.stack([file, number]))

    dataset = examples_in_order(
        found,
        seed=seed,
        shuffle=shuffle,
        epochs=None,
        redraw=True,
        skip=first,
        told=numbered,
    )
    places = read_batches(dataset.take(count), files)
    pairs = [place.numpy().tolist() for place, _ in places]
    return [(str(found.paths[file]), number) for file, number in pairs]


def examples_in_order(
    found: PretrainingFiles,
    *,
    seed: int,
    shuffle: int,
    epochs: int | None,
    redraw: bool,
    skip: int,
    told: Callable[[Any, tf.data.Dataset], tf.data.Dataset] = lambda _, records: (
        records
    ),
) -> tf.data.Dataset:
    """Return records in their order, and the number that each one's masks follow from.

    Args:
        found: the files.
        seed, shuffle, epochs, redraw: as of `pretraining_dataset`.
        skip: examples at the start that are left out.
        told: of a file's number, int64 [], and its records: what stands for them.
    """

    def one_epoch(epoch_seed: Any) -> tf.data.Dataset:
        # Of this graph alone: else the user's global seed would change the order.
        tf.random.set_seed(_GRAPH_SEED)
        order = epoch_seed if shuffle else None
        records = _records(found.paths, order, shuffle, told)
        return records.enumerate().map(lambda i, record: (record, epoch_seed + i))

    first = 0
    if found.examples and not (redraw and epochs is not None):
        first, skip = divmod(skip, found.examples)  # whole epochs are not read
    return _epoch_seeds(seed, epochs, redraw, first).flat_map(one_epoch).skip(skip)


def _epoch_seeds(
    seed: int, epochs: int | None, redraw: bool, first: int
) -> tf.data.Dataset:
    """Return a number for each epoch from the first on, int64, with room for the number
    of an example.
    """
    room = tf.constant(30, tf.int64)
    if redraw and epochs is not None:
        drawn = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)
        return drawn.take(epochs).map(lambda draw: tf.bitwise.left_shift(draw, room))

    def draw(epoch: Any) -> Any:
        pair = tf.stack([tf.constant(seed, tf.int64), epoch])
        bits = tf.random.stateless_uniform([], pair, None, None, tf.uint32)
        return tf.bitwise.left_shift(tf.cast(bits, tf.int64), room)

    count = tf.int64.max if epochs is None else epochs
    return tf.data.Dataset.range(min(first, count), count).map(draw)


def _records(
    paths: Sequence[str],
    seed: Any,
    shuffle: int,
    told: Callable[[Any, tf.data.Dataset], tf.data.Dataset],
) -> tf.data.Dataset:
    """Return the records of all files; in their order if there is no seed."""
    names = tf.constant(list(paths))
    kinds = tf.constant([compression_of(path) for path in paths])

    def read(place: Any) -> tf.data.Dataset:
        kind = tf.gather(kinds, place)
        return told(place, tf.data.TFRecordDataset(tf.gather(names, place), kind))

    if seed is None:
        return tf.data.Dataset.range(len(paths)).flat_map(read)
    order = tf.random.experimental.stateless_shuffle(
        tf.range(len(paths), dtype=tf.int64), seed=tf.stack([seed, tf.zeros_like(seed)])
    )
    records = tf.data.Dataset.from_tensor_slices(order).interleave(
        read,
        cycle_length=min(_FILES_AT_ONCE, len(paths)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    # Each epoch has a seed of its own.
    return records.shuffle(shuffle, seed=seed, reshuffle_each_iteration=False)
