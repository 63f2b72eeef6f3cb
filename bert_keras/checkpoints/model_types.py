"""Config keys and class names of Hugging Face's DistilBERT and ELECTRA, both ways.

In memory, the config of every encoder has BERT's keys and classes (`BertFor…`), and
`model_type` says whose names its folder has; `names` holds those of the weights.

Source: Hugging Face transformers, `configuration_distilbert.py`,
`modeling_distilbert.py`, `configuration_electra.py` and `modeling_electra.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_keras.config import FIXED, BertConfig
from bert_keras.errors import CheckpointError, ConfigError

BERT = "bert"
# Classes that every type has, as they are named for BERT.
_CLASSES = (
    "BertModel",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
)


@dataclasses.dataclass(frozen=True)
class ModelType:
    """How the `config.json` of one model type differs from BERT's.

    Args:
        name: the `model_type`.
        classes: how its class names begin, where BERT's begin with `Bert`.
        title: how texts spell it.
        keys: our key to theirs, where they differ.
        defaults: the values of `transformers` for keys that a file leaves out, where
            they differ from BERT's.
    """

    name: str = BERT
    classes: str = "Bert"
    title: str = "BERT"
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def architecture(self, ours: str) -> str:
        """Return the name of the class that BERT names `ours`."""
        return f"{self.classes}{ours[4:]}" if ours in _CLASSES else ours

    def our_architecture(self, name: Any) -> Any:
        """Return BERT's name of a class, or the name itself."""
        ours = {self.architecture(each): each for each in _CLASSES}
        return ours.get(name, name) if isinstance(name, str) else name


_TYPES = {
    each.name: each
    for each in (
        ModelType(),
        ModelType(
            "distilbert",
            "DistilBert",
            "DistilBERT",
            keys={
                "hidden_size": "dim",
                "num_hidden_layers": "n_layers",
                "num_attention_heads": "n_heads",
                "intermediate_size": "hidden_dim",
                "hidden_dropout_prob": "dropout",
                "attention_probs_dropout_prob": "attention_dropout",
                "hidden_act": "activation",
            },
            defaults={"num_hidden_layers": 6},
        ),
        ModelType(
            "electra",
            "Electra",
            "ELECTRA",
            defaults={
                "embedding_size": 128,
                "hidden_size": 256,
                "num_attention_heads": 4,
                "intermediate_size": 1_024,
            },
        ),
    )
}


def type_of(config: Mapping[str, Any]) -> ModelType:
    """Return the model type of a `config.json`; BERT's for one that is not known."""
    named = config.get("model_type")
    return _TYPES.get(named, _TYPES[BERT]) if isinstance(named, str) else _TYPES[BERT]


def title_of(config: BertConfig) -> str:
    """Return how texts spell the model type of an encoder."""
    return _TYPES[config.model_type].title


def their_architecture(config: BertConfig, name: str) -> str:
    """Return transformers' name of a class that BERT names `name`."""
    return _TYPES[config.model_type].architecture(name)


def to_ours(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Hugging Face `config.json` with BERT's keys and class names."""
    kind = type_of(raw)
    if kind.name == BERT:
        return dict(raw)
    renamed = {theirs: ours for ours, theirs in kind.keys.items()}
    found = {renamed.get(key, key): value for key, value in raw.items()}
    named = found.get("architectures")
    if isinstance(named, list):
        found["architectures"] = [kind.our_architecture(name) for name in named]
    return {**kind.defaults, **found, **FIXED[kind.name]}


def to_theirs(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `config.json` with the keys and class names of its model type.

    Raises:
        CheckpointError: a BERT has no such embeddings as the config says.
    """
    kind = type_of(config)
    if kind.name == BERT and (
        config.get("type_vocab_size") == 0 or config.get("embedding_size")
    ):
        raise CheckpointError(
            "a folder of the model type bert has segments (`type_vocab_size`), and "
            "embeddings as wide as its hidden states (`embedding_size`): give "
            "`model_type` distilbert or electra"
        )
    if kind.name == BERT:
        return dict(config)
    found = {
        kind.keys.get(key, key): value
        for key, value in config.items()
        if key not in FIXED[kind.name]
    }
    if kind.name == "electra":  # its default is another
        found.setdefault("embedding_size", found["hidden_size"])
    named = config.get("architectures")
    if isinstance(named, list):
        found["architectures"] = [kind.architecture(name) for name in named]
    return found


def check_architecture(config: BertConfig, architecture: str, *, task: str) -> None:
    """Raise ConfigError if an encoder's model type has no such class for a task."""
    kind = _TYPES[config.model_type]
    if kind.name != BERT and architecture not in _CLASSES:
        raise ConfigError(
            f"the task {task} needs an encoder of the model type bert (in transformers "
            f"only it has a class like {architecture}); received {kind.name}"
        )
