"""The BERT decoder: `CrossAttention`, `DecoderBlock` and `BertDecoder`.

The blocks are encoder blocks with a causal mask, and with attention to the
encoder's output between self-attention and feed-forward layer.

Source: Rothe, Narayan and Severyn 2020 (arXiv:1907.12461), section 2; Vaswani et al.
2017 (arXiv:1706.03762), section 3; Hugging Face transformers, `BertLMHeadModel` and
`EncoderDecoderModel`, whose weights have the same names after `decoder`.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_keras.config import BertConfig
from bert_keras.errors import ConfigError
from bert_keras.model import layers
from bert_keras.model.block import Attention, Block
from bert_keras.model.encoder import (
    TARGET,
    BertEncoder,
    FromConfig,
    named_inputs,
    with_optional,
)
from bert_keras.model.heads import MaskedLMHead
from bert_keras.model.layers import EveryToken, initializer, moved

# Keys and values of each block: [Q, N, D, T] and [Q, N, T, D].
Past = list[tuple[Any, Any]]


@keras.saving.register_keras_serializable(package="bert_keras")
class CrossAttention(Attention):
    """Attention of a decoder's tokens to an encoder's, with its LayerNorm.

    Call: `x` [Q, H], keys and values of the encoder's rows from `keys_and_values`,
    `bias` float32, two seeds of dropout or `None`, and how many tokens attend to a row.
    Returns `LN(x + Dropout(Attention(x)))`, [Q, H].
    """

    def call(self, x: Any, memory: Any, bias: Any, *, seeds: Any, count: Any) -> Any:
        context, _ = self.attend(x, memory, bias, seeds[0], count=count)
        return self.add_context(x, context, seeds[1])


@keras.saving.register_keras_serializable(package="bert_keras")
class DecoderBlock(keras.layers.Layer):
    """A block with cross-attention between self-attention and feed-forward layer.

    Args:
        block: a built `Block`; an encoder's block is shared with it.
        cross_attention: a built `CrossAttention`.

    Call: `x` [B, T, H] and its `bias` float32 [B, 1, T, T] (causal), the encoder's
    output `memory` [B, S, H] and its `memory_bias` float32 [B, 1, 1 or T, S]. Returns
    [B, T, H].
    """

    def __init__(
        self, block: Block, cross_attention: CrossAttention, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.block = block
        self.cross_attention = cross_attention
        self.built = True

    def call(
        self,
        x: Any,
        bias: Any,
        memory: Any,
        memory_bias: Any,
        training: bool | None = None,
    ) -> Any:
        seeds = self.block.draw_seeds(3, training)
        seeds += self.cross_attention.draw_seeds(2, training)
        drops = seeds[0] is not None and seeds[3] is not None

        def forward(
            x: Any, bias: Any, memory: Any, memory_bias: Any, *drawn: Any
        ) -> Any:
            x = ops.cast(x, self.compute_dtype)
            return self._forward(
                EveryToken(x, bias),
                self.block.keys_and_values(x),
                self.memory(memory),
                memory_bias,
                drawn if drops else seeds,
                training,
            )

        if self.block.rematerialize and training:
            forward = keras.remat(forward)
        return forward(x, bias, memory, memory_bias, *(seeds if drops else ()))

    def _forward(
        self,
        wanted: EveryToken,
        past: tuple[Any, Any],
        memory: tuple[Any, Any],
        memory_bias: Any,
        seeds: Any = (None,) * 5,
        training: Any = False,
        count: Any = None,
    ) -> Any:
        def between(x: Any) -> Any:
            shared = wanted.count if count is None else count
            return self.cross_attention(
                x, memory, memory_bias, seeds=seeds[3:], count=shared
            )

        return self.block.transform(
            wanted, past, seeds[:3], training=training, between=between
        )[0]

    def memory(self, x: Any) -> tuple[Any, Any]:
        """Return the keys and values of an encoder's output [B, S, H]."""
        return self.cross_attention.keys_and_values(ops.cast(x, self.compute_dtype))

    def step(
        self, x: Any, past: tuple[Any, Any], memory: tuple[Any, Any], memory_bias: Any
    ) -> tuple[Any, tuple[Any, Any]]:
        """Return the output of one more token of each row, and the grown cache.

        Args:
            x: [Q, 1, H].
            past: keys and values of the tokens before it; it attends to all of them.
            memory: what `memory` returned for B rows; Q is a multiple of B.
            memory_bias: float32 [B, 1, 1, S].
        """
        k, v = self.block.keys_and_values(x)
        past = (
            ops.concatenate([past[0], k], axis=3),
            ops.concatenate([past[1], v], axis=2),
        )
        rows = layers.shape_of(memory[0])[0]
        count = layers.shape_of(x)[0] // rows
        wanted = EveryToken(x, ops.zeros((1, 1, 1, 1), "float32"))
        x = self._forward(wanted, past, memory, memory_bias, count=count)
        return x, past

    def compute_output_spec(self, x: Any, *_: Any, training: Any = None) -> Any:
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)


def target_inputs() -> dict[str, Any]:
    """Return Keras inputs of the targets; packed rows add optional ones.

    `target_token_ids` int32 [R, T] begin with `[CLS]` and end before `[SEP]`, which is
    what the last of them predicts; `target_padding_mask`, `target_position_ids` and
    `target_sequence_ids` are as in `batch_inputs`. A target attends to the source
    of the same row and of the same number in `sequence_ids`.
    """
    names = ("token_ids", "padding_mask", "position_ids", "sequence_ids")
    return named_inputs(f"{TARGET}{name}" for name in names)


@keras.saving.register_keras_serializable(package="bert_keras")
class BertDecoder(FromConfig, keras.Model):
    """The BERT decoder as a functional model.

    Inputs are a dict: the entries of `target_inputs`; the encoder's output `memory`
    [R, S, E], its `padding_mask` int32 [R, S] and, for packed rows, its `sequence_ids`.
    The output is the logits, float32 [R, T, V].

    `start` and `step` decode one token at a time, with cached keys and values.

    Args:
        config: sizes and rates; attention is causal whatever its `is_decoder`.
        memory_size: width E of the encoder; if it is not the decoder's own width, the
            weights `enc_to_dec_proj` project it.
        shared: an encoder of the same sizes, whose embeddings and blocks the decoder
            uses as its own; cross-attention and output are never shared.
        tied: whether the output shares the table of the token embeddings.
        rematerialize: recompute each block in the backward pass to save memory.
        seed: seed of initializers and dropout.
        dtype: dtype policy, as in `BertEncoder`.

    Example:
        >>> decoder = BertDecoder(BertConfig.from_preset("tiny"))
        >>> started = decoder.start(np.ones((1, 4, 128)), np.ones((1, 4)))
        >>> logits, past = decoder.step(
        ...     np.array([101]), 0, decoder.no_past(1), started)
        >>> tuple(logits.shape)
        (1, 30522)
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        memory_size: int | None = None,
        shared: BertEncoder | None = None,
        tied: bool = True,
        rematerialize: bool = False,
        seed: int | None = None,
        dtype: Any = None,
        name: str = "decoder",
    ) -> None:
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        memory_size = memory_size or config.hidden_size
        if (
            shared is not None
            and shared.config.replace(is_decoder=config.is_decoder) != config
        ):
            raise ConfigError("`shared` must be an encoder of the decoder's `config`")
        memory = keras.Input(
            (None, memory_size), dtype=dtype.compute_dtype, name="memory"
        )
        of_memory = named_inputs(("padding_mask", "sequence_ids"))
        inputs = {**target_inputs(), **of_memory, "memory": memory}
        projection = None
        if memory_size != config.hidden_size:
            projection = keras.layers.Dense(
                config.hidden_size,
                kernel_initializer=initializer(config.initializer_range, seed, 7),
                dtype=dtype,
                name="enc_to_dec_proj",
            )
            memory = projection(memory)
        ids, mask = inputs[f"{TARGET}token_ids"], inputs[f"{TARGET}padding_mask"]
        texts = inputs[f"{TARGET}sequence_ids"]
        bias = layers.AttentionBias(causal=True, dtype=dtype)(mask, texts)
        memory_bias = layers.AttentionBias(dtype=dtype)(
            inputs["padding_mask"], inputs["sequence_ids"], texts
        )
        with keras.name_scope("decoder"):
            with keras.name_scope("bert"):
                if shared is None:
                    embeddings = layers.Embeddings.of(
                        config, seed=seed, dtype=dtype, name="embeddings"
                    )
                else:
                    embeddings = shared.embeddings
                x = embeddings(
                    ids, ops.zeros_like(ids), inputs[f"{TARGET}position_ids"]
                )
                blocks = []
                with keras.name_scope("encoder"):
                    for index in range(config.num_hidden_layers):
                        block = _block(
                            index,
                            config,
                            None if shared is None else shared.blocks[index],
                            rematerialize=rematerialize,
                            seed=seed,
                            dtype=dtype,
                        )
                        blocks.append(block)
                        x = block(x, bias, memory, memory_bias)
            head = MaskedLMHead.of(
                config, seed=moved(seed, 16 * (len(blocks) + 1)), tied=tied, dtype=dtype
            )
            logits = head(x, embeddings(ids, ids, table_only=True) if tied else None)
        super().__init__(inputs, logits, name=name)
        self.config = config
        self.embeddings = embeddings
        self.blocks = blocks
        self.head = head
        self.projection = projection
        self.is_shared = shared is not None
        self._settings = {
            "memory_size": memory_size,
            "tied": tied,
            "rematerialize": rematerialize,
            "seed": seed,
            "dtype": keras.dtype_policies.serialize(dtype),
        }

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(inputs, dict):
            inputs = with_optional(inputs, self._inputs_struct)
        return super().__call__(inputs, *args, **kwargs)

    def start(self, memory: Any, padding_mask: Any) -> dict[str, Any]:
        """Return what every step reads of the encoder's output.

        Args:
            memory: [B, S, E].
            padding_mask: int32 [B, S].

        Returns:
            `bias` float32 [B, 1, 1, S]; `memory`, keys and values of each block; and
            `table` [H, V], the table of the output, transposed.
        """
        if self.projection is not None:
            memory = self.projection(memory)
        allowed = ops.cast(padding_mask, "bool")[:, None, None, :]
        return {
            "bias": ops.where(allowed, 0.0, ops.cast(layers.MASKED, "float32")),
            "memory": [block.memory(memory) for block in self.blocks],
            # Transposed once: products with few rows take a quarter less time then.
            "table": ops.transpose(self.token_table(padding_mask)),
        }

    def no_past(self, rows: Any) -> Past:
        """Return the empty cache of this many rows."""
        heads, width = self.config.num_attention_heads, self.config.head_width
        return [
            (
                ops.zeros((rows, heads, width, 0), self.blocks[0].compute_dtype),
                ops.zeros((rows, heads, 0, width), self.blocks[0].compute_dtype),
            )
            for _ in self.blocks
        ]

    def step(
        self, token_ids: Any, place: Any, past: Past, started: dict[str, Any]
    ) -> tuple[Any, Past]:
        """Return the logits of the next token of each row, and the grown cache.

        Only the attention to earlier tokens makes later steps slower.

        Args:
            token_ids: int32 [Q], the last token of each row.
            place: int32 [], its position, from 0.
            past: the cache of the tokens before it, see `no_past`.
            started: what `start` returned for B rows; Q is a multiple of B, and
                consecutive rows read the same source.

        Returns:
            float32 [Q, V] and the cache.
        """
        ids = token_ids[:, None]
        x = self.embeddings(ids, ops.zeros_like(ids), ops.zeros_like(ids) + place)
        grown: Past = []
        for block, one, memory in zip(
            self.blocks, past, started["memory"], strict=True
        ):
            x, kept = block.step(x, one, memory, started["bias"])
            grown.append(kept)
        return self.head(x, started["table"], is_transposed=True)[:, 0], grown

    def token_table(self, ids: Any) -> Any:
        """Return the table of the output [V, H], in the graph of `ids`."""
        if self.head.tied:
            return self.embeddings(ids, ids, table_only=True)
        return self.head.own_table()

    def get_config(self) -> dict[str, Any]:
        if self.is_shared:
            raise ConfigError(
                "a decoder that shares an encoder's weights is saved with it, as a "
                "`BertEncoderDecoder`"
            )
        config: dict[str, Any] = super().get_config()
        return config


def _block(
    index: int,
    config: BertConfig,
    shared: Block | None,
    *,
    rematerialize: bool,
    seed: int | None,
    dtype: Any,
) -> DecoderBlock:
    """Return a block of the decoder, built in the scope of its name."""
    name = f"layer_{index}"
    # Sixteen apart: a block and its cross-attention each derive several seeds.
    seed = moved(seed, 16 * (index + 1))
    if shared is None:
        shared = Block.of(
            config, rematerialize=rematerialize, seed=seed, dtype=dtype, name=name
        )
        shared.build()
    with keras.name_scope(name):
        cross = CrossAttention.of(
            config, seed=moved(seed, 8), dtype=dtype, name="crossattention"
        )
        cross.build()
    return DecoderBlock(shared, cross, dtype=dtype, name=f"decoder_{name}")
