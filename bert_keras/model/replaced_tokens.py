"""Replaced tokens: what ELECTRA's discriminator reads, answers and is scored by.

A generator fills in the masks, tokens are sampled from its distributions, and the
discriminator says of each token of the text whether it is one of these.

Source: Clark et al. 2020 (arXiv:2003.10555), section 2; google-research/electra
`run_pretraining.py`; transformers `modeling_electra.py`, which names the weights.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_keras.model.heads import NO_LABEL
from bert_keras.model.layers import Configured, activation, initializer

_LEAST = 1e-37  # of uniform numbers: the logarithm of 0 is not finite
_FIXED = 1_234_567  # seed of the noise outside of training


@keras.saving.register_keras_serializable(package="bert_keras")
class ReplacedTokens(Configured, keras.layers.Layer):
    """Replaces the masked tokens of texts by samples from a generator's distributions.

    A sample is the token with the highest sum of logit and Gumbel noise. No gradient
    flows through it. In training each call draws new noise; otherwise it is always the
    same, so that scores of held-out data can be compared.

    Args:
        seed: seed of the noise.

    Call: `token_ids` int32 [R, T], `logits` [R, P, V], and `positions` int32 [R, P],
    columns of each row; below 0 nothing is replaced. Returns int32 [R, T].
    """

    def __init__(self, *, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self._seeds = keras.random.SeedGenerator(seed)

    def call(
        self, token_ids: Any, logits: Any, positions: Any, training: bool | None = None
    ) -> Any:
        logits = ops.stop_gradient(ops.cast(logits, "float32"))
        uniform = keras.random.uniform(
            ops.shape(logits),
            minval=_LEAST,
            maxval=1.0,
            dtype="float32",
            seed=self._seeds if training else _FIXED,
        )
        samples = ops.argmax(logits - ops.log(-ops.log(uniform)), axis=-1)
        return put_at(token_ids, positions, samples)

    def compute_output_spec(self, token_ids: Any, *_: Any, **__: Any) -> Any:
        return keras.KerasTensor(token_ids.shape, dtype="int32")


def put_at(rows: Any, columns: Any, values: Any) -> Any:
    """Return int32 rows [R, T] with values [R, P] at columns [R, P], if not below 0."""
    rows = ops.cast(ops.convert_to_tensor(rows), "int32")
    count, length = ops.shape(rows)
    # Values at no column go to one more column, which is cut off.
    wide = ops.pad(rows, [[0, 0], [0, 1]])
    columns = ops.cast(columns, "int32")
    columns = ops.where(columns < 0, length, columns)
    places = ops.arange(count, dtype="int32")[:, None] * (length + 1) + columns
    flat = ops.scatter_update(
        ops.reshape(wide, (-1,)),
        ops.reshape(places, (-1, 1)),
        ops.cast(ops.reshape(values, (-1,)), "int32"),
    )
    return ops.reshape(flat, (count, length + 1))[:, :length]


@keras.saving.register_keras_serializable(package="bert_keras")
class ReplacedTokenHead(Configured, keras.layers.Layer):
    """The discriminator's head: dense, activation, dense to one logit for each token.

    Args:
        hidden_size, hidden_act, initializer_range: as in `BertConfig`.
        seed: seed of the initializers.

    Call: `x` [R, T, H] and `token_ids` int32 [R, T], the tokens that were read.
    Returns float32 [R, T, 2]: the logit that a token was replaced, and the token. With
    the original tokens as labels these are all that loss and metrics need.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        hidden_act: str = "gelu",
        initializer_range: float = 0.02,
        seed: int | None = None,
        name: str = "discriminator_predictions",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.hidden_size = hidden_size
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        self.seed = seed
        self.dense = keras.layers.Dense(
            hidden_size,
            activation=activation(hidden_act),
            kernel_initializer=initializer(initializer_range, seed),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense_prediction = keras.layers.Dense(
            1,
            kernel_initializer=initializer(initializer_range, seed, 1),
            dtype=self.dtype_policy,
            name="dense_prediction",
        )

    @classmethod
    def on(cls, encoder: Any, *, seed: int | None = None) -> ReplacedTokenHead:
        """Return the head that fits a `BertEncoder`."""
        return cls.of(encoder.config, seed=seed)

    def build(self, *_: Any) -> None:
        self.dense.build((None, None, self.hidden_size))
        self.dense_prediction.build((None, None, self.hidden_size))

    def call(self, x: Any, token_ids: Any) -> Any:
        logits = ops.cast(self.dense_prediction(self.dense(x)), "float32")
        # A vocabulary has less than 2^24 tokens, whose numbers float32 holds exactly.
        tokens = ops.cast(token_ids, "float32")[..., None]
        return ops.concatenate([logits, tokens], axis=-1)

    def compute_output_spec(self, x: Any, token_ids: Any) -> Any:
        return keras.KerasTensor((*token_ids.shape, 2), dtype="float32")


def judged(y_true: Any, y_pred: Any) -> tuple[Any, Any, Any]:
    """Return logit, whether replaced, and whether it counts of each token, [R, T].

    `y_true` int [R, T] are the original tokens, -1 at padding; `y_pred` is what
    `ReplacedTokenHead` returns. All are float32. A sample that is the original token
    was not replaced.
    """
    original = ops.cast(ops.convert_to_tensor(y_true), "float32")
    logits, tokens = y_pred[..., 0], y_pred[..., 1]
    counts = ops.cast(original > NO_LABEL, "float32")
    return logits, ops.cast(tokens != original, "float32") * counts, counts


def judgements(y_true: Any, y_pred: Any) -> list[Any]:
    """Return how many tokens are judged correctly, found, called replaced, replaced.

    Each float32 []; "found" are the replaced tokens that are called so.
    """
    logits, replaced, counts = judged(y_true, y_pred)
    called = ops.cast(logits > 0, "float32") * counts
    found = ops.sum(called * replaced)
    every = [ops.sum(called), ops.sum(replaced)]
    return [ops.sum(counts) - sum(every) + 2 * found, found, *every]


@keras.saving.register_keras_serializable(package="bert_keras")
class ReplacedTokenLoss(Configured, keras.losses.Loss):
    """Mean binary cross-entropy of all tokens, see `judged` for labels and outputs."""

    ignore_class = NO_LABEL

    def call(self, y_true: Any, y_pred: Any) -> Any:
        logits, replaced, counts = judged(y_true, y_pred)
        # log(1 + exp(x)) - x t, without an overflow.
        losses = ops.softplus(logits) - logits * replaced
        return ops.sum(losses * counts) / ops.maximum(ops.sum(counts), 1.0)

    def counted(self, y_true: Any) -> Any:
        """Return the number of labels that count, float32 []."""
        return ops.sum(ops.cast(ops.convert_to_tensor(y_true) > NO_LABEL, "float32"))


class _OfTokens:
    """A metric of binary labels, of tokens that `judged` judges."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        logits, replaced, counts = (ops.ravel(x) for x in judged(y_true, y_pred))
        called = ops.cast(logits > 0, "float32")
        return super().update_state(replaced, called, counts)  # type: ignore[misc]


@keras.saving.register_keras_serializable(package="bert_keras")
class ReplacedTokenAccuracy(_OfTokens, keras.metrics.BinaryAccuracy):
    """Share of the tokens that are judged correctly."""


@keras.saving.register_keras_serializable(package="bert_keras")
class ReplacedTokenPrecision(_OfTokens, keras.metrics.Precision):
    """Share of the tokens called replaced that were replaced."""


@keras.saving.register_keras_serializable(package="bert_keras")
class ReplacedTokenRecall(_OfTokens, keras.metrics.Recall):
    """Share of the replaced tokens that are called so."""
