"""The part of each batch that a replica gets: `Share` and `distributed`.

Of each global batch a replica takes its own examples, by their number: every example is
trained on once an epoch, by one replica, and an update has the examples that it has on
one device, however many replicas there are. Of pretraining data each replica reads
files of its own, see `record_lanes`. Where these do not go round, and in fine-tuning,
whose rows are in memory, all workers go through the same rows and pass over those of
others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_keras.errors import ConfigError
from bert_keras.replicas import is_default


@dataclasses.dataclass(frozen=True)
class Share:
    """The replicas of one worker among all.

    Args:
        first: number of the worker's first replica.
        count: how many it has.
        replicas: how many there are on all workers.
    """

    first: int = 0
    count: int = 1
    replicas: int = 1

    def parts(self, *batch: Any) -> tf.data.Dataset:
        """Return the parts of a batch [B, …] that this worker's replicas get.

        One element a replica, in their order: examples r, r + replicas, … of replica r.
        A batch of fewer examples than replicas leaves some of them none.
        """
        size = batch[0].shape[0]
        static = size is not None and size % self.replicas == 0

        def part(replica: Any) -> tuple[Any, ...]:
            found = tuple(each[replica :: self.replicas] for each in batch)
            if static:
                rows = [size // self.replicas]
                found = tuple(tf.ensure_shape(each, rows) for each in found)
            return found

        return tf.data.Dataset.range(self.first, self.first + self.count).map(part)


ALONE = Share()


def check_batch_size(batch_size: int, parts: int, replicas: int, static: bool) -> None:
    """Raise ConfigError unless each replica gets examples of each part of a batch.

    Args:
        batch_size: examples of an update.
        parts: parts that they come in (`accumulation`).
        replicas: how many share a part.
        static: whether all must get the same number.
    """
    if batch_size < parts * replicas:
        raise ConfigError(
            f"`batch_size` must be at least `accumulation` ({parts}) times the number "
            f"of replicas ({replicas}); received {batch_size}"
        )
    if static and batch_size % (parts * replicas):
        raise ConfigError(
            f"`batch_size` must be a multiple of `accumulation` ({parts}) times the "
            f"number of replicas ({replicas}) on a TPU; received {batch_size}"
        )


def distributed(
    strategy: tf.distribute.Strategy, make: Callable[[Share], tf.data.Dataset]
) -> Any:
    """Return a dataset whose elements hold a part for each replica.

    It is gone through like any other, and has an `element_spec`, for `TrainStep`.

    Args:
        strategy: the replicas; of TensorFlow's default one the dataset is as made.
        make: makes the dataset of a worker's share, see `Share.parts`.
    """
    if is_default(strategy):
        return make(ALONE)

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync
        count = replicas // context.num_input_pipelines
        return make(Share(context.input_pipeline_id * count, count, replicas))

    return strategy.distribute_datasets_from_function(of_worker)
