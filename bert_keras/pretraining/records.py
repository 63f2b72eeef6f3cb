"""The records of pretraining data in the order in which a run reads them.

The order follows from a seed and the epoch, so a run can resume at any place, and a
place identifies a record of a file.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.distribution.replicas import Share
from bert_keras.errors import DataError, one_line, reason_of
from bert_keras.files.records import broken_file, compression_of
from bert_keras.pretraining.files import PretrainingFiles, find_files, paths_of
from bert_keras.text.tokenizer import WordPieceTokenizer

SHUFFLE = 16_384  # examples in the buffer from which the next one is drawn
_MOST_LANES = 64

ToElements = Callable[[Any, tf.data.Dataset], tf.data.Dataset]


@dataclasses.dataclass(frozen=True)
class RecordLanes:
    """The records of an epoch, split into lanes that can be read in parallel.

    A lane is a contiguous part of the records in the order of the epoch's files; all
    have the same size, up to one record, and each is shuffled on its own. The epoch
    takes one record of each lane in turn. So a replica that reads some of the lanes
    reads only their files.

    `shuffle` is the size of the shuffle buffer, in all lanes together; `to_elements`
    maps a file's number, int64 [], and its records to the elements.
    """

    paths: Sequence[str]
    counts: Sequence[int]
    shuffle: int
    to_elements: ToElements

    @property
    def count(self) -> int:
        """Number of lanes, G: a power of two, at most the number of files."""
        return int(min(2 ** (len(self.paths).bit_length() - 1), _MOST_LANES))

    @property
    def records(self) -> int:
        """Number of records of an epoch."""
        return sum(self.counts)

    def parts_evenly(self, replicas: int, batch_size: int) -> bool:
        """Return whether lanes and batches divide evenly among the replicas."""
        return self.count % replicas == 0 and batch_size % replicas == 0

    def epoch(
        self, seed: Any, number: Any = 0, replica: int = 0, replicas: int = 1
    ) -> tf.data.Dataset:
        """Return a replica's records of an epoch, each with its place in it, in graph.

        The seed of the epoch and its number are int64 []: an epoch begins where the
        previous one ends, even in the middle of a batch. `replicas` divides the number
        of lanes.
        """
        first = tf.math.floormod(
            replica - tf.cast(number, tf.int64) * self.records, replicas
        )
        own = first + replicas * tf.range(self.count // replicas, dtype=tf.int64)
        order = file_order(len(self.paths), seed)
        read = reader(self.paths, self.to_elements)
        return tf.data.Dataset.from_tensor_slices(own).interleave(
            lambda lane: self._lane(lane, order, seed, read),
            cycle_length=self.count // replicas,
            block_length=1,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )

    def _lane(
        self, lane: Any, order: Any, seed: Any, read: Callable[[Any], tf.data.Dataset]
    ) -> tf.data.Dataset:
        size, more = divmod(self.records, self.count)
        start = lane * size + tf.minimum(lane, more)
        end = start + size + tf.cast(lane < more, tf.int64)
        counts = tf.gather(tf.constant(self.counts, tf.int64), order)
        ends = tf.cumsum(counts)
        # Only from the files that hold a record of the lane.
        files = tf.searchsorted(ends, tf.stack([start, end - 1]), side="right")

        def inside(place: Any) -> tf.data.Dataset:
            last = tf.gather(ends, place)
            begin = last - tf.gather(counts, place)
            skipped = tf.maximum(start - begin, 0)
            taken = tf.minimum(end, last) - begin - skipped
            return read(tf.gather(order, place)).skip(skipped).take(taken)

        after = files[1] + tf.cast(end > start, files.dtype)
        places = tf.data.Dataset.range(
            tf.cast(files[0], tf.int64), tf.cast(after, tf.int64)
        )
        records = places.flat_map(inside)
        # Each epoch has its own seed.
        buffer = max(self.shuffle // self.count, 1)
        records = records.shuffle(buffer, seed + lane, reshuffle_each_iteration=False)
        return records.enumerate().map(lambda t, each: (each, t * self.count + lane))


def reader(
    paths: Sequence[str], to_elements: ToElements
) -> Callable[[Any], tf.data.Dataset]:
    """Return a function from a file's number to its records, in graph."""
    names = tf.constant(list(paths))
    kinds = tf.constant([compression_of(path) for path in paths])

    def read(file: Any) -> tf.data.Dataset:
        kind = tf.gather(kinds, file)
        return to_elements(file, tf.data.TFRecordDataset(tf.gather(names, file), kind))

    return read


def file_order(count: int, seed: Any) -> Any:
    """Return the files in the order of an epoch's seed, int64 [count]."""
    files = tf.range(count, dtype=tf.int64)
    pair = tf.stack([seed, tf.zeros_like(seed)])
    return tf.random.experimental.stateless_shuffle(files, seed=pair)


_FILES_AT_ONCE = 8
_GRAPH_SEED = 87_654_321  # TensorFlow's default if no global seed is set


def read_batches(dataset: tf.data.Dataset, data: Any) -> Iterator[Any]:
    """Yield the elements of a dataset; a broken file raises a DataError."""
    try:
        yield from dataset
    except tf.errors.OpError as error:
        broken = broken_file(paths_of(data))  # the error does not name it
        path, reason = broken or (str(data), one_line(reason_of(error)))
        raise DataError(f"cannot be read: {reason}", path=path) from None


def record_places(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tokenizer: WordPieceTokenizer,
    *,
    first: int,
    count: int,
    seed: int,
) -> list[tuple[str, int]]:
    """Return the file and the number of the record of each of `count` examples.

    Earlier records of their epoch are read, but not decoded. `first` is the number of
    examples before them, from the start of the data set; the other arguments are as in
    `pretraining_dataset`, with its own `shuffle` and with `epochs` `None`.
    """
    found = find_files(files, tokenizer)

    def numbered(file: Any, records: tf.data.Dataset) -> tf.data.Dataset:
        return records.enumerate().map(lambda number, _: tf.stack([file, number]))

    dataset = examples_in_order(
        found,
        seed=seed,
        shuffle=SHUFFLE,
        epochs=None,
        redraw=True,
        skip=first,
        to_elements=numbered,
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
    to_elements: ToElements = lambda _, records: records,
) -> tf.data.Dataset:
    """Return records in their order, and the number that determines each one's masks.

    Arguments are as in `pretraining_dataset` and `RecordLanes`; `skip` counts examples.
    """

    def one_epoch(epoch_seed: Any) -> tf.data.Dataset:
        # In its own graph: otherwise the user's global seed would change the order.
        tf.random.set_seed(_GRAPH_SEED)
        if shuffle and found.counts:
            lanes = RecordLanes(found.paths, found.counts, shuffle, to_elements)
            records = lanes.epoch(epoch_seed)
        else:
            order = epoch_seed if shuffle else None
            records = _records(found.paths, order, shuffle, to_elements)
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
    """Return the parts of `examples_in_order`'s batches for the replicas of a share.

    One element per replica, as in `Share.parts`, from only the files of these replicas.
    `None` if replicas would share a file: there are fewer files than replicas, or the
    numbers do not divide. Arguments as in `pretraining_dataset`, for the whole batches.
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
    """Return a seed for each epoch from `first`, int64, with 30 low bits of 0.

    The number of an example is added to it.
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
    paths: Sequence[str], seed: Any, shuffle: int, to_elements: ToElements
) -> tf.data.Dataset:
    """Return the records of all files; in their order if there is no seed."""
    read = reader(paths, to_elements)
    if seed is None:
        return tf.data.Dataset.range(len(paths)).flat_map(read)
    order = file_order(len(paths), seed)
    records = tf.data.Dataset.from_tensor_slices(order).interleave(
        read,
        cycle_length=min(_FILES_AT_ONCE, len(paths)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    # Each epoch has its own seed.
    return records.shuffle(shuffle, seed=seed, reshuffle_each_iteration=False)
