"""Layers around the Transformer blocks: embeddings, attention bias, pooler, dense.

`EveryToken`, `FirstOfTexts` and `TokensAt` select the tokens whose outputs the heads
read from the last block: a pooler reads the first of each text, a masked-LM head the
masked ones. The other tokens serve as keys and values only.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3; google-research/bert
`modeling.py` (`create_initializer`), whose variable scopes name the weights.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from bert_keras.config import BertConfig

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing since Python 3.11

_UNDRAWN = contextvars.ContextVar("undrawn", default=False)
_FOR_ENGINES = contextvars.ContextVar("for_engines", default=False)
_WORD_VECTORS = contextvars.ContextVar[Callable[[Any], Any] | None](
    "word_vectors", default=None
)


@contextlib.contextmanager
def _setting(variable: contextvars.ContextVar[Any], value: Any) -> Iterator[None]:
    """Set a context variable in the block, in this thread only."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def undrawn() -> AbstractContextManager[None]:
    """Create layers with uninitialized weights, to be assigned before use.

    Drawing a hundred million random numbers takes most of the time of loading a model,
    and memory that is never written to is not allocated. Later draws from the same
    seeds do not change. A pooler, which a checkpoint may lack, is still initialized.
    """
    return _setting(_UNDRAWN, True)


def word_vectors(change: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Pass the word embeddings of every call inside through a function.

    Explanations move them between a text and a baseline. The word embeddings that a
    head is tied to stay as they are.

    Args:
        change: takes and returns float [B, T, H], the word embeddings of the tokens,
            before position and segment embeddings are added.
    """
    return _setting(_WORD_VECTORS, change)


class Configured:
    """A layer or loss whose arguments are attributes of the same names."""

    @classmethod
    def arguments(cls) -> list[str]:
        """Return the names of the arguments that Keras's layers lack."""
        return [
            name
            for kind in cls.__mro__
            if issubclass(kind, Configured) and "__init__" in vars(kind)
            for name in inspect.signature(kind.__init__).parameters
            if name not in ("self", "name", "kwargs")
        ]

    @classmethod
    def of(cls, config: BertConfig, **others: Any) -> Self:
        """Return the layer of a config; `others` are further arguments."""
        values = {
            **config.to_dict(),
            "num_heads": config.num_attention_heads,
            "dropout_rate": config.hidden_dropout_prob,
            "attention_dropout_rate": config.attention_probs_dropout_prob,
        }
        known = {name: values[name] for name in cls.arguments() if name in values}
        layer: Any = cls
        return layer(**(known | others))

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        return config | {name: getattr(self, name) for name in self.arguments()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        if config.get("trainable", True):
            return super().from_config(config)  # type: ignore[misc]
        found: Any = super().from_config({**config, "trainable": True})  # type: ignore[misc]
        found.trainable = False  # of its layers, too, which the constructor leaves out
        return found


def for_engines() -> AbstractContextManager[None]:
    """Write layer normalization as other engines expect it.

    OpenVINO and ONNX Runtime compute it in one operation where they find the formula of
    its definition, which takes TensorFlow longer.
    """
    return _setting(_FOR_ENGINES, True)


def is_for_engines() -> bool:
    """Return whether `for_engines` is in effect."""
    return _FOR_ENGINES.get()


class _Undrawn(keras.initializers.TruncatedNormal):
    """Consumes a seed like the initializer it replaces, and draws nothing."""

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        if keras.config.backend() != "tensorflow":
            return ops.zeros(shape, dtype)
        import tensorflow as tf

        kind = tf.as_dtype(keras.config.floatx() if dtype is None else dtype)
        return tf.raw_ops.Empty(shape=shape, dtype=kind)


def moved(seed: int | None, offset: int) -> int | None:
    """Return a seed that draws other numbers; `None` draws new ones anyway."""
    return None if seed is None else seed + offset


def initializer(
    stddev: float, seed: int | None, offset: int = 0, *, always: bool = False
) -> Any:
    """Return the paper's initializer; `offset` varies it among weights of one seed.

    With `always` it draws inside `undrawn` as well.
    """
    draws = always or not _UNDRAWN.get()
    kind = keras.initializers.TruncatedNormal if draws else _Undrawn
    return kind(stddev=stddev, seed=moved(seed, offset))


def activation(name: str) -> Callable[[Any], Any]:
    """Return the activation named by `hidden_act` in a config.

    `gelu` is the erf form written out (an ONNX converter finds no Erfc then),
    `gelu_new` the tanh form of Google's released code.
    """
    if name == "gelu":
        return erf_gelu
    if name == "gelu_new":
        return lambda x: ops.gelu(x, approximate=True)
    return keras.activations.get(name)


def erf_gelu(x: Any) -> Any:
    """Return GELU by its definition, with the error function."""
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


MASKED = -1e9  # finite in float32, where the scores are summed up and normalized


@keras.saving.register_keras_serializable(package="bert_keras")
class AttentionBias(Configured, keras.layers.Layer):
    """Attention bias: 0 where a token may attend, else -1e9.

    Args:
        causal: `True` lets each token see itself and the tokens before it only.

    Call: `padding_mask` int32 [B, T] (1 = real) and, for packed rows, `sequence_ids`
    int32 [B, T] (which text of the row a token belongs to). Returns float32
    [B, 1, 1 or T, T]. In cross-attention these are of the tokens that are attended to,
    and `query_sequence_ids` int32 [B, Q] of tokens that attend: [B, 1, 1 or Q, T].
    """

    def __init__(self, *, causal: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.causal = causal

    def call(
        self,
        padding_mask: Any,
        sequence_ids: Any = None,
        query_sequence_ids: Any = None,
    ) -> Any:
        # LiteRT has no slices that add dimensions.
        allowed = ops.cast(ops.expand_dims(padding_mask, (1, 2)), "bool")
        if sequence_ids is not None:
            queries = sequence_ids if query_sequence_ids is None else query_sequence_ids
            same = queries[:, None, :, None] == sequence_ids[:, None, None, :]
            allowed = ops.logical_and(allowed, same)
        if self.causal:
            order = ops.arange(ops.shape(padding_mask)[1])
            past = order[:, None] >= order[None, :]
            allowed = ops.logical_and(allowed, past[None, None])
        return ops.where(allowed, 0.0, ops.cast(MASKED, "float32"))


def rows_of_small_table(table: Any, ids: Any) -> Any:
    """Return rows of a table [R, H] with few rows, [..., H], for int32 [...].

    On JAX the gradient is a matrix product, as in Google's `modeling.py`. The usual one
    adds all tokens to the same few rows, one after the other: on an H100, 60% of the
    time of a pretraining step.
    """
    if keras.config.backend() != "jax":
        return ops.take(table, ids, axis=0)
    count = table.shape[0]

    @ops.custom_gradient
    def taken(table: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            flat = ops.reshape(upstream, (-1, upstream.shape[-1]))
            chosen = ops.one_hot(ops.reshape(ids, (-1,)), count, dtype=flat.dtype)
            return ops.matmul(ops.transpose(chosen), flat)

        return ops.take(table, ids, axis=0), gradient

    return taken(ops.convert_to_tensor(table))


_TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")


@keras.saving.register_keras_serializable(package="bert_keras")
class Embeddings(Configured, keras.layers.Layer):
    """Token + position + segment embedding, LayerNorm, dropout (paper, figure 2).

    Args:
        vocab_size, hidden_size, max_position_embeddings, type_vocab_size: table sizes;
            without segments, `segment_ids` are not read.
        embedding_size: width E of the tables, if a dense layer behind the dropout
            projects them to H, as in ELECTRA.
        dropout_rate: rate of the dropout after LayerNorm.
        layer_norm_eps, initializer_range: as in `BertConfig`.
        seed: seed of initializers and dropout.

    Call: `token_ids`, `segment_ids` and optionally `position_ids`, each int32 [B, T].
    Returns [B, T, H] in the compute dtype. Without `position_ids` a row's tokens stand
    at 0, 1, 2 …. With `table_only=True` it returns the table of the tokens itself,
    [V, H] or [V, E], which the masked-LM head multiplies with.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        hidden_size: int,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        embedding_size: int | None = None,
        dropout_rate: float = 0.1,
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.embedding_size = embedding_size
        self.dropout_rate = dropout_rate
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.seed = seed
        self.norm = LayerNorm(
            epsilon=layer_norm_eps, dtype=self.dtype_policy, name="LayerNorm"
        )
        self.dropout = keras.layers.Dropout(
            dropout_rate, seed=seed, dtype=self.dtype_policy
        )
        self.project = None
        if embedding_size is not None:
            self.project = keras.layers.Dense(
                hidden_size,
                kernel_initializer=initializer(initializer_range, seed, 3),
                dtype=self.dtype_policy,
                name="embeddings_project",
            )

    def share(self, other: Embeddings) -> None:
        """Use the tables and the LayerNorm of another layer, which is built."""
        for name in _TABLES:
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))
        del self.norm  # which Keras would still list
        self.norm = other.norm

    def build(self, *_: Any) -> None:
        width = self.embedding_size or self.hidden_size
        rows = (self.vocab_size, self.max_position_embeddings, self.type_vocab_size)
        for offset, (name, size) in enumerate(zip(_TABLES, rows, strict=True)):
            if not size or hasattr(self, name):
                continue
            table = self.add_weight(
                name=name,
                shape=(size, width),
                initializer=initializer(self.initializer_range, self.seed, offset),
            )
            setattr(self, name, table)
        if not self.norm.built:
            self.norm.build((None, None, width))
        if self.project is not None:
            self.project.build((None, None, width))

    def call(
        self,
        token_ids: Any,
        segment_ids: Any,
        position_ids: Any = None,
        table_only: bool = False,
        training: bool | None = None,
    ) -> Any:
        if table_only:
            return ops.cast(self.word_embeddings, self.compute_dtype)
        x = ops.take(self.word_embeddings, token_ids, axis=0)
        change = _WORD_VECTORS.get()
        if change is not None:
            x = change(x)
        if self.type_vocab_size:
            x = x + rows_of_small_table(self.token_type_embeddings, segment_ids)
        if position_ids is None:
            x = x + self.position_embeddings[: ops.shape(token_ids)[1]]
        else:
            x = x + rows_of_small_table(self.position_embeddings, position_ids)
        x = ops.cast(x, self.compute_dtype)
        x = self.dropout(self.norm(x), training=training)
        return x if self.project is None else self.project(x)

    def compute_output_spec(
        self, token_ids: Any, *_: Any, table_only: bool = False, **__: Any
    ) -> Any:
        shape = (*token_ids.shape, self.hidden_size)
        if table_only:
            shape = (self.vocab_size, self.embedding_size or self.hidden_size)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)


_LORA = ("lora_kernel_a", "lora_kernel_b")


@keras.saving.register_keras_serializable(package="bert_keras")
class Dense(keras.layers.Dense):
    """Keras's dense layer, whose product and bias TensorFlow computes in one call.

    TensorFlow fuses a product of matrices with a bias that is its op `BiasAdd`, and
    with GELU behind it, but not with the sum that Keras writes: a block in float32
    takes a twelfth less time, one in bfloat16 an eighth.

    Call: `inputs` [N, D]. Returns [N, units].
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        x = ops.matmul(inputs, self.kernel)
        if self.bias is not None and keras.config.backend() == "tensorflow":
            import tensorflow as tf

            x = tf.nn.bias_add(x, ops.convert_to_tensor(self.bias))
        elif self.bias is not None:
            x = ops.add(x, self.bias)
        return x if self.activation is None else self.activation(x)

    # Keras writes the sum of kernel and LoRA's product, and reads both matrices as 0,
    # which then have no gradient. They are written, too, for layers that have LoRA.

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if self.lora_enabled:
            for name in _LORA:
                store[name] = getattr(self, name)

    def load_own_variables(self, store: Any) -> None:
        own = {name: store[name] for name in store.keys() if name not in _LORA}
        super().load_own_variables(own)
        if self.lora_enabled and len(own) < len(store.keys()):
            for name in _LORA:
                getattr(self, name).assign(store[name])
            scale = self.lora_alpha / self.lora_rank
            product = ops.matmul(self.lora_kernel_a, self.lora_kernel_b) * scale
            self._kernel.assign(self._kernel - ops.cast(product, self._kernel.dtype))

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Quantize as Keras's layer does, which refuses its subclasses by default."""
        super().quantize(mode, type_check=False, config=config)


@keras.saving.register_keras_serializable(package="bert_keras")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras's layer normalization of the last axis, in fewer passes over memory.

    Mean and variance are float32 under any dtype policy.

    Call: `inputs` [..., D]. Returns [..., D] in the compute dtype.
    """

    def call(self, inputs: Any) -> Any:
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        # A tuple: OpenVINO expects a list of axes.
        x = x - ops.mean(x, axis=(-1,), keepdims=True)
        if is_for_engines():
            variance = ops.mean(ops.power(x, 2.0), axis=(-1,), keepdims=True)
            x = x / ops.sqrt(variance + self.epsilon)
            return x * ops.cast(self.gamma, x.dtype) + ops.cast(self.beta, x.dtype)
        variance = ops.mean(ops.square(x), axis=(-1,), keepdims=True)
        # Not `x * (rsqrt * gamma)`: TensorFlow 2.21 would fuse that form into a kernel
        # of oneDNN, but with its own epsilon.
        x = x * ops.rsqrt(variance + self.epsilon) * ops.cast(self.gamma, x.dtype)
        return ops.cast(x + ops.cast(self.beta, x.dtype), self.compute_dtype)


class TokenEmbedding(keras.layers.Layer):
    """The table of token embeddings of an encoder as a separate layer.

    Args:
        table: the weight [V, H], shared with the encoder.

    Call: `inputs` int32 [...]. Returns [..., H]; with `reverse=True` the logits
    [..., V] of vectors [..., H].
    """

    def __init__(self, table: Any) -> None:
        super().__init__(name="token_embedding")
        self.embeddings = table
        self.input_dim, self.output_dim = table.shape
        self.built = True

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        table = ops.convert_to_tensor(self.embeddings)
        if reverse:
            return ops.matmul(inputs, ops.transpose(table))
        return ops.take(table, inputs, axis=0)


@keras.saving.register_keras_serializable(package="bert_keras")
class FirstTokens(Configured, keras.layers.Layer):
    """The hidden state of each text's first token, `[CLS]`.

    Call: `x` [B, T, H] and, for packed rows, `cls_positions` int32 [S] into the B*T
    tokens. Returns [B, H], or [S, H].
    """

    def call(self, x: Any, cls_positions: Any = None) -> Any:
        return first_tokens(x, cls_positions)


@keras.saving.register_keras_serializable(package="bert_keras")
class Pooler(Configured, keras.layers.Layer):
    """Dense + tanh on the final hidden state of `[CLS]`: the vector C of the paper.

    DistilBERT and ELECTRA have such a layer in their classifiers, with relu and gelu.

    Args:
        hidden_size, initializer_range: as in `BertConfig`.
        pooler_act: `tanh`, or another activation of `BertConfig`.
        seed: seed of the initializer.

    Call: `x` [B, H]. Returns [B, H].
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        initializer_range: float = 0.02,
        pooler_act: str = "tanh",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.initializer_range = initializer_range
        self.pooler_act = pooler_act
        self.seed = seed
        self.dense = Dense(
            hidden_size,
            activation=activation(pooler_act),
            kernel_initializer=initializer(initializer_range, seed, always=True),
            dtype=self.dtype_policy,
            name="dense",
        )

    def build(self, *_: Any) -> None:
        self.dense.build((None, self.hidden_size))

    def call(self, x: Any) -> Any:
        return self.dense(x)


@keras.saving.register_keras_serializable(package="bert_keras")
class PooledTexts(keras.layers.Layer):
    """An encoder's pooler as a layer beside the encoder.

    Args:
        pooler: the encoder's.

    Call: `x` [B, T, H] and, for packed rows, `cls_positions` int32 [S], as of
    `FirstTokens`. Returns [B, H], or [S, H].
    """

    def __init__(self, pooler: Pooler, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pooler = pooler

    def build(self, *_: Any) -> None:
        if not self.pooler.built:
            self.pooler.build()

    def call(self, x: Any, cls_positions: Any = None) -> Any:
        return self.pooler(first_tokens(x, cls_positions))

    def get_config(self) -> dict[str, Any]:
        pooler = keras.saving.serialize_keras_object(self.pooler)
        return {**super().get_config(), "pooler": pooler}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> PooledTexts:
        pooler = keras.saving.deserialize_keras_object(config["pooler"])
        return cls(**{**config, "pooler": pooler})


class EveryToken:
    """All tokens of all rows.

    Args:
        x: [B, T, H], what goes into a block.
        bias: float32 [B, 1, 1 or T, T], added to the attention scores.

    Attributes:
        x: [Q, H], of the wanted tokens alone.
        count: q, how many of them share the same keys.
        bias: float32 [Q / q, 1, 1 or q, T], the bias of these tokens.
    """

    def __init__(self, x: Any, bias: Any) -> None:
        self._shape = shape_of(x)
        self.x = ops.reshape(x, (-1, x.shape[-1]))
        self.count = self._shape[1]
        self.bias = bias

    def of_row(self, values: Any) -> Any:
        """Repeat values [B, …] for each group of tokens that share them."""
        return values

    def laid(self, x: Any) -> Any:
        """Reshape [Q, H] to the block's output shape."""
        return ops.reshape(x, self._shape)


class FirstOfTexts(EveryToken):
    """The first token of each text, `x` [S, H].

    `cls_positions`, int32 [S], are their places in the B*T tokens, for packed rows.
    """

    def __init__(self, x: Any, bias: Any, cls_positions: Any) -> None:
        self.x, self.count = first_tokens(x, cls_positions), 1
        self._rows = None  # one text per row
        if cls_positions is None:
            self.bias = bias[:, :, :1]
            return
        length = ops.shape(x)[1]
        self._rows = cls_positions // length
        if bias.shape[2] == 1:
            self.bias = self.of_row(bias)
        else:
            by_token = ops.reshape(bias, (-1, 1, 1, length))
            self.bias = ops.take(by_token, cls_positions, axis=0)

    def of_row(self, values: Any) -> Any:
        return values if self._rows is None else ops.take(values, self._rows, axis=0)

    def laid(self, x: Any) -> Any:
        return x


class TokensAt(EveryToken):
    """Some tokens of each row, at `columns`, int32 [B, P]; below 0 is read as 0."""

    def __init__(self, x: Any, bias: Any, columns: Any) -> None:
        rows, count = shape_of(columns)
        self._shape = (rows, count, x.shape[-1])
        self.x, self.count, self.bias = tokens_at(x, columns), count, bias
        if bias.shape[2] != 1:
            shape = (rows, 1, count, shape_of(x)[1])
            self.bias = ops.reshape(tokens_at(bias[:, 0], columns), shape)


def first_tokens(x: Any, cls_positions: Any = None) -> Any:
    """Return the first token of each text, [B, H] or [S, H], of `x` [B, T, H].

    `cls_positions` int32 [S] are their places in the B*T tokens, for packed rows.
    """
    if cls_positions is None:
        return x[:, 0]
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), cls_positions, axis=0)


def tokens_at(x: Any, columns: Any) -> Any:
    """Return `x` [B, T, D] at `columns` int32 [B, P], below 0 read as 0: [B * P, D]."""
    rows, length, width = shape_of(x)
    columns = ops.maximum(ops.cast(columns, "int32"), 0)
    places = ops.arange(rows, dtype="int32")[:, None] * length + columns
    return ops.take(ops.reshape(x, (-1, width)), ops.reshape(places, (-1,)), axis=0)


def shape_of(x: Any) -> tuple[Any, ...]:
    """Return the shape of `x`, with static sizes as numbers."""
    # On TensorFlow a call adds ops for each size that is not static.
    return tuple(ops.shape(x)) if None in tuple(x.shape) else tuple(x.shape)
