"""The loss of a regression: `ScaledSquaredError`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.1 (STS-B).
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_keras")
class ScaledSquaredError(keras.losses.Loss):
    """Mean of ((target - mean) / std - output)^2, in float32; targets [B], outputs [B,
    1].
    """

    def __init__(self, mean: float = 0.0, std: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**{"name": "scaled_squared_error", **kwargs})
        self.mean = mean
        self.std = std

    def call(self, y_true: Any, y_pred: Any) -> Any:
        scaled = (ops.cast(y_true, "float32") - self.mean) / self.std
        return ops.square(ops.reshape(scaled, [-1]) - ops.reshape(y_pred, [-1]))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mean": self.mean, "std": self.std}
