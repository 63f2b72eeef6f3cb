"""The shape of a BERT model: `BertConfig` and the presets of the released models.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3; the smaller presets follow
Turc et al. 2019 (arXiv:1908.08962). Nothing here imports TensorFlow or Keras.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from bert_keras.errors import ConfigError, one_line, shown
from bert_keras.settings import check_boolean, check_choice

KEY = "bert_keras"  # our entry in a `config.json`
# `gelu` is the erf form and `gelu_new` the tanh form, as in Hugging Face. In Google's
# own files "gelu" means the tanh form; their reader translates it.
ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu", "tanh")
ACTIVATION_ALIASES = {
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_python": "gelu",
    "swish": "silu",
}

# Encoders of BERT's blocks by their `model_type`, with the activations of the layer on
# `[CLS]` below the classifier (BERT's pooler) and of the masked-LM head's layer, where
# that is not `hidden_act`.
MODEL_TYPES = ("bert", "distilbert", "electra")
_POOLER_ACTS = {"distilbert": "relu", "electra": "gelu"}
_MASKED_LM_ACTS = {"electra": "gelu"}
# What the code of a type computes in one way only.
FIXED: dict[str, dict[str, Any]] = {
    "bert": {},
    "distilbert": {"type_vocab_size": 0, "layer_norm_eps": 1e-12, "is_decoder": False},
    "electra": {"is_decoder": False},
}

# name: layers, hidden size, heads. The feed-forward size is always 4 x hidden.
PRESETS = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
VOCABULARY_SIZES = {
    "uncased": 30_522,
    "cased": 28_996,
    "multilingual": 119_547,
    "chinese": 21_128,
}
# An input of models that read long texts in windows: 1 where a text starts, else 0.
WINDOW_STARTS = "window_starts"
DENSE_SCOPE = "dense_"  # of the names of dense layers on vectors: `dense_0/kernel`
_LARGEST = 1 << 24  # above any real vocabulary or width, to reject forged configs
_MOST_PARAMETERS = 100_000_000_000


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes and rates of one BERT model; the fields are the keys of `bert_config.json`.

    Args:
        vocab_size: number of WordPiece tokens.
        hidden_size: width H of the hidden states.
        num_hidden_layers: number of Transformer blocks L.
        num_attention_heads: number of heads A; divides `hidden_size`.
        intermediate_size: width I of the feed-forward layer.
        hidden_act: `gelu` (erf), `gelu_new` (tanh), `relu`, `silu` or `tanh`.
        hidden_dropout_prob: dropout rate of hidden states.
        attention_probs_dropout_prob: dropout rate of attention probabilities.
        max_position_embeddings: longest sequence in tokens.
        type_vocab_size: number of segments; 0: the model has none.
        initializer_range: standard deviation of the truncated normal initializer.
        layer_norm_eps: epsilon of layer normalization.
        is_decoder: `True` makes attention causal (each token sees itself and the
            tokens before it), as the same key does in Hugging Face's `BertModel`.
        embedding_size: width E of the embeddings, if a layer projects them to H.
        model_type: `bert`, `distilbert` or `electra`: whose names and heads a model
            folder has.

    Raises:
        ConfigError: a value is out of range.

    Example:
        >>> BertConfig.from_preset("base").parameter_count()
        109482240
    """

    vocab_size: int = 30_522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3_072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    is_decoder: bool = False
    embedding_size: int | None = None
    model_type: str = "bert"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_type(field.name, field.type, getattr(self, field.name))
        act = ACTIVATION_ALIASES.get(self.hidden_act, self.hidden_act)
        object.__setattr__(self, "hidden_act", act)
        check_choice("hidden_act", act, ACTIVATIONS)
        check_choice("model_type", self.model_type, MODEL_TYPES)
        for name, value in FIXED[self.model_type].items():
            if getattr(self, name) != value:
                raise ConfigError(
                    f"`{name}` of a {self.model_type} must be {value}; received "
                    f"{shown(getattr(self, name))}"
                )
        if self.embedding_size == self.hidden_size:
            object.__setattr__(self, "embedding_size", None)
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                "`num_attention_heads` must divide `hidden_size`; received "
                f"{self.num_attention_heads} and {self.hidden_size}"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"`{name}` must be in [0, 1); received {shown(getattr(self, name))}"
                )
        for name in ("layer_norm_eps", "initializer_range"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(
                    f"`{name}` must be in (0, 1); received {shown(getattr(self, name))}"
                )
        if self.parameter_count() > _MOST_PARAMETERS:
            raise ConfigError(
                f"a model of {self.parameter_count():,} parameters is refused: at most "
                f"{_MOST_PARAMETERS:,} are allowed"
            )

    @property
    def head_width(self) -> int:
        """Width D of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Width E of the embeddings; H unless a layer projects them."""
        return self.embedding_size or self.hidden_size

    @property
    def pooler_act(self) -> str:
        """Activation of the layer on `[CLS]` below the classifier."""
        return _POOLER_ACTS.get(self.model_type, "tanh")

    @property
    def masked_lm_act(self) -> str:
        """Activation of the layer of the masked-LM head."""
        return _MASKED_LM_ACTS.get(self.model_type, self.hidden_act)

    @classmethod
    def from_preset(
        cls, name: str, *, vocabulary: str = "uncased", **changes: Any
    ) -> BertConfig:
        """Return the config of a released size, or of another size with their settings.

        Args:
            name: `tiny`, `mini`, `small`, `medium`, `base` or `large`; or layers,
                hidden size and heads, such as `4/256/4`.
            vocabulary: `uncased`, `cased`, `multilingual` or `chinese`.
            **changes: fields that differ from the preset.

        Raises:
            ConfigError: the name, the vocabulary or a field is unknown.
        """
        sizes = name.split("/")
        if name in PRESETS:
            layers, hidden, heads = PRESETS[name]
        elif len(sizes) == 3 and all(n.isascii() and n.isdigit() for n in sizes):
            layers, hidden, heads = map(int, sizes)
        else:
            raise ConfigError(
                f"a size must be one of {', '.join(PRESETS)}, or layers/hidden/heads "
                f"such as 4/256/4; received {name!r}"
            )
        check_choice("vocabulary", vocabulary, VOCABULARY_SIZES)
        values: dict[str, Any] = {
            "vocab_size": VOCABULARY_SIZES[vocabulary],
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": 4 * hidden,
            # The releases are Google's, whose "gelu" is the tanh form.
            "hidden_act": "gelu_new",
        }
        return cls.from_dict(values | changes, ignore=())

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], *, ignore: tuple[str, ...] | None = None
    ) -> BertConfig:
        """Return a config from a mapping such as a parsed `config.json`.

        Args:
            values: field names to values.
            ignore: keys that are skipped; any other unknown key is an error.
                `None` skips every key that is not a field.

        Raises:
            ConfigError: a key is unknown, or a value is out of range.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        if values.get("model_type") not in MODEL_TYPES[1:]:
            # A BERT's own file names its type, and may have the other key, unused.
            names -= {"model_type"} if ignore is not None else set(_OF_OTHERS)
        if ignore is not None:
            unknown = sorted(set(values) - names - set(ignore))
            if unknown:
                raise ConfigError(
                    f"unknown key{'s' * (len(unknown) > 1)} {', '.join(unknown)}; "
                    f"a BertConfig has {', '.join(sorted(names))}"
                )
        return cls(**{key: values[key] for key in values if key in names})

    @classmethod
    def from_json(
        cls, path: str | os.PathLike[str], *, ignore: tuple[str, ...] | None = None
    ) -> BertConfig:
        """Return the config in a JSON file; `ignore` as in `from_dict`."""
        # This module imports subpackages only when it needs them.
        from bert_keras.files.json_file import read_json

        values = read_json(path, error=ConfigError)
        try:
            return cls.from_dict(values, ignore=ignore)
        except ConfigError as error:
            raise ConfigError(f"{os.fspath(path)}: {one_line(error)}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a plain dict, without what only other models have."""
        found = dataclasses.asdict(self)
        for key in _OF_OTHERS:
            if found[key] == getattr(BertConfig, key):
                del found[key]
        return found

    def replace(self, **changes: Any) -> BertConfig:
        """Return a copy with some fields changed."""
        return BertConfig.from_dict(self.to_dict() | changes, ignore=())

    def parameter_count(self, *, pooler: bool = True) -> int:
        """Return the number of weights of the encoder, with or without the pooler."""
        hidden, inner = self.hidden_size, self.intermediate_size
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        dense = hidden * hidden + hidden
        norm = 2 * hidden
        block = 4 * dense + 2 * hidden * inner + inner + hidden + 2 * norm
        width = self.embedding_width
        embeddings = rows * width + 2 * width
        if width != hidden:
            embeddings += width * hidden + hidden
        return embeddings + self.num_hidden_layers * block + pooler * dense


_OF_OTHERS = ("embedding_size", "model_type")  # fields that BERT's config.json lacks


def _check_type(name: str, kind: Any, value: Any) -> None:
    """Raise ConfigError unless `value` has the field's type; sizes must be positive."""
    if kind == "int | None" and value is None:
        return
    if kind in ("int", "int | None"):
        least = 0 if name == "type_vocab_size" else 1
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"`{name}` must be an integer; received {shown(value)}")
        if not least <= value <= _LARGEST:
            raise ConfigError(
                f"`{name}` must be from {least} to {_LARGEST:,}; received "
                f"{shown(value)}"
            )
    elif kind == "float":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"`{name}` must be a number; received {shown(value)}")
    elif kind == "bool":
        check_boolean(name, value)
    elif not isinstance(value, str):
        raise ConfigError(f"`{name}` must be a string; received {shown(value)}")
