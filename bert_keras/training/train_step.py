"""One update of the weights from the examples of one or several batches: `TrainStep`.

A loss is a sum over the items it counts (masked tokens, pairs), divided by the count of
the whole update. So an update does not depend on how its examples are split, into
micro-batches (gradient accumulation) or among the replicas of a strategy, and gradients
are clipped after they are summed. `replicas` describes where Keras itself differs.

A loss that compares the rows of an update is no such sum. With micro-batches, the
outputs get their gradients first: all outputs are computed and compared, and then
each micro-batch is computed again, with the same dropout, to pass on the gradients of
its outputs (Gao et al. 2021, arXiv:2101.06983).

One batch that overflows would make every weight NaN. So an update is skipped, on all
replicas, if the loss or the norm of the gradients is not finite: weights, moments and
the step of the schedule stay unchanged. Loss scaling (float16) checks the gradients
itself, since overflows are common there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from bert_keras.distribution.replicas import (
    Share,
    added_up,
    all_reduced,
    apply_summed,
    check_optimizer,
    of_first,
    seed_states,
    set_replica_seeds,
    summed,
    summed_function,
)
from bert_keras.errors import ConfigError
from bert_keras.model.optimizers import BertAdamW, Lamb, rows_once
from bert_keras.models.objective import TaskObjective

Batch = tuple[dict[str, Any], dict[str, Any]]
_NO_OPTIMIZER = "disable_meta_optimizer"


class TrainStep:
    """Updates a model's weights, once per call.

    A model created in the scope of a strategy is trained on all its replicas.

    Args:
        model: a Keras model of batch dicts, on TensorFlow.
        optimizer: built; clips, if it has `global_clipnorm`, and counts updates.
        objective: the losses.
        element_spec: of the dataset of the batches; under a strategy, of the dataset
            that `replicas.distributed` returns.

    Call: batches `(inputs, labels)` of one update, which it returns.

    Raises:
        ConfigError: Keras runs on another backend, or the optimizer clips or
            accumulates in a way that is wrong on several replicas.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: TaskObjective,
        element_spec: Any,
    ) -> None:
        if keras.config.backend() != "tensorflow":
            raise ConfigError(
                "pretraining's own loop needs KERAS_BACKEND=tensorflow; received "
                f"{keras.config.backend()}: there, `fit` a BertPretrainer"
            )
        self.model = model
        self.optimizer = optimizer
        self.objective = objective
        self._strategy = model.distribute_strategy
        self._scales_loss = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        # On a CPU, TensorFlow's graph optimizer takes a second or more, and no update
        # becomes faster; those in bfloat16 take a tenth longer.
        kinds = ("GPU", "TPU")
        self._optimizes_graphs = any(map(tf.config.list_logical_devices, kinds))
        if self._strategy.num_replicas_in_sync > 1:
            check_optimizer(optimizer)
            set_replica_seeds(model, self._strategy)
        self._count = summed_function(
            self._strategy,
            lambda inputs, labels: (objective.counts(labels), token_counts(inputs)),
            element_spec,
        )
        shapes, _ = self._count.get_concrete_function().structured_outputs
        totals = {name: tf.TensorSpec([], tf.float32) for name in shapes}
        self._gradient_sums: list[tf.Variable] = []
        signature = [*element_spec, totals]
        sums = {name: tf.TensorSpec([None], tf.float32) for name in shapes}
        graph = functools.partial(tf.function, autograph=False)
        self._update = graph(self._update_from_one, input_signature=signature)
        self._add = graph(self._add_gradients, input_signature=signature)
        self._apply = graph(self._apply_sums, input_signature=[sums])
        self._outputs = graph(self._outputs_of, input_signature=[element_spec[0]])
        self._compare = graph(self._compared, reduce_retracing=True)
        self._pass_on = graph(self._add_from_outputs, reduce_retracing=True)

    def __call__(self, batches: Sequence[Batch]) -> Update:
        with _graphs_optimized(self._optimizes_graphs):
            counts, tokens = zip(*(self._count(*each) for each in batches), strict=True)
            totals = {name: sum(each[name] for each in counts) for name in counts[0]}
            sums, is_made = self._make(batches, totals)
        return Update(
            sums,
            totals,
            is_made,
            tf.add_n(tokens),
            batches,
            loss_weights=self.objective.loss_weights,
        )

    def _make(
        self, batches: Sequence[Batch], totals: dict[str, Any]
    ) -> tuple[dict[str, Any], Any]:
        """Return the sums of an update, and whether it was made."""
        if len(batches) == 1:
            return self._update(*batches[0], totals)
        if not self._gradient_sums:
            # Without aggregation each replica has its own sums.
            with self._strategy.scope():
                self._gradient_sums = [
                    tf.Variable(tf.zeros(weight.shape, tf.float32), trainable=False)
                    for weight in self.model.trainable_variables
                ]
        if self.objective.compares:
            found = self._sums_by_comparing(batches, totals)
            return found, self._apply(found)
        found = {}
        for batch in batches:
            for name, sums in self._add(*batch, totals).items():
                found[name] = found.get(name, 0.0) + sums
        return found, self._apply(found)

    def _gradients(
        self, inputs: dict[str, Any], labels: dict[str, Any], totals: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        gradients, sums, _ = self.objective.gradients(
            self.optimizer, inputs, labels, totals
        )
        return gradients, {name: tf.stack(pair) for name, pair in sums.items()}

    def _update_from_one(self, inputs: Any, labels: Any, totals: Any) -> Any:
        def find(inputs: Any, labels: Any) -> Any:
            gradients, sums = self._gradients(inputs, labels, totals)
            return summed(gradients), all_reduced(sums)

        gradients, sums = self._strategy.run(find, (inputs, labels))
        sums = of_first(self._strategy, sums)
        return sums, self._applied(gradients, sums)

    def _add_gradients(self, inputs: Any, labels: Any, totals: Any) -> Any:
        def add(inputs: Any, labels: Any) -> Any:
            gradients, sums = self._gradients(inputs, labels, totals)
            self._add_to_sums(gradients)
            return sums

        return added_up(self._strategy, add, inputs, labels)

    def _add_to_sums(self, gradients: Sequence[Any]) -> None:
        for total, gradient in zip(self._gradient_sums, gradients, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                total.scatter_add(gradient)
            else:
                total.assign_add(tf.cast(gradient, tf.float32))

    def _sums_by_comparing(self, batches: Sequence[Batch], totals: Any) -> dict:
        """Return the sums of an update whose rows are compared; add its gradients."""
        if self.model.losses:
            raise ConfigError(
                "`accumulation` must be 1 for a loss that compares rows of a batch, "
                f"if layers add losses; received {len(batches)} parts"
            )
        states = seed_states(self.model)
        before = [tf.identity(state.value) for state in states]
        outputs = [self._outputs(inputs) for inputs, _ in batches]
        for state, value in zip(states, before, strict=True):
            state.assign(value)
        labels = [each for _, each in batches]
        gradients, sums = self._compare(outputs, labels, totals)
        for (inputs, _), gradient in zip(batches, gradients, strict=True):
            self._pass_on(inputs, gradient)
        return dict(sums)

    def _outputs_of(self, inputs: Any) -> Any:
        return self._strategy.run(
            lambda given: self.model(given, training=True), [inputs]
        )

    def _compared(self, outputs: Any, labels: Any, totals: Any) -> tuple[Any, Any]:
        """Return the gradients of each batch's outputs, and the sums of all batches."""

        def compare(outputs: Any, labels: Any) -> tuple[Any, Any]:
            known = tf.nest.map_structure(lambda *each: tf.concat(each, 0), *labels)
            with tf.GradientTape() as tape:
                tape.watch(outputs)
                joined = tf.nest.map_structure(_concatenated, *outputs)
                sums = self.objective.sums(joined, known)
                loss = self.objective.loss(sums, totals)
                scaled = self.optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, outputs)
            each = [tf.nest.flatten(part) for part in gradients]
            return each, {name: tf.stack(pair) for name, pair in sums.items()}

        return self._strategy.run(compare, (outputs, labels))

    def _add_from_outputs(self, inputs: Any, gradients: Any) -> None:
        """Add the gradients of the weights, from the gradients of a batch's outputs."""

        def add(inputs: Any, gradients: Any) -> None:
            with tf.GradientTape() as tape:
                outputs = tf.nest.flatten(self.model(inputs, training=True))
            weights = [weight.value for weight in self.model.trainable_variables]
            self._add_to_sums(tape.gradient(outputs, weights, gradients))

        self._strategy.run(add, (inputs, gradients))

    def _apply_sums(self, sums: Any) -> Any:
        def find() -> Any:
            gradients = summed([total.read_value() for total in self._gradient_sums])
            for total in self._gradient_sums:
                total.assign(tf.zeros_like(total))
            return gradients

        return self._applied(self._strategy.run(find), sums)

    def _applied(self, gradients: Any, sums: dict[str, Any]) -> Any:
        """Update the weights if all is finite; return whether it is, bool [].

        The gradients are equal on all replicas; the sums are over all of them.
        """
        finite = tf.math.is_finite(tf.add_n([pair[0] for pair in sums.values()]))
        known = {}
        if not self._scales_loss:
            # Clipping turns gradients into NaN if their norm overflows float32.
            gradients, norms = self._strategy.run(_with_norm, (gradients,))
            norm = of_first(self._strategy, norms)
            finite &= tf.math.is_finite(norm)
            if isinstance(self.optimizer, BertAdamW | Lamb):
                known = {"norm": norm}  # which they clip by

        def apply(gradients: Any) -> None:
            variables = self.model.trainable_variables
            apply_summed(self.optimizer, gradients, variables, **known)

        def update() -> Any:
            self._strategy.run(apply, (gradients,))
            return tf.constant(True)

        # Outside the replica function: an optimizer leaves it, which `cond` forbids.
        return tf.cond(finite, update, lambda: tf.constant(False))


def _concatenated(*outputs: Any) -> Any:
    """Return outputs of several batches, [B, …], as one, padded with 0 to the widest.

    The vectors of tokens are as many as the longest text of a batch has.
    """
    shapes = [tf.shape(each) for each in outputs]
    sizes = tf.reduce_max(shapes, axis=0)
    padded = []
    for each, shape in zip(outputs, shapes, strict=True):
        missing = tf.concat([[0], (sizes - shape)[1:]], axis=0)
        found = tf.pad(each, tf.stack([tf.zeros_like(missing), missing], axis=1))
        # `tf.pad` forgets the width, which losses read.
        width = [None] * (each.shape.rank - 1) + [each.shape[-1]]
        padded.append(tf.ensure_shape(found, width))
    return tf.concat(padded, axis=0)


@contextlib.contextmanager
def _graphs_optimized(is_on: bool) -> Iterator[None]:
    """Call functions in a block with or without TensorFlow's graph optimizer."""
    options = tf.config.optimizer
    before = options.get_experimental_options().get(_NO_OPTIMIZER, False)
    options.set_experimental_options({_NO_OPTIMIZER: before or not is_on})
    try:
        yield
    finally:
        options.set_experimental_options({_NO_OPTIMIZER: before})


@tf.autograph.experimental.do_not_convert
def _with_norm(gradients: Any) -> tuple[list[Any], Any]:
    """Return gradients, each row of an embedding table once, and their norm."""
    found = [rows_once(each) for each in gradients]
    return found, tf.linalg.global_norm([each for each in found if each is not None])


@dataclasses.dataclass(frozen=True)
class Update:
    """An update as tensors over all replicas; reading one waits for the device."""

    sums: dict[str, Any]  # `TaskObjective.sums` of each loss by name, float32 [1 + N]
    totals: dict[str, Any]  # `TaskObjective.counts`
    is_made: Any  # bool []: loss and gradients are finite; otherwise it was skipped
    tokens: Any  # `token_counts`
    batches: Sequence[Batch]
    waited: float = 0.0  # seconds, for the batches
    loss_weights: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def loss(self) -> float:
        """The weighted sum of the mean losses."""
        return sum(
            self.loss_weights.get(name, 1.0)
            * float(pair[0])
            / max(float(self.totals[name]), 1.0)
            for name, pair in self.sums.items()
        )

    @property
    def real_tokens(self) -> int:
        """Tokens of its batches."""
        return int(self.tokens.numpy()[0])

    def wait(self) -> None:
        """Return when the device has made it."""
        for value in self.sums.values():
            value.numpy()


@dataclasses.dataclass(frozen=True)
class Batches:
    """The batches of consecutive updates, all of the same form.

    Args:
        make: returns the dataset of a share of the replicas.
        parts: the number of batches of each update.
        read: iterates over the dataset.
    """

    make: Callable[[Share], tf.data.Dataset]
    parts: Iterable[int]
    read: Callable[[Any], Iterable[Batch]] = iter


class BatchSource(Protocol):
    """Where the batches of a run come from.

    Attributes:
        steps: number of updates of the whole run.
    """

    steps: int

    def batches(self, first_step: int) -> Iterable[Batches]:
        """Return the batches of the updates from a step on."""

    def place(self, step: int) -> Any:
        """Return the position of an update, by its number from 1.

        `str` describes it in one line. Its `facts()` are JSON values that need no file
        access, its `rows()` names the rows or records.
        """


def token_counts(inputs: dict[str, Any]) -> Any:
    """Return a batch's real tokens, positions and squared text lengths, float32 [3]."""
    found = []
    for name in inputs:
        if not name.endswith("padding_mask"):  # one each for encoder and decoder
            continue
        mask = tf.cast(inputs[name], tf.float32)
        places = inputs.get(name.replace("padding_mask", "position_ids"))
        if places is None:
            places = tf.cumsum(tf.ones_like(mask), axis=1) - 1
        # The sum of 2 i + 1 over the positions i of a text is its squared length.
        squared = mask * (2 * tf.cast(places, tf.float32) + 1)
        size = tf.cast(tf.size(mask), tf.float32)
        found.append(tf.stack([tf.reduce_sum(mask), size, tf.reduce_sum(squared)]))
    return tf.add_n(found)
