"""The loss of a regression: `ScaledSquaredError`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.1 (STS-B).
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from bert_keras.model.distillation import SoftLoss, SoftTargetLoss
from bert_keras.model.layers import Configured


@keras.saving.register_keras_serializable(package="bert_keras")
class ScaledSquaredError(Configured, keras.losses.Loss):
    """Mean of ((target - mean) / std - output)^2, in float32; targets [B], outputs [B,
    1].
    """

    def __init__(self, mean: float = 0.0, std: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**{"name": "scaled_squared_error", **kwargs})
        self.mean = mean
        self.std = std

    def softened(self, temperature: float) -> SoftLoss:
        """Return the loss of a teacher's outputs, see `distillation.softened`."""
        return SoftTargetLoss("linear")

    def lowest_constant(self, targets: np.ndarray, shares: np.ndarray) -> float:
        """Return the loss of the best output that is the same for all rows.

        `targets` are [N], and `shares` of the rows in the mean, float64 [N].
        """
        numbers = targets.astype("float64").reshape(-1)
        return float(shares @ (numbers - shares @ numbers) ** 2) / self.std**2

    def call(self, y_true: Any, y_pred: Any) -> Any:
        scaled = (ops.cast(y_true, "float32") - self.mean) / self.std
        return ops.square(ops.reshape(scaled, [-1]) - ops.reshape(y_pred, [-1]))
