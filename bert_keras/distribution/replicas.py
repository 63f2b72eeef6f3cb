"""Operations across replicas: sums, separate seeds, equal starts, one update.

The gradients of a batch, as `TaskObjective` returns them, are `summed` and applied by
`apply_summed`: in `TrainStep`, and in the step of Keras's `fit` on several replicas.

Differences from what Keras 3 does under a `tf.distribute` strategy (as measured on
Keras 3.15, TensorFlow 2.21):

- **Losses.** Keras averages over each replica's examples. The mean of these means is
  not the mean of the batch if replicas differ in their masked tokens or examples. Ours
  are sums, divided by the count of the whole update: all replicas, all parts.
- **Clipping.** Keras clips each replica's gradients before it sums them. Here they are
  summed and clipped first, and Keras gets an even share of the result on each replica.
- **Accumulation** in Keras's optimizers fails under a strategy, and averages the
  parts' means. `TrainStep` accumulates sums on each replica, and applies them once.
- **Loss scaling.** Keras checks each replica's own gradients, and non-finite ones on
  any replica but the first reach the weights. Here all replicas check the same sum,
  and so halve or double the scale together.
- **Dropout.** Keras gives all replicas the same seeds, so the same units drop.
  `set_replica_seeds` gives each replica its own.
- **Several workers.** With them Keras's `fit` fails on batches that are dicts; the loop
  over `TrainStep` does not.

Weight decay and the trust ratios of LAMB depend on weights and summed gradients, so
they are the same on all replicas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.errors import ConfigError

# Seeds of replicas are this far apart. The golden ratio of the range spreads any number
# of them evenly, far from the seeds of other layers, which are close together.
_SEED_STEP, _SEED_RANGE = 1_327_217_885, 2**31 - 1
_SEED_STATE = "seed_generator_state"  # as Keras names it


def is_default(strategy: tf.distribute.Strategy) -> bool:
    """Return whether a strategy is TensorFlow's default one."""
    inside = tf.distribute.has_strategy()
    return not inside and strategy is tf.distribute.get_strategy()


def added_up(
    strategy: tf.distribute.Strategy, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Return a function's nested tensors summed over all replicas; in a graph.

    Arguments from a distributed dataset are each replica's own.
    """
    if is_default(strategy):
        return function(*arguments)

    @tf.autograph.experimental.do_not_convert
    def on_each(*arguments: Any) -> Any:
        return all_reduced(function(*arguments))

    return of_first(strategy, strategy.run(on_each, arguments))


def of_first(strategy: tf.distribute.Strategy, values: Any) -> Any:
    """Return the first replica's part of nested values on this worker."""
    return tf.nest.map_structure(
        lambda each: strategy.experimental_local_results(each)[0], values
    )


def all_reduced(found: Any) -> Any:
    """Return nested tensors summed over the replicas; in a replica's function."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return found
    # An argument that is returned unchanged is on no device yet.
    values = [tf.identity(each) for each in tf.nest.flatten(found)]
    for dtype in dict.fromkeys(each.dtype for each in values):
        # Workers exchange packed values, so one type at a time.
        places = [n for n, each in enumerate(values) if each.dtype == dtype]
        reduced = context.all_reduce("SUM", [values[n] for n in places])
        for place, value in zip(places, reduced, strict=True):
            values[place] = value
    return tf.nest.pack_sequence_as(found, values)


def gathered(values: Any) -> Any:
    """Return nested tensors [B, …] of all replicas, concatenated; `None` is unchanged.

    In a replica's function; gradients flow back to the replica that a row is from.
    """
    if values is None:
        return None
    context = tf.distribute.get_replica_context()

    def of_all(value: Any) -> Any:
        value = tf.convert_to_tensor(value)
        inner = value.shape[1:]
        if value.shape.rank > 1:
            # A replica without a row of the last batch lacks the other sizes, too.
            sizes = tf.shape(value)
            most = tf.reduce_max(context.all_gather(sizes[None], axis=0), axis=0)
            missing = tf.concat([[0], (most - sizes)[1:]], axis=0)
            value = tf.pad(value, tf.stack([tf.zeros_like(missing), missing], axis=1))
        # Losses read the width, which both ops forget.
        return tf.ensure_shape(context.all_gather(value, axis=0), [None, *inner])

    return tf.nest.map_structure(of_all, values)


def summed_function(
    strategy: tf.distribute.Strategy, function: Callable[..., Any], signature: Any
) -> Any:
    """Return the graph of `added_up`, for a signature of arguments."""
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
    """Let each replica drop different units: Keras gives all of them the same seeds.

    The first replica's seeds are unchanged, and the others' are derived from them. So a
    checkpoint holds only these, and setting them twice changes nothing.
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
            # Without aggregation a replica assigns only its own copy.
            state.assign(tf.cast(tf.where(replica == 0, base, new), state.dtype))

    tf.function(lambda: strategy.run(set_seeds), autograph=False)()


def read_here(variable: Any) -> np.ndarray:
    """Return a metric's variable, summed over the replicas of this worker alone.

    Other workers take no part: only one of them may be writing a checkpoint.
    """
    return np.sum([keras.ops.convert_to_numpy(v) for v in _here(variable)], axis=0)


def assign_here(variable: Any, value: Any) -> None:
    """Set a metric's variable to what `read_here` returned, on this worker alone."""
    first, *others = _here(variable)
    first.assign(value)
    for each in others:
        each.assign(tf.zeros_like(each))


def _here(variable: Any) -> Sequence[Any]:
    """Return the components of a Keras variable on the replicas of this worker."""
    value = variable.value
    is_shared = isinstance(value, tf.distribute.DistributedValues)
    return value.values if is_shared else [value]


def take_from_first(
    strategy: tf.distribute.Strategy, variables: Sequence[Any], number: int
) -> int:
    """Copy the first worker's variables and a number to all workers."""
    if strategy.num_replicas_in_sync == 1:
        return number

    def values() -> list[Any]:
        context = tf.distribute.get_replica_context()
        is_first = tf.equal(context.replica_id_in_sync_group, 0)
        own = [tf.convert_to_tensor(variable.value) for variable in variables]
        own.append(tf.constant(number, tf.int64))
        # GPUs cannot exchange int32.
        wide = [tf.cast(v, tf.int64) if v.dtype.is_integer else v for v in own]
        return [tf.where(is_first, each, tf.zeros_like(each)) for each in wide]

    *found, agreed = tf.function(lambda: added_up(strategy, values), autograph=False)()
    for variable, value in zip(variables, found, strict=True):
        variable.assign(tf.cast(value, variable.dtype))
    return int(agreed)


@dataclasses.dataclass(frozen=True)
class Share:
    """The replicas of one worker among all."""

    first: int = 0  # number of the worker's first replica
    count: int = 1  # of the worker's replicas
    replicas: int = 1  # on all workers

    def parts(self, *batch: Any) -> tf.data.Dataset:
        """Return the parts of a batch [B, …] for this worker's replicas.

        One element a replica, in their order: examples r, r + replicas, … of replica r.
        A batch of fewer examples than replicas leaves some of them without any.
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


def distributed(
    strategy: tf.distribute.Strategy, make: Callable[[Share], tf.data.Dataset]
) -> Any:
    """Return a dataset whose elements hold a part for each replica.

    It is iterated like any other, and has an `element_spec`, for `TrainStep`. `make`
    makes the dataset of a worker's share, see `Share.parts`.
    """
    options = tf.data.Options()
    # An iterator that ends can wait for the thread that tunes its dataset, which sleeps
    # as long as it has run, up to a minute.
    options.autotune.enabled = False
    if is_default(strategy):
        return make(ALONE).with_options(options)

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync
        count = replicas // context.num_input_pipelines
        share = Share(context.input_pipeline_id * count, count, replicas)
        return make(share).with_options(options)

    return strategy.distribute_datasets_from_function(of_worker)


# Settings that Keras applies to each replica alone, or that fail under a strategy.
_NOT_OVER_REPLICAS = (
    "clipnorm",
    "clipvalue",
    "gradient_accumulation_steps",
    "ema_overwrite_frequency",
)


def check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Raise ConfigError if an optimizer's settings are wrong on several replicas."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    for name in _NOT_OVER_REPLICAS:
        if getattr(inner, name, None):
            raise ConfigError(
                f"`{name}` of the optimizer must be None on several replicas; received "
                f"{getattr(inner, name)}: `global_clipnorm` and the accumulation of "
                "`TrainStep` work there"
            )


def summed(gradients: Sequence[Any]) -> list[Any]:
    """Sum gradients, or `None`, over the replicas; in a replica's function."""
    if tf.distribute.get_replica_context().num_replicas_in_sync == 1:
        return list(gradients)
    # Dense: replicas differ in the embedding rows that their tokens use, and rows used
    # by several replicas count once in the norm.
    found = {
        place: tf.convert_to_tensor(gradient)
        for place, gradient in enumerate(gradients)
        if gradient is not None
    }
    sums = all_reduced(found)
    return [sums.get(place) for place in range(len(gradients))]


def apply_summed(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[Any],
    variables: Sequence[Any],
    **given: Any,
) -> None:
    """Clip the gradients of all replicas and update the weights once.

    For a replica's function, in a graph; with one replica it is `optimizer.apply`. The
    optimizer's `global_clipnorm` and loss scale are applied. `gradients` are the
    result of `summed`; `given` are further arguments of `optimizer.apply`.
    """
    replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    if replicas == 1:
        optimizer.apply(gradients, variables, **given)
        return
    both = zip(gradients, variables, strict=True)
    pairs = [
        (gradient, variable) for gradient, variable in both if gradient is not None
    ]
    sums = [gradient for gradient, _ in pairs]
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner.global_clipnorm:
        longest = optimizer.scale_loss(tf.constant(inner.global_clipnorm, tf.float32))
        sums, _ = tf.clip_by_global_norm(sums, longest)
    # Keras sums them once more, which no public setting prevents.
    shares = [gradient / replicas for gradient in sums]
    optimizer.apply(shares, [variable for _, variable in pairs])


def replica_count(model: keras.Model) -> int:
    """Return the number of replicas of a model."""
    if keras.config.backend() != "tensorflow":
        return 1
    return int(model.distribute_strategy.num_replicas_in_sync)
