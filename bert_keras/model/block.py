"""One Transformer block of BERT on `keras.ops`: `Attention` and `Block`.

Source: Vaswani et al. 2017 (arXiv:1706.03762); Devlin et al. 2018 (arXiv:1810.04805),
section 3. Weights carry the names of Google's variable scopes, so `variable.path` reads
`bert/encoder/layer_0/attention/self/query/kernel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bert_keras.errors import ConfigError
from bert_keras.model.layers import (
    MASKED,
    Configured,
    Dense,
    EveryToken,
    FirstOfTexts,
    LayerNorm,
    TokensAt,
    activation,
    erf_gelu,
    initializer,
    moved,
    shape_of,
)
from bert_keras.runs.environment import computes_bfloat16
from bert_keras.settings import check_choice

# One part in 32,768 stays at least: its scale, 32,768, is still finite in float16.
_MOST_DROPPED = 65_534
ATTENTIONS = ("written", "fused")


def check_rate(name: str, rate: Any) -> None:
    """Raise ConfigError unless a dropout rate is in [0, 1), as in `BertConfig`.

    At a rate of 1 there is nothing left to scale.
    """
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not is_number or not 0 <= rate < 1:
        raise ConfigError(f"`{name}` must be in [0, 1); received {rate!r}")


def dropout(x: Any, rate: float, seed: Any) -> Any:
    """Return `x` with a share `rate` of it set to 0; unchanged where no seed was drawn.

    `seed` is uint32 [2], drawn by a `keras.random.SeedGenerator`, or `None`. On
    TensorFlow a unit takes 16 random bits, half of what Keras draws: random numbers are
    a fifth of the time of a training step on a CPU. The rate is rounded to 1/65,536, at
    most 65,534 of them, and the scale follows the rounded rate.
    """
    if seed is None or rate == 0:
        return x
    if keras.config.backend() != "tensorflow":
        return keras.random.dropout(x, rate, seed=_DrawnSeed(seed))
    import tensorflow as tf

    dropped = min(max(round(rate * 65_536), 1), _MOST_DROPPED)
    count = tf.size(x)
    bits = tf.random.stateless_uniform(
        [(count + 1) // 2],
        tf.cast(seed, tf.int64),
        minval=None,
        maxval=None,
        dtype=tf.int32,
    )
    units = tf.reshape(tf.bitcast(bits, tf.int16), [-1])[:count]
    kept = tf.reshape(units >= tf.constant(dropped - 32_768, tf.int16), tf.shape(x))
    return x * (tf.cast(kept, x.dtype) * (65_536 / (65_536 - dropped)))


class _DrawnSeed(keras.random.SeedGenerator):
    """An already drawn seed, with the interface that `keras.random` expects."""

    _initial_seed = 0  # torch's dropout would ignore a generator without this

    def __init__(self, value: Any) -> None:
        self._value = value

    def next(self, ordered: bool = True) -> Any:
        return self._value


def _gelu_for_training(x: Any) -> Any:
    """Return `erf_gelu`, with its gradient in few passes over memory on TensorFlow.

    Both are computed in float32: TensorFlow takes up to three times as long for the
    same operation in bfloat16. Other backends compile, which fuses the passes.
    """
    if keras.config.backend() != "tensorflow":
        return erf_gelu(x)
    widest = keras.backend.result_type(x.dtype, "float32")

    @ops.custom_gradient
    def gelu(x: Any) -> Any:
        wide = ops.cast(x, widest)
        cdf = 0.5 * (1.0 + ops.erf(wide * math.sqrt(0.5)))
        kept = ops.cast(cdf, x.dtype)

        def gradient(upstream: Any) -> Any:
            wide = ops.cast(x, widest)
            density = ops.exp(-0.5 * ops.square(wide)) * (
                1.0 / math.sqrt(2.0 * math.pi)
            )
            slope = ops.cast(kept, widest) + wide * density
            return ops.cast(ops.cast(upstream, widest) * slope, x.dtype)

        return ops.cast(wide * cdf, x.dtype), gradient

    return gelu(x)


class Attention(Configured, keras.layers.Layer):
    """Multi-head attention, its output layer and LayerNorm: what blocks share.

    Args:
        hidden_size, num_heads: H and N.
        dropout_rate: rate on the output, in [0, 1).
        attention_dropout_rate: rate on the attention probabilities, in [0, 1).
        layer_norm_eps, initializer_range: as in `BertConfig`.
        attention: `written` computes scores, softmax and context one after the other;
            `fused` calls `keras.ops.dot_product_attention`, on a GPU with JAX cuDNN's
            flash attention, which needs 16-bit floats. It returns no probabilities
            and cannot drop them.
        seed: seed of initializers and dropout.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        num_heads: int,
        dropout_rate: float = 0.1,
        attention_dropout_rate: float = 0.1,
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        attention: str = "written",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        # Keras would cast the bias to the compute dtype, and -1e9 is -inf in float16.
        super().__init__(autocast=False, **kwargs)
        check_rate("dropout_rate", dropout_rate)
        check_rate("attention_dropout_rate", attention_dropout_rate)
        check_choice("attention", attention, ATTENTIONS)
        if attention == "fused" and keras.config.backend() == "tensorflow":
            raise ConfigError(
                "`attention` must be 'written' on TensorFlow, which has no fused one; "
                "received 'fused'"
            )
        self.attention = attention
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.query = self._dense("query", hidden_size, 0)
        self.key = self._dense("key", hidden_size, 1)
        self.value = self._dense("value", hidden_size, 2)
        self.attention_output = self._dense("dense", hidden_size, 3)
        self.attention_norm = self._norm()

    def _dense(self, name: str, units: int, offset: int) -> Dense:
        return Dense(
            units,
            kernel_initializer=initializer(self.initializer_range, self.seed, offset),
            dtype=self.dtype_policy,
            name=name,
        )

    def _norm(self) -> LayerNorm:
        return LayerNorm(
            epsilon=self.layer_norm_eps, dtype=self.dtype_policy, name="LayerNorm"
        )

    def build(self, *_: Any) -> None:
        hidden = (None, self.hidden_size)
        with keras.name_scope("self"):
            for layer in (self.query, self.key, self.value):
                layer.build(hidden)
        with keras.name_scope("output"):
            self.attention_output.build(hidden)
            self.attention_norm.build(hidden)

    def draw_seeds(self, count: int, training: Any) -> tuple[Any, ...]:
        """Return this many seeds of dropout; `None` for each if nothing is dropped."""
        drops = training and max(self.dropout_rate, self.attention_dropout_rate) > 0
        return tuple(
            self.seed_generator.next() if drops else None for _ in range(count)
        )

    def keys_and_values(self, x: Any) -> tuple[Any, Any]:
        """Return keys [B, N, D, T] and values [B, N, T, D] of `x` [B, T, H].

        In the order in which `attend` multiplies them, so that a cache of them is used
        as it is.
        """
        flat = ops.reshape(x, (-1, self.hidden_size))
        split = (*shape_of(x)[:2], self.num_heads, self.hidden_size // self.num_heads)
        k = ops.reshape(self.key(flat), split)
        v = ops.reshape(self.value(flat), split)
        return ops.transpose(k, (0, 2, 3, 1)), ops.transpose(v, (0, 2, 1, 3))

    def attend(
        self,
        x: Any,
        past: tuple[Any, Any],
        bias: Any,
        seed: Any,
        *,
        count: Any,
        training: Any = True,
    ) -> tuple[Any, Any]:
        """Return the context [Q, H] and the probabilities [Q / q, N, q, T].

        Softmax is in float32, except in bfloat16 without training on a processor with
        its instructions. There TensorFlow computes the scores in one oneDNN call, which
        rounds them once, and paragraphs take 5% less time. Other processors would round
        each step and the sum of the softmax, and gain nothing. A graph keeps the steps
        of the processor that traced it: elsewhere its answers are about as exact.

        Args:
            x: [Q, H], the tokens that attend.
            past: keys [Q / q, N, D, T] and values [Q / q, N, T, D].
            bias: float32, added to the scores [Q / q, N, q, T].
            seed: seed of the dropout on the probabilities.
            count: how many tokens share their keys, q.
            training: whether gradients may follow.
        """
        width = self.hidden_size // self.num_heads
        scale = 1.0 / math.sqrt(width)
        k, v = past
        is_fused = self.compute_dtype == "bfloat16" and not training
        is_fused = is_fused and keras.config.backend() == "tensorflow"
        is_fused = is_fused and computes_bfloat16()
        q = self.query(x) if is_fused else self.query(x) * scale
        q = ops.reshape(q, (-1, count, self.num_heads, width))
        q = ops.transpose(q, (0, 2, 1, 3))
        if is_fused:
            scores = ops.matmul(q, k) * scale + ops.cast(bias, q.dtype)
        else:
            scores = ops.cast(ops.matmul(q, k), "float32") + bias  # [Q / q, N, q, T]
        if scores.shape[-1] == 1:  # Keras warns of a softmax of one number
            probabilities = ops.ones_like(scores)
        else:
            probabilities = ops.softmax(scores, axis=-1)
        probabilities = ops.cast(probabilities, x.dtype)
        dropped = dropout(probabilities, self.attention_dropout_rate, seed)
        context = ops.transpose(ops.matmul(dropped, v), (0, 2, 1, 3))
        return ops.reshape(context, (-1, self.hidden_size)), probabilities

    def attend_fused(
        self, x: Any, past: tuple[Any, Any], bias: Any, *, count: Any, training: Any
    ) -> tuple[Any, Any]:
        """Return the context [Q, H], and no probabilities, [Q / q, N, 0, T].

        Arguments as in `attend`; raises a ConfigError if probabilities must be dropped.
        """
        if training and self.attention_dropout_rate > 0:
            raise ConfigError(
                "`attention` must be 'written' to drop attention probabilities: set "
                "`attention_probs_dropout_prob` to 0; received 'fused' and a rate of "
                f"{self.attention_dropout_rate}"
            )
        width = self.hidden_size // self.num_heads
        k, v = past
        q = ops.reshape(self.query(x), (-1, count, self.num_heads, width))
        length = shape_of(k)[3]
        allowed = ops.broadcast_to(
            bias > 0.5 * MASKED, (shape_of(k)[0], 1, count, length)
        )
        context = ops.dot_product_attention(
            q,
            ops.transpose(k, (0, 3, 1, 2)),
            ops.transpose(v, (0, 2, 1, 3)),
            mask=allowed,
            scale=1.0 / math.sqrt(width),
            flash_attention=_has_cudnn() or None,
        )
        none = ops.zeros((shape_of(k)[0], self.num_heads, 0, length), x.dtype)
        return ops.reshape(context, (-1, self.hidden_size)), none

    def add_context(self, x: Any, context: Any, seed: Any) -> Any:
        """Return `LN(x + Dropout(W context))`, [Q, H]."""
        y = dropout(self.attention_output(context), self.dropout_rate, seed)
        return self.attention_norm(x + y)


def _has_cudnn() -> bool:
    if keras.config.backend() != "jax":
        return False
    import jax

    return jax.default_backend() == "gpu"


@keras.saving.register_keras_serializable(package="bert_keras")
class Block(Attention):
    """One Transformer block, post-LayerNorm, as in Google's `modeling.py`.

    `x = LN(x + Dropout(Attention(x)))`, then `x = LN(x + Dropout(FFN(x)))`. Matrix
    products run on [B*T, H]. LayerNorm is in float32 under any dtype policy, and so is
    softmax, except as in `attend`.

    Args:
        intermediate_size: I.
        hidden_act: activation of the feed-forward layer, see `activation`.
        rematerialize: `True` computes the block again in the backward pass instead of
            keeping its activations: less memory, about a third more time.
        lora_rank: rank of the matrices of `enable_lora`, if it was called.
        **kwargs: arguments of `Attention`. `attention="fused"` is for outputs of all
            tokens, and leaves the probabilities empty, [B, N, 0, T].

    Call: `x` [B, T, H] and `bias` float32 [B, 1, 1 or T, T] (see `AttentionBias`).
    Returns `x` [B, T, H] and the attention probabilities [B, N, T, T].

    With `first_only=True` there is an output for each text's first token alone,
    [S, H] and [S, N, 1, T]: all that a pooler reads of the last block, for a sixth of
    its work. `cls_positions` int32 [S] says where texts start in packed rows. With
    `columns` int32 [B, P] (below 0 read as 0) there are outputs for these tokens of
    each row alone, [B, P, H] and [B, N, P, T]: all that a masked-LM head reads.
    """

    def __init__(
        self,
        *,
        intermediate_size: int,
        hidden_act: str = "gelu",
        rematerialize: bool = False,
        lora_rank: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_size = intermediate_size
        self.lora_rank = lora_rank
        self.hidden_act = hidden_act
        self.rematerialize = rematerialize
        self.activation = activation(hidden_act)
        self.watch: Callable[[Any], object] | None = None  # gets the input of a call
        self.intermediate = self._dense("dense", intermediate_size, 4)
        self.feed_forward_output = self._dense("dense", self.hidden_size, 5)
        self.feed_forward_norm = self._norm()

    def build(self, *_: Any) -> None:
        hidden, inner = (None, self.hidden_size), (None, self.intermediate_size)
        with keras.name_scope("attention"):
            super().build()
        with keras.name_scope("intermediate"):
            self.intermediate.build(hidden)
        with keras.name_scope("output"):
            self.feed_forward_output.build(inner)
            self.feed_forward_norm.build(hidden)
        if self.lora_rank:
            self.enable_lora(self.lora_rank)

    def enable_lora(self, rank: int, *, seed: int | None = None) -> None:
        """Train query and value by matrices of this rank, and freeze all else."""
        self.lora_rank = rank
        for layer in (
            self.key,
            self.attention_output,
            self.attention_norm,
            self.intermediate,
            self.feed_forward_output,
            self.feed_forward_norm,
        ):
            layer.trainable = False
        for offset, layer in enumerate((self.query, self.value)):
            start = keras.initializers.HeUniform(seed=moved(seed, offset))
            layer.enable_lora(rank, a_initializer=start)
            layer.bias.trainable = False

    def call(
        self,
        x: Any,
        bias: Any,
        cls_positions: Any = None,
        *,
        first_only: bool = False,
        columns: Any = None,
        training: bool | None = None,
    ) -> Any:
        # Drawn here, outside what may run twice: a block that is computed again in
        # the backward pass must drop the same units.
        seeds = self.draw_seeds(3, training)
        drawn = [seed for seed in seeds if seed is not None]

        def forward(x: Any, bias: Any, *drawn: Any) -> Any:
            x = ops.cast(x, self.compute_dtype)
            wanted: EveryToken
            if first_only:
                wanted = FirstOfTexts(x, bias, cls_positions)
            elif columns is not None:
                wanted = TokensAt(x, bias, columns)
            else:
                wanted = EveryToken(x, bias)
            past = self.keys_and_values(x)
            return self.transform(wanted, past, drawn or seeds, training=training)

        if self.rematerialize and training:
            forward = keras.remat(forward)
        if self.watch is not None:
            self.watch(x)
        return forward(x, bias, *drawn)

    def transform(
        self,
        wanted: EveryToken,
        past: tuple[Any, Any],
        seeds: Sequence[Any],
        *,
        training: Any = False,
        between: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return the outputs of the selected tokens, and their probabilities.

        Args:
            wanted: the tokens, and the bias of their scores.
            past: keys and values of their rows, from `keys_and_values`.
            seeds: three, from `draw_seeds`.
            training: whether gradients follow.
            between: what a decoder computes between attention and feed-forward layer.
        """
        activate = self.activation
        if training and activate is erf_gelu:
            activate = _gelu_for_training
        k, v = (wanted.of_row(part) for part in past)
        if self.attention == "fused" and type(wanted) is EveryToken:
            context, probabilities = self.attend_fused(
                wanted.x, (k, v), wanted.bias, count=wanted.count, training=training
            )
        else:
            context, probabilities = self.attend(
                wanted.x,
                (k, v),
                wanted.bias,
                seeds[0],
                count=wanted.count,
                training=training,
            )
        x = self.add_context(wanted.x, context, seeds[1])
        if between is not None:
            x = between(x)
        y = self.feed_forward_output(activate(self.intermediate(x)))
        x = self.feed_forward_norm(x + dropout(y, self.dropout_rate, seeds[2]))
        return wanted.laid(x), probabilities

    def compute_output_spec(
        self, x: Any, *_: Any, first_only: bool = False, columns: Any = None, **__: Any
    ) -> Any:
        rows, length, hidden = x.shape
        shape, queries = x.shape, 0 if self.attention == "fused" else length
        if first_only:
            rows, queries = None, 1
            shape = (rows, hidden)
        elif columns is not None:
            queries = columns.shape[1]
            shape = (rows, queries, hidden)
        shapes = (shape, (rows, self.num_heads, queries, length))
        return tuple(keras.KerasTensor(s, dtype=self.compute_dtype) for s in shapes)
