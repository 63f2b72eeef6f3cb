"""What replicas do together: sums, seeds of their own, equal starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_keras.errors import ConfigError

# Seeds of replicas lie this far apart. The golden ratio's share of the range spreads
# any number of them evenly, far from those of other layers, which lie close together.
_SEED_STEP, _SEED_RANGE = 1_327_217_885, 2**31 - 1
_SEED_STATE = "seed_generator_state"  # as Keras names it


def is_default(strategy: tf.distribute.Strategy) -> bool:
    """Say whether a strategy is TensorFlow's own where none was made."""
    inside = tf.distribute.has_strategy()
    return not inside and strategy is tf.distribute.get_strategy()


def added_up(
    strategy: tf.distribute.Strategy, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Return what a function gives on all replicas, added up; in a graph.

    Args:
        strategy: the replicas.
        function: gives nested tensors.
        *arguments: its arguments; those that a distributed dataset gave are each
            replica's own.
    """
    if is_default(strategy):
        return function(*arguments)

    @tf.autograph.experimental.do_not_convert
    def on_each(*arguments: Any) -> Any:
        return all_reduced(function(*arguments))

    return of_first(strategy, strategy.run(on_each, arguments))


def of_first(strategy: tf.distribute.Strategy, values: Any) -> Any:
    """Return what the first replica of this worker has of nested values."""
    return tf.nest.map_structure(
        lambda each: strategy.experimental_local_results(each)[0], values
    )


def all_reduced(found: Any) -> Any:
    """Return nested tensors added up over the replicas; in a replica's function."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return found
    # An argument that is given back as it is lies on no device yet.
    values = [tf.identity(each) for each in tf.nest.flatten(found)]
    for dtype in dict.fromkeys(each.dtype for each in values):
        # Workers exchange values packed, so those of one type at a time.
        places = [n for n, each in enumerate(values) if each.dtype == dtype]
        reduced = context.all_reduce("SUM", [values[n] for n in places])
        for place, value in zip(places, reduced, strict=True):
            values[place] = value
    return tf.nest.pack_sequence_as(found, values)


def gathered(values: Any) -> Any:
    """Return nested tensors [B, …] of all replicas, one behind the other.

    In a replica's function; gradients flow back to the replica that a row is from.
    `None` stays.
    """
    if values is None:
        return None
    context = tf.distribute.get_replica_context()

    def of_all(value: Any) -> Any:
        value = tf.convert_to_tensor(value)
        if value.shape.rank > 1:
            # A replica that the last batch has no row for has no other sizes, either.
            sizes = tf.shape(value)
            most = tf.reduce_max(context.all_gather(sizes[None], axis=0), axis=0)
            missing = tf.concat([[0], (most - sizes)[1:]], axis=0)
            value = tf.pad(value, tf.stack([tf.zeros_like(missing), missing], axis=1))
        return context.all_gather(value, axis=0)

    return tf.nest.map_structure(of_all, values)


def summed_function(
    strategy: tf.distribute.Strategy, function: Callable[..., Any], signature: Any
) -> Any:
    """Return the graph of `added_up`, for arguments of a signature."""
    return tf.function(
        lambda *arguments: added_up(strategy, function, *arguments),
        input_signature=signature,
        autograph=False,
    )


def seed_states(model: keras.Model) -> list[Any]:
    """Return the states of the seeds that dropout draws from."""
    weights = {id(weight) for weight in model.weights}
    return [
        variable
        for variable in model.variables
        if id(variable) not in weights and variable.path.endswith(_SEED_STATE)
    ]


def set_replica_seeds(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Let each replica drop other units: Keras gives all of them the same seeds.

    The first replica's seeds stay as they are, and the others' follow from them. So it
    is these alone that a checkpoint holds, and setting them twice changes nothing.
    """
    states = seed_states(model)
    if strategy.num_replicas_in_sync == 1 or not states:
        return

    def set_seeds() -> None:
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        own = [tf.cast(state.value, tf.int64) for state in states]
        first = [tf.where(replica == 0, state, tf.zeros_like(state)) for state in own]
        apart = tf.stack([replica * _SEED_STEP, 0])
        for state, base in zip(states, all_reduced(first), strict=True):
            new = tf.math.floormod(base + apart, [_SEED_RANGE, tf.int64.max])
            # Without aggregation a replica assigns its own copy alone.
            state.assign(tf.cast(tf.where(replica == 0, base, new), state.dtype))

    run_once(strategy, set_seeds)


def take_from_first(
    strategy: tf.distribute.Strategy, variables: Sequence[Any], number: int
) -> int:
    """Give all workers what the first one has: the values of variables and a number."""
    if strategy.num_replicas_in_sync == 1:
        return number

    def values() -> list[Any]:
        context = tf.distribute.get_replica_context()
        is_first = tf.equal(context.replica_id_in_sync_group, 0)
        own = [tf.convert_to_tensor(variable.value) for variable in variables]
        own.append(tf.constant(number, tf.int64))
        # GPUs exchange no int32.
        wide = [tf.cast(v, tf.int64) if v.dtype.is_integer else v for v in own]
        return [tf.where(is_first, each, tf.zeros_like(each)) for each in wide]

    *found, agreed = tf.function(lambda: added_up(strategy, values), autograph=False)()
    for variable, value in zip(variables, found, strict=True):
        variable.assign(tf.cast(value, variable.dtype))
    return int(agreed)


def run_once(strategy: tf.distribute.Strategy, function: Callable[[], Any]) -> None:
    """Run a function on each replica, in a graph."""
    tf.function(lambda: strategy.run(function), autograph=False)()


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
