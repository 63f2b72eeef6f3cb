"""The loss of a student on the outputs of its teacher: `SoftTargetLoss`.

Sources: Hinton et al. 2015 (arXiv:1503.02531), section 2, for the temperature and its
square as a factor; Sanh et al. 2019 (arXiv:1910.01108).
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_keras")
class SoftTargetLoss(keras.losses.Loss):
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

    def get_config(self) -> dict[str, Any]:
        own = {"activation": self.activation, "temperature": self.temperature}
        return {**super().get_config(), **own}


def _log_sigmoid(x: Any) -> Any:
    return -ops.softplus(-x)
