"""`BertEncoder`: a batch dict in, an output dict out, a functional Keras model.

A quantized model can predict and be exported as a SavedModel. It cannot be saved in
another way: model folders have no such weights, and a `.keras` file with nested layers,
such as the blocks, does not load again (Keras 3.15).

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from bert_keras.config import BertConfig
from bert_keras.errors import ConfigError
from bert_keras.model import layers
from bert_keras.model.block import Block
from bert_keras.model.layers import moved, undrawn
from bert_keras.settings import check_whole_number

if TYPE_CHECKING:
    from bert_keras.checkpoints import Checkpoint


# Not a model itself: Keras makes the bases of a functional model functional, once each.
_Model: Any = keras.Model if TYPE_CHECKING else object


def _is_dense(layer: Any) -> bool:
    return isinstance(layer, keras.layers.Dense | keras.layers.EinsumDense)


def frozen_paths(model: keras.Model) -> list[str]:
    """Return the paths of the layers that are not trainable, for `get_config`."""
    layers = model._flatten_layers()
    return [each.path for each in layers if each.weights and not each.trainable]


def with_frozen(kind: Any, settings: dict[str, Any]) -> Any:
    """Return a model of a class, after freezing its layers of the paths in `frozen`."""
    frozen = settings.pop("frozen", ())
    model = kind(**settings)
    for layer in model._flatten_layers():
        if layer.path in frozen:
            layer.trainable = False
    return model


class FromConfig(_Model):
    """A base of models of a `BertConfig` and `_settings`, other arguments.

    A `.keras` file also holds which layers are frozen. `quantize` skips layers without
    matrix products.
    """

    def get_config(self) -> dict[str, Any]:
        check_not_quantized(self, "saved as a `.keras` file")
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "frozen": frozen_paths(self),
            **self._settings,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        settings = dict(config)
        settings["config"] = BertConfig.from_dict(settings["config"], ignore=())
        settings["dtype"] = keras.dtype_policies.deserialize(settings["dtype"])
        return with_frozen(cls, settings)

    def quantize(
        self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantize the dense layers for inference, as `keras.Model.quantize` does.

        Args:
            mode: `int8`, `int4` or `float8`.
            config: a `keras.quantizers.QuantizationConfig`, instead of a mode.
            filters: selects layers, see Keras; by default all dense layers.
        """
        if filters is None:  # Keras warns of each layer that it cannot quantize
            filters = _is_dense
        super().quantize(mode, config=config, filters=filters, **kwargs)


class BatchModel(FromConfig):
    """A base of models of batch dicts, which completes the inputs that they omit."""

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(inputs, dict):
            inputs = complete(inputs, self._inputs_struct)
        return super().__call__(inputs, *args, **kwargs)


def check_not_quantized(model: keras.Model, what: str) -> None:
    """Raise ConfigError if weights are quantized, which file formats cannot store."""
    if any(weight.path.endswith("/kernel_scale") for weight in model.weights):
        raise ConfigError(
            f"a quantized model cannot be {what}: save it before `quantize`, or export "
            "it as a SavedModel"
        )


REQUIRED_INPUTS = ("token_ids", "segment_ids", "padding_mask")
# Additional inputs of packed rows: see `packing.pack_rows`.
PACKED_INPUTS = ("position_ids", "sequence_ids", "cls_positions")


def batch_inputs(*, cls_positions: bool = True) -> dict[str, Any]:
    """Return Keras inputs for one batch dict, those of packed rows optional.

    Without `cls_positions` for models that do not read them: Keras 3.12 rejects models
    with an unused input.
    """
    found = _inputs()
    if not cls_positions:
        del found["cls_positions"]
    return found


def choice_inputs() -> dict[str, Any]:
    """Return Keras inputs of a batch dict of choices.

    Padded: `token_ids`, `segment_ids`, `padding_mask` int32 [B, C, T], with a text of
    only padding if a row has fewer choices, as in Hugging Face. Packed: these, with
    `position_ids` and `sequence_ids`, are [R, 1, T], and `cls_positions` [B, C] holds
    the start of each choice, -1 if there is none.
    """
    return _inputs(None)


def _inputs(*axes: None) -> dict[str, Any]:
    """Return Keras inputs of a batch dict, with axes before that of the tokens."""
    return {
        name: keras.Input(
            axes if name == "cls_positions" else (*axes, None),
            dtype="int32",
            name=name,
            optional=is_optional(name),
        )
        for name in (*REQUIRED_INPUTS, *PACKED_INPUTS)
    }


def complete(inputs: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the inputs of a model from a batch dict, with defaults for omitted ones.

    Omitted inputs are `None`, which means one text per row. In a functional model under
    construction Keras requires tensors, so equivalent ones are computed. Entries that
    the model does not read, those for a task's answers, are left out.

    Raises:
        ConfigError: an input that every model needs is left out.
    """
    left_out = [name for name in REQUIRED_INPUTS if name not in inputs]
    if left_out:
        raise ConfigError(
            f"a batch must hold {_listed(REQUIRED_INPUTS)}; without "
            f"{_listed(left_out)}, received {_listed(list(inputs)) or 'no entries'}"
        )
    return with_optional(inputs, names)


def with_optional(inputs: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return those inputs of a model that a batch has, and the optional ones."""
    found = {name: inputs[name] for name in names if name in inputs}
    missing = [name for name in names if is_optional(name) and name not in inputs]
    computes = keras.utils.is_keras_tensor(inputs.get("padding_mask"))
    return found | {n: _of_one_text(n, inputs) if computes else None for n in missing}


TARGET = "target_"  # precedes the names of a decoder's own inputs


def is_optional(name: str) -> bool:
    """Return whether an input is one of packed rows, of an encoder or a decoder."""
    return name.removeprefix(TARGET) in PACKED_INPUTS


def _of_one_text(name: str, inputs: dict[str, Any]) -> Any:
    """Return the input of packed rows that is equivalent to one text per row."""
    kind = name.removeprefix(TARGET)
    ones = ops.ones_like(inputs[f"{name.removesuffix(kind)}padding_mask"])
    if kind == "position_ids":
        return ops.cumsum(ones, axis=1) - 1
    if kind == "sequence_ids":
        return ones
    return ops.cumsum(ops.sum(ones, axis=1)) - ops.sum(ones, axis=1)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def seed_behind(config: BertConfig, seed: int) -> int:
    """Return the first seed that no block and no embedding of an encoder uses.

    An encoder's pooler uses it; heads use the next ones.
    """
    return seed + 8 * (config.num_hidden_layers + 1)


@keras.saving.register_keras_serializable(package="bert_keras")
class BertEncoder(BatchModel, keras.Model):
    """The BERT encoder as a functional model.

    Inputs are a dict of int32 [B, T]: `token_ids`, `segment_ids`, `padding_mask`
    (1 = real). Rows that hold several texts add `position_ids` and `sequence_ids`
    [B, T] (which text of the row a token belongs to, from 1; attention never crosses
    texts) and `cls_positions` [S], where each of the S texts starts, counted through
    the rows laid end to end.

    Outputs are a dict: `sequence_output` [B, T, H]; `pooled_output`, the pooler's
    vector of each text, [B, H] or [S, H]; if requested, `hidden_states`, a list of L +
    1 [B, T, H] from the embeddings to the last block, and `attentions`, a list of L
    [B, N, T, T].

    Args:
        config: sizes and rates; `config.is_decoder` makes attention causal.
        pooler: whether the model has the pooler.
        outputs: extra outputs: `hidden_states`, `attentions`.
        rematerialize: recompute each block in the backward pass to save memory.
        attention: `written`, or `fused` by the backend's own operation (JAX: cuDNN's
            on a GPU; torch), see `Block`.
        seed: seed of initializers and dropout.
        dtype: dtype policy: `float32`, `mixed_bfloat16` or `mixed_float16`.

    Attributes:
        source: origin of the weights, usually a folder; `None` if they are random.

    Raises:
        ConfigError: `outputs` or `attention` has another value, or fused attention is
            asked for its probabilities.

    Example:
        >>> encoder = BertEncoder(BertConfig.from_preset("tiny"))
        >>> ids = np.array([[101, 7592, 102]])
        >>> zeros = np.zeros_like(ids)
        >>> batch = {"token_ids": ids, "segment_ids": zeros, "padding_mask": zeros + 1}
        >>> tuple(encoder(batch)["pooled_output"].shape)
        (1, 128)
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        pooler: bool = True,
        outputs: tuple[str, ...] = (),
        rematerialize: bool = False,
        attention: str = "written",
        seed: int | None = None,
        dtype: Any = None,
        name: str = "bert",
    ) -> None:
        if attention == "fused" and "attentions" in outputs:
            raise ConfigError(
                "`attention` must be 'written' for the output `attentions`; "
                "received 'fused'"
            )
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        inputs = batch_inputs(cls_positions=pooler)
        # Layers are built inside these scopes, which gives weights Google's names.
        with keras.name_scope("bert"):
            embeddings = layers.Embeddings.of(
                config, seed=seed, dtype=dtype, name="embeddings"
            )
            attention_bias = layers.AttentionBias(
                causal=config.is_decoder, dtype=dtype, name="attention_bias"
            )
            bias = attention_bias(inputs["padding_mask"], inputs["sequence_ids"])
            x = embeddings(
                inputs["token_ids"], inputs["segment_ids"], inputs["position_ids"]
            )
            hidden_states, attentions, blocks = [x], [], []
            with keras.name_scope("encoder"):
                for index in range(config.num_hidden_layers):
                    block = Block.of(
                        config,
                        rematerialize=rematerialize,
                        attention=attention,
                        # Eight apart: a block derives several seeds from its own.
                        seed=moved(seed, 8 * (index + 1)),
                        dtype=dtype,
                        name=f"layer_{index}",
                    )
                    blocks.append(block)
                    x, probabilities = block(x, bias)
                    hidden_states.append(x)
                    attentions.append(probabilities)
            results = {"sequence_output": x}
            if pooler:
                first = layers.FirstTokens(name="first_tokens", dtype=dtype)(
                    x, inputs["cls_positions"]
                )
                pool = layers.Pooler.of(
                    config,
                    # After those of the last block: equal seeds draw equal numbers.
                    seed=None if seed is None else seed_behind(config, seed),
                    dtype=dtype,
                    name="pooler",
                )
                results["pooled_output"] = pool(first)
        extra = {"hidden_states": hidden_states, "attentions": attentions}
        for key in outputs:
            if key not in extra:
                raise ConfigError(
                    f"`outputs` must be of {', '.join(extra)}; received {key!r}"
                )
            results[key] = extra[key]
        super().__init__(inputs, results, name=name)
        self.config = config
        self.embeddings = embeddings
        self.attention_bias = attention_bias
        self.blocks = blocks
        self.pooler = pool if pooler else None
        self.source: str | None = None
        self._settings = {
            "pooler": pooler,
            "outputs": tuple(outputs),
            "rematerialize": rematerialize,
            "attention": attention,
            "seed": seed,
            "dtype": keras.dtype_policies.serialize(dtype),
        }

    def pool(self, inputs: dict[str, Any]) -> Any:
        """Return only the `pooled_output` of a batch dict, [B, H] or [S, H].

        Equal to the output of that name, but the last block computes only the tokens
        that the pooler reads. The encoder must have a pooler.
        """
        if self.pooler is None:
            raise ConfigError("`pooler` must be True for a pooled output")
        inputs = complete(inputs, self._inputs_struct)
        x, bias = self._below_last(inputs)
        return self.pooler(self._first_tokens(x, bias, inputs))

    def read_at(self, inputs: dict[str, Any], columns: Any) -> dict[str, Any]:
        """Return the outputs of a batch dict only at some tokens.

        `sequence_output` [R, P, H] at `columns` int32 [R, P] of its R rows (below 0
        read as 0) and, of an encoder with the pooler, `pooled_output`: equal to the
        outputs of these names there, with less work in the last block.
        """
        inputs = complete(inputs, self._inputs_struct)
        x, bias = self._below_last(inputs)
        chosen, _ = self.blocks[-1](x, bias, columns=columns)
        if self.pooler is None:
            return {"sequence_output": chosen}
        pooled = self.pooler(self._first_tokens(x, bias, inputs))
        return {"sequence_output": chosen, "pooled_output": pooled}

    def _below_last(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """Return what the last block reads of a complete batch dict."""
        bias = self.attention_bias(inputs["padding_mask"], inputs["sequence_ids"])
        x = self.embeddings(
            inputs["token_ids"], inputs["segment_ids"], inputs["position_ids"]
        )
        for block in self.blocks[:-1]:
            x, _ = block(x, bias)
        return x, bias

    def _first_tokens(self, x: Any, bias: Any, inputs: dict[str, Any]) -> Any:
        """Return the last block's output at each text's first token, [B or S, H]."""
        first, _ = self.blocks[-1](x, bias, inputs["cls_positions"], first_only=True)
        return first

    def token_table(self, inputs: dict[str, Any]) -> Any:
        """Return the table of token embeddings [V, H], for a tied head.

        A tensor in the graph of `inputs`, so that gradients reach it.
        """
        return self.embeddings(
            inputs["token_ids"], inputs["segment_ids"], table_only=True
        )

    @property
    def token_embedding(self) -> layers.TokenEmbedding:
        """The table of token embeddings as a layer, as in KerasHub's backbones."""
        return layers.TokenEmbedding(self.embeddings.word_embeddings)

    def enable_lora(self, rank: int, *, seed: int | None = None) -> None:
        """Train query and value of each block by matrices of this rank (LoRA).

        All other weights below the pooler are frozen, in every model that uses the
        encoder.

        Raises:
            ConfigError: the rank does not fit, or the encoder already has LoRA.
        """
        from bert_keras.model.lora import add_lora, has_lora

        check_whole_number("rank", rank, least=1)
        if has_lora(self):
            raise ConfigError("`enable_lora` must be called once for an encoder")
        add_lora(self, rank, seed=seed)

    @classmethod
    def from_pretrained(cls, path: str | Checkpoint, **settings: Any) -> BertEncoder:
        """Return the encoder of a folder, checkpoint or hub name, with its weights.

        Args:
            path: Hugging Face folder, Google checkpoint, `hf://owner/name`, or what
                `read_checkpoint` returned.
            **settings: arguments of the constructor. `pooler=True` gives a new pooler
                where the checkpoint has none; by default the encoder then has none.

        Raises:
            CheckpointError: a part is missing, broken or of another shape.
        """
        # The file readers are imported only when needed.
        from bert_keras.checkpoints import has_pooler, read_checkpoint
        from bert_keras.runs.progress import say

        checkpoint = read_checkpoint(path)
        encoder = cls.from_checkpoint(checkpoint, **settings)
        encoder.source = str(path)
        if encoder.pooler is not None and not has_pooler(checkpoint):
            say(f"{path}: the checkpoint has no pooler: it is initialized randomly")
        return encoder

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, **settings: Any) -> BertEncoder:
        """Return the encoder of an open checkpoint; see `from_pretrained`."""
        from bert_keras.checkpoints import assign, check_encoder, has_pooler

        check_encoder(checkpoint)
        pooled = has_pooler(checkpoint)
        with undrawn():
            encoder = cls(checkpoint.config, **{"pooler": pooled, **settings})
        # Heads, including those of users' own tasks, are not part of the encoder.
        scopes = {f"{name.split('/')[0]}/" for name in checkpoint.shapes}
        optional = tuple(scopes - {"bert/"})
        if not pooled or not settings.get("pooler", True):
            optional += ("bert/pooler/",)
        assign(encoder, checkpoint, optional=optional)
        return encoder
