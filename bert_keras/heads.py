"""What stands on the encoder for a task: `PooledHead`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.2.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_keras")
class PooledHead(keras.layers.Dense):
    """Dropout, then one linear layer on the pooled output: W C + b.

    Args:
        units: number of outputs C.
        dropout_rate: rate of the dropout on the pooled output.
        initializer_range: standard deviation of the normal initializer, which is that
            of transformers. Google's code cuts it off at two deviations, so that 0.88
            of them are left, with which a new task begins to learn more slowly.
        seed: seed of initializer and dropout.
        **kwargs: of `keras.layers.Dense`.

    Call: pooled output [B, H]. Returns logits, float32 [B, C].

    Example:
        >>> PooledHead(4)(np.ones((2, 8), "float32")).shape
        (2, 4)
    """

    def __init__(
        self,
        units: int,
        *,
        dropout_rate: float = 0.1,
        initializer_range: float = 0.02,
        seed: int | None = None,
        name: str = "classifier",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault(
            "kernel_initializer",
            keras.initializers.RandomNormal(stddev=initializer_range, seed=seed),
        )
        super().__init__(units, name=name, **kwargs)
        self.dropout_rate = dropout_rate
        self.initializer_range = initializer_range
        self.seed = seed
        self.dropout = keras.layers.Dropout(
            dropout_rate, seed=seed, dtype=self.dtype_policy
        )

    @classmethod
    def on(
        cls, encoder: Any, units: int, *, seed: int | None, **settings: Any
    ) -> PooledHead:
        """Return a head with dropout, initializer and dtype of an encoder.

        Args:
            encoder: a `BertEncoder`.
            units, seed: of the head.
            **settings: other arguments of the head, in place of the encoder's.
        """
        config = encoder.config
        given = {
            "dropout_rate": config.hidden_dropout_prob,
            "initializer_range": config.initializer_range,
            "dtype": encoder.dtype_policy,
        }
        return cls(units, seed=seed, **{**given, **settings})

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        logits = super().call(self.dropout(inputs, training=training))
        return ops.cast(logits, "float32")

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        shape = (*inputs.shape[:-1], self.units)
        return keras.KerasTensor(shape, dtype="float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout_rate": self.dropout_rate,
            "initializer_range": self.initializer_range,
            "seed": self.seed,
        }
