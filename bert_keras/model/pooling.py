"""Hidden states to features: `LayerMix` of several layers, `TextPooling` of a text.

Sources: Devlin et al. 2018 (arXiv:1810.04805), section 5.3; Peters et al. 2018
(arXiv:1802.05365), equation 1, for learned weights; Reimers and Gurevych 2019
(arXiv:1908.10084), section 3, for pooling.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_keras.model.layers import Configured, first_tokens
from bert_keras.settings import COMBINATIONS, POOLINGS, check_choice

_LOWEST = -1e9  # below any hidden state, finite


@keras.saving.register_keras_serializable(package="bert_keras")
class LayerMix(Configured, keras.layers.Layer):
    """Combines several hidden states.

    Args:
        combine: `sum`; `concat`, concatenated in the order given; or `weighted`, the
            sum weighted by the softmax of one learned number per layer, all equal at
            the start.

    Call: a list of n tensors [B, T, H]. Returns float32 [B, T, H], or [B, T, n*H].

    Example:
        >>> tuple(LayerMix("concat")([np.ones((1, 2, 4)), np.zeros((1, 2, 4))]).shape)
        (1, 2, 8)
    """

    def __init__(
        self, combine: str = "sum", *, name: str = "layer_mix", **kwargs: Any
    ) -> None:
        check_choice("combine", combine, COMBINATIONS)
        super().__init__(name=name, **kwargs)
        self.combine = combine

    def build(self, input_shape: Any) -> None:
        if self.combine == "weighted":
            self.scores = self.add_weight(
                name="scores", shape=(len(input_shape),), initializer="zeros"
            )

    def call(self, inputs: list[Any]) -> Any:
        states = [ops.cast(x, "float32") for x in inputs]
        if self.combine == "concat":
            return ops.concatenate(states, axis=-1)
        if self.combine == "sum":
            return sum(states)
        weights = ops.softmax(ops.cast(self.scores, "float32"))
        return sum(weights[i] * x for i, x in enumerate(states))


@keras.saving.register_keras_serializable(package="bert_keras")
class TextPooling(Configured, keras.layers.Layer):
    """Pools token vectors to one vector per text, in either layout.

    `[CLS]` and `[SEP]` count among the tokens, as in sentence-transformers.

    Args:
        pooling: `mean` or `max` over the tokens; `cls`, the vector of `[CLS]`;
            `mean_sqrt_len_tokens`, the sum divided by the root of the number of tokens;
            `weightedmean`, the mean weighted by the tokens' positions from 1;
            `lasttoken`, the vector of the last token. Several with `+` between, such as
            `cls+mean`, are concatenated.
        normalize: whether to divide each vector by its L2 norm.

    Call: `x` [B, T, D], `padding_mask` int32 [B, T] and, for packed rows,
    `position_ids` int32 [B, T] and `cls_positions` int32 [S]. `prompt_lengths` int32
    [B], or [S], are the first tokens of each text that are not pooled; `cls` is then
    the vector of the first one that is. Returns float32 [B, D], or [S, D]; n * D wide
    for n poolings.

    Example:
        >>> x, mask = np.array([[[1.0], [3.0], [9.0]]]), np.array([[1, 1, 0]])
        >>> TextPooling("mean", normalize=False)(x, mask).numpy().tolist()
        [[2.0]]
    """

    def __init__(
        self,
        pooling: str = "mean",
        *,
        normalize: bool = True,
        name: str = "text_pooling",
        **kwargs: Any,
    ) -> None:
        for mode in str(pooling).split("+"):
            check_choice("pooling", mode, POOLINGS)
        super().__init__(name=name, **kwargs)
        self.pooling = pooling
        self.normalize = normalize

    def call(
        self,
        x: Any,
        padding_mask: Any,
        position_ids: Any = None,
        cls_positions: Any = None,
        prompt_lengths: Any = None,
    ) -> Any:
        x = ops.cast(x, "float32")
        if cls_positions is None:
            real = ops.expand_dims(ops.cast(padding_mask, "bool"), -1)
            given: tuple[Any, ...] = (real, prompt_lengths)
            parts = [self._pool_rows(mode, x, *given) for mode in self.modes]
        else:
            given = (padding_mask, position_ids, cls_positions, prompt_lengths)
            parts = [self._pool_segments(mode, x, *given) for mode in self.modes]
        pooled = parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
        return unit_vectors(pooled) if self.normalize else pooled

    def compute_output_spec(
        self, x: Any, *places: Any, cls_positions: Any = None, **_: Any
    ) -> Any:
        cls_positions = places[2] if len(places) > 2 else cls_positions
        rows = (x if cls_positions is None else cls_positions).shape[0]
        width = x.shape[-1] * len(self.modes)
        return keras.KerasTensor((rows, width), dtype="float32")

    @property
    def modes(self) -> list[str]:
        """The poolings whose vectors are concatenated."""
        return self.pooling.split("+")

    def _pool_rows(self, mode: str, x: Any, real: Any, prompt_lengths: Any) -> Any:
        """Pool rows of one text each; `real` is bool [B, T, 1]."""
        if mode == "cls" and prompt_lengths is None:
            return x[:, 0]
        places = ops.cumsum(ops.cast(real, "float32"), axis=1)
        if mode == "lasttoken":
            last = ops.max(places, axis=1, keepdims=True)
            return ops.sum(ops.where(real & (places == last), x, 0.0), axis=1)
        if prompt_lengths is not None:
            before = ops.cast(prompt_lengths, "float32")[:, None, None]
            real = real & (places > before)
            if mode == "cls":
                return ops.sum(ops.where(real & (places == before + 1), x, 0.0), axis=1)
        if mode == "max":
            return ops.max(ops.where(real, x, _LOWEST), axis=1)
        weights = ops.cast(real, "float32")
        if mode == "weightedmean":
            weights = weights * places
        total = ops.sum(ops.where(real, x, 0.0) * weights, axis=1)
        return total / _divisor(mode, ops.sum(weights, axis=1))

    def _pool_segments(
        self,
        mode: str,
        x: Any,
        padding_mask: Any,
        position_ids: Any,
        cls_positions: Any,
        prompt_lengths: Any,
    ) -> Any:
        """Pool each text of rows that hold several."""
        if mode == "cls":
            before = 0 if prompt_lengths is None else prompt_lengths
            return first_tokens(x, cls_positions + before)
        flat = ops.reshape(x, (-1, x.shape[-1]))
        texts = ops.shape(cls_positions)[0]
        places = ops.cast(ops.reshape(position_ids, (-1,)), "int32")
        total = ops.shape(places)[0]
        # A token is `position_ids` after the first of its text.
        first = ops.arange(total, dtype="int32") - places
        numbers = ops.scatter(
            cls_positions[:, None], ops.arange(texts, dtype="int32"), (total,)
        )
        real = ops.reshape(ops.cast(padding_mask, "bool"), (-1,))
        # Padding counts as an extra text, which is dropped.
        text = ops.where(real, ops.take(numbers, first), texts)
        if mode == "lasttoken":
            last = ops.segment_max(places, text, num_segments=texts + 1)[:texts]
            return ops.take(flat, cls_positions + last, axis=0)
        if prompt_lengths is not None:
            before = ops.take(ops.pad(prompt_lengths, [[0, 1]]), text)
            text = ops.where(places >= before, text, texts)
        if mode == "max":
            return ops.segment_max(flat, text, num_segments=texts + 1)[:texts]
        weights = ops.ones_like(flat[:, :1])
        if mode == "weightedmean":
            weights = ops.cast(places[:, None] + 1, "float32")
        sums = ops.segment_sum(flat * weights, text, num_segments=texts + 1)[:texts]
        counts = ops.segment_sum(weights, text, num_segments=texts + 1)[:texts]
        return sums / _divisor(mode, counts)


def _divisor(mode: str, counts: Any) -> Any:
    """Return what the sum of the tokens' vectors is divided by, float32 [B, 1]."""
    counts = ops.maximum(counts, 1.0)
    return ops.sqrt(counts) if mode == "mean_sqrt_len_tokens" else counts


@keras.saving.register_keras_serializable(package="bert_keras")
class ResidualDense(keras.layers.Dense):
    """A dense layer that adds what it reads to its outputs, after the activation.

    Where the widths differ, what it reads is multiplied with the weights `residual`,
    as in sentence-transformers' `Dense`. Call: float [..., D]. Returns [..., units].
    """

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        width = input_shape[-1]
        self.residual = None
        if width != self.units:
            self.residual = self.add_weight(
                name="residual",
                shape=(width, self.units),
                initializer=self.kernel_initializer,
            )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        x = super().call(inputs, training=training)
        same = self.residual is None
        return x + (inputs if same else ops.matmul(inputs, self.residual))


@keras.saving.register_keras_serializable(package="bert_keras")
class UnitVectors(keras.layers.Layer):
    """Divides vectors, float [B, D], by their L2 norms."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"name": "unit_vectors", "dtype": "float32", **kwargs})

    def call(self, x: Any) -> Any:
        return unit_vectors(x)


@keras.saving.register_keras_serializable(package="bert_keras")
class PairFeatures(keras.layers.Layer):
    """Absolute difference, product and cosine similarity of the vectors of pairs.

    Call: `x` [2B, D], the vectors of the first and the second text of each pair, one
    after the other. Returns float32 [B, 2 * D + 1].

    Source: Conneau et al. 2017 (arXiv:1705.02364), section 3.1, for difference and
    product; without the vectors themselves, on which few rows teach a head about single
    texts. The cosine is what the vectors of sentence encoders are trained for.

    Example:
        >>> PairFeatures()(np.array([[0.0, 2.0], [3.0, 0.0]])).numpy().tolist()
        [[3.0, 2.0, 0.0, 0.0, 0.0]]
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"name": "pair_features", "dtype": "float32", **kwargs})

    def call(self, x: Any) -> Any:
        def halves(x: Any) -> tuple[Any, Any]:
            pairs = ops.reshape(x, (-1, 2, x.shape[-1]))
            return pairs[:, 0], pairs[:, 1]

        (a, b), (of_a, of_b) = halves(x), halves(unit_vectors(x))
        cosine = ops.sum(of_a * of_b, axis=-1, keepdims=True)
        return ops.concatenate([ops.abs(a - b), a * b, cosine], axis=-1)

    def compute_output_spec(self, x: Any) -> Any:
        return keras.KerasTensor((None, 2 * x.shape[-1] + 1), dtype="float32")


@keras.saving.register_keras_serializable(package="bert_keras")
class TermWeights(keras.layers.Layer):
    """log(1 + relu(x)) of the largest logits of a text's tokens, float32 [B, V].

    Source: Formal et al. 2021 (arXiv:2109.10086), equation 6.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"name": "term_weights", "dtype": "float32", **kwargs})

    def call(self, x: Any) -> Any:
        return ops.log(1.0 + ops.relu(x))  # ONNX has no log1p


@keras.saving.register_keras_serializable(package="bert_keras")
class CountedTokens(Configured, keras.layers.Layer):
    """The vectors of the tokens that count; the others become 0.

    Args:
        normalize: whether to divide each vector by its L2 norm.

    Call: `x` [B, T, D], and what counts, int32 [B, T]. Returns float32 [B, T, D].
    """

    def __init__(
        self, normalize: bool = True, *, name: str = "token_vectors", **kwargs: Any
    ) -> None:
        super().__init__(**{"name": name, "dtype": "float32", **kwargs})
        self.normalize = normalize

    def call(self, x: Any, counted: Any) -> Any:
        x = ops.cast(x, "float32")
        x = unit_vectors(x) if self.normalize else x
        return x * ops.cast(counted, "float32")[:, :, None]


def unit_vectors(x: Any) -> Any:
    """Return float [..., D] divided by its L2 norm, which is at least 1e-12."""
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-24))
