"""The records of an epoch in lanes, so that each replica opens files of its own.

The files of an epoch, in its order and end to end, are cut into G lanes whose numbers
of records differ by one at most. The order of the epoch takes one record of each lane
in turn: record t of lane l stands at t*G + l. So where the number of replicas R divides
G, the records of a replica, every R-th one of the order, are those of G/R lanes; the
order itself knows nothing of replicas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.record_file import compression_of

_MOST_LANES = 64

Told = Callable[[Any, tf.data.Dataset], tf.data.Dataset]


@dataclasses.dataclass(frozen=True)
class RecordLanes:
    """The lanes of some files.

    Args:
        paths: the files.
        counts: number of records of each file.
        shuffle: records of which each next one is drawn, in all lanes together.
        told: of a file's number, int64 [], and its records: what stands for them.
    """

    paths: Sequence[str]
    counts: Sequence[int]
    shuffle: int
    told: Told

    @property
    def count(self) -> int:
        """Number of lanes, G: a power of two, at most that of the files."""
        return int(min(2 ** (len(self.paths).bit_length() - 1), _MOST_LANES))

    @property
    def records(self) -> int:
        """Number of records of an epoch."""
        return sum(self.counts)

    def parts_evenly(self, replicas: int, batch_size: int) -> bool:
        """Say whether each replica has lanes, and a part of each batch, of its own."""
        return self.count % replicas == 0 and batch_size % replicas == 0

    def epoch(
        self, seed: Any, number: Any = 0, replica: int = 0, replicas: int = 1
    ) -> tf.data.Dataset:
        """Return the records of a replica in an epoch, and each one's place in it.

        In graph.

        Args:
            seed: of the epoch, int64 [].
            number: of the epoch, int64 []: an epoch begins where the one before ends,
                in the middle of a batch, too.
            replica: number of the replica.
            replicas: how many there are, R; divides the number of lanes.
        """
        first = tf.math.floormod(
            replica - tf.cast(number, tf.int64) * self.records, replicas
        )
        own = first + replicas * tf.range(self.count // replicas, dtype=tf.int64)
        order, read = file_order(len(self.paths), seed), reader(self.paths, self.told)
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
        # Of the files that hold a record of the lane alone.
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
        # Each epoch has a seed of its own.
        buffer = max(self.shuffle // self.count, 1)
        records = records.shuffle(buffer, seed + lane, reshuffle_each_iteration=False)
        return records.enumerate().map(lambda t, each: (each, t * self.count + lane))


def reader(paths: Sequence[str], told: Told) -> Callable[[Any], tf.data.Dataset]:
    """Return what gives the records of a file by its number, in graph."""
    names = tf.constant(list(paths))
    kinds = tf.constant([compression_of(path) for path in paths])

    def read(file: Any) -> tf.data.Dataset:
        kind = tf.gather(kinds, file)
        return told(file, tf.data.TFRecordDataset(tf.gather(names, file), kind))

    return read


def file_order(count: int, seed: Any) -> Any:
    """Return the files in the order of an epoch's seed, int64 [count]."""
    files = tf.range(count, dtype=tf.int64)
    pair = tf.stack([seed, tf.zeros_like(seed)])
    return tf.random.experimental.stateless_shuffle(files, seed=pair)
