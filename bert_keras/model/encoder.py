"""`BertEncoder`: a batch dict in, an output dict out, a functional Keras model.

A quantized model can predict and be exported as a SavedModel. It cannot be saved in
another way: model folders have no such weights, and a `.keras` file with nested layers,
such as the blocks, does not load again (Keras 3.15).

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from bert_keras.config import WINDOW_STARTS, BertConfig
from bert_keras.errors import ConfigError
from bert_keras.model import layers
from bert_keras.model.block import Attention, Block
from bert_keras.model.layers import moved, undrawn
from bert_keras.model.lora import add_lora, has_lora
from bert_keras.model.quantization import check_not_quantized, is_dense
from bert_keras.settings import check_type, check_whole_number

if TYPE_CHECKING:
    from bert_keras.checkpoints import Checkpoint


# Not a model itself: Keras makes the bases of a functional model functional, once each.
_Model: Any = keras.Model if TYPE_CHECKING else object


def frozen_paths(model: keras.Model) -> list[str]:
    """Return the paths of the layers that are not trainable, for `get_config`."""
    layers = model._flatten_layers()
    return [each.path for each in layers if each.weights and not each.trainable]


def lora_ranks(model: keras.Model) -> dict[str, int]:
    """Return the ranks of the blocks with LoRA by path, for `get_config`."""
    blocks = (each for each in model._flatten_layers() if isinstance(each, Block))
    return {block.path: block.lora_rank for block in blocks if block.lora_rank}


def with_frozen(kind: Any, settings: dict[str, Any]) -> Any:
    """Return a model of a class, with the layers at the paths in `frozen` frozen.

    Blocks get the LoRA of the rank at their path in `lora`.
    """
    frozen, ranks = settings.pop("frozen", ()), settings.pop("lora", {})
    model = kind(**settings)
    for layer in model._flatten_layers():
        if layer.path in ranks:
            layer.enable_lora(ranks[layer.path])
    for layer in model._flatten_layers():
        if layer.path in frozen:
            layer.trainable = False
    return model


def set_dropout(model: keras.Model, rate: float) -> None:
    """Set the dropout of all layers; the configs of the model keep their own rates.

    A head without dropout, such as the one for next sentences, keeps none.

    Raises:
        ConfigError: the embeddings have no dropout, and so no seeds, but `rate` is not
            0.
    """
    for layer in model._flatten_layers():
        own = getattr(layer, "dropout_rate", getattr(layer, "rate", None))
        if rate and own == 0 and isinstance(layer, layers.Embeddings):
            raise ConfigError(
                "`dropout` must be 0 for an encoder whose config has a dropout of 0; "
                f"received {rate:g}"
            )
        for name in ("rate", "dropout_rate", "attention_dropout_rate"):
            if hasattr(layer, name) and (own or isinstance(layer, Attention)):
                setattr(layer, name, rate)


class FromConfig(_Model):
    """A base of models built from a `BertConfig` and other arguments, `_settings`.

    A `.keras` file also holds which layers are frozen or have LoRA. `quantize` skips
    layers without matrix products.
    """

    def get_config(self) -> dict[str, Any]:
        check_not_quantized(self, "saved as a `.keras` file")
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "frozen": frozen_paths(self),
            "lora": lora_ranks(self),
            **self._settings,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        settings = dict(config)
        settings["config"] = BertConfig.from_dict(settings["config"], ignore=())
        settings["dtype"] = keras.dtype_policies.deserialize(settings["dtype"])
        return with_frozen(cls, settings)

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Write a `.keras` file, as `keras.Model.save` does.

        Raises:
            ConfigError: the name ends in `.h5`, which Keras would not open again.
        """
        if str(filepath).endswith((".h5", ".hdf5")):
            raise ConfigError(
                "`filepath` must end in .keras (a folder for other tools: "
                f"`save_model`); received {filepath}"
            )
        super().save(filepath, *args, **kwargs)

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
            filters = is_dense
        super().quantize(mode, config=config, filters=filters, **kwargs)


class BatchModel(FromConfig):
    """A base of models of batch dicts, which completes the inputs that they omit."""

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(inputs, dict):
            inputs = complete(inputs, self._inputs_struct)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        # On JAX, `fit` does not go through `__call__`.
        if isinstance(inputs, dict):
            inputs = complete(inputs, self._inputs_struct)
        return super().call(inputs, training=training, mask=mask)


class PartialModel(BatchModel, keras.Model):
    """A part of another model, from a batch dict to one of its tensors."""


REQUIRED_INPUTS = ("token_ids", "segment_ids", "padding_mask")
# Additional inputs of packed rows: see `packing.pack_rows`.
PACKED_INPUTS = ("position_ids", "sequence_ids", "cls_positions")
INPUTS = (*REQUIRED_INPUTS, *PACKED_INPUTS)


def batch_inputs(*, cls_positions: bool = True) -> dict[str, Any]:
    """Return Keras inputs for one batch dict; inputs of packed rows are optional.

    Without `cls_positions` for models that do not read them: Keras 3.12 rejects models
    with an unused input.
    """
    left_out = () if cls_positions else ("cls_positions",)
    return named_inputs(name for name in INPUTS if name not in left_out)


def choice_inputs() -> dict[str, Any]:
    """Return Keras inputs of a batch dict of choices.

    Padded: `token_ids`, `segment_ids`, `padding_mask` int32 [B, C, T], with a text of
    only padding if a row has fewer choices, as in Hugging Face. Packed: these, with
    `position_ids` and `sequence_ids`, are [R, 1, T], and `cls_positions` [B, C] holds
    the start of each choice, -1 if there is none.
    """
    return named_inputs(INPUTS, None)


def named_inputs(names: Iterable[str], *axes: None) -> dict[str, Any]:
    """Return Keras inputs of a batch dict, with axes before the token axis.

    Those that `is_optional` names are optional.
    """
    return {
        name: keras.Input(
            axes if name == "cls_positions" else (*axes, None),
            dtype="int32",
            name=name,
            optional=is_optional(name),
        )
        for name in names
    }


def complete(inputs: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the inputs of a model from a batch dict, with defaults for omitted ones.

    Omitted inputs are `None`, which means one text per row. In a functional model under
    construction Keras requires tensors, so equivalent ones are computed. Entries that
    the model does not read, such as entries for a task's answers, are left out.

    Raises:
        ConfigError: an input that every model needs is left out.
    """
    check_required(inputs)
    return with_optional(inputs, names)


def check_required(inputs: dict[str, Any]) -> None:
    """Raise ConfigError if a batch dict lacks an input that every model needs."""
    left_out = [name for name in REQUIRED_INPUTS if name not in inputs]
    if left_out:
        raise ConfigError(
            f"a batch must hold {_listed(REQUIRED_INPUTS)}; without "
            f"{_listed(left_out)}, received {_listed(list(inputs)) or 'no entries'}"
        )


def with_optional(inputs: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return those inputs of a model that a batch has, and the optional ones."""
    found = {name: inputs[name] for name in names if name in inputs}
    missing = [name for name in names if is_optional(name) and name not in inputs]
    computes = keras.utils.is_keras_tensor(inputs.get("padding_mask"))
    return found | {n: _of_one_text(n, inputs) if computes else None for n in missing}


TARGET = "target_"  # precedes the names of a decoder's own inputs
# Inputs of a decoder whose sources are read in windows, see `source_inputs`.
MEMORY = "memory_"
MEMORY_PLACES = f"{MEMORY}places"


def is_optional(name: str) -> bool:
    """Return whether an input may be left out: of packed rows, or of windows."""
    return is_of_packed_rows(name) or name == WINDOW_STARTS


def is_of_packed_rows(name: str) -> bool:
    """Return whether an input is for packed rows only, which exports do not take."""
    return name.removeprefix(TARGET).removeprefix(MEMORY) in PACKED_INPUTS


def _of_one_text(name: str, inputs: dict[str, Any]) -> Any:
    """Return the input of packed rows that is equivalent to one text per row."""
    kind = name.removeprefix(TARGET).removeprefix(MEMORY)
    prefix = name.removesuffix(kind)
    like = MEMORY_PLACES if prefix == MEMORY else f"{prefix}padding_mask"
    ones = ops.ones_like(inputs[like])
    if kind == "position_ids":
        return ops.cumsum(ones, axis=1) - 1
    if kind == "sequence_ids":
        return ones
    if kind == WINDOW_STARTS:
        return ops.ones_like(inputs.get("cls_positions", ones[:, 0]))
    return ops.cumsum(ops.sum(ones, axis=1)) - ops.sum(ones, axis=1)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def encode(
    embeddings: Any, attention_bias: Any, blocks: Iterable[Any], inputs: dict[str, Any]
) -> tuple[list[Any], list[Any], Any]:
    """Run the layers of an encoder on a batch dict.

    Returns:
        the hidden states from the embeddings on, each [B, T, H]; the attention
        probabilities of each block, [B, N, T, T]; the attention bias.
    """
    bias = attention_bias(inputs["padding_mask"], inputs.get("sequence_ids"))
    x = embeddings(
        inputs["token_ids"], inputs["segment_ids"], inputs.get("position_ids")
    )
    hidden_states, attentions = [x], []
    # The first call builds a block, and this scope gives its weights Google's names.
    with keras.name_scope("encoder"):
        for block in blocks:
            x, probabilities = block(x, bias)
            hidden_states.append(x)
            attentions.append(probabilities)
    return hidden_states, attentions, bias


@contextlib.contextmanager
def recorded_states(encoder: BertEncoder) -> Iterator[list[Any]]:
    """Collect the inputs of the blocks that a call of an encoder computes in a `with`.

    After a call the list contains L [B, T, H], from the embeddings to the output of the
    block below the last one.
    """
    found: list[Any] = []
    for block in encoder.blocks:
        block.watch = found.append
    try:
        yield found
    finally:
        for block in encoder.blocks:
            block.watch = None


def seed_behind(config: BertConfig, seed: int) -> int:
    """Return the first seed that no block and no embedding of an encoder uses.

    An encoder's pooler uses it; heads use the next ones.
    """
    return seed + 8 * (config.num_hidden_layers + 1)


# Encoders and their poolers as two layers, see `BertEncoder._apart`. Not attributes of
# the encoders, which would count and save these weights twice.
_APART: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_OF_BOTH = "dtype_policy", "config", "embeddings", "attention_bias", "blocks", "source"


@keras.saving.register_keras_serializable(package="bert_keras")
class BertEncoder(FromConfig, keras.Model):
    """The BERT encoder as a functional model.

    Inputs are a dict of int32 [B, T]: `token_ids`, `segment_ids`, `padding_mask`
    (1 = real), as in KerasHub's `BertBackbone`. A call also accepts rows that hold
    several texts, with `position_ids` and `sequence_ids` [B, T] (which text of the row
    a token belongs to, from 1; attention never crosses texts) and `cls_positions` [S],
    where each of the S texts starts, counted through the rows laid end to end.

    Outputs are a dict: `sequence_output` [B, T, H]; `pooled_output`, the pooler's
    vector of each text, [B, H] or [S, H]; if requested, `hidden_states`, a list of L +
    1 [B, T, H] from the embeddings to the last block, and `attentions`, a list of L
    [B, N, T, T].

    Build your own model on `encoder.input` and `encoder.output`, or on the outputs of
    `encoder(inputs)`. A functional model that does not read `pooled_output` has no
    pooler; in other models, set `pooler=False`.

    Args:
        config: sizes and rates; `config.is_decoder` makes attention causal.
        pooler: whether the model has the pooler.
        outputs: extra outputs: `hidden_states`, `attentions`.
        rematerialize: recompute each block in the backward pass to save memory.
        attention: `written`, or `fused` by the backend's own operation (JAX: cuDNN's
            on a GPU; torch), see `Block`.
        tables: embeddings of another encoder, whose tables and LayerNorm this one
            uses; a copy from its config alone has its own.
        seed: seed of initializers and dropout.
        dtype: dtype policy: `float32`, `mixed_bfloat16` or `mixed_float16`. A model of
            your own on a `mixed_float16` encoder needs a `LossScaleOptimizer`, which
            Keras adds only where `mixed_float16` is the global policy.

    Attributes:
        source: origin of the weights, usually a folder; `None` if they are random.

    Raises:
        ConfigError: `config` is no `BertConfig`, `outputs` or `attention` has another
            value, or fused attention is to return its probabilities.

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
        tables: layers.Embeddings | None = None,
        seed: int | None = None,
        dtype: Any = None,
        name: str = "bert",
    ) -> None:
        check_type("config", config, BertConfig)
        if attention == "fused" and "attentions" in outputs:
            raise ConfigError(
                "`attention` must be 'written' for the output `attentions`; "
                "received 'fused'"
            )
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        inputs = named_inputs(REQUIRED_INPUTS)
        # Layers are built inside these scopes, which gives weights Google's names.
        with keras.name_scope("bert"):
            embeddings = layers.Embeddings.of(
                config, seed=seed, dtype=dtype, name="embeddings"
            )
            if tables is not None:
                embeddings.share(tables)
            attention_bias = layers.AttentionBias(
                causal=config.is_decoder, dtype=dtype, name="attention_bias"
            )
            blocks = [
                Block.of(
                    config,
                    rematerialize=rematerialize,
                    attention=attention,
                    # Eight apart: a block derives several seeds from its own.
                    seed=moved(seed, 8 * (index + 1)),
                    dtype=dtype,
                    name=f"layer_{index}",
                )
                for index in range(config.num_hidden_layers)
            ]
            hidden_states, attentions, _ = encode(
                embeddings, attention_bias, blocks, inputs
            )
            results = {"sequence_output": hidden_states[-1]}
            if pooler:
                first = layers.FirstTokens(name="first_tokens", dtype=dtype)(
                    hidden_states[-1]
                )
                pool = layers.Pooler.of(
                    config,
                    pooler_act=config.pooler_act,
                    # After the blocks' seeds: equal seeds draw equal numbers.
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
        self.dtype_policy = dtype  # as of KerasHub's backbones
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

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(inputs, dict):
            return super().__call__(inputs, *args, **kwargs)
        check_required(inputs)
        batch = {name: inputs[name] for name in INPUTS if inputs.get(name) is not None}
        if self.pooler is None or not keras.utils.is_keras_tensor(batch["token_ids"]):
            return super().__call__(batch, *args, **kwargs)
        # In a functional model the pooler is a layer beside the encoder, so that only
        # models that read it train it.
        encoder, pooler = self._apart()
        results = encoder(batch, *args, **kwargs)
        pooled = pooler(results["sequence_output"], batch.get("cls_positions"))
        return {**results, "pooled_output": pooled}

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if not isinstance(inputs, dict) or set(inputs) <= set(REQUIRED_INPUTS):
            return super().call(inputs, training=training, mask=mask)
        inputs = {name: ops.convert_to_tensor(x, "int32") for name, x in inputs.items()}
        hidden_states, attentions, _ = self._encode(inputs, self.blocks)
        results = {"sequence_output": hidden_states[-1]}
        if self.pooler is not None:
            starts = inputs.get("cls_positions")
            first = layers.first_tokens(hidden_states[-1], starts)
            results["pooled_output"] = self.pooler(first)
        extra = {"hidden_states": hidden_states, "attentions": attentions}
        return results | {name: extra[name] for name in self._settings["outputs"]}

    def compute_output_spec(
        self, inputs: Any, training: bool | None = None, mask: Any = None
    ) -> Any:
        if not isinstance(inputs, dict):
            return super().compute_output_spec(inputs)
        # Only the number of pooled texts depends on how rows are packed.
        padded = {name: inputs[name] for name in REQUIRED_INPUTS}
        results = super().compute_output_spec(padded)
        if self.pooler is not None and "cls_positions" in inputs:
            (texts,), pooled = inputs["cls_positions"].shape, results["pooled_output"]
            results["pooled_output"] = keras.KerasTensor(
                (texts, *pooled.shape[1:]), dtype=pooled.dtype
            )
        return results

    def _apart(self) -> tuple[BertEncoder, layers.PooledTexts]:
        """Return an encoder of the same layers but the pooler, and the pooler."""
        found = _APART.get(self)
        if found is None:
            results = dict(self.output)
            del results["pooled_output"]
            kind: Any = BertEncoder
            encoder = kind.__new__(kind, self.config)
            super(BertEncoder, encoder).__init__(self.input, results, name=self.name)
            for name in _OF_BOTH:
                setattr(encoder, name, getattr(self, name))
            encoder.pooler = None
            encoder._settings = {**self._settings, "pooler": False}
            own: Any = self.pooler
            pooler = layers.PooledTexts(
                own, dtype=own.dtype_policy, name=f"{self.name}_pooler"
            )
            found = _APART[self] = encoder, pooler
        return found

    def pool(self, inputs: dict[str, Any]) -> Any:
        """Return only the `pooled_output` of a batch dict, [B, H] or [S, H].

        Equal to the output of that name, but the last block computes only the tokens
        that the pooler reads. The encoder must have a pooler.
        """
        if self.pooler is None:
            raise ConfigError("`pooler` must be True for a pooled output")
        check_required(inputs)
        x, bias = self._below_last(inputs)
        return self.pooler(self._first_tokens(x, bias, inputs))

    def read_at(self, inputs: dict[str, Any], columns: Any) -> dict[str, Any]:
        """Return the outputs of a batch dict only at some tokens.

        `sequence_output` [R, P, H] at `columns` int32 [R, P] of its R rows (below 0
        read as 0) and, of an encoder with the pooler, `pooled_output`: equal to the
        outputs of these names there, with less work in the last block.
        """
        check_required(inputs)
        x, bias = self._below_last(inputs)
        chosen, _ = self.blocks[-1](x, bias, columns=columns)
        if self.pooler is None:
            return {"sequence_output": chosen}
        pooled = self.pooler(self._first_tokens(x, bias, inputs))
        return {"sequence_output": chosen, "pooled_output": pooled}

    def _below_last(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """Return what the last block reads of a batch dict."""
        hidden_states, _, bias = self._encode(inputs, self.blocks[:-1])
        return hidden_states[-1], bias

    def _encode(
        self, inputs: dict[str, Any], blocks: Iterable[Any]
    ) -> tuple[list[Any], list[Any], Any]:
        return encode(self.embeddings, self.attention_bias, blocks, inputs)

    def _first_tokens(self, x: Any, bias: Any, inputs: dict[str, Any]) -> Any:
        """Return the last block's output at each text's first token, [B or S, H]."""
        starts = inputs.get("cls_positions")
        first, _ = self.blocks[-1](x, bias, starts, first_only=True)
        return first

    def token_table(self, inputs: dict[str, Any]) -> Any:
        """Return the table of token embeddings [V, E], for a tied head.

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
        check_whole_number("rank", rank, least=1)
        if has_lora(self):
            raise ConfigError("`enable_lora` must be called once for an encoder")
        add_lora(self, rank, seed=seed, name="rank")

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
        from bert_keras.runs.notes import say

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
        # Heads, also of users' own tasks, are not part of the encoder.
        scopes = {f"{name.split('/')[0]}/" for name in checkpoint.shapes}
        optional = tuple(scopes - {"bert/"})
        if not pooled or not settings.get("pooler", True):
            optional += ("bert/pooler/",)
        assign(encoder, checkpoint, optional=optional)
        return encoder
