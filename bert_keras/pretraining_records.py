"""The records of pretraining data in the order that a run takes them.

The order follows from a seed and the epoch, so that a run goes on at any place, and a
place tells which record of which file it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.errors import DataError
from bert_keras.pretraining_files import PretrainingFiles, find_files
from bert_keras.record_lanes import RecordLanes, Told, file_order, reader
from bert_keras.replica_input import Share
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
    told: Told = lambda _, records: records,
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
        if shuffle and found.counts:
            lanes = RecordLanes(found.paths, found.counts, shuffle, told)
            records = lanes.epoch(epoch_seed)
        else:
            order = epoch_seed if shuffle else None
            records = _records(found.paths, order, shuffle, told)
            records = records.enumerate().map(lambda i, record: (record, i))
        return records.map(lambda record, i: (record, epoch_seed + i))

    first = 0
    if found.examples and not (redraw and epochs is not None):
        first, skip = divmod(skip, found.examples)  # whole epochs are not read
    return _epoch_seeds(seed, epochs, redraw, first).flat_map(one_epoch).skip(skip)


def parts_in_order(
    found: PretrainingFiles,
    share: Share,
    *,
    seed: int,
    shuffle: int,
    batch_size: int,
    skip_batches: int,
    drop_remainder: bool,
) -> tf.data.Dataset | None:
    """Return what the replicas of a share get of the batches of `examples_in_order`.

    One element a replica, as `Share.parts` gives them, of the files of these replicas
    alone. `None` where a file would be shared by replicas: there are fewer files than
    replicas, or their numbers do not divide.

    Args:
        found: the files.
        share: the replicas.
        seed, shuffle: as of `pretraining_dataset`, whose `epochs` is `None`.
        batch_size, skip_batches, drop_remainder: of the whole batches.
    """
    if not shuffle or not found.counts:
        return None
    lanes = RecordLanes(found.paths, found.counts, shuffle, lambda _, each: each)
    if not lanes.parts_evenly(share.replicas, batch_size):
        return None
    part, before = batch_size // share.replicas, skip_batches * batch_size
    first = before // lanes.records  # whole epochs are not read

    def of_replica(replica: int) -> tf.data.Dataset:
        def one_epoch(number: Any, epoch_seed: Any) -> tf.data.Dataset:
            tf.random.set_seed(_GRAPH_SEED)
            records = lanes.epoch(epoch_seed, number, replica, share.replicas)
            return records.map(lambda record, i: (record, epoch_seed + i))

        seeds = _epoch_seeds(seed, None, True, first).enumerate(first)
        in_epochs = (first * lanes.records - replica - 1) // share.replicas + 1
        records = seeds.flat_map(one_epoch).skip(skip_batches * part - in_epochs)
        return records.batch(part, drop_remainder=drop_remainder)

    mine = range(share.first, share.first + share.count)
    return tf.data.Dataset.choose_from_datasets(
        [of_replica(replica) for replica in mine],
        tf.data.Dataset.range(share.count).repeat(),
    )


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
    told: Told,
) -> tf.data.Dataset:
    """Return the records of all files; in their order if there is no seed."""
    read = reader(paths, told)
    if seed is None:
        return tf.data.Dataset.range(len(paths)).flat_map(read)
    order = file_order(len(paths), seed)
    records = tf.data.Dataset.from_tensor_slices(order).interleave(
        read,
        cycle_length=min(_FILES_AT_ONCE, len(paths)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    # Each epoch has a seed of its own.
    return records.shuffle(shuffle, seed=seed, reshuffle_each_iteration=False)
