"""The losses of a student on what its teacher computes: outputs, states, relations.

Sources: Hinton et al. 2015 (arXiv:1503.02531), section 2, for the temperature and its
square as a factor; Sanh et al. 2019 (arXiv:1910.01108); Jiao et al. 2020
(arXiv:1909.10351) for hidden states; Wang et al. 2020 (arXiv:2012.15828) for relations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_keras.model.layers import Configured
from bert_keras.model.pooling import unit_vectors

_RELATION_HEADS = 12  # at most, as in BERT-base; they divide both hidden sizes
_RIDGE = 1e-3  # share of the mean square of a state, added to solve for a projection


class SoftLoss(keras.losses.Loss):
    """A loss of a student's outputs, with its teacher's in place of labels.

    A loss of labels says which one takes its place by a method `softened(temperature)`,
    see `softened`.

    Attributes:
        compares: whether it compares the rows of a batch.
        has_temperature: whether the temperature has an effect.
    """

    compares = False
    has_temperature: bool = True

    def targets(self, teacher: Any, labels: Any) -> Any:
        """Return `y_true` from the teacher's outputs of a batch.

        `labels` are the targets of the loss whose place it takes.
        """
        return teacher


# What the outputs are that Keras's losses take.
_OUTPUTS: dict[type[keras.losses.Loss], str] = {
    keras.losses.SparseCategoricalCrossentropy: "softmax",
    keras.losses.CategoricalCrossentropy: "softmax",
    keras.losses.BinaryCrossentropy: "sigmoid",
    keras.losses.MeanSquaredError: "linear",
}


def softened(loss: Any, temperature: float) -> SoftLoss | None:
    """Return the loss of a teacher's outputs that takes the place of a loss of labels.

    `None` if none is known, since the outputs are no logits or numbers.
    """
    if hasattr(loss, "softened"):
        return loss.softened(temperature)
    if not getattr(loss, "from_logits", True):
        return None
    kinds = (name for kind, name in _OUTPUTS.items() if isinstance(loss, kind))
    activation = next(kinds, None)
    if activation is None:
        return None
    if activation == "linear":
        return SoftTargetLoss(activation)
    is_masked = getattr(loss, "ignore_class", None) is not None
    reduction = "mean_with_sample_weight" if is_masked else loss.reduction
    return SoftTargetLoss(activation, temperature, reduction=reduction)


@keras.saving.register_keras_serializable(package="bert_keras")
class SoftTargetLoss(Configured, SoftLoss):
    """Kullback-Leibler divergence of a student's answers from its teacher's.

    With `softmax`, the last axis are classes that exclude each other: the outputs of
    both are divided by the temperature, and the divergence of their distributions is
    multiplied by the square of the temperature, so that its gradients stay as large.
    With `sigmoid` each output is a yes or no of its own, with the mean over them. With
    `linear` the outputs are numbers: the loss is the mean of their squared differences.

    Args:
        activation: `softmax`, `sigmoid` or `linear`.
        temperature: above 0; `linear` has none.

    Call: the teacher's and the student's outputs, float32 [..., C]. Returns float32
    [...] before the reduction.

    Example:
        >>> loss = SoftTargetLoss(temperature=1.0)
        >>> teacher, student = np.log([[0.75, 0.25]]), np.zeros((1, 2))
        >>> round(float(loss(teacher, student)), 4)  # 0.75 ln 1.5 + 0.25 ln 0.5
        0.1308
    """

    def __init__(
        self, activation: str = "softmax", temperature: float = 2.0, **kwargs: Any
    ) -> None:
        super().__init__(**{"name": "soft_targets", **kwargs})
        self.activation = activation
        self.temperature = temperature

    @property
    def has_temperature(self) -> bool:  # type: ignore[override]
        return self.activation != "linear"

    def call(self, y_true: Any, y_pred: Any) -> Any:
        teacher, student = (ops.cast(each, "float32") for each in (y_true, y_pred))
        if self.activation == "linear":
            return ops.mean(ops.square(teacher - student), axis=-1)
        teacher, student = teacher / self.temperature, student / self.temperature
        if self.activation == "softmax":
            p, q = ops.log_softmax(teacher), ops.log_softmax(student)
            found = ops.sum(ops.exp(p) * (p - q), axis=-1)
        else:
            found = ops.mean(
                ops.sigmoid(teacher) * (_log_sigmoid(teacher) - _log_sigmoid(student))
                + ops.sigmoid(-teacher)
                * (_log_sigmoid(-teacher) - _log_sigmoid(-student)),
                axis=-1,
            )
        return self.temperature**2 * found


@keras.saving.register_keras_serializable(package="bert_keras")
class DirectionLoss(SoftLoss):
    """Squared distance of a student's vectors from its teacher's, both of length 1.

    That is, twice the difference of their cosine from 1.
    Source: arXiv:2509.12539, section 3.

    Call: the teacher's and the student's vectors, [B, D]. Returns float32 [B] before
    the reduction.

    Example:
        >>> float(DirectionLoss()(np.array([[3.0, 0.0]]), np.array([[0.0, 2.0]])))
        2.0
    """

    has_temperature = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"name": "direction", **kwargs})

    def softened(self, temperature: float) -> SoftLoss:
        return self

    def call(self, y_true: Any, y_pred: Any) -> Any:
        teacher, student = (
            unit_vectors(ops.cast(each, "float32")) for each in (y_true, y_pred)
        )
        return ops.sum(ops.square(teacher - student), axis=-1)


def hidden_state_errors(
    teacher: Sequence[Any], student: Sequence[Any], mask: Any
) -> Any:
    """Return the mean squared errors of a student's hidden states, float32 [B, T].

    Each state of the student is compared with the state of the teacher below the same
    share of its blocks. Between different widths, the student's states are first mapped
    by the least-squares matrix of the batch; Jiao et al. learn
    one matrix for all batches instead.

    Args:
        teacher, student: the inputs of all L blocks, float [B, T, H]; each model has
            its own L and H.
        mask: 1 for the tokens that count, [B, T].
    """
    total: Any = 0.0
    for layer, state in enumerate(student):
        wanted = teacher[layer * len(teacher) // len(student)]
        wanted, state = ops.cast(wanted, "float32"), ops.cast(state, "float32")
        if wanted.shape[-1] != state.shape[-1]:
            state = _projected(state, wanted, mask)
        total = total + ops.mean(ops.square(wanted - state), axis=-1)
    return total / len(student) * ops.cast(mask, "float32")


def _projected(state: Any, wanted: Any, mask: Any) -> Any:
    """Return states [B, T, H] mapped to [B, T, W] with the least squared error."""
    real = ops.cast(mask, "float32")[..., None]
    width = state.shape[-1]
    # A constant matrix: at its minimum, its own changes do not change the error.
    x = ops.reshape(ops.stop_gradient(state) * real, (-1, width))
    y = ops.reshape(ops.stop_gradient(wanted) * real, (-1, wanted.shape[-1]))
    squares = ops.matmul(ops.transpose(x), x)
    ridge = _RIDGE * (ops.trace(squares) / width + 1e-6) * ops.eye(width)
    found = ops.solve(squares + ridge, ops.matmul(ops.transpose(x), y))
    return ops.matmul(state, found)


def relation_divergences(
    teacher: Sequence[Any], student: Sequence[Any], bias: Any, mask: Any
) -> Any:
    """Return the divergences of a student's relations of tokens, float32 [B, T].

    The relations are the softmax of the scaled dot products of queries with queries, of
    keys with keys, and of values with values, of one block of each model. All are split
    into the same number of heads, whatever the widths. The mean is over heads and the
    three kinds.

    Args:
        teacher, student: queries, keys and values, float [B, T, H] each.
        bias: 0 where a token may attend, else a large negative number; float32
            [B, 1, 1 or T, T].
        mask: 1 for the tokens that count, [B, T].
    """
    heads = math.gcd(teacher[0].shape[-1], student[0].shape[-1], _RELATION_HEADS)
    total: Any = 0.0
    for one, other in zip(teacher, student, strict=True):
        p, q = (ops.log_softmax(_products(x, heads) + bias) for x in (one, other))
        divergence = ops.sum(ops.exp(p) * (p - q), axis=-1)  # [B, heads, T]
        total = total + ops.mean(divergence, axis=1)
    return total / len(teacher) * ops.cast(mask, "float32")


def _products(x: Any, heads: int) -> Any:
    """Return the scaled dot products of tokens, float32 [B, heads, T, T]."""
    rows, length, width = ops.shape(x)[0], ops.shape(x)[1], x.shape[-1] // heads
    x = ops.reshape(ops.cast(x, "float32"), (rows, length, heads, width))
    x = ops.transpose(x, (0, 2, 1, 3))
    return ops.matmul(x, ops.transpose(x, (0, 1, 3, 2))) / math.sqrt(width)


def _log_sigmoid(x: Any) -> Any:
    return -ops.softplus(-x)
