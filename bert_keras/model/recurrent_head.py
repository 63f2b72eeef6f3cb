"""`RecurrentHead`: a small BiLSTM on hidden layers of the encoder.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3 and table 7.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_keras.errors import ConfigError
from bert_keras.model.lstm import Lstm

# The choices of table 7, and how many blocks each needs.
FEATURES = {
    "embeddings": 0,
    "second_to_last": 1,
    "last": 1,
    "weighted_sum_last_four": 4,
    "concat_last_four": 4,
    "weighted_sum_all": 1,
}


@keras.saving.register_keras_serializable(package="bert_keras")
class RecurrentHead(keras.layers.Layer):
    """Hidden layers, a BiLSTM of two layers, dropout, one linear layer a token.

    Weighted sums have learned weights that sum to 1, and a learned scale (Peters et al.
    2018, arXiv:1802.05365, equation 1); `weighted_sum_all` sums the blocks and leaves
    the embeddings out.

    Args:
        classes: number of outputs C.
        features: a choice of `FEATURES`.
        units: width of each direction of each LSTM.
        dropout_rate: rate of the dropout on the features and before the linear layer.
        initializer_range: standard deviation of the linear layer's initializer.
        seed: seed of initializers and dropout.
        **kwargs: of `keras.layers.Layer`.

    Call: hidden states, L + 1 of [B, T, H], embeddings first; `padding_mask` int [B, T]
    (1 = real) and, for packed rows, `sequence_ids` int [B, T] (0 = padding). Nothing
    runs from one text of a row into the next. Returns logits, float32 [B, T, C].

    Raises:
        ConfigError: the encoder has fewer layers than the features need.

    Example:
        >>> head = RecurrentHead(3, features="last", units=4)
        >>> head([np.ones((2, 5, 8), "float32")] * 3, np.ones((2, 5), "int32")).shape
        (2, 5, 3)
    """

    def __init__(
        self,
        classes: int,
        *,
        features: str = "concat_last_four",
        units: int = 768,
        dropout_rate: float = 0.1,
        initializer_range: float = 0.02,
        seed: int | None = None,
        name: str = "classifier",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.classes = classes
        self.features = features
        self.units = units
        self.dropout_rate = dropout_rate
        self.initializer_range = initializer_range
        self.seed = seed
        self.sums = features.startswith("weighted_sum")
        dtype = self.dtype_policy
        self.dropout = keras.layers.Dropout(dropout_rate, seed=seed, dtype=dtype)
        self.recurrent = [
            (self._lstm("forward_lstm", number), self._lstm("backward_lstm", number))
            for number in range(2)
        ]
        self.output_layer = keras.layers.Dense(
            classes,
            kernel_initializer=keras.initializers.RandomNormal(
                stddev=initializer_range, seed=seed
            ),
            dtype=dtype,
            name="output",
        )

    def _lstm(self, name: str, number: int) -> Lstm:
        return Lstm(
            self.units,
            backward=name.startswith("backward"),
            seed=None if self.seed is None else self.seed + number,
            dtype=self.dtype_policy,
            name=name,
        )

    def _chosen(self, states: list[Any]) -> list[Any]:
        """Return the hidden states that are read."""
        if len(states) - 1 < FEATURES[self.features]:
            raise ConfigError(
                f"`{self.features}` needs an encoder of at least "
                f"{FEATURES[self.features]} layers; received {len(states) - 1}"
            )
        if self.features == "weighted_sum_all":
            return states[1:]
        if self.features.endswith("last_four"):
            return states[-4:]
        place = {"embeddings": 0, "second_to_last": -2, "last": -1}
        return [states[place[self.features]]]

    def build(
        self,
        states_shape: list[Any],
        padding_mask_shape: Any = None,
        sequence_ids_shape: Any = None,
    ) -> None:
        chosen = self._chosen(states_shape)
        width = chosen[0][-1]
        if self.sums:
            self.mix = self.add_weight(
                shape=(len(chosen),), initializer="zeros", name="mix", dtype="float32"
            )
            self.scale = self.add_weight(
                shape=(1,), initializer="ones", name="scale", dtype="float32"
            )
        elif self.features.startswith("concat"):
            width *= len(chosen)
        for number, both in enumerate(self.recurrent):
            with keras.name_scope(f"bidirectional_{number}"):
                for layer in both:
                    layer.build((None, None, width))
            width = 2 * self.units
        self.output_layer.build((None, None, width))
        self.built = True

    def call(
        self,
        states: list[Any],
        padding_mask: Any,
        sequence_ids: Any = None,
        training: bool | None = None,
    ) -> Any:
        chosen = self._chosen(states)
        if self.sums:
            shares = ops.softmax(self.mix) * self.scale
            x = sum(
                ops.cast(shares[number], state.dtype) * state
                for number, state in enumerate(chosen)
            )
        else:
            x = ops.concatenate(chosen, axis=-1)
        x = ops.transpose(self.dropout(x, training=training), (1, 0, 2))
        ids = ops.transpose(padding_mask if sequence_ids is None else sequence_ids)
        for both in self.recurrent:
            x = ops.concatenate([layer(x, ids) for layer in both], axis=-1)
        logits = self.output_layer(self.dropout(x, training=training))
        return ops.cast(ops.transpose(logits, (1, 0, 2)), "float32")

    def compute_output_spec(
        self,
        states: list[Any],
        padding_mask: Any,
        sequence_ids: Any = None,
        training: bool | None = None,
    ) -> Any:
        shape = (*states[0].shape[:-1], self.classes)
        return keras.KerasTensor(shape, dtype="float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "classes": self.classes,
            "features": self.features,
            "units": self.units,
            "dropout_rate": self.dropout_rate,
            "initializer_range": self.initializer_range,
            "seed": self.seed,
        }
