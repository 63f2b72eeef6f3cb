"""What a model is trained for: an `Objective`, and its sums, `TaskObjective`.

A loss is a sum over the items that it counts, divided by their number in the whole
update, so that it does not depend on how the examples are split. The losses are
Keras's, as `compile` takes them. Fine-tuning, pretraining, held-out data and `fit` on
several replicas compute them here; `fit` on one device leaves the same losses to Keras.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from bert_keras.distribution.replicas import gathered
from bert_keras.errors import ConfigError, received

SOFT, STATES = "distillation", "states"  # names of losses on what a teacher computes
SOFT_WEIGHTS = "soft_weights"  # of a batch's rows in the loss on a teacher's outputs
_SCALE = 2.0**20  # the sum of weights may be below 1; such counts become 1


class LossSum:
    """A loss of Keras as a sum over a batch, with the number of items in its mean.

    If the `call` of a custom loss returns one number, a mean over something other than
    the examples, a method `counted(y_true)` returns their count, float32 []. It is
    needed if a batch comes in parts; replicas without it gather their rows.

    Args:
        loss: the loss.
        rank: axes of the targets that the loss does not reduce.
        compares: whether it compares the rows of a batch.
    """

    def __init__(
        self, loss: keras.losses.Loss, *, rank: int = 1, compares: bool = False
    ) -> None:
        self.loss = loss
        self._rank = max(rank, 1)
        self._compares = compares
        self._counted = getattr(loss, "counted", None)
        self._is_sum = self._counted is None and _is_sum(loss)  # not divided

    def count(self, targets: Any, weights: Any = None) -> Any:
        """Return the number of items in the mean of a batch's loss, float32 []."""
        if self._counted is not None:
            return tf.cast(self._counted(targets), tf.float32)
        if self._is_sum:
            return tf.zeros([])
        first = tf.convert_to_tensor(tf.nest.flatten(targets)[0])
        values = tf.ones(tf.shape(first)[: min(self._rank, first.shape.rank)])
        ignored = getattr(self.loss, "ignore_class", None)
        if ignored is not None:
            mask = tf.reshape(targets, tf.shape(values)) != ignored
            values = tf.cast(mask, tf.float32)
        if weights is not None and self.loss.reduction == "mean_with_sample_weight":
            weights = tf.cast(weights, tf.float32)
            if ignored is not None:
                weights = tf.reshape(weights, tf.shape(values)) * values
            return _SCALE * tf.reduce_sum(weights)
        return tf.reduce_sum(values)

    def sum(
        self, targets: Any, outputs: Any, weights: Any = None, *, added: Any = ()
    ) -> Any:
        """Return the loss, plus what layers `added`, times its count, float32 [].

        In a replica function it is the sum of its rows; if the loss compares rows, the
        replica's share of the loss over all replicas' rows.
        """
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        share = 1.0
        if replicas > 1 and self._is_of_whole_batch(targets, outputs, weights):
            targets, outputs = gathered(targets), gathered(outputs)
            weights, share = gathered(weights), 1 / replicas
        loss = _divided(self.loss, replicas)
        more = tf.add_n([tf.zeros([]), *added])

        def mean() -> Any:
            return replicas * tf.reduce_sum(loss(targets, outputs, weights))

        if self._is_sum:
            return share * mean() + more / replicas
        count = self.count(targets, weights)
        # A replica without rows counts nothing, since the mean of no values may be NaN.
        found = tf.cond(count > 0, lambda: mean() + more, lambda: tf.zeros([]))
        return share * found * tf.maximum(count, 1.0)

    def _is_of_whole_batch(self, targets: Any, outputs: Any, weights: Any) -> bool:
        """Return whether the losses of parts of a batch do not add up to its own."""
        if self._compares or self._counted is not None or self._is_sum:
            return self._compares
        plain = _copied(self.loss)
        plain.reduction = None
        return plain(targets, outputs, weights).shape.rank == 0


class Teaching(Protocol):
    """What a student learns from a teacher, such as a `Distillation`.

    `weight` is the share of its losses; the losses on the labels have the rest.
    """

    weight: float

    def recording(self, student: Any) -> contextlib.AbstractContextManager[None]: ...

    def sums(self, outputs: Any, labels: dict[str, Any]) -> dict[str, Any]: ...

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """What a model is trained for: a loss of its outputs.

    Args:
        loss: of Keras; or several, by the name of their output.
        compares: whether it compares the rows of a batch, so that the losses of its
            parts do not add up to its own.
        weights: factors of several losses in their sum, as `compile` takes them.
        correct: counts the correct answers of one of several losses, in graph, from
            its name, labels and outputs: one number or several, float32 [] each.
    """

    loss: Any
    compares: bool = False
    weights: Any = None
    correct: Callable[[str, Any, Any], Sequence[Any]] | None = None

    @classmethod
    def of(cls, model: keras.Model) -> Objective:
        """Return the objective of a model's task, or of its `compile`.

        Raises:
            ConfigError: the model is compiled without a loss, or with a list of
                several.
        """
        task: Any = model.task
        compiled = bool(getattr(model, "compiled", False))
        return cls(
            _compiled_loss(model) if compiled else task.loss(),
            compares=getattr(task, "compares", False),
            weights=getattr(model if compiled else task, "loss_weights", None),
            correct=getattr(task, "correct", None),
        )


class TaskObjective:
    """The losses of a model's `Objective` as sums, and training metrics.

    There is one loss, named `loss`, or several by the name of their output. A batch's
    labels are a dict: for one loss `targets`, as the loss takes them; for several, the
    targets of each by its name; and optionally `weights`. A student's losses are
    weighted, with the loss on the outputs of its teacher as a further one; its labels
    also hold what `Distillation.labels` returns.

    The losses that the model's layers add are included in the first one. `metrics`,
    created in the scope of the model's strategy, are updated with each batch; the
    caller reads and resets them.

    Args:
        model: whose outputs the losses take.
        objective: by default `Objective.of` the model, with its errors.
        metrics: of the outputs.
        distillation: what a teacher teaches.

    Attributes:
        losses: each as a sum, by name.
        loss_weights: factors of losses in their sum, by name.
        compares: as in `Objective`.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Objective | None = None,
        *,
        metrics: Sequence[keras.metrics.Metric] = (),
        distillation: Teaching | None = None,
    ) -> None:
        self.model = model
        self.distillation = distillation
        self.metrics = metrics
        objective = objective or Objective.of(model)
        self.compares, self._correct = objective.compares, objective.correct
        losses = objective.loss
        self._has_names = isinstance(losses, dict)
        self.losses: dict[str, LossSum] = {}
        for name, loss in (losses if self._has_names else {"loss": losses}).items():
            output = self._of(name, model.output)
            # Losses remove the last axis of an output; the others are the targets'.
            is_one = keras.utils.is_keras_tensor(output)
            rank = len(output.shape) - 1 if is_one else 1
            found = keras.losses.get(loss)
            found = found if isinstance(found, keras.losses.Loss) else _Mean(found)
            self.losses[name] = LossSum(found, rank=rank, compares=self.compares)
        factors = keras.tree.flatten(objective.weights or [])
        self.loss_weights: dict[str, float] = {}
        if factors:
            self.loss_weights = keras.tree.pack_sequence_as(self.losses, factors)

    def labels(self, targets: Any, weights: Any = None) -> dict[str, Any]:
        """Return the labels of a batch from what Keras's `fit` reads."""
        found = dict(targets) if self._has_names else {"targets": targets}
        return found if weights is None else {**found, "weights": weights}

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return the number of items in the mean of each loss, float32 []."""
        targets, weights = self._split(labels)
        found = {
            name: loss.count(self._of(name, targets), _part(name, weights))
            for name, loss in self.losses.items()
        }
        if self.distillation is not None:
            found |= self.distillation.counts(labels)
        return found

    def sums(self, outputs: Any, labels: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
        """Return sums of each loss and its correct answers over a batch, float32 [].

        Only several losses count these, by `Objective.correct`; one has metrics.
        """
        targets, weights = self._split(labels)
        for metric in self.metrics:
            plain = tf.nest.map_structure(tf.stop_gradient, outputs)
            # Rows without labels, see `Distillation.labels`, do not count.
            given = {"sample_weight": weights} if SOFT_WEIGHTS in labels else {}
            metric.update_state(targets, plain, **given)
        added, found = self.model.losses, {}
        for name, loss in self.losses.items():
            wanted, output = self._of(name, targets), self._of(name, outputs)
            total = loss.sum(wanted, output, _part(name, weights), added=added)
            added = ()
            correct: list[Any] = [tf.zeros([])]
            if self._has_names and self._correct is not None:
                correct = list(self._correct(name, wanted, output))
            found[name] = total, *correct
        if self.distillation is not None:
            weight = self.distillation.weight
            found = {k: ((1 - weight) * total, *n) for k, (total, *n) in found.items()}
            taught = self.distillation.sums(outputs, labels)
            found |= {k: (weight * total, tf.zeros([])) for k, total in taught.items()}
        return found

    def loss(self, sums: dict[str, Any], totals: dict[str, Any]) -> Any:
        """Return the share of `sums` in the loss of an update, float32 [].

        `totals` are the `counts` of the whole update.
        """
        parts = []
        for name, (total, *_) in sums.items():
            mean = total / tf.maximum(totals[name], 1.0)
            factor = self.loss_weights.get(name)
            parts.append(mean if factor is None else factor * mean)
        return tf.add_n(parts)

    def gradients(
        self,
        optimizer: keras.optimizers.Optimizer,
        inputs: Any,
        labels: dict[str, Any],
        totals: dict[str, Any],
    ) -> tuple[list[Any], dict[str, Any], Any]:
        """Return the gradients of a batch's `loss`, its `sums` and outputs; in a graph.

        The optimizer scales the gradients. `summed` and `apply_summed` complete the
        update.
        """
        with self.recording():
            with tf.GradientTape() as tape:
                outputs = self.model(inputs, training=True)
                sums = self.sums(outputs, labels)
                scaled = optimizer.scale_loss(self.loss(sums, totals))
            weights = [weight.value for weight in self.model.trainable_variables]
            return tape.gradient(scaled, weights), sums, outputs

    def recording(self) -> contextlib.AbstractContextManager[None]:
        """Keep what `sums` reads of the model's call in this block, besides outputs."""
        if self.distillation is None:
            return contextlib.nullcontext()
        return self.distillation.recording(self.model)

    def _split(self, labels: dict[str, Any]) -> tuple[Any, Any]:
        """Return the targets and the weights of labels."""
        targets = labels if self._has_names else labels["targets"]
        return targets, labels.get("weights")

    def _of(self, name: str, values: Any) -> Any:
        """Return the part of a loss in the targets or outputs of all."""
        return values[name] if self._has_names else values


def _part(name: str, weights: Any) -> Any:
    """Return the weights of an output: its own, or the same ones for all."""
    return weights.get(name) if isinstance(weights, dict) else weights


def _compiled_loss(model: keras.Model) -> Any:
    """Return the loss of `compile`, or the losses by the name of their output.

    Raises:
        ConfigError: there is none, or a list of several.
    """
    loss = model.loss
    if isinstance(loss, dict) and isinstance(model.output, dict):
        return {name: each for name, each in loss.items() if each is not None}
    if isinstance(loss, list | tuple | dict) and len(loss) == 1:
        (loss,) = keras.tree.flatten(loss)
    if loss is None or isinstance(loss, list | tuple | dict):
        raise ConfigError(
            "`loss` of `compile` must be a loss or a dict of them by output; "
            f"{received(loss)}"
        )
    return loss


class _Mean(keras.losses.Loss):
    """The mean of a function's values as a loss of Keras."""

    def __init__(self, function: Any) -> None:
        super().__init__(name="mean")
        self.call = function


def _is_sum(loss: keras.losses.Loss) -> bool:
    """Return whether a loss is a sum over a batch, which Keras does not divide."""
    return loss.reduction in ("sum", "none", None)


def _copied(loss: keras.losses.Loss) -> Any:
    """Return a shallow copy: `copy.copy` serializes, so needs a registered class."""
    found = object.__new__(type(loss))
    vars(found).update(vars(loss))
    return found


def _divided(loss: keras.losses.Loss, replicas: int) -> Any:
    """Return a loss that is one replica's even share of a batch's loss.

    Keras divides means that it takes itself by the number of replicas, but not sums or
    losses that return one number: these would count once per replica.
    """
    if replicas == 1:
        return loss
    whole = loss.call

    @functools.wraps(whole)
    def share(y_true: Any, y_pred: Any) -> Any:
        values = whole(y_true, y_pred)
        is_whole = _is_sum(loss) or not len(values.shape)
        return values / replicas if is_whole else values

    found = _copied(loss)
    found.call = share
    return found
