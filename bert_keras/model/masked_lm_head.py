"""The masked-LM head: hidden states of masked tokens to logits of the vocabulary.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1; google-research/bert
`run_pretraining.py`, whose variable scopes the weights are named for.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_keras.model.block import activation
from bert_keras.model.initialization import initializer
from bert_keras.model.wanted_tokens import tokens_at


@keras.saving.register_keras_serializable(package="bert_keras")
class MaskedLMHead(keras.layers.Layer):
    """Dense H to H, activation, LayerNorm, then the product with the token embeddings.

    The embedding table is passed as a tensor (`BertEncoder.token_table`), so it stays
    tied after saving and loading. Logits are computed at the masked positions only:
    with 15% of the tokens masked, a seventh of the work.

    Args:
        hidden_size, vocab_size: H and V.
        hidden_act: the activation, see `block.activation`.
        layer_norm_eps, initializer_range: as in `BertConfig`.
        seed: seed of the initializer.
        **kwargs: of `keras.layers.Layer`.

    Call: `x` [B, T, H], `table` [V, H], and `positions` int32 [B, P], columns of each
    row; places below 0 are read as 0 and are for the loss to leave out. Without
    positions every token gets logits. Returns float32 [B, P or T, V].

    Example:
        >>> head = MaskedLMHead(hidden_size=8, vocab_size=20)
        >>> x, table = np.ones((2, 5, 8)), np.ones((20, 8))
        >>> tuple(head(x, table, np.array([[1], [4]])).shape)
        (2, 1, 20)
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        vocab_size: int,
        hidden_act: str = "gelu",
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        seed: int | None = None,
        name: str = "cls",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.hidden_size = hidden_size
        self.vocab_size = vocab_size
        self.hidden_act = hidden_act
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.seed = seed
        self.activation = activation(hidden_act)
        self.dense = keras.layers.Dense(
            hidden_size,
            kernel_initializer=initializer(initializer_range, seed),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_eps, dtype=self.dtype_policy, name="LayerNorm"
        )

    @classmethod
    def on(cls, encoder: Any, *, seed: int | None = None) -> MaskedLMHead:
        """Return the head that fits a `BertEncoder`."""
        config = encoder.config
        return cls(
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            hidden_act=config.hidden_act,
            layer_norm_eps=config.layer_norm_eps,
            initializer_range=config.initializer_range,
            seed=seed,
            dtype=encoder.dtype_policy,
        )

    def build(self, *_: Any) -> None:
        with keras.name_scope("predictions"):
            with keras.name_scope("transform"):
                self.dense.build((None, self.hidden_size))
                self.norm.build((None, self.hidden_size))
            # `add_weight` would leave the scope `predictions` out of the name.
            self.output_bias = keras.Variable(
                keras.initializers.Zeros(),
                shape=(self.vocab_size,),
                dtype=self.variable_dtype,
                name="output_bias",
            )

    def call(self, x: Any, table: Any, positions: Any = None) -> Any:
        if positions is not None:
            rows = ops.shape(positions)
            x = ops.reshape(tokens_at(x, positions), (*rows, self.hidden_size))
        shape = ops.shape(x)
        x = self.norm(self.activation(self.dense(ops.reshape(x, (-1, shape[-1])))))
        logits = ops.cast(ops.matmul(x, ops.transpose(table)), "float32")
        logits = logits + ops.cast(self.output_bias, "float32")
        return ops.reshape(logits, (*shape[:-1], self.vocab_size))

    def compute_output_spec(self, x: Any, table: Any, positions: Any = None) -> Any:
        rows = x.shape[:-1] if positions is None else positions.shape
        return keras.KerasTensor((*rows, self.vocab_size), dtype="float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_size": self.hidden_size,
            "vocab_size": self.vocab_size,
            "hidden_act": self.hidden_act,
            "layer_norm_eps": self.layer_norm_eps,
            "initializer_range": self.initializer_range,
            "seed": self.seed,
        }


NO_LABEL = -1  # padding where a row has fewer tokens to predict


@keras.saving.register_keras_serializable(package="bert_keras")
class MaskedAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """Accuracy: the share of labels, int [R, P], with the highest logit [R, P, V]."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        # Flat, else Keras averages each row first, and rows differ in length.
        logits = ops.reshape(y_pred, (-1, ops.shape(y_pred)[-1]))
        weights = ops.ravel(_weights(y_true, sample_weight))
        return super().update_state(ops.ravel(y_true), logits, weights)


@keras.saving.register_keras_serializable(package="bert_keras")
class MaskedPerplexity(keras.metrics.Mean):
    """Perplexity: exp of the mean cross-entropy of labels [R, P], logits [R, P, V].

    Example:
        >>> metric = MaskedPerplexity()
        >>> metric.update_state([[3, -1]], np.zeros((1, 2, 8)))
        >>> round(float(metric.result()), 3)
        8.0
    """

    def __init__(self, name: str = "perplexity", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        labels = ops.maximum(ops.convert_to_tensor(y_true), 0)
        losses = ops.sparse_categorical_crossentropy(
            labels, ops.cast(y_pred, "float32"), from_logits=True
        )
        weights = ops.ravel(_weights(y_true, sample_weight))
        return super().update_state(ops.ravel(losses), weights)

    def result(self) -> Any:
        return ops.exp(super().result())


def _weights(labels: Any, sample_weight: Any) -> Any:
    """Return 0 where a label does not count, else its weight or 1."""
    counted = ops.cast(ops.convert_to_tensor(labels) >= 0, "float32")
    return counted if sample_weight is None else counted * sample_weight
